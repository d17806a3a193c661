/* SPDX-License-Identifier: BSD-2-Clause */
/* What the program that sends the packets and the one that fills the tables both know: flows of NAT, denied prefixes. */
#ifndef BENCH_NAT_H
#define BENCH_NAT_H

#include <linux/types.h>

#define BENCH_NAT_FLOWS 65536

/* All as it lies in packets. */
struct bench_nat_flow {
	__be32 client, vip, edge, backend;
	__be16 client_port, vip_port, edge_port, backend_port;
	__u64 pad;
};

/*
 * Prefix i of a million denied ones, of 26 bits, in host order: in 16.0.0.0/4, and where none of the flows' sources is, whose
 * third byte is small.
 */
#define BENCH_DENIED_N	  (1u << 20)
#define BENCH_DENIED_BITS 26
#define BENCH_DENIED(i)   (0x10004000u | (((i) >> 8) & 0xfff) << 16 | ((i) & 0xff) << 6)

#endif
