/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Next hops. For each backend the kernel is asked for the route (egress interface, gateway, source
 * address, MTU) and for the neighbour's MAC; both are written into the backend's row, so that the
 * program never looks up a neighbour. Changes come by netlink; what the kernel has not resolved it is
 * asked to resolve, as if we had sent a packet.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "dp/dp_priv.h"

#define NEIGH_USABLE (NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP)
#define ASK_AGAIN_NS 1000000000ull
#define REFRESH_NS   10000000000ull

struct route {
	unsigned ifindex;
	struct addr via, src;
	uint32_t mtu;
};

struct neigh {
	unsigned ifindex;
	struct addr addr;
	uint8_t mac[6];
	uint16_t state;
	bool has_mac;
};

static size_t addr_bytes(const struct addr *a, const void **ret_p)
{
	*ret_p = a->sa.sa_family == AF_INET6 ? (const void *)&a->in6.sin6_addr
					     : (const void *)&a->in.sin_addr;
	return a->sa.sa_family == AF_INET6 ? 16 : 4;
}

static void addr_from_attr(struct addr *a, int family, const struct nlattr *at)
{
	*a = (struct addr){ 0 };
	if (family == AF_INET && mnl_attr_get_payload_len(at) >= 4)
		memcpy(&a->in.sin_addr, mnl_attr_get_payload(at), 4);
	else if (family == AF_INET6 && mnl_attr_get_payload_len(at) >= 16)
		memcpy(&a->in6.sin6_addr, mnl_attr_get_payload(at), 16);
	else
		return;
	a->sa.sa_family = (sa_family_t)family;
}

/* --- asking ------------------------------------------------------------------------------------------------ */

/* Sends a request and feeds the answers to `cb`. 0 or -errno. */
static int nl_ask(struct dp *dp, struct nlmsghdr *nlh, mnl_cb_t cb, void *arg)
{
	unsigned port = mnl_socket_get_portid(dp->nl_ask);
	char buf[16384];
	int rc;

	nlh->nlmsg_seq = ++dp->nl_seq;
	if (mnl_socket_sendto(dp->nl_ask, nlh, nlh->nlmsg_len) < 0)
		return -errno;
	do {
		ssize_t n = mnl_socket_recvfrom(dp->nl_ask, buf, sizeof(buf));

		if (n < 0 && errno == EINTR) {
			rc = 1;
			continue;
		}
		if (n < 0)
			return -errno;
		rc = mnl_cb_run(buf, (size_t)n, nlh->nlmsg_seq, port, cb, arg);
		if (rc < 0 && errno == ESRCH) /* an answer to an older question */
			rc = 1;
	} while (rc > 0);
	return rc < 0 ? -errno : 0;
}

static int on_route(const struct nlmsghdr *nlh, void *arg)
{
	const struct rtmsg *rt = mnl_nlmsg_get_payload(nlh);
	struct route *r = arg;
	struct nlattr *at, *m;

	if (nlh->nlmsg_type != RTM_NEWROUTE || rt->rtm_type != RTN_UNICAST)
		return MNL_CB_STOP;
	mnl_attr_for_each(at, nlh, sizeof(*rt))
	{
		switch (mnl_attr_get_type(at)) {
		case RTA_OIF:
			r->ifindex = mnl_attr_get_u32(at);
			break;
		case RTA_GATEWAY:
			addr_from_attr(&r->via, rt->rtm_family, at);
			break;
		case RTA_PREFSRC:
			addr_from_attr(&r->src, rt->rtm_family, at);
			break;
		case RTA_METRICS:
			mnl_attr_for_each_nested(m, at) if (mnl_attr_get_type(m) == RTAX_MTU)
				r->mtu = mnl_attr_get_u32(m);
			break;
		}
	}
	return MNL_CB_STOP;
}

