/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ways out. For each backend the kernel is asked for the route (egress interface, gateway, source address,
 * MTU), which is written into the backend's row with the neighbour's MAC (hop.c), so that the program never looks up
 * either. Changes come by netlink.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <unistd.h>

#include "dp/dp_priv.h"

#define ASK_AGAIN_NS 1000000000ull
#define ROUTES_SHARE 10 /* asking for all routes may take one part of so many of our time */

struct route {
	unsigned ifindex;
	struct addr via, src;
	uint32_t mtu;
};

size_t dp_addr_bytes(const struct addr *a, const void **ret_p)
{
	*ret_p = a->sa.sa_family == AF_INET6 ? (const void *)&a->in6.sin6_addr
					     : (const void *)&a->in.sin_addr;
	return a->sa.sa_family == AF_INET6 ? 16 : 4;
}

void dp_addr_from_attr(struct addr *a, int family, const struct nlattr *at)
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

int dp_nl_ask(struct dp *dp, struct mnl_socket *nl, struct nlmsghdr *nlh, mnl_cb_t cb, void *arg)
{
	unsigned port = mnl_socket_get_portid(nl);
	char buf[16384];
	int rc;

	nlh->nlmsg_seq = ++dp->nl_seq;
	if (mnl_socket_sendto(nl, nlh, nlh->nlmsg_len) < 0)
		return -errno;
	do {
		ssize_t n = mnl_socket_recvfrom(nl, buf, sizeof(buf));

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

static void addr_from_rtvia(struct addr *a, const struct nlattr *at)
{
	const struct rtvia *via = mnl_attr_get_payload(at);
	bool is_v6 = mnl_attr_get_payload_len(at) >= sizeof(*via) + 16;

	if (!is_v6 || via->rtvia_family != AF_INET6)
		return;
	*a = (struct addr){ 0 };
	memcpy(&a->in6.sin6_addr, via->rtvia_addr, 16);
	a->sa.sa_family = AF_INET6;
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
			dp_addr_from_attr(&r->via, rt->rtm_family, at);
			break;
		case RTA_VIA: /* IPv4 by way of an IPv6 neighbour */
			addr_from_rtvia(&r->via, at);
			break;
		case RTA_PREFSRC:
			dp_addr_from_attr(&r->src, rt->rtm_family, at);
			break;
		case RTA_METRICS:
			mnl_attr_for_each_nested(m, at) if (mnl_attr_get_type(m) == RTAX_MTU)
				r->mtu = mnl_attr_get_u32(m);
			break;
		}
	}
	return MNL_CB_STOP;
}

/* `ifindex`: by this interface; 0: by any. */
static int ask_route(struct dp *dp, const struct addr *to, unsigned ifindex, struct route *ret)
{
	char buf[MNL_NLMSG_HDRLEN + 256];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct rtmsg *rt;
	const void *p;
	size_t len = dp_addr_bytes(to, &p);

	*ret = (struct route){ 0 };
	nlh->nlmsg_type = RTM_GETROUTE;
	nlh->nlmsg_flags = NLM_F_REQUEST;
	rt = mnl_nlmsg_put_extra_header(nlh, sizeof(*rt));
	rt->rtm_family = (unsigned char)to->sa.sa_family;
	rt->rtm_dst_len = (unsigned char)(len * 8);
	mnl_attr_put(nlh, RTA_DST, len, p);
	if (ifindex)
		mnl_attr_put_u32(nlh, RTA_OIF, ifindex);
	return dp_nl_ask(dp, dp->nl_ask, nlh, on_route, ret);
}

void dp_route_source(struct dp *dp, const struct addr *to, unsigned ifindex, struct addr *ret)
{
	struct route r;

	*ret = (struct addr){ 0 };
	if (ask_route(dp, to, ifindex, &r) == 0 && r.ifindex == ifindex)
		*ret = r.src;
}

