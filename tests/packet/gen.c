/* SPDX-License-Identifier: BSD-2-Clause */
#include "packet/gen.h"

#include <string.h>

#include "packet/fuzz.h"

#define MAX_GEN_LAYERS 14
#define COUNT(a)       (sizeof(a) / sizeof((a)[0]))

static const char *const clients4[] = { "203.0.113.7", "203.0.113.8", "198.51.100.200", "127.0.0.1",
					"224.0.0.5" };
static const char *const clients6[] = { "2001:db8:c::7", "2001:db8:c::8", "2001:db8:d::1",
					"ff02::1", "::" };
static const char *const services4[] = { FUZZ_VIP4,   FUZZ_VIP4, FUZZ_VIP4,  FUZZ_VIP4,
					 FUZZ_LOCAL4, FUZZ_ANY4, FUZZ_OTHER4 };
static const char *const services6[] = { FUZZ_VIP6,   FUZZ_VIP6, FUZZ_VIP6,  FUZZ_VIP6,
					 FUZZ_LOCAL6, FUZZ_ANY6, FUZZ_OTHER6 };
static const char *const agents4[] = { FUZZ_HERE4, FUZZ_HERE4, FUZZ_GUE_ONLY4, FUZZ_OTHER4 };
static const char *const agents6[] = { FUZZ_HERE6, FUZZ_HERE6, FUZZ_IPIP_ONLY6, FUZZ_OTHER6 };

struct gen {
	struct layer l[MAX_GEN_LAYERS + 1];
	unsigned n;
	uint64_t *state;
	bool v6, no_ttl_games;
	const char *src, *dst;
};

static unsigned below(uint64_t *state, unsigned n)
{
	return (unsigned)(rnd(state) % n);
}

static bool one_in(uint64_t *state, unsigned n)
{
	return below(state, n) == 0;
}

#define PICK(state, list) ((list)[below(state, COUNT(list))])

static struct layer *add(struct gen *g, struct layer l)
{
	g->l[g->n] = l;
	return &g->l[g->n++];
}

static void add_ethernet(struct gen *g)
{
	add(g, (struct layer)ETH(.dst = EDGE_MAC, .src = ROUTER_MAC));
	for (unsigned i = 0; i < 3 && one_in(g->state, 8); i++)
		add(g, (struct layer)VLAN(.tci = (uint16_t)rnd(g->state)));
}

static struct layer *add_ip(struct gen *g)
{
	static const uint8_t tos[] = { 0, 1, 2, 3, 0xb8, 0xff };
	struct layer l = { .type = g->v6 ? L_IP6 : L_IP4,
			   .src = g->src,
			   .dst = g->dst,
			   .tos = PICK(g->state, tos),
			   .ttl = one_in(g->state, 20) ? (uint8_t)(1 + below(g->state, 2)) : 64,
			   .id = below(g->state, 8) };

	if (!g->v6 && one_in(g->state, 8))
		l.opt_words = (uint8_t)(1 + below(g->state, 10));
	if (!g->v6 && one_in(g->state, 2))
		l.frag = 0x4000;
	return add(g, l);
}

static void add_ext_headers(struct gen *g)
{
	static const uint8_t kinds[] = { 0, 43, 51, 60 };

	for (unsigned i = 0; g->v6 && i < 4 && one_in(g->state, 6); i++)
		add(g, (struct layer)EXT(PICK(g->state, kinds),
					 .opt_words = (uint8_t)below(g->state, 3)));
}

static void add_data(struct gen *g)
{
	static const unsigned sizes[] = { 0, 1, 6, 20, 20, 100, 100, 600 };
	unsigned n = PICK(g->state, sizes);

	if (one_in(g->state, 12)) /* round every MTU of the set-up */
		n = 1180 + below(g->state, 320);
	if (one_in(g->state, 60))
		n = 1500 + below(g->state, 1200);
	add(g, (struct layer)DATA(n));
}

static uint16_t tcp_port(struct gen *g)
{
	return (uint16_t)(80 + below(g->state, 13));
}

static void add_tcp(struct gen *g)
{
	static const uint8_t flags[] = { TCP_SYN,	    TCP_ACK,	       TCP_ACK,
					 TCP_PSH | TCP_ACK, TCP_SYN | TCP_ACK, TCP_RST,
					 TCP_FIN | TCP_ACK };

	add(g, (struct layer)TCP(.sport = (uint16_t)(1 + below(g->state, 500)),
				 .dport = tcp_port(g), .flags = PICK(g->state, flags),
				 .opt_words = one_in(g->state, 4) ? 5 : 0));
	add_data(g);
}

