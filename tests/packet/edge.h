/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The scene of most packet tests: one balancer, loaded once, a client behind a router, service addresses,
 * backends on the link. A test file's own set-up begins with lb_clear(&lb).
 */
#ifndef PACKET_EDGE_H
#define PACKET_EDGE_H

#include "packet/run.h"

#define VIP4	"192.0.2.10"
#define VIP6	"2001:db8::10"
#define CLIENT4 "203.0.113.7"
#define CLIENT6 "2001:db8:c::7"
#define EDGE4	"10.0.0.1"
#define EDGE6	"fd00::1"
/* Of the L7 tier; nobody's. */
#define LOCAL4 "192.0.2.20"
#define OTHER4 "198.51.100.1"
#define OTHER6 "2001:db8:dead::1"

/* Frames: from the router, to a backend, back to the router. */
#define E    ETH(.dst = EDGE_MAC, .src = ROUTER_MAC)
#define OUT  ETH(.dst = BACKEND_MAC, .src = EGRESS_MAC)
#define BACK ETH(.dst = ROUTER_MAC, .src = EDGE_MAC)
#define DF   0x4000

extern struct lb lb;
extern const uint16_t edge_ids[5]; /* 1 to 5 */

/* For cmocka: load and unload `lb`. */
int edge_setup(void **state);
int edge_teardown(void **state);

/* Clears the maps, then adds backends 1 to 5 at 10.0.0.20 + id, on the link. */
void edge_five_backends(void);
/* The address of one of them, good until the next call. */
const char *edge_backend(unsigned id);

/* The hash that the program has for the flow; its lower half is a tunnel's entropy. */
uint64_t edge_hash(const char *src, const char *dst, uint16_t sport, uint16_t dport, uint8_t proto);

#endif
