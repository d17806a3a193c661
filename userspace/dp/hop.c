/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Neighbours that packets to backends leave to. One for all backends behind it: what the kernel knows of its MAC is written
 * into the rows of all of them.
 *
 * Packets that XDP sends never make the kernel wonder whether a neighbour is still there, and its own way to
 * find out takes 3 to 6 seconds: three questions to the old MAC, a second apart, before it asks everybody. So we ask,
 * by ARP or neighbour discovery, several times a second: the MAC we know first, and everybody as soon as one
 * question stays without an answer. The answers go to the kernel, which keeps its own table by them as by any other
 * and tells us what changed. Of IPv4 it believes another MAC only when the entry has not changed for a second (LOCKTIME).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/icmpv6.h>
#include <linux/if_arp.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/ipv6.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <unistd.h>

#include "dp/dp_priv.h"

#define NEIGH_USABLE (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP)
#define NEIGH_FIXED  (NUD_PERMANENT | NUD_NOARP)
#define ASK_AGAIN_NS 1000000000ull
/* A round asks every neighbour once: never more than a thousand questions a second. */
#define ROUND_NS	300000000ull
#define QUESTION_NS	1000000ull
#define HOPS_AT_ONCE	16
#define ANSWER_SLACK_NS (ROUND_NS / 2) /* the kernel tells ages in hundredths of a second */
/* After so many the kernel shall judge: it gives up in three seconds, and packets are dropped by name. */
#define UNANSWERED_MAX 4

struct neigh {
	unsigned ifindex;
	struct addr addr;
	uint8_t mac[6];
	uint16_t state;
	bool has_mac;
	uint64_t age_ns; /* since the neighbour was last heard of */
};

/* --- what the kernel knows ---------------------------------------------------------------------------- */

static bool read_neigh(const struct nlmsghdr *nlh, struct neigh *n)
{
	const struct ndmsg *nd = mnl_nlmsg_get_payload(nlh);
	struct nlattr *at;

	if (nlh->nlmsg_type != RTM_NEWNEIGH && nlh->nlmsg_type != RTM_DELNEIGH)
		return false;
	*n = (struct neigh){ .ifindex = (unsigned)nd->ndm_ifindex, .state = nd->ndm_state };
	mnl_attr_for_each(at, nlh, sizeof(*nd))
	{
		if (mnl_attr_get_type(at) == NDA_DST)
			dp_addr_from_attr(&n->addr, nd->ndm_family, at);
		if (mnl_attr_get_type(at) == NDA_LLADDR && mnl_attr_get_payload_len(at) == 6) {
			memcpy(n->mac, mnl_attr_get_payload(at), 6);
			n->has_mac = true;
		}
		if (mnl_attr_get_type(at) == NDA_CACHEINFO &&
		    mnl_attr_get_payload_len(at) >= sizeof(struct nda_cacheinfo)) {
			const struct nda_cacheinfo *ci = mnl_attr_get_payload(at);

			n->age_ns = ci->ndm_confirmed * 1000000000ull /
				    (uint64_t)sysconf(_SC_CLK_TCK);
		}
	}
	if (nlh->nlmsg_type == RTM_DELNEIGH)
		n->state = NUD_FAILED;
	return n->addr.sa.sa_family != 0;
}

static int on_neigh(const struct nlmsghdr *nlh, void *arg)
{
	return read_neigh(nlh, arg) ? MNL_CB_STOP : MNL_CB_OK;
}

static struct ndmsg *put_neigh(struct nlmsghdr *nlh, const struct dp_hop *h)
{
	struct ndmsg *nd = mnl_nlmsg_put_extra_header(nlh, sizeof(*nd));
	const void *p;
	size_t len = dp_addr_bytes(&h->via, &p);

	nd->ndm_family = (unsigned char)h->via.sa.sa_family;
	nd->ndm_ifindex = (int)h->ifindex;
	mnl_attr_put(nlh, NDA_DST, len, p);
	return nd;
}