/* First octet, connection id with a server id at its second octet, rest. */
static const uint8_t quic_packets[][40] = {
	{ 0xc3, 0, 0, 0, 1, 8, 1, 2, 3, 4 },
	{ 0xd3, 0x6b, 0x33, 0x43, 0xcf, 8, 9 },
	{ 0xe3, 0, 0, 0, 1, 8, 0, 1 },
	{ 0x41, 0, 0, 1, 7 },
	{ 0x41, 0, 0, 2, 7 },
	{ 0x41, 0, 0, 5, 7 },
	{ 0x41, 0, 0xff, 0xff, 7 },
};

static void add_udp(struct gen *g)
{
	bool quic = one_in(g->state, 2);

	add(g, (struct layer)UDP(.sport = (uint16_t)(1 + below(g->state, 500)),
				 .dport = quic ? 443 : 53, .no_csum = one_in(g->state, 4)));
	if (quic)
		add(g, (struct layer)RAW(PICK(g->state, quic_packets),
					 one_in(g->state, 4) ? below(g->state, 40) : 40));
	else
		add_data(g);
}

static void add_fragment(struct gen *g)
{
	bool later = one_in(g->state, 2), more = !later || one_in(g->state, 2);
	uint16_t offset = later ? (uint16_t)(1 + below(g->state, 100)) : 0;
	uint16_t port = (uint16_t)(1 + below(g->state, 500));
	struct layer *ip = &g->l[g->n - 1];

	/* Ids of a small range, so that later fragments meet their first ones. */
	if (g->v6) {
		add(g, (struct layer)EXT(44, .id = 1 + below(g->state, 8), .proto = 17,
					 .frag = (uint16_t)(offset << 3 | more)));
	} else {
		ip->frag = (uint16_t)(offset | (more ? 0x2000 : 0));
		ip->proto = 17;
	}
	if (!later)
		add(g, (struct layer)UDP(.sport = port, .dport = 53, .length = 1000));
	add(g, (struct layer)DATA(8 * (1 + below(g->state, 12))));
}

static void add_icmp_head(struct gen *g, uint8_t type, uint8_t code)
{
	add(g, (struct layer){ .type = g->v6 ? L_ICMP6 : L_ICMP,
			       .icmp_type = type,
			       .icmp_code = code,
			       .icmp_rest = (uint32_t)rnd(g->state) });
}

static void add_echo(struct gen *g)
{
	add_icmp_head(g, g->v6 ? 128 : 8, one_in(g->state, 10));
	add_data(g);
}

static void add_other_icmp(struct gen *g)
{
	add_icmp_head(g, (uint8_t)rnd(g->state), 0);
	add(g, (struct layer)DATA(24));
}

/* About a packet that a service has sent; `quoted` must live until the packet is built. */
static void add_icmp_error(struct gen *g, struct pktbuf *quoted)
{
	static const uint8_t types4[] = { 3, 11, 12 }, types6[] = { 1, 2, 3, 4 };
	struct gen inner = { .state = g->state, .v6 = g->v6, .src = g->dst };
	size_t least = 14 + (g->v6 ? 40 : 20) + 8;
	struct layer *l4;
	uint16_t port;

	inner.dst = g->v6 ? clients6[0] : clients4[0];
	add(&inner, (struct layer)ETH(.src = EDGE_MAC));
	add_ip(&inner);
	add_ext_headers(&inner);
	if (one_in(g->state, 2))
		add_udp(&inner);
	else
		add_tcp(&inner);
	for (l4 = inner.l; l4->type != L_TCP && l4->type != L_UDP; l4++)
		;
	port = l4->sport;
	l4->sport = l4->dport;
	l4->dport = port;
	pkt_build(quoted, inner.l);
	add_icmp_head(g, g->v6 ? PICK(g->state, types6) : PICK(g->state, types4), 0);
	if (one_in(g->state, 2) && quoted->len > least)
		quoted->len = least;
	if (quoted->len > 600)
		quoted->len = 600;
	add(g, (struct layer)RAW(quoted->data + 14, quoted->len - 14));
}

static void add_other_protocol(struct gen *g)
{
	static const int protos[] = { 132, 47, 50, 99, 4, 41 };

	g->l[g->n - 1].proto = PICK(g->state, protos);
	add_data(g);
}

