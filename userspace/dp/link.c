/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Interfaces that packets leave by: what rtnetlink says about one (MTU, MAC, VLAN on top of which other), and
 * the device map, which holds those that take redirected frames. Drivers do not say when they refuse a
 * frame, so a device that cannot is left out of the map: the program then drops by name.
 */
#include <errno.h>
#include <libmnl/libmnl.h>
#include <linux/genetlink.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>

#include <bpf/bpf.h>

#include "dp/dp_priv.h"

/* Of <linux/netdev.h>, which older systems do not have. */
#define NETDEV_FAMILY		  "netdev"
#define NETDEV_CMD_DEV_GET	  1
#define NETDEV_A_DEV_IFINDEX	  1
#define NETDEV_A_DEV_XDP_FEATURES 3
#define NETDEV_XDP_ACT_NDO_XMIT	  4

/* --- links -------------------------------------------------------------------------------------------- */

static void parse_vlan(const struct nlattr *data, struct dp_link *ret)
{
	struct nlattr *at;

	mnl_attr_for_each_nested(at, data)
	{
		if (mnl_attr_get_type(at) == IFLA_VLAN_ID && mnl_attr_get_payload_len(at) >= 2)
			ret->vlan = mnl_attr_get_u16(at);
		if (mnl_attr_get_type(at) == IFLA_VLAN_PROTOCOL &&
		    mnl_attr_get_payload_len(at) >= 2)
			ret->is_ad = mnl_attr_get_u16(at) == hg_be16(ETH_P_8021AD);
	}
}

static void parse_kind(const struct nlattr *info, struct dp_link *ret)
{
	struct nlattr *at, *data = NULL;

	mnl_attr_for_each_nested(at, info)
	{
		if (mnl_attr_get_type(at) == IFLA_INFO_KIND)
			ret->is_vlan = mnl_attr_get_payload_len(at) >= 4 &&
				       memcmp(mnl_attr_get_payload(at), "vlan", 4) == 0;
		if (mnl_attr_get_type(at) == IFLA_INFO_DATA)
			data = at;
	}
	if (ret->is_vlan && data)
		parse_vlan(data, ret);
}

bool dp_link_parse(const struct nlmsghdr *nlh, struct dp_link *ret)
{
	const struct ifinfomsg *ifi = mnl_nlmsg_get_payload(nlh);
	struct nlattr *at;

	if (nlh->nlmsg_type != RTM_NEWLINK)
		return false;
	*ret = (struct dp_link){ .ifindex = (unsigned)ifi->ifi_index };
	mnl_attr_for_each(at, nlh, sizeof(*ifi))
	{
		switch (mnl_attr_get_type(at)) {
		case IFLA_MTU:
			ret->mtu = mnl_attr_get_u32(at);
			break;
		case IFLA_ADDRESS:
			if (mnl_attr_get_payload_len(at) == sizeof(ret->mac))
				memcpy(ret->mac, mnl_attr_get_payload(at), sizeof(ret->mac));
			break;
		case IFLA_LINK:
			ret->lower = mnl_attr_get_u32(at);
			break;
		case IFLA_LINK_NETNSID:
			ret->is_lower_elsewhere = true;
			break;
		case IFLA_LINKINFO:
			parse_kind(at, ret);
			break;
		}
	}
	return ret->ifindex != 0;
}

static int on_link(const struct nlmsghdr *nlh, void *arg)
{
	return dp_link_parse(nlh, arg) ? MNL_CB_STOP : MNL_CB_OK;
}

static bool ask_link(struct dp *dp, unsigned ifindex, struct dp_link *ret)
{
	char buf[MNL_NLMSG_HDRLEN + 64];
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct ifinfomsg *ifi;

	*ret = (struct dp_link){ 0 };
	nlh->nlmsg_type = RTM_GETLINK;
	nlh->nlmsg_flags = NLM_F_REQUEST;
	ifi = mnl_nlmsg_put_extra_header(nlh, sizeof(*ifi));
	ifi->ifi_index = (int)ifindex;
	return dp_nl_ask(dp, dp->nl_ask, nlh, on_link, ret) == 0 && ret->ifindex;
}

/* What the configuration says about frames that leave by `ifindex` itself. */
static uint16_t configured_tags(const struct dp *dp, unsigned ifindex)
{
	for (unsigned i = 0; i < dp->n_ports; i++)
		if (dp->ports[i].ifindex == ifindex)
			return dp->ports[i].tags;
	return 0;
}

