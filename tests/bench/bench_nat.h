/* SPDX-License-Identifier: BSD-2-Clause */
/* What the program that sends the packets and the one that fills the tables both know: flows of NAT, denied prefixes. */
#ifndef BENCH_NAT_H
#define BENCH_NAT_H

#include <linux/types.h>

#define BENCH_NAT_FLOWS 65536

/*
 * Where the answers of flow BENCH_NAT_FLOW(row) come to, and from which of the servers; all else of its packets is worked out of
 * the flow's number. As little as can be, and read row by row: what the sender reads takes cache from the balancer, and real
 * packets come from a ring of few buffers.
 */
struct bench_nat_flow {
	__be16 edge_port;
	__u16 backend;
	__u32 pad; /* rows of an array are multiples of eight bytes */
};

#define BENCH_NAT_FLOW(row)  ((row) * 2654435761u) /* of as many lower bits as there are flows */
#define BENCH_NAT_CLIENT(i)  (0x0a000000u | (i)) /* as it lies in packets */
#define BENCH_NAT_PORT(i)    ((__u16)((i) * 7))
#define BENCH_NAT_VIP	     0xc000020eu /* these in host order */
#define BENCH_NAT_EDGE	     0x0aff0000u
#define BENCH_NAT_BACKEND(n) (0x0a000100u + (n))

/*
 * Prefix i of a million denied ones, of 26 bits, in host order: in 16.0.0.0/4, and where none of the flows' sources is, whose
 * third byte is small.
 */
#define BENCH_DENIED_N	  (1u << 20)
#define BENCH_DENIED_BITS 26
#define BENCH_DENIED(i)	  (0x10004000u | (((i) >> 8) & 0xfff) << 16 | ((i) & 0xff) << 6)

#endif