static int ask_route(struct dp *dp, const struct addr *to, struct route *ret)
{
	char buf[MNL_NLMSG_HDRLEN + 256];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct rtmsg *rt;
	const void *p;
	size_t len = addr_bytes(to, &p);

	*ret = (struct route){ 0 };
	nlh->nlmsg_type = RTM_GETROUTE;
	nlh->nlmsg_flags = NLM_F_REQUEST;
	rt = mnl_nlmsg_put_extra_header(nlh, sizeof(*rt));
	rt->rtm_family = (unsigned char)to->sa.sa_family;
	rt->rtm_dst_len = (unsigned char)(len * 8);
	mnl_attr_put(nlh, RTA_DST, len, p);
	return nl_ask(dp, nlh, on_route, ret);
}

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
			addr_from_attr(&n->addr, nd->ndm_family, at);
		if (mnl_attr_get_type(at) == NDA_LLADDR && mnl_attr_get_payload_len(at) == 6) {
			memcpy(n->mac, mnl_attr_get_payload(at), 6);
			n->has_mac = true;
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

static struct ndmsg *put_neigh(struct nlmsghdr *nlh, const struct dp_backend *b)
{
	struct ndmsg *nd = mnl_nlmsg_put_extra_header(nlh, sizeof(*nd));
	const void *p;
	size_t len = addr_bytes(&b->via, &p);

	nd->ndm_family = (unsigned char)b->via.sa.sa_family;
	nd->ndm_ifindex = (int)b->ifindex;
	mnl_attr_put(nlh, NDA_DST, len, p);
	return nd;
}

static int ask_neigh(struct dp *dp, const struct dp_backend *b, struct neigh *ret)
{
	char buf[MNL_NLMSG_HDRLEN + 256];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);

	*ret = (struct neigh){ 0 };
	nlh->nlmsg_type = RTM_GETNEIGH;
	nlh->nlmsg_flags = NLM_F_REQUEST;
	(void)put_neigh(nlh, b);
	return nl_ask(dp, nlh, on_neigh, ret);
}

/* As if a packet were waiting: the kernel resolves, or confirms what it has. */
static void poke_neigh(struct dp *dp, struct dp_backend *b)
{
	char buf[MNL_NLMSG_HDRLEN + 256];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct ndmsg *nd;

	nlh->nlmsg_type = RTM_NEWNEIGH;
	nlh->nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_ACK;
	nd = put_neigh(nlh, b);
	nd->ndm_flags = NTF_USE;
	nd->ndm_state = NUD_NONE;
	b->asked_ns = dp_now_ns();
	(void)nl_ask(dp, nlh, NULL, NULL); /* fails when the interface is down: asked again later */
}

/* --- rows ------------------------------------------------------------------------------------------------------ */

static void write_neigh(struct dp *dp, uint32_t id, const struct neigh *n)
{
	union hg_neigh row = { .word = 0 };

	if (n->has_mac && (n->state & NEIGH_USABLE)) {
		memcpy(row.mac, n->mac, 6);
		row.state = HG_NEIGH_OK;
	}
	__atomic_store_n(&dp->t.backends[id].neigh.word, row.word, __ATOMIC_RELEASE);
}

static bool link_facts(unsigned ifindex, uint8_t mac[6], uint32_t *ret_mtu)
{
	struct ifreq ifr = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok = false;

	if (fd < 0)
		return false;
	if (if_indextoname(ifindex, ifr.ifr_name) && ioctl(fd, SIOCGIFMTU, &ifr) == 0) {
		*ret_mtu = (uint32_t)ifr.ifr_mtu;
		ok = ioctl(fd, SIOCGIFHWADDR, &ifr) == 0;
		memcpy(mac, ifr.ifr_hwaddr.sa_data, 6);
	}
	close(fd);
	return ok;
}

void dp_backend_resolve(struct dp *dp, uint32_t id)
{
	struct dp_backend *b = &dp->backends[id];
	struct hg_backend *row = &dp->t.backends[id];
	struct hg_backend next = *row;
	uint32_t mtu = 0;
	struct route r;
	struct neigh n;

	if (!dp->nl_ask)
		return;
	if (ask_route(dp, &b->addr, &r) != 0 || !r.ifindex ||
	    !link_facts(r.ifindex, next.src_mac, &mtu)) {
		__atomic_store_n(&row->neigh.word, 0, __ATOMIC_RELEASE);
		b->asked_ns = dp_now_ns();
		return;
	}
	b->ifindex = r.ifindex;
	b->via = r.via.sa.sa_family ? r.via : b->addr;
	next.ifindex = r.ifindex;
	next.mtu = (uint16_t)(r.mtu && r.mtu < mtu ? r.mtu : mtu > 65535 ? 65535 : mtu);
	addr_to_v6_mapped(&r.src, (uint8_t *)next.outer_src);
	hg_backend_seal(&next);
	if (memcmp(&next, row, sizeof(next)) != 0) {
		/* No packet while source, interface and checksum change: the row is not one word. */
		__atomic_store_n(&row->neigh.word, 0, __ATOMIC_RELEASE);
		next.neigh.word = 0;
		memcpy(row, &next, sizeof(next));
	}
	if (ask_neigh(dp, b, &n) == 0 && n.has_mac && (n.state & NEIGH_USABLE))
		write_neigh(dp, id, &n);
	else
		poke_neigh(dp, b);
}