bool dp_egress_find(struct dp *dp, unsigned ifindex, struct dp_egress *ret)
{
	struct dp_link top, lower;
	char name[IF_NAMESIZE];

	if (!ask_link(dp, ifindex, &top))
		return false;
	*ret = (struct dp_egress){ .ifindex = ifindex, .mtu = top.mtu };
	memcpy(ret->mac, top.mac, sizeof(ret->mac));
	if (!top.is_vlan) {
		ret->tags = configured_tags(dp, ifindex);
		return true;
	}
	if (top.is_lower_elsewhere || !ask_link(dp, top.lower, &lower) || lower.is_vlan) {
		if (!dp->has_said_vlan && if_indextoname(ifindex, name))
			dp_notice(dp,
				  "%s is a VLAN on another VLAN, or on an interface of another "
				  "namespace: servers behind it are not reached",
				  name);
		dp->has_said_vlan = true;
		return false;
	}
	ret->ifindex = top.lower;
	ret->tags = (uint16_t)(top.vlan << HG_NEIGH_VLAN_SHIFT | (top.is_ad ? HG_NEIGH_TAG_AD : 0));
	return true;
}

/* --- does a device take redirected frames? ------------------------------------------------------------- */

static int on_family(const struct nlmsghdr *nlh, void *arg)
{
	struct nlattr *at;

	mnl_attr_for_each(at, nlh, sizeof(struct genlmsghdr))
	{
		if (mnl_attr_get_type(at) == CTRL_ATTR_FAMILY_ID)
			*(uint16_t *)arg = mnl_attr_get_u16(at);
	}
	return MNL_CB_STOP;
}

static int on_features(const struct nlmsghdr *nlh, void *arg)
{
	struct nlattr *at;

	mnl_attr_for_each(at, nlh, sizeof(struct genlmsghdr))
	{
		if (mnl_attr_get_type(at) == NETDEV_A_DEV_XDP_FEATURES &&
		    mnl_attr_get_payload_len(at) >= 8)
			*(uint64_t *)arg = mnl_attr_get_u64(at);
	}
	return MNL_CB_STOP;
}

static struct nlmsghdr *put_genl(char *buf, uint16_t type, uint8_t cmd)
{
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct genlmsghdr *g;

	nlh->nlmsg_type = type;
	nlh->nlmsg_flags = NLM_F_REQUEST;
	g = mnl_nlmsg_put_extra_header(nlh, sizeof(*g));
	g->cmd = cmd;
	g->version = 1;
	return nlh;
}

/* Kernels before 6.3 do not tell; then it is taken to be able. */
static bool takes_frames(struct dp *dp, unsigned ifindex)
{
	char buf[MNL_NLMSG_HDRLEN + 64];
	struct nlmsghdr *nlh;
	uint64_t features = 0;

	if (!dp->nl_genl)
		return true;
	if (!dp->netdev_family) {
		nlh = put_genl(buf, GENL_ID_CTRL, CTRL_CMD_GETFAMILY);
		mnl_attr_put_strz(nlh, CTRL_ATTR_FAMILY_NAME, NETDEV_FAMILY);
		if (dp_nl_ask(dp, dp->nl_genl, nlh, on_family, &dp->netdev_family) != 0 ||
		    !dp->netdev_family) {
			mnl_socket_close(dp->nl_genl);
			dp->nl_genl = NULL;
			return true;
		}
	}
	nlh = put_genl(buf, dp->netdev_family, NETDEV_CMD_DEV_GET);
	mnl_attr_put_u32(nlh, NETDEV_A_DEV_IFINDEX, ifindex);
	if (dp_nl_ask(dp, dp->nl_genl, nlh, on_features, &features) != 0)
		return false; /* no such device any more */
	return features & NETDEV_XDP_ACT_NDO_XMIT;
}

/* --- the device map -------------------------------------------------------------------------------------- */

static bool is_redirected_to(const struct dp *dp, const struct dp_port *p)
{
	for (unsigned i = 0; i < dp->n_ports; i++)
		if (dp->ports[i].is_configured && &dp->ports[i] != p)
			return p->is_egress;
	return false;
}

