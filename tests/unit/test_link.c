/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel says about interfaces, read from messages as it sends them. */
/* links: dp lb net conf expr http ev base */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>

#include <cmocka.h>

#include "dp/dp_priv.h"

static char buf[1024];

static struct nlmsghdr *begin(uint16_t type, int ifindex, const char *mac)
{
	struct nlmsghdr *nlh = mnl_nlmsg_put_header(buf);
	struct ifinfomsg *ifi;

	nlh->nlmsg_type = type;
	ifi = mnl_nlmsg_put_extra_header(nlh, sizeof(*ifi));
	ifi->ifi_index = ifindex;
	mnl_attr_put_strz(nlh, IFLA_IFNAME, "x0");
	mnl_attr_put_u32(nlh, IFLA_MTU, 1496);
	mnl_attr_put(nlh, IFLA_ADDRESS, 6, mac);
	return nlh;
}

static void put_kind(struct nlmsghdr *nlh, const char *kind, uint16_t id, uint16_t proto)
{
	struct nlattr *info = mnl_attr_nest_start(nlh, IFLA_LINKINFO), *data;

	mnl_attr_put_str(nlh, IFLA_INFO_KIND, kind);
	data = mnl_attr_nest_start(nlh, IFLA_INFO_DATA);
	mnl_attr_put_u16(nlh, IFLA_VLAN_ID, id);
	mnl_attr_put_u16(nlh, IFLA_VLAN_PROTOCOL, htons(proto));
	mnl_attr_nest_end(nlh, data);
	mnl_attr_nest_end(nlh, info);
}

static void test_device(void **state)
{
	struct nlmsghdr *nlh = begin(RTM_NEWLINK, 7, "\2\0\0\0\0\x77");
	struct dp_link l;

	assert_true(dp_link_parse(nlh, &l));
	assert_int_equal(l.ifindex, 7);
	assert_int_equal(l.mtu, 1496);
	assert_memory_equal(l.mac, "\2\0\0\0\0\x77", 6);
	assert_false(l.is_vlan || l.is_ad || l.is_lower_elsewhere);
	/* A peer's index is no lower device of a VLAN. */
	mnl_attr_put_u32(nlh, IFLA_LINK, 9);
	put_kind(nlh, "veth", 100, ETH_P_8021Q);
	assert_true(dp_link_parse(nlh, &l));
	assert_false(l.is_vlan);
	assert_int_equal(l.vlan, 0);
}

static void test_vlan(void **state)
{
	struct nlmsghdr *nlh = begin(RTM_NEWLINK, 8, "\2\0\0\0\0\x78");
	struct dp_link l;

	mnl_attr_put_u32(nlh, IFLA_LINK, 7);
	put_kind(nlh, "vlan", 100, ETH_P_8021Q);
	assert_true(dp_link_parse(nlh, &l));
	assert_true(l.is_vlan);
	assert_int_equal(l.vlan, 100);
	assert_int_equal(l.lower, 7);
	assert_false(l.is_ad || l.is_lower_elsewhere);

	nlh = begin(RTM_NEWLINK, 8, "\2\0\0\0\0\x78");
	mnl_attr_put_u32(nlh, IFLA_LINK, 7);
	mnl_attr_put_u32(nlh, IFLA_LINK_NETNSID, 0);
	put_kind(nlh, "vlan", 4094, ETH_P_8021AD);
	assert_true(dp_link_parse(nlh, &l));
	assert_true(l.is_vlan && l.is_ad && l.is_lower_elsewhere);
	assert_int_equal(l.vlan, 4094);
}

/* Attributes that are too short are not read beyond; other messages are not links. */
static void test_odd(void **state)
{
	struct nlmsghdr *nlh = begin(RTM_DELLINK, 8, "\2\0\0\0\0\x78");
	struct nlattr *info, *data;
	struct dp_link l;

	assert_false(dp_link_parse(nlh, &l));
	nlh = begin(RTM_NEWLINK, 8, "\2\0\0\0\0\x78");
	mnl_attr_put(nlh, IFLA_ADDRESS, 4, "\1\2\3\4"); /* of a tunnel: no MAC */
	info = mnl_attr_nest_start(nlh, IFLA_LINKINFO);
	mnl_attr_put(nlh, IFLA_INFO_KIND, 2, "vl");
	data = mnl_attr_nest_start(nlh, IFLA_INFO_DATA);
	mnl_attr_put(nlh, IFLA_VLAN_ID, 1, "\1");
	mnl_attr_nest_end(nlh, data);
	mnl_attr_nest_end(nlh, info);
	assert_true(dp_link_parse(nlh, &l));
	assert_false(l.is_vlan);
	assert_int_equal(l.vlan, 0);
	assert_memory_equal(l.mac, "\2\0\0\0\0\x78", 6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_device),
		cmocka_unit_test(test_vlan),
		cmocka_unit_test(test_odd),
	};

	return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