/* A neighbour the kernel has never heard of has state NUD_NONE. */
static void ask_kernel(struct dp *dp, const struct dp_hop *h, struct neigh *ret)
{
	char buf[MNL_NLMSG_HDRLEN + 256];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);

	nlh->nlmsg_type = RTM_GETNEIGH;
	nlh->nlmsg_flags = NLM_F_REQUEST;
	(void)put_neigh(nlh, h);
	*ret = (struct neigh){ 0 };
	if (dp_nl_ask(dp, dp->nl_ask, nlh, on_neigh, ret) != 0)
		*ret = (struct neigh){ .state = NUD_NONE };
}

static void set_kernel(struct dp *dp, struct dp_hop *h, uint8_t flags, uint16_t state,
		       uint16_t nl_flags)
{
	char buf[MNL_NLMSG_HDRLEN + 256];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct ndmsg *nd;

	nlh->nlmsg_type = RTM_NEWNEIGH;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | nl_flags;
	nd = put_neigh(nlh, h);
	nd->ndm_flags = flags;
	nd->ndm_state = state;
	/* Fails when the interface is down: tried again later. */
	(void)dp_nl_ask(dp, dp->nl_ask, nlh, NULL, NULL);
}

/* As if a packet were waiting: the kernel resolves. */
static void poke(struct dp *dp, struct dp_hop *h)
{
	h->poked_ns = dp_now_ns();
	set_kernel(dp, h, NTF_USE, NUD_NONE, NLM_F_CREATE);
}

/* --- rows ---------------------------------------------------------------------------------------------- */

static void write_row(struct dp *dp, const struct dp_hop *h, uint32_t id)
{
	union hg_neigh row = { .word = 0 };

	if (h->is_resolved) {
		memcpy(row.mac, h->mac, 6);
		row.state = HG_NEIGH_OK | dp->backends[id].tags;
	}
	__atomic_store_n(&dp->t.backends[id].neigh.word, row.word, __ATOMIC_RELEASE);
}

/* What is known of the neighbour from now on, in all rows. */
static void hop_learn(struct dp *dp, struct dp_hop *h, const struct neigh *n)
{
	bool is_resolved = n->has_mac && n->state & NEIGH_USABLE;
	struct list *l;

	if (is_resolved == h->is_resolved && (!is_resolved || memcmp(h->mac, n->mac, 6) == 0))
		return;
	h->is_resolved = is_resolved;
	memcpy(h->mac, n->mac, 6);
	h->probed_ns = 0;
	h->n_unanswered = 0;
	list_for_each(l, &h->backends) {
		const struct dp_backend *b = list_entry(l, struct dp_backend, of_hop);

		write_row(dp, h, (uint32_t)(b - dp->backends));
	}
}

static void hop_ask(struct dp *dp, struct dp_hop *h)
{
	struct neigh n;

	dp_route_source(dp, &h->via, h->ifindex, &h->src);
	ask_kernel(dp, h, &n);
	hop_learn(dp, h, &n);
	h->is_asked = true;
	if (!h->is_resolved)
		poke(dp, h);
}

/* --- who is behind which ------------------------------------------------------------------------------- */

static uint64_t hop_hash(const struct addr *via, unsigned ifindex)
{
	return dp_addr_hash(via) + ifindex * 0xc4ceb9fe1a85ec53ull;
}

static struct dp_hop *hop_find(const struct dp *dp, const struct addr *via, unsigned ifindex)
{
	const struct dp_index *x = &dp->hops_by_addr;

	for (uint32_t at = dp_index_first(x, hop_hash(via, ifindex)); at; at = x->next[at]) {
		struct dp_hop *h = &dp->hops[at - 1];

		if (h->ifindex == ifindex && addr_is_ip_eq(&h->via, via))
			return h;
	}
	return NULL;
}

/* There are as many as backends, and each backend has one at most: one is free. */
static struct dp_hop *hop_make(struct dp *dp, const struct addr *via, unsigned ifindex)
{
	struct dp_hop *h;
	uint32_t id;

	while (dp->hops[dp->hop_hint].is_used)
		dp->hop_hint++;
	id = dp->hop_hint;
	h = &dp->hops[id];
	*h = (struct dp_hop){ .is_used = true, .via = *via, .ifindex = ifindex };
	list_init(&h->backends);
	list_push_back(&dp->hops_in_use, &h->link);
	dp_index_add(&dp->hops_by_addr, hop_hash(via, ifindex), id);
	dp->n_hops++;
	return h;
}