static void port_check(struct dp *dp, struct dp_port *p)
{
	/* In generic mode the kernel sends by any device's ordinary queue. */
	bool can = !dp->is_native || takes_frames(dp, p->ifindex);
	int fd = dp->maps[DP_MAP_XDP_PORTS].fd;
	char name[IF_NAMESIZE];

	if (can) /* again each time: a device that was made anew has left the map */
		can = bpf_map_update_elem(fd, &p->ifindex, &p->ifindex, BPF_ANY) == 0;
	if (!can)
		(void)bpf_map_delete_elem(fd, &p->ifindex);
	if (can)
		p->is_told = false;
	else if (!p->is_told && is_redirected_to(dp, p) && if_indextoname(p->ifindex, name)) {
		p->is_told = true;
		dp_notice(dp,
			  "%s takes no redirected frames (its driver, or a veth whose far end "
			  "runs no XDP program): what comes in elsewhere for servers behind it "
			  "is dropped and counted as NO_REDIRECT; 'mode generic' can send there",
			  name);
	}
}

static struct dp_port *port_find(struct dp *dp, unsigned ifindex)
{
	struct dp_port *p;

	for (unsigned i = 0; i < dp->n_ports; i++)
		if (dp->ports[i].ifindex == ifindex)
			return &dp->ports[i];
	if (dp->n_ports == ARRAY_SIZE(dp->ports)) {
		if (!dp->has_said_ports)
			dp_notice(dp,
				  "packets leave by more than %d interfaces: what would be "
				  "redirected to the others is dropped (NO_REDIRECT)",
				  HG_MAX_PORTS);
		dp->has_said_ports = true;
		return NULL;
	}
	p = &dp->ports[dp->n_ports++];
	*p = (struct dp_port){ .ifindex = ifindex };
	return p;
}

void dp_port_use(struct dp *dp, unsigned ifindex)
{
	struct dp_port *p = port_find(dp, ifindex);

	if (!p || p->is_egress)
		return;
	p->is_egress = true;
	port_check(dp, p);
}

void dp_ports_check(struct dp *dp)
{
	for (unsigned i = 0; i < dp->n_ports;) {
		struct dp_port *p = &dp->ports[i];
		bool is_used = p->is_configured;

		for (uint32_t id = 1; id < dp->t.max_backends && !is_used; id++)
			is_used = dp->backends[id].is_used &&
				  dp->t.backends[id].ifindex == p->ifindex;
		if (is_used) {
			port_check(dp, p);
			i++;
			continue;
		}
		(void)bpf_map_delete_elem(dp->maps[DP_MAP_XDP_PORTS].fd, &p->ifindex);
		*p = dp->ports[--dp->n_ports];
	}
}

/* --- configuration ---------------------------------------------------------------------------------------- */

static uint16_t tags_of(const struct conf_xdp_interface *i)
{
	if (i->vlan == CONF_VLAN_KEEP)
		return HG_NEIGH_KEEP_TAGS;
	return (uint16_t)(i->vlan << HG_NEIGH_VLAN_SHIFT);
}

static bool is_same_prefix(const struct addr_prefix *a, const struct addr_prefix *b)
{
	if (!a->addr.sa.sa_family || !b->addr.sa.sa_family)
		return a->addr.sa.sa_family == b->addr.sa.sa_family;
	return a->bits == b->bits && addr_is_ip_eq(&a->addr, &b->addr);
}

bool dp_paths_configure(struct dp *dp, const struct conf *c)
{
	bool is_changed = false;
	struct list *l;

	for (unsigned v6 = 0; v6 <= 1; v6++) {
		is_changed |= !is_same_prefix(&dp->sources[v6], &c->global.xdp_source[v6]);
		dp->sources[v6] = c->global.xdp_source[v6];
	}
	for (unsigned i = 0; i < dp->n_ports; i++)
		dp->ports[i].is_configured = false;
	list_for_each(l, &c->global.xdp_interfaces) {
		const struct conf_xdp_interface *i = list_entry(l, struct conf_xdp_interface, link);
		unsigned ifindex = if_nametoindex(i->name);
		struct dp_port *p = ifindex ? port_find(dp, ifindex) : NULL;

		if (!p)
			continue;
		is_changed |= p->tags != tags_of(i);
		p->tags = tags_of(i);
		p->is_configured = true;
	}
	for (unsigned i = 0; i < dp->n_ports; i++) {
		is_changed |= !dp->ports[i].is_configured && dp->ports[i].tags;
		if (!dp->ports[i].is_configured)
			dp->ports[i].tags = 0;
	}
	return is_changed;
}