/* --- events ------------------------------------------------------------------------------------------------------ */

static int on_event(const struct nlmsghdr *nlh, void *arg)
{
	struct dp *dp = arg;
	struct neigh n;
	bool is_neigh = read_neigh(nlh, &n);

	for (uint32_t id = 1; id < dp->t.max_backends; id++) {
		struct dp_backend *b = &dp->backends[id];

		if (!b->is_used)
			continue;
		/* A route or a link changed: everything is asked again. */
		if (!is_neigh && nlh->nlmsg_type != RTM_NEWNEIGH && nlh->nlmsg_type != RTM_DELNEIGH)
			dp_backend_resolve(dp, id);
		else if (is_neigh && b->ifindex == n.ifindex && addr_is_ip_eq(&b->via, &n.addr))
			write_neigh(dp, id, &n);
	}
	return MNL_CB_OK;
}

int dp_netlink_fd(const struct dp *dp)
{
	return dp->nl_events ? mnl_socket_get_fd(dp->nl_events) : -1;
}

void dp_netlink_read(struct dp *dp)
{
	char buf[16384];
	bool lost = false;

	for (;;) {
		ssize_t n = recv(mnl_socket_get_fd(dp->nl_events), buf, sizeof(buf), MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == ENOBUFS) {
			lost = true; /* the kernel dropped events: look at everything */
			continue;
		}
		if (n <= 0)
			break;
		(void)mnl_cb_run(buf, (size_t)n, 0, 0, on_event, dp);
	}
	for (uint32_t id = 1; lost && id < dp->t.max_backends; id++)
		if (dp->backends[id].is_used)
			dp_backend_resolve(dp, id);
}

void dp_tick(struct dp *dp)
{
	uint64_t now = dp_now_ns();

	for (uint32_t id = 1; dp->backends && id < dp->t.max_backends; id++) {
		struct dp_backend *b = &dp->backends[id];
		bool is_ok = dp->t.backends[id].neigh.state == HG_NEIGH_OK;

		if (!b->is_used || !dp->nl_ask)
			continue;
		if (!is_ok && now - b->asked_ns >= ASK_AGAIN_NS)
			dp_backend_resolve(dp, id);
		else if (is_ok && now - b->asked_ns >= REFRESH_NS)
			poke_neigh(
				dp,
				b); /* XDP's packets do not confirm the entry: without us it would age out */
	}
}

static struct mnl_socket *netlink_socket(unsigned groups)
{
	struct mnl_socket *nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);

	if (nl && mnl_socket_bind(nl, groups, MNL_SOCKET_AUTOPID) != 0) {
		mnl_socket_close(nl);
		return NULL;
	}
	return nl;
}

int dp_netlink_open(struct dp *dp, struct err *err)
{
	struct timeval second = { .tv_sec = 1 };

	dp->nl_events = netlink_socket(RTMGRP_NEIGH | RTMGRP_LINK | RTMGRP_IPV4_ROUTE |
				       RTMGRP_IPV6_ROUTE);
	dp->nl_ask = netlink_socket(0);
	if (!dp->nl_events || !dp->nl_ask)
		return err_set(err, -errno, "cannot talk to the kernel about neighbours: %m");
	/* The kernel answers at once; a limit only so that nothing can hang. */
	(void)setsockopt(mnl_socket_get_fd(dp->nl_ask), SOL_SOCKET, SO_RCVTIMEO, &second,
			 sizeof(second));
	return 0;
}

void dp_netlink_close(struct dp *dp)
{
	if (dp->nl_events)
		mnl_socket_close(dp->nl_events);
	if (dp->nl_ask)
		mnl_socket_close(dp->nl_ask);
	dp->nl_events = NULL;
	dp->nl_ask = NULL;
}