void dp_hop_leave(struct dp *dp, uint32_t id)
{
	struct dp_backend *b = &dp->backends[id];
	struct dp_hop *h = b->hop;

	if (!h)
		return;
	b->hop = NULL;
	list_del(&b->of_hop);
	if (!list_is_empty(&h->backends))
		return;
	dp_index_del(&dp->hops_by_addr, hop_hash(&h->via, h->ifindex), (uint32_t)(h - dp->hops));
	list_del(&h->link);
	h->is_used = false;
	if (h < &dp->hops[dp->hop_hint])
		dp->hop_hint = (uint32_t)(h - dp->hops);
	dp->n_hops--;
}

void dp_hop_join(struct dp *dp, uint32_t id, const struct addr *via, unsigned ifindex,
		 const uint8_t src_mac[6])
{
	struct dp_backend *b = &dp->backends[id];
	struct dp_hop *h = hop_find(dp, via, ifindex);

	if (!h || h != b->hop) {
		dp_hop_leave(dp, id);
		if (!h)
			h = hop_make(dp, via, ifindex);
		b->hop = h;
		list_push_back(&h->backends, &b->of_hop);
	}
	memcpy(h->src_mac, src_mac, 6);
	if (!h->is_asked)
		hop_ask(dp, h);
	write_row(dp, h, id);
}

void dp_hops_ask_again(struct dp *dp)
{
	struct list *l;

	list_for_each(l, &dp->hops_in_use)
		list_entry(l, struct dp_hop, link)->is_asked = false;
}

void dp_hop_event(struct dp *dp, const struct nlmsghdr *nlh)
{
	struct dp_hop *h;
	struct neigh n;

	if (!read_neigh(nlh, &n))
		return;
	h = hop_find(dp, &n.addr, n.ifindex);
	if (!h)
		return;
	hop_learn(dp, h, &n);
	/* Given up or deleted: traffic wants it all the same. What fails is asked again by the tick. */
	if (!h->is_resolved && !(n.state & NUD_INCOMPLETE) &&
	    dp_now_ns() - h->poked_ns >= ASK_AGAIN_NS)
		poke(dp, h);
}

void dp_hops_tick(struct dp *dp)
{
	uint64_t now = dp_now_ns();
	struct list *l;

	list_for_each(l, &dp->hops_in_use) {
		struct dp_hop *h = list_entry(l, struct dp_hop, link);

		if (!h->is_resolved && now - h->poked_ns >= ASK_AGAIN_NS)
			hop_ask(dp, h);
	}
}

/* --- asking the neighbour ------------------------------------------------------------------------------ */

struct arp_question {
	struct arphdr head;
	uint8_t sha[6], spa[4], tha[6], tpa[4];
} __attribute__((packed));

struct nd_question {
	struct ipv6hdr ip;
	struct icmp6hdr icmp;
	struct in6_addr target;
	uint8_t option[2], mac[6]; /* source link-layer address */
} __attribute__((packed));

static void make_arp(const struct dp_hop *h, struct arp_question *q)
{
	*q = (struct arp_question){ .head = { .ar_hrd = htons(ARPHRD_ETHER),
					      .ar_pro = htons(ETH_P_IP),
					      .ar_hln = 6,
					      .ar_pln = 4,
					      .ar_op = htons(ARPOP_REQUEST) } };
	memcpy(q->sha, h->src_mac, 6);
	memcpy(q->spa, &h->src.in.sin_addr, 4);
	memcpy(q->tpa, &h->via.in.sin_addr, 4);
}

static uint32_t sum16(const void *data, size_t len)
{
	const uint8_t *p = data;
	uint32_t sum = 0;

	for (size_t i = 0; i + 1 < len; i += 2)
		sum += (uint32_t)p[i] << 8 | p[i + 1];
	return sum;
}