int dp_route_ifindex(struct dp *dp, const struct addr *to, unsigned *ret_ifindex)
{
	struct route r;

	if (!dp->nl_ask || ask_route(dp, to, 0, &r) != 0 || !r.ifindex)
		return -EHOSTUNREACH;
	*ret_ifindex = r.ifindex;
	return 0;
}

/* --- rows ------------------------------------------------------------------------------------------------------ */

/* Outer source of tunnels to this backend, and which of its bits are the flow's. */
static void set_source(const struct dp *dp, const struct addr *route_src, struct hg_backend *row)
{
	const struct addr_prefix *p = &dp->sources[!!(row->flags & HG_BE_OUTER_V6)];
	unsigned host_bits;

	row->entropy_mask = 0;
	if (!p->addr.sa.sa_family) {
		addr_to_v6_mapped(route_src, (uint8_t *)row->outer_src);
		return;
	}
	addr_to_v6_mapped(&p->addr, (uint8_t *)row->outer_src);
	host_bits = (p->addr.sa.sa_family == AF_INET6 ? 128 : 32) - p->bits;
	if (host_bits)
		row->entropy_mask = htonl(host_bits >= 32 ? UINT32_MAX : (1u << host_bits) - 1);
}

void dp_backend_resolve(struct dp *dp, uint32_t id)
{
	struct dp_backend *b = &dp->backends[id];
	struct hg_backend *row = &dp->t.backends[id];
	struct hg_backend next = *row;
	struct dp_egress out;
	struct route r;

	if (!dp->nl_ask)
		return;
	b->asked_ns = dp_now_ns();
	if (ask_route(dp, &b->addr, 0, &r) != 0 || !r.ifindex ||
	    !dp_egress_find(dp, r.ifindex, &out)) {
		__atomic_store_n(&row->neigh.word, 0, __ATOMIC_RELEASE);
		dp_hop_leave(dp, id);
		return;
	}
	b->tags = out.tags;
	next.ifindex = out.ifindex;
	memcpy(next.src_mac, out.mac, sizeof(next.src_mac));
	if (r.mtu && r.mtu < out.mtu)
		out.mtu = r.mtu;
	next.mtu = (uint16_t)(out.mtu > UINT16_MAX ? UINT16_MAX : out.mtu);
	set_source(dp, &r.src, &next);
	hg_backend_seal(&next);
	if (memcmp(&next, row, sizeof(next)) != 0) {
		/* No packet while source, interface and checksum change: the row is not one word. */
		__atomic_store_n(&row->neigh.word, 0, __ATOMIC_RELEASE);
		next.neigh.word = 0;
		memcpy(row, &next, sizeof(next));
	}
	dp_port_use(dp, out.ifindex);
	dp_hop_join(dp, id, r.via.sa.sa_family ? &r.via : &b->addr, r.ifindex, out.mac);
}

void dp_backends_resolve(struct dp *dp)
{
	uint64_t began_ns = dp_now_ns(), now;

	dp->are_routes_stale = false;
	dp_hops_ask_again(dp);
	for (uint32_t id = 1; id < dp->t.max_backends; id++)
		if (dp->backends[id].is_used)
			dp_backend_resolve(dp, id);
	now = dp_now_ns();
	dp->routes_next_ns = now + (now - began_ns) * ROUTES_SHARE;
}

/* --- events ------------------------------------------------------------------------------------------------------ */

/* A neighbour is written at once; what changes routes is only noted: it often comes in hundreds. */
static int on_event(const struct nlmsghdr *nlh, void *arg)
{
	struct dp *dp = arg;

	if (nlh->nlmsg_type == RTM_NEWNEIGH || nlh->nlmsg_type == RTM_DELNEIGH)
		dp_hop_event(dp, nlh);
	else
		dp->are_routes_stale = true;
	return MNL_CB_OK;
}

int dp_netlink_fd(const struct dp *dp)
{
	return dp->nl_events ? mnl_socket_get_fd(dp->nl_events) : -1;
}