/* From the IP header on. */
static void add_client_packet(struct gen *g, struct pktbuf *quoted)
{
	unsigned shape = below(g->state, 20);

	add_ip(g);
	if (shape == 0) {
		add_other_protocol(g);
		return;
	}
	add_ext_headers(g);
	if (shape < 10)
		add_tcp(g);
	else if (shape < 13)
		add_udp(g);
	else if (shape < 15)
		add_echo(g);
	else if (shape < 17)
		add_icmp_error(g, quoted);
	else if (shape == 17)
		add_other_icmp(g);
	else if (g->l[g->n - 1].type == L_IP4 || g->l[g->n - 1].type == L_IP6)
		add_fragment(g);
	else
		add_tcp(g);
}

static void pick_client(struct gen *g)
{
	bool odd = one_in(g->state, 20);

	g->v6 = one_in(g->state, 2);
	if (g->v6) {
		g->src = clients6[odd ? below(g->state, COUNT(clients6)) : below(g->state, 3)];
		g->dst = PICK(g->state, services6);
	} else {
		g->src = clients4[odd ? below(g->state, COUNT(clients4)) : below(g->state, 3)];
		g->dst = PICK(g->state, services4);
	}
}

void gen_client_packet(struct pktbuf *p, uint64_t *state)
{
	struct gen g = { .state = state };
	struct pktbuf quoted;

	pick_client(&g);
	add_ethernet(&g);
	add_client_packet(&g, &quoted);
	pkt_build(p, g.l);
}

void gen_tunnel_packet(struct pktbuf *p, uint64_t *state)
{
	struct gen g = { .state = state };
	struct layer gue = { .type = L_GUE };
	struct pktbuf quoted;

	add_ethernet(&g);
	g.v6 = one_in(state, 2);
	g.src = g.v6 ? FUZZ_EDGE6 : FUZZ_EDGE4;
	g.dst = g.v6 ? PICK(state, agents6) : PICK(state, agents4);
	add_ip(&g);
	g.l[g.n - 1].ttl = 64;
	g.l[g.n - 1].opt_words = one_in(state, 8);
	if (one_in(state, 2)) {
		add(&g, (struct layer)UDP(.sport = (uint16_t)(49152 + below(state, 100)),
					  .dport = 6080, .no_csum = true));
		gue.gue_variant = one_in(state, 4);
		if (!gue.gue_variant && one_in(state, 2)) {
			gue.gue_alt = g.v6 ? FUZZ_ALT6 : FUZZ_ALT4;
			gue.gue_hops = !one_in(state, 4);
		} else if (!gue.gue_variant) {
			gue.opt_words = (uint8_t)(one_in(state, 2) ? below(state, 6) : 0);
		}
		add(&g, gue);
	}
	pick_client(&g);
	add_client_packet(&g, &quoted);
	pkt_build(p, g.l);
}

/* --- damage ------------------------------------------------------------------------------------- */

