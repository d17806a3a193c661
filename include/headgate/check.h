/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Health checks through the tunnel (`via tunnel`): the check's socket is connected to the server's own
 * address and carries a mark; on its way out the packet gets the service address and the tunnel's header, and the
 * answer, which comes from the service address, gets the server's back before the host looks at it. So the
 * service address may be local here, or have no route, and rp_filter has nothing to say.
 */
#ifndef HEADGATE_CHECK_H
#define HEADGATE_CHECK_H

#include <headgate/base.h>

/* SO_MARK of such sockets: this in the upper half, the index of the target in the lower. */
#define HG_CHECK_MARK	    0x68670000u
#define HG_CHECK_MARK_MASK  0xffff0000u
#define HG_CHECK_TARGETS    32768
#define HG_CHECK_FLOWS	    16384 /* connections of checks, the oldest make room */
#define HG_CHECK_TC_HANDLE  0x6867u
#define HG_CHECK_TC_PRIO    0x6867u
#define HG_CHECK_OUTER_MAX  52 /* IPv6, UDP, GUE: what a tunnel adds at most */

/* Row of map `check_targets`. Writer: control thread, `method` last; target 0 is never used. */
struct hg_check_target {
	__be32 vip[4]; /* service address; IPv4 is ::ffff:a.b.c.d */
	__be32 addr[4]; /* of the server, same family; the socket is connected to it */
	__u8 method; /* enum hg_mode: IPIP, GUE, L2; 0: unused, packets are dropped */
	__u8 pad[7];
};
HG_ASSERT_LAYOUT(struct hg_check_target, 40);

/* Key of map `check_flows`, as the answer has it; the value is the server's address. */
struct hg_check_flow {
	__be32 vip[4], local[4];
	__be16 vport, lport;
};
HG_ASSERT_LAYOUT(struct hg_check_flow, 36);

struct hg_check_addr {
	__be32 addr[4];
};

#endif
