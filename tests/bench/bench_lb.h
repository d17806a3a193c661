/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The balancer as the benchmarks load it: services on 192.0.2.x and 2000::x port 80, each with 65,537 slots over
 * 100 backends, one of them with every slot moved and 65,536 flows remembered. Errors end the program.
 */
#ifndef BENCH_LB_H
#define BENCH_LB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/types.h>

#include <headgate/limits.h>

#include "xdp_bench.skel.h"

/* Last byte of the service addresses, beside 10 for IP in IP; nobody's. */
#define VIP	    10
#define VIP_GUE	    11
#define VIP_L2	    12
#define VIP_TRACKED 13
#define VIP_NAT	    14
#define NOBODYS	    99
#define BENCH_PACKET_MAX 128

void bench_die(const char *what, int err) __attribute__((noreturn));

/* `ifindex`: where the backends are. */
struct xdp_bench_bpf *bench_load(uint32_t ifindex);

/*
 * As many NAT connections as the wrapper has flows, where the program puts them; all established. Only with backends
 * behind interface 1, where test runs say that their packets come from.
 */
void bench_nat(struct xdp_bench_bpf *skel);

/* A million denied prefixes; control.deny_entries says whether anybody asks. */
void bench_deny(struct xdp_bench_bpf *skel);

/* A packet of 60 or 74 bytes: Ethernet, IP, TCP, nothing else. Checksums are not looked at. Returns its length. */
size_t bench_packet(uint8_t *p, bool v6, uint8_t last, bool is_syn);

#endif