static void put16(uint8_t *p, size_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static size_t l3_of(const struct pktbuf *p)
{
	size_t off = 12;

	while (off + 6 <= p->len && off < 20 && (p->data[off] == 0x81 || p->data[off] == 0x88) &&
	       (p->data[off + 1] == 0x00 || p->data[off + 1] == 0xa8))
		off += 4;
	return off + 2;
}

static size_t l4_of(const struct pktbuf *p, size_t l3)
{
	if (l3 >= p->len || p->data[l3] >> 4 == 6)
		return l3 + 40;
	return l3 + 4u * (p->data[l3] & 15);
}

static const uint16_t interesting[] = { 0,	1,	2,	4,	5,	7,	8,
					13,	19,	20,	21,	28,	39,	40,
					41,	44,	60,	64,	127,	128,	255,
					256,	576,	1279,	1280,	1399,	1400,	1500,
					1501,	0x2000, 0x2001, 0x4000, 0x7fff, 0x8000, 0x8100,
					0x88a8, 0x0800, 0x86dd, 0x0806, 0x4500, 0x6000, 0xffff };

static void change_field(struct pktbuf *p, uint64_t *state)
{
	size_t l3 = l3_of(p), l4 = l4_of(p, l3);
	/* What parsers read: type, version and length, total length, fragment, protocol, next header, ports, flags. */
	const size_t at[] = { 12,      14,	l3,	 l3 + 1,  l3 + 2,  l3 + 4, l3 + 6, l3 + 6,
			      l3 + 8,  l3 + 9,	l3 + 40, l3 + 41, l4,	   l4 + 2, l4 + 4, l4 + 8,
			      l4 + 12, l4 + 13, l4 + 9,	 l4 + 10, l4 + 28, l4 + 48 };
	size_t off = PICK(state, at);
	uint16_t v = PICK(state, interesting);

	if (off + 2 > p->len)
		return;
	if (one_in(state, 2)) {
		p->data[off] = (uint8_t)v;
		return;
	}
	p->data[off] = (uint8_t)(v >> 8);
	p->data[off + 1] = (uint8_t)v;
}

static void change_bits(struct pktbuf *p, uint64_t *state)
{
	size_t span = p->len < 120 ? p->len : 120;

	p->data[rnd(state) % span] ^= (uint8_t)(1 << below(state, 8));
}

static void change_bytes(struct pktbuf *p, uint64_t *state)
{
	size_t from = rnd(state) % p->len, n = 1 + below(state, 8);

	for (size_t i = from; i < from + n && i < p->len; i++)
		p->data[i] = (uint8_t)rnd(state);
}

static void cut(struct pktbuf *p, uint64_t *state)
{
	size_t n = 14 + rnd(state) % (p->len - 13);

	p->len = n;
}

static void pad(struct pktbuf *p, uint64_t *state)
{
	size_t n = 1 + below(state, one_in(state, 8) ? 1500 : 60);

	if (p->len + n > PKT_MAX)
		return;
	for (size_t i = 0; i < n; i++)
		p->data[p->len++] = (uint8_t)rnd(state);
}

static void tag(struct pktbuf *p, uint64_t *state)
{
	if (p->len + 4 > PKT_MAX)
		return;
	memmove(p->data + 16, p->data + 12, p->len - 12);
	p->data[12] = one_in(state, 4) ? 0x88 : 0x81;
	p->data[13] = p->data[12] == 0x88 ? 0xa8 : 0x00;
	p->data[14] = (uint8_t)rnd(state);
	p->data[15] = (uint8_t)rnd(state);
	p->len += 4;
}

/* IPv4 checksums on both sides of the carry, which TTL and address changes must take round. */
static void odd_sum(struct pktbuf *p, uint64_t *state)
{
	static const uint16_t sums[] = { 0, 1, 0xff, 0x100, 0xfeff, 0xff00, 0xfffe, 0xffff };
	size_t l3 = l3_of(p);

	if (l3 + 20 <= p->len && p->data[l3] >> 4 == 4)
		put16(p->data + l3 + 10, PICK(state, sums));
}

/* The beginning of one and the end of another. */
static void splice(struct pktbuf *p, uint64_t *state)
{
	struct pktbuf other;
	size_t from;

	if (one_in(state, 2))
		gen_client_packet(&other, state);
	else
		gen_tunnel_packet(&other, state);
	from = 14 + rnd(state) % (p->len < 100 ? p->len - 13 : 86);
	if (other.len <= from)
		return;
	memcpy(p->data + from, other.data + from, other.len - from);
	p->len = other.len;
}

/* Length and checksum of the IP header, so that what lies behind is reached. */
static void repair(struct pktbuf *p, uint64_t *state)
{
	size_t l3 = l3_of(p), hlen;

	if (l3 + 40 <= p->len && p->data[l3] >> 4 == 6) {
		put16(p->data + l3 + 4, p->len - l3 - 40);
		return;
	}
	hlen = l3 < p->len ? 4u * (p->data[l3] & 15) : 0;
	if (hlen < 20 || l3 + hlen > p->len)
		return;
	put16(p->data + l3 + 2, p->len - l3);
	put16(p->data + l3 + 10, 0);
	put16(p->data + l3 + 10, pkt_checksum(p->data + l3, hlen, 0));
}

void gen_damage(struct pktbuf *p, uint64_t *state)
{
	static void (*const damage[])(struct pktbuf *, uint64_t *) = {
		change_field, change_field, change_field, change_bits, change_bytes,
		cut,	      pad,	    tag,	  splice,      odd_sum,
	};
	unsigned n = 1 + below(state, 4);

	while (n--)
		if (p->len >= 15)
			PICK(state, damage)(p, state);
	if (one_in(state, 2))
		repair(p, state);
}
