/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A connection through NAT as the tests see it: its packets at each of the four places, and what the tables
 * say about it. Each test program has its own copy.
 */
#ifndef PACKET_NAT_FLOW_H
#define PACKET_NAT_FLOW_H

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "packet/run.h"

#define MAYBE_UNUSED __attribute__((unused))

#define EDGE4	"10.0.0.1"
#define EDGE6	"fd00::1"
#define E	ETH(.dst = EDGE_MAC, .src = ROUTER_MAC)
#define OUT	ETH(.dst = BACKEND_MAC, .src = EGRESS_MAC)
#define FROM	ETH(.dst = EGRESS_MAC, .src = BACKEND_MAC)
#define BACK	ETH(.dst = ROUTER_MAC, .src = EDGE_MAC)
#define DF	0x4000
#define FIRST	20000
#define N_PORTS 64
#define IDLE	600
#define BE_PORT 8080
#define SYN_ACK (TCP_SYN | TCP_ACK)
#define FIN_ACK (TCP_FIN | TCP_ACK)
#define RST_ACK (TCP_RST | TCP_ACK)

static struct lb lb;

static MAYBE_UNUSED int setup(void **state)
{
	lb_load(&lb);
	return 0;
}

static MAYBE_UNUSED int teardown(void **state)
{
	lb_unload(&lb);
	return 0;
}

/* A connection as all sides see it. Service id: 2 * udp + v6; backend id: 1 + v6. */
struct flow {
	bool v6, udp;
	uint16_t port; /* the client's */
	uint16_t edge_port; /* known once it has begun */
};

static const char *const client[] = { "203.0.113.7", "2001:db8:c::7" };
static const char *const vip[] = { "192.0.2.10", "2001:db8::10" };
static const char *const edge[] = { EDGE4, EDGE6 };
static const char *const backend[] = { "10.0.0.21", "fd00::21" };

static MAYBE_UNUSED unsigned service_of(const struct flow *f)
{
	return 2u * f->udp + f->v6;
}

static MAYBE_UNUSED unsigned backend_of(const struct flow *f)
{
	return 1u + f->v6;
}

/* TCP 80 with the server at 8080, UDP 53 with the same port there. */
static MAYBE_UNUSED int rows(void **state)
{
	static const uint16_t ids[] = { 1, 2, 3, 4 };

	lb_clear(&lb);
	lb_tokens(&lb, true);
	for (unsigned i = 0; i < 2; i++) {
		LB_BACKEND(&lb, .id = 1 + i, .addr = backend[i], .src = edge[i], .port = BE_PORT);
		LB_BACKEND(&lb, .id = 3 + i, .addr = backend[i], .src = edge[i]);
	}
	for (unsigned s = 0; s < 4; s++) {
		LB_SERVICE(&lb, .addr = vip[s & 1], .port = s & 2 ? 53 : 80,
			   .proto = s & 2 ? 17 : 6, .mode = HG_MODE_NAT, .id = s, .slots = 13,
			   .backends = &ids[s], .n = 1);
		lb.nat_services[s] = (struct hg_nat_service){ .port_first = FIRST,
							      .n_ports = N_PORTS,
							      .idle_ticks = IDLE };
	}
	lb.nat_control->port_first = FIRST;
	lb.nat_control->n_ports = N_PORTS;
	return 0;
}

static MAYBE_UNUSED unsigned be_id(const struct flow *f)
{
	return backend_of(f) + (f->udp ? 2 : 0);
}

/* --- packets of a flow at each of the four places ---------------------------------------------------------- */

struct pkt_opts {
	uint8_t flags; /* TCP */
	size_t size;
	bool no_csum; /* UDP */
	uint8_t ttl;
	uint16_t frag;
};

static MAYBE_UNUSED void build(struct pktbuf *p, const struct flow *f, struct layer eth,
			       const char *const *src, const char *const *dst, uint16_t sport,
			       uint16_t dport, const struct pkt_opts *o)
{
	struct layer l4 =
		f->udp ? (struct layer)UDP(.sport = sport, .dport = dport, .no_csum = o->no_csum)
		       : (struct layer)TCP(.sport = sport, .dport = dport, .flags = o->flags);

	if (f->v6)
		PKT(p, eth, IP6(.src = src[1], .dst = dst[1], .ttl = o->ttl, .id = 0x12345), l4,
		    DATA(o->size));
	else
		PKT(p, eth,
		    IP4(.src = src[0], .dst = dst[0], .ttl = o->ttl, .id = 77,
			.frag = o->frag ? o->frag : DF),
		    l4, DATA(o->size));
}

static MAYBE_UNUSED uint16_t vport(const struct flow *f)
{
	return f->udp ? 53 : 80;
}

static MAYBE_UNUSED uint16_t bport(const struct flow *f)
{
	return f->udp ? 53 : BE_PORT;
}

static MAYBE_UNUSED void to_vip(struct pktbuf *p, const struct flow *f, const struct pkt_opts *o)
{
	build(p, f, (struct layer)E, client, vip, f->port, vport(f), o);
}