/* RFC 4861, 7.2.2: to everybody means to the solicited-node multicast group, ff02::1:ffXX:XXXX, at 33:33:ff:XX:XX:XX. */
static void make_nd(const struct dp_hop *h, bool is_to_all, struct nd_question *q, uint8_t mac[6])
{
	const uint8_t *target = h->via.in6.sin6_addr.s6_addr;
	uint32_t sum;

	*q = (struct nd_question){
		.ip = { .version = 6,
			.payload_len = htons(sizeof(*q) - sizeof(q->ip)),
			.nexthdr = IPPROTO_ICMPV6,
			.hop_limit = 255 },
		.icmp = { .icmp6_type = 135 },
		.target = h->via.in6.sin6_addr,
		.option = { 1, 1 },
	};
	memcpy(&q->ip.saddr, &h->src.in6.sin6_addr, 16);
	memcpy(&q->ip.daddr, target, 16);
	memcpy(q->mac, h->src_mac, 6);
	if (is_to_all) {
		static const uint8_t group[13] = { 0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff };

		memcpy(&q->ip.daddr, group, sizeof(group));
		memcpy(mac, (uint8_t[]){ 0x33, 0x33, 0xff, target[13], target[14], target[15] }, 6);
	}
	sum = sum16(&q->ip.saddr, 32) + IPPROTO_ICMPV6 +
	      sum16(&q->icmp, sizeof(*q) - sizeof(q->ip)) + (sizeof(*q) - sizeof(q->ip));
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	q->icmp.icmp6_cksum = htons((uint16_t)~sum);
}

/* To the MAC we know, or to everybody on the link. What cannot be sent is a question without an answer. */
static void question(const struct dp *dp, const struct dp_hop *h, bool is_to_all)
{
	bool is_v6 = h->via.sa.sa_family == AF_INET6;
	struct sockaddr_ll to = { .sll_family = AF_PACKET,
				  .sll_protocol = htons(is_v6 ? ETH_P_IPV6 : ETH_P_ARP),
				  .sll_ifindex = (int)h->ifindex,
				  .sll_halen = 6 };
	union {
		struct arp_question arp;
		struct nd_question nd;
	} q;

	if (is_to_all)
		memset(to.sll_addr, 0xff, 6);
	else
		memcpy(to.sll_addr, h->mac, 6);
	if (is_v6)
		make_nd(h, is_to_all, &q.nd, to.sll_addr);
	else
		make_arp(h, &q.arp);
	(void)sendto(dp->ask_fd, &q, is_v6 ? sizeof(q.nd) : sizeof(q.arp), MSG_DONTWAIT,
		     (struct sockaddr *)&to, sizeof(to));
}

static void hop_probe(struct dp *dp, struct dp_hop *h, uint64_t now)
{
	struct neigh n;

	ask_kernel(dp, h, &n);
	hop_learn(dp, h, &n);
	/* An answer without a question finds no entry: then the tick lets the kernel ask first. */
	if (n.state & NEIGH_FIXED || n.state == NUD_NONE ||
	    h->src.sa.sa_family != h->via.sa.sa_family)
		return;
	if (h->probed_ns && n.age_ns > now - h->probed_ns + ANSWER_SLACK_NS)
		h->n_unanswered++;
	else
		h->n_unanswered = 0;
	h->probed_ns = now;
	question(dp, h, !h->is_resolved || h->n_unanswered);
	if (h->n_unanswered >= UNANSWERED_MAX && n.state & (NUD_REACHABLE | NUD_STALE | NUD_DELAY))
		set_kernel(dp, h, 0, NUD_PROBE, NLM_F_REPLACE);
}

uint64_t dp_probe(struct dp *dp)
{
	uint64_t now = dp_now_ns(), round = dp->n_hops * QUESTION_NS;
	uint32_t n = dp->n_hops < HOPS_AT_ONCE ? dp->n_hops : HOPS_AT_ONCE;

	if (round < ROUND_NS)
		round = ROUND_NS;
	if (dp->ask_fd < 0 || n == 0)
		return ROUND_NS;
	for (uint32_t i = 0; i < n; i++) {
		struct list *l = list_pop_front(&dp->hops_in_use);

		list_push_back(&dp->hops_in_use, l);
		hop_probe(dp, list_entry(l, struct dp_hop, link), now);
	}
	return round * n / dp->n_hops;
}
