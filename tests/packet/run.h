/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The real objects in a test: load through the skeleton, fill the maps through their mappings, run
 * single packets with BPF_PROG_TEST_RUN, compare whole frames. Failures abort the cmocka test.
 */
#ifndef PACKET_RUN_H
#define PACKET_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <bpf/libbpf.h>
#include <linux/bpf.h>

#include <headgate/backend.h>
#include <headgate/counters.h>
#include <headgate/events.h>
#include <headgate/flow.h>
#include <headgate/limits.h>
#include <headgate/nat.h>
#include <headgate/service.h>
#include <headgate/syn.h>

#include "packet/pktbuild.h"

/*
 * Interface that test_run says packets come from: loopback. IFINDEX_OUT is one end of a veth pair in the
 * tests' own namespace, and in the device map; nothing is in the map under IFINDEX_NONE.
 */
#define IFINDEX_IN   1
#define IFINDEX_OUT  77
#define IFINDEX_NONE 78

#define EDGE_MAC    "02:00:00:00:00:ed"
#define ROUTER_MAC  "02:00:00:00:00:01"
#define BACKEND_MAC "02:00:00:00:0b:01"
#define EGRESS_MAC  "02:00:00:00:00:ee"

/* The balancer with its maps mapped. */
struct lb {
	struct xdp_lb_bpf *skel;
	int prog;
	unsigned n_cpus;
	uint32_t next_block;
	struct hg_control *control;
	struct hg_service *services;
	struct hg_slot_block *slots;
	struct hg_backend *backends;
	struct hg_service_counters *svc_counters;
	struct hg_backend_counters *be_counters;
	struct hg_verdict_counters *verdicts;
	struct hg_line *flows, *fragments;
	struct hg_quic_block *quic;
	struct hg_cpu *cpus;
	struct hg_drop_event *drop_events;
	struct hg_capture *capture;
	struct hg_nat_conn *nat_conns;
	struct hg_nat_line *nat_lines;
	struct hg_nat_ticket *nat_tickets;
	struct hg_nat_ticks *nat_ticks;
	struct hg_nat_hints *nat_hints;
	struct hg_nat_path *nat_paths;
	struct hg_line *nat_fragments;
	struct hg_nat_service *nat_services;
	struct hg_nat_control *nat_control;
	struct hg_live_server *live_backends;
	struct hg_live *live_services;
	struct hg_syn_control *syn;
	struct hg_syn_service *syn_services;
};

#define LB_BUCKETS  256
#define LB_SEED	    0x5eed1234u
#define LB_LINES    256 /* of flows and of fragments */
#define LB_QUIC	    8 /* blocks */
#define LB_SERVICES (LB_BUCKETS / 2)
#define LB_BACKENDS 256
#define LB_NAT	    256 /* rows of NAT connections */
#define LB_SHIFT    8 /* jiffies in a tick, as a power of two */

void lb_load(struct lb *lb);
void lb_unload(struct lb *lb);
void lb_clear(struct lb *lb); /* maps as after load */

/* 16 bytes in network order from text of either family. */
void addr_of(__be32 out[4], const char *text);
void mac_of(uint8_t out[6], const char *text);

struct backend_args {
	uint32_t id;
	const char *addr, *src; /* tunnel end points */
	const char *mac; /* NULL: BACKEND_MAC */
	uint32_t ifindex; /* 0: IFINDEX_IN */
	uint16_t mtu; /* 0: 1500 */
	uint32_t entropy_mask; /* host order */
	uint16_t state; /* of the next hop; 0: HG_NEIGH_OK */
	bool no_neigh; /* next hop not resolved */
	bool invalid;
	bool dead; /* by the health checks */
	uint16_t port; /* NAT: the server's */
};
void lb_backend(struct lb *lb, const struct backend_args *args);
#define LB_BACKEND(lb, ...) lb_backend(lb, &(struct backend_args){ __VA_ARGS__ })

struct service_args {
	const char *addr;
	uint16_t port;
	uint8_t proto; /* 0: TCP; ANY_PROTO: really 0 */
	uint8_t mode; /* 0: HG_MODE_IPIP */
	uint8_t flags;
	uint32_t id;
	uint32_t slots; /* Maglev table size; slot i holds backends[i % n] */
	const uint16_t *backends;
	unsigned n;
	unsigned generation;
	uint16_t base; /* not 0: every slot is tracked, with this backend before the change */
	uint8_t cid_offset, cid_len; /* QUIC */
	uint32_t quic_block, quic_ids;
};
#define ANY_PROTO 255
void lb_service(struct lb *lb, const struct service_args *args);
#define LB_SERVICE(lb, ...) lb_service(lb, &(struct service_args){ __VA_ARGS__ })

/* Runs one packet; returns the XDP action, `out` is the frame afterwards. `in` and `out` may be one. */
int prog_run(int prog, const struct pktbuf *in, struct pktbuf *out);

/* Runs `in`, asserts action and, unless dropped, every byte of the result. */
void expect_run(int prog, const struct pktbuf *in, int action, const struct pktbuf *want,
		const char *file, int line);
#define EXPECT(prog, in, action, want) expect_run(prog, in, action, want, __FILE__, __LINE__)

/* Runs `in`, asserts a drop and that it was counted once for this reason (0: no drop was counted). */
void expect_drop(struct lb *lb, const struct pktbuf *in, enum hg_drop reason, const char *file,
		 int line);
#define EXPECT_DROP(lb, in, reason) expect_drop(lb, in, reason, __FILE__, __LINE__)

/* Runs `in`; backend counted as forwarded to, 0: not forwarded. `out` may be NULL. */
unsigned lb_backend_of(struct lb *lb, const struct pktbuf *in, struct pktbuf *out);

/* Entries of the flow table that name the backend (0: any) and have the class (-1: any). */
unsigned lb_flow_count(const struct lb *lb, unsigned backend, int class);
/* Makes every remembered flow and fragment so many ticks older. */
void lb_age(struct lb *lb, unsigned ticks);
/* Learning and ICMP: every CPU has all the tokens it may have, or none. */
void lb_tokens(struct lb *lb, bool full);

/* Sums over CPUs. */
uint64_t lb_events(const struct lb *lb, enum hg_event event);
uint64_t lb_drops(const struct lb *lb, enum hg_drop reason);
uint64_t lb_verdicts(const struct lb *lb, enum hg_verdict verdict);
struct hg_service_counters lb_service_counters(const struct lb *lb, uint32_t id);
struct hg_backend_counters lb_backend_counters(const struct lb *lb, uint32_t id);

/* A map's memory, shared with the program; unmap_map() with the same size. */
void *map_mmap(const struct bpf_map *map, size_t bytes);
void map_resize(struct bpf_map *map, uint32_t entries);

/* The agent of backends. */
struct agent {
	struct xdp_decap_bpf *skel;
	int prog;
	unsigned n_cpus;
	struct hg_verdict_counters *verdicts;
};
void agent_load(struct agent *a);
void agent_unload(struct agent *a);
void agent_allow(struct agent *a, const char *addr, uint32_t flags); /* enum hg_decap_flags */

/* Deterministic random numbers for property loops. */
uint64_t rnd(uint64_t *state);

#endif