static MAYBE_UNUSED void to_backend(struct pktbuf *p, const struct flow *f,
				    const struct pkt_opts *o)
{
	struct pkt_opts aged = *o;

	aged.ttl = (uint8_t)((o->ttl ? o->ttl : 64) - 1);
	build(p, f, (struct layer)OUT, edge, backend, f->edge_port, bport(f), &aged);
}

static MAYBE_UNUSED void from_backend(struct pktbuf *p, const struct flow *f,
				      const struct pkt_opts *o)
{
	build(p, f, (struct layer)FROM, backend, edge, bport(f), f->edge_port, o);
}

static MAYBE_UNUSED void to_client(struct pktbuf *p, const struct flow *f, const struct pkt_opts *o)
{
	struct pkt_opts aged = *o;

	aged.ttl = (uint8_t)((o->ttl ? o->ttl : 64) - 1);
	build(p, f, (struct layer)BACK, vip, client, vport(f), f->port, &aged);
}

/* --- what happens ------------------------------------------------------------------------------------------ */

#define OPTS(...) (&(struct pkt_opts){ __VA_ARGS__ })

/* A packet of the client goes through, whole frame compared. */
static MAYBE_UNUSED void client_says(struct flow *f, const struct pkt_opts *o)
{
	struct pktbuf in, out, want;

	to_vip(&in, f, o);
	assert_int_equal(prog_run(lb.prog, &in, &out), XDP_TX);
	if (!f->edge_port)
		f->edge_port = (uint16_t)(out.data[f->v6 ? 54 : 34] << 8 |
					  out.data[f->v6 ? 55 : 35]);
	assert_in_range(f->edge_port, FIRST, FIRST + N_PORTS - 1);
	to_backend(&want, f, o);
	if (out.len != want.len || memcmp(out.data, want.data, out.len)) {
		pkt_diff(want.data, want.len, out.data, out.len);
		fail_msg("to the backend: frames differ");
	}
}

static MAYBE_UNUSED void backend_says(const struct flow *f, const struct pkt_opts *o)
{
	struct pktbuf in, want;

	from_backend(&in, f, o);
	to_client(&want, f, o);
	EXPECT(lb.prog, &in, XDP_TX, &want);
}

static MAYBE_UNUSED unsigned conns_of_backend(unsigned id)
{
	return lb.live_backends[id].xdp;
}

/* Rows that are not free. */
static MAYBE_UNUSED unsigned rows_used(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LB_NAT; i++)
		n += lb.nat_conns[i].life != 0;
	return n;
}

static MAYBE_UNUSED unsigned words_used(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < HG_NAT_LINES(LB_NAT) * HG_NAT_WAYS; i++)
		n += lb.nat_lines[i / HG_NAT_WAYS].word[i % HG_NAT_WAYS] != 0;
	return n;
}

static MAYBE_UNUSED struct hg_nat_conn *row_of(const struct flow *f)
{
	for (unsigned i = 0; i < LB_NAT; i++) {
		struct hg_nat_conn *c = &lb.nat_conns[i];

		if (c->life && ntohs(c->client_port) == f->port && c->v6 == f->v6 &&
		    c->proto == (f->udp ? 17 : 6))
			return c;
	}
	return NULL;
}

static MAYBE_UNUSED unsigned state_of(const struct flow *f)
{
	const struct hg_nat_conn *c = row_of(f);

	return c ? HG_NAT_STATE(c->life) : HG_NAT_FREE;
}

static MAYBE_UNUSED bool has_ticket(const struct hg_nat_conn *c)
{
	return lb.nat_tickets[c - lb.nat_conns].word;
}

/* Hints at the row. */
static MAYBE_UNUSED unsigned hints_at(const struct hg_nat_conn *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < LB_NAT; i++) {
		uint32_t word = lb.nat_hints[i / HG_NAT_HINTS].word[i % HG_NAT_HINTS];

		n += word && (word & (LB_NAT - 1)) == (uint32_t)(c - lb.nat_conns);
	}
	return n;
}

static MAYBE_UNUSED uint16_t *tick_of_ticket(const struct hg_nat_conn *c)
{
	size_t row = (size_t)(c - lb.nat_conns);

	return &lb.nat_ticks[row / HG_NAT_TICKS].tick[row % HG_NAT_TICKS];
}

/* The row has been written by the test: its ticket does not say the same any more. */
static MAYBE_UNUSED void without_ticket(const struct hg_nat_conn *c)
{
	lb.nat_tickets[c - lb.nat_conns].word = 0;
}

/* A row and its ticket. */
static MAYBE_UNUSED void age(struct hg_nat_conn *c, unsigned ticks)
{
	*tick_of_ticket(c) = (uint16_t)(*tick_of_ticket(c) - ticks);
	c->life = HG_NAT_LIFE(HG_NAT_STATE(c->life), HG_NAT_TICK(c->life) - ticks);
}

static MAYBE_UNUSED void age_all(unsigned ticks)
{
	for (unsigned i = 0; i < LB_NAT; i++)
		if (lb.nat_conns[i].life)
			age(&lb.nat_conns[i], ticks);
}

static MAYBE_UNUSED void establish(struct flow *f)
{
	client_says(f, OPTS(.flags = TCP_SYN));
	backend_says(f, OPTS(.flags = SYN_ACK));
	client_says(f, OPTS(.flags = TCP_ACK));
}

#endif
