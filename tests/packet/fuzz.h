/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The set-up that is fuzzed, and what must hold for any packet whatsoever. Both real programs run with a
 * set of services of every kind; after each packet the judge looks at action, frame and counters:
 *
 * - one verdict is counted and the action is its action; a drop has exactly one reason, and a possible one;
 * - what passes is unchanged to the byte; what is for no address of a service passes;
 * - service and, while nothing moves, backend are those that the contract's hashes give;
 * - what is sent on is the packet, one TTL older, behind a right outer header to the counted backend, and
 *   not longer than its MTU allows; answers are right echo replies and packet-too-big messages;
 * - the agent hands on the inner frame and nothing else.
 */
#ifndef PACKET_FUZZ_H
#define PACKET_FUZZ_H

#include "packet/run.h"

/* Service addresses: all kinds of services; one of the L7 tier; any port and protocol; nobody's. */
#define FUZZ_VIP4	"192.0.2.10"
#define FUZZ_VIP6	"2001:db8::10"
#define FUZZ_LOCAL4	"192.0.2.20"
#define FUZZ_LOCAL6	"2001:db8::20"
#define FUZZ_ANY4	"192.0.2.30"
#define FUZZ_ANY6	"2001:db8::30"
#define FUZZ_OTHER4	"198.51.100.1"
#define FUZZ_OTHER6	"2001:db8:dead::1"
#define FUZZ_EDGE4	"10.0.0.1"
#define FUZZ_EDGE6	"fd00::1"
/* Of agents. */
#define FUZZ_HERE4	"10.0.0.21"
#define FUZZ_HERE6	"fd00::21"
#define FUZZ_GUE_ONLY4	"10.0.0.22"
#define FUZZ_IPIP_ONLY6 "fd00::22"
#define FUZZ_ALT4	"10.0.0.31"
#define FUZZ_ALT6	"fd00::31"

#define FUZZ_SERVICES 64
#define FUZZ_BACKENDS 16

struct fuzz {
	struct lb lb;
	struct agent agent;
	const struct hg_service *services[FUZZ_SERVICES]; /* rows by id */
	unsigned cpu; /* the one that this process is bound to */
	uint64_t packets;
};

/* What one packet did to the counters. */
struct deltas {
	struct hg_verdict_counters all;
	struct hg_service_counters svc[FUZZ_SERVICES];
	struct hg_backend_counters be[FUZZ_BACKENDS];
};

void fuzz_open(struct fuzz *f);
void fuzz_close(struct fuzz *f);
/* Forgets flows and fragments, so that a sequence of packets has one outcome. */
void fuzz_forget(struct fuzz *f);

/* Run one packet; NULL: all is well, else what is not, and both frames on stderr. `ret` may be NULL. */
const char *fuzz_balancer(struct fuzz *f, const struct pktbuf *in, struct deltas *ret);
const char *fuzz_agent(struct fuzz *f, const struct pktbuf *in, struct deltas *ret);

/* judge.c. `out` is the frame afterwards; `again` says that the same packet ran just before. */
const char *judge_balancer(const struct fuzz *f, const struct pktbuf *in, int action,
			   const struct pktbuf *out, const struct deltas *d);
const char *judge_agent(const struct pktbuf *in, int action, const struct pktbuf *out,
			const struct hg_verdict_counters *d);

#endif