uint64_t dp_netlink_read(struct dp *dp)
{
	char buf[16384];
	uint64_t now;

	for (;;) {
		ssize_t n = recv(mnl_socket_get_fd(dp->nl_events), buf, sizeof(buf), MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == ENOBUFS) {
			dp->are_routes_stale =
				true; /* the kernel dropped events: ask for everything */
			continue;
		}
		if (n <= 0)
			break;
		(void)mnl_cb_run(buf, (size_t)n, 0, 0, on_event, dp);
	}
	if (!dp->are_routes_stale)
		return 0;
	/* A router that learns the whole Internet says so for minutes. */
	now = dp_now_ns();
	if (now < dp->routes_next_ns)
		return dp->routes_next_ns - now;
	dp_backends_resolve(dp);
	return 0;
}

void dp_tick(struct dp *dp)
{
	uint64_t now = dp_now_ns();

	dp_nat_tick(dp);
	dp_share_tick(dp);
	dp_syn_tick(dp);
	if (!dp->backends || !dp->nl_ask)
		return;
	for (uint32_t id = 1; id < dp->t.max_backends; id++) {
		const struct dp_backend *b = &dp->backends[id];

		/* Without a route, or adopted: then the row has a next hop, but whose MAC it is has to be found out. */
		if (b->is_used && !b->hop && now - b->asked_ns >= ASK_AGAIN_NS)
			dp_backend_resolve(dp, id);
	}
	dp_hops_tick(dp);
	dp_ports_check(dp);
}

static struct mnl_socket *netlink_socket(int bus, unsigned groups)
{
	struct mnl_socket *nl = mnl_socket_open2(bus, SOCK_CLOEXEC);

	if (nl && mnl_socket_bind(nl, groups, MNL_SOCKET_AUTOPID) != 0) {
		mnl_socket_close(nl);
		return NULL;
	}
	return nl;
}

int dp_netlink_open(struct dp *dp, struct err *err)
{
	struct timeval second = { .tv_sec = 1 };
	int rules_v6 = RTNLGRP_IPV6_RULE; /* beyond what the mask of bind() can say */

	dp->nl_events = netlink_socket(
		NETLINK_ROUTE, RTMGRP_NEIGH | RTMGRP_LINK | RTMGRP_IPV4_ROUTE | RTMGRP_IPV4_RULE |
				       RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_ROUTE);
	dp->nl_ask = netlink_socket(NETLINK_ROUTE, 0);
	if (!dp->nl_events || !dp->nl_ask)
		return err_set(err, -errno, "cannot talk to the kernel about neighbours: %m");
	(void)mnl_socket_setsockopt(dp->nl_events, NETLINK_ADD_MEMBERSHIP, &rules_v6,
				    sizeof(rules_v6));
	dp->nl_genl = netlink_socket(NETLINK_GENERIC, 0);
	/* Without a protocol: it receives nothing. */
	dp->ask_fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (dp->ask_fd < 0)
		return err_set(err, -errno, "cannot open a packet socket to ask neighbours by: %m");
	/* The kernel answers at once; a limit only so that nothing can hang. */
	(void)setsockopt(mnl_socket_get_fd(dp->nl_ask), SOL_SOCKET, SO_RCVTIMEO, &second,
			 sizeof(second));
	if (dp->nl_genl)
		(void)setsockopt(mnl_socket_get_fd(dp->nl_genl), SOL_SOCKET, SO_RCVTIMEO, &second,
				 sizeof(second));
	return 0;
}

void dp_netlink_close(struct dp *dp)
{
	if (dp->nl_events)
		mnl_socket_close(dp->nl_events);
	if (dp->nl_ask)
		mnl_socket_close(dp->nl_ask);
	if (dp->nl_genl)
		mnl_socket_close(dp->nl_genl);
	dp->nl_events = NULL;
	dp->nl_ask = NULL;
	dp->nl_genl = NULL;
	if (dp->ask_fd >= 0)
		close(dp->ask_fd);
	dp->ask_fd = -1;
}
