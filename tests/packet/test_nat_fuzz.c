/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random packets of NAT connections, most of them damaged, from both sides. Whatever comes: one verdict is
 * counted, a drop has one reason; what passes is unchanged; what is translated has the addresses and ports of its connection,
 * is one TTL older and else the same, and every sum is as right or as wrong as it was. HG_PACKET_SEED and
 * HG_PACKET_MUTATIONS change the run.
 */
#include <stdlib.h>

#include "packet/gen.h"
#include "packet/nat_flow.h"
#include "xdp_lb.skel.h"

#define PER_TABLE 400 /* packets before all connections are forgotten: ports are few */
#define N_FLOWS	  12
#define ROUTER4	  "198.51.100.9"
#define ROUTER6	  "2001:db8:f::9"

/* What is looked at in a frame; `l4` from its beginning, 0: no frame of IP with ports or ICMP. */
struct view {
	const uint8_t *ip, *l4;
	size_t ip_len, l4_len;
	uint8_t proto;
	bool v6, is_later; /* a fragment that is not its datagram's first */
};

/* Who a port of the edge belongs to, as the packets said that went to the server. */
struct owner {
	bool is_known;
	uint8_t addr[16];
	uint16_t port;
};

static struct owner owners[2][2][N_PORTS]; /* by family, by UDP or not */
static struct hg_nat_addrs *addrs;
static uint64_t seen_out, seen_back, seen_error;

static size_t skip_ext(struct view *v, uint8_t *proto)
{
	size_t at = 40;

	*proto = v->ip[6];
	while (at + 8 <= v->ip_len) {
		const uint8_t *h = v->ip + at;

		if (*proto == 51)
			at += (h[1] + 2u) * 4;
		else if (*proto == 44) {
			v->is_later |= h[2] || h[3] & 0xf8;
			at += 8;
		} else if (*proto == 0 || *proto == 43 || *proto == 60)
			at += (h[1] + 1u) * 8;
		else
			break;
		*proto = h[0];
	}
	return at;
}

static bool look(struct view *v, const struct pktbuf *p)
{
	size_t at = 12, l4, total;

	memset(v, 0, sizeof(*v));
	while (at + 4 <= p->len && at <= 20 &&
	       ((p->data[at] == 0x81 && p->data[at + 1] == 0) ||
		(p->data[at] == 0x88 && p->data[at + 1] == 0xa8)))
		at += 4;
	if (at + 2 + 20 > p->len)
		return false;
	v->ip = p->data + at + 2;
	v->ip_len = p->len - at - 2;
	v->v6 = v->ip[0] >> 4 == 6;
	if (v->v6 && v->ip_len < 40)
		return false;
	total = v->v6 ? 40u + (v->ip[4] << 8 | v->ip[5]) : (size_t)(v->ip[2] << 8 | v->ip[3]);
	if (total < v->ip_len)
		v->ip_len = total;
	v->is_later = !v->v6 && (v->ip[6] & 0x1f || v->ip[7]);
	v->proto = v->ip[9];
	l4 = v->v6 ? skip_ext(v, &v->proto) : (v->ip[0] & 15u) * 4;
	if (l4 + 8 > v->ip_len)
		return false;
	v->l4 = v->ip + l4;
	v->l4_len = v->ip_len - l4;
	return true;
}

/* The one's complement sum; the two zeros are the same. */
static unsigned sum_of(unsigned sum, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum += i % 2 ? p[i] : (unsigned)p[i] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum == 0xffff ? 0 : sum;
}

static const uint8_t *addr_in(const struct view *v, bool dst)
{
	return v->v6 ? v->ip + (dst ? 24 : 8) : v->ip + (dst ? 16 : 12);
}

static bool is_icmp(const struct view *v)
{
	return v->proto == (v->v6 ? 58 : 1);
}

static unsigned l4_sum(const struct view *v)
{
	unsigned pseudo = is_icmp(v) && !v->v6 ? 0 : sum_of(0, addr_in(v, false), v->v6 ? 32 : 8);

	return sum_of(pseudo, v->l4, v->l4_len);
}

static bool is_addr(const struct view *v, bool dst, const char *text)
{
	__be32 addr[4];

	addr_of(addr, text);
	return memcmp(addr_in(v, dst), v->v6 ? &addr[0] : &addr[3], v->v6 ? 16 : 4) == 0;
}

static unsigned port_in(const struct view *v, bool dst)
{
	return (unsigned)(v->l4[2 * dst] << 8 | v->l4[2 * dst + 1]);
}

/* Whose packets never came through: only the table knows. */
static void ask_table(struct owner *o, const struct view *in, unsigned port)
{
	for (unsigned i = 0; i < LB_NAT; i++) {
		const struct hg_nat_conn *c = &lb.nat_conns[i];

		if (HG_NAT_STATE(c->life) <= HG_NAT_CLAIMED || ntohs(c->edge_port) != port ||
		    c->proto != in->proto || c->v6 != in->v6)
			continue;
		*o = (struct owner){ .is_known = true, .port = ntohs(c->client_port) };
		memcpy(o->addr, &addrs[i].addr[HG_NAT_CLIENT][in->v6 ? 0 : 3], in->v6 ? 16 : 4);
	}
}

/* Copies what may differ from `in` to `out`, then compares all of both. */
static const char *judge_rest(const struct view *in, const struct view *out, size_t trailer)
{
	const size_t ip_len = (size_t)(in->l4 - in->ip), size = in->ip_len + trailer;
	uint8_t copy[sizeof(((struct pktbuf *)0)->data)];
	size_t check = is_icmp(in) ? 2 : in->proto == 6 ? 16 : 6;

	if (out->l4 - out->ip != in->l4 - in->ip || out->ip_len != in->ip_len)
		return "other lengths";
	memcpy(copy, out->ip, size);
	copy[in->v6 ? 7 : 8]++;
	memcpy(copy + (in->v6 ? 8 : 12), addr_in(in, false), in->v6 ? 32 : 8);
	if (!in->v6)
		memcpy(copy + 10, in->ip + 10, 2);
	if (in->is_later)
		return memcmp(copy, in->ip, size) ? "bytes of a later fragment" : NULL;
	memcpy(copy + ip_len + check, in->l4 + check, 2);
	if (!is_icmp(in))
		memcpy(copy + ip_len, in->l4, 4);
	else /* the quote: its sums are in the error's */
		memcpy(copy + ip_len + 8, in->l4 + 8, in->l4_len - 8);
	return memcmp(copy, in->ip, size) ? "bytes changed that nobody has to change" : NULL;
}

static const char *judge_sums(const struct view *in, const struct view *out)
{
	if (!in->v6 && sum_of(0, in->ip, (size_t)(in->l4 - in->ip)) !=
			       sum_of(0, out->ip, (size_t)(out->l4 - out->ip)))
		return "the header's sum";
	if (in->is_later)
		return NULL;
	if (in->proto == 17 && !in->l4[6] && !in->l4[7])
		return out->l4[6] || out->l4[7] ? "a sum where there was none" : NULL;
	if (in->proto == 17 && !out->l4[6] && !out->l4[7])
		return "no sum where there was one";
	return l4_sum(in) != l4_sum(out) ? "the transport's sum" : NULL;
}

static const char *judge_out(const struct view *in, const struct view *out)
{
	const bool udp = in->proto == 17;
	unsigned port = port_in(out, false);
	struct owner *o;

	if (!is_addr(out, false, edge[in->v6]) || !is_addr(out, true, backend[in->v6]))
		return "addresses towards the server";
	if (in->is_later)
		return NULL;
	if (is_icmp(in)) {
		seen_error++;
		return NULL;
	}
	if (port < FIRST || port >= FIRST + N_PORTS || port_in(out, true) != (udp ? 53 : BE_PORT))
		return "ports towards the server";
	o = &owners[in->v6][udp][port - FIRST];
	*o = (struct owner){ .is_known = true, .port = (uint16_t)port_in(in, false) };
	memcpy(o->addr, addr_in(in, false), in->v6 ? 16 : 4);
	seen_out++;
	return NULL;
}

static const char *judge_back(const struct view *in, const struct view *out)
{
	const bool udp = in->proto == 17;
	unsigned port = port_in(in, true);
	struct owner *o;

	if (!is_addr(out, false, vip[in->v6]))
		return "source towards the client";
	if (in->is_later)
		return NULL;
	if (is_icmp(in)) {
		seen_error++;
		return NULL;
	}
	if (!is_addr(in, false, backend[in->v6]) || port < FIRST || port >= FIRST + N_PORTS ||
	    port_in(out, false) != (udp ? 53 : 80))
		return "ports towards the client";
	o = &owners[in->v6][udp][port - FIRST];
	if (!o->is_known)
		ask_table(o, in, port);
	if (!o->is_known || o->port != port_in(out, true) ||
	    memcmp(o->addr, addr_in(out, true), in->v6 ? 16 : 4) != 0)
		return "another client's answer";
	seen_back++;
	return NULL;
}

static const char *judge_sent(const struct pktbuf *in, const struct pktbuf *out)
{
	struct view a, b;
	const char *wrong;

	if (!look(&a, in) || !look(&b, out) || a.v6 != b.v6 || a.proto != b.proto)
		return "sent on, but not a packet";
	wrong = judge_sums(&a, &b);
	if (!wrong)
		wrong = judge_rest(&a, &b, (size_t)(in->data + in->len - a.ip) - a.ip_len);
	if (wrong)
		return wrong;
	return is_addr(&a, true, vip[a.v6]) ? judge_out(&a, &b) : judge_back(&a, &b);
}

/* NULL: all is well. */
static const char *run(const struct pktbuf *in)
{
	static const uint64_t may_drop = 1ull << HG_DROP_BAD_HEADER | 1ull << HG_DROP_FRAGMENT |
					 1ull << HG_DROP_TTL | 1ull << HG_DROP_TOO_BIG |
					 1ull << HG_DROP_NAT_UNKNOWN | 1ull << HG_DROP_NAT_FULL;
	uint64_t verdicts[HG_VERDICT_COUNT], drops[HG_DROP_COUNT], n = 0, n_drops = 0;
	const uint64_t begun = lb_events(&lb, HG_EVENT_NAT_NEW);
	const char *wrong;
	struct pktbuf out;
	int action;

	for (unsigned i = 0; i < HG_VERDICT_COUNT; i++)
		verdicts[i] = lb_verdicts(&lb, i);
	for (unsigned i = 0; i < HG_DROP_COUNT; i++)
		drops[i] = lb_drops(&lb, i);
	action = prog_run(lb.prog, in, &out);
	for (unsigned i = 0; i < HG_VERDICT_COUNT; i++)
		n += verdicts[i] = lb_verdicts(&lb, i) - verdicts[i];
	for (unsigned i = 1; i < HG_DROP_COUNT; i++) {
		n_drops += drops[i] = lb_drops(&lb, i) - drops[i];
		if (drops[i] && !(may_drop >> i & 1))
			return "a reason that cannot be";
	}
	if (n != 1 || n_drops != (action == XDP_DROP) ||
	    verdicts[HG_VERDICT_DROP] != (action == XDP_DROP))
		return "verdict and action";
	if (action == XDP_PASS)
		return out.len != in->len || memcmp(out.data, in->data, in->len)
			       ? "passed, but changed"
			       : NULL;
	if (action == XDP_DROP || verdicts[HG_VERDICT_REPLY]) {
		if (lb_events(&lb, HG_EVENT_NAT_NEW) != begun) /* a port may be another's now */
			memset(owners, 0, sizeof(owners));
		return NULL;
	}
	if (action != XDP_TX)
		return "an action that cannot be";
	wrong = judge_sent(in, &out);
	if (wrong)
		pkt_diff(in->data, in->len, out.data, out.len);
	return wrong;
}

/* --- packets ------------------------------------------------------------------------------------------------ */

static void gen_error(struct pktbuf *p, const struct flow *f, bool back,
		      const struct pktbuf *quoted, uint64_t *state)
{
	static const size_t sizes[] = { 8, 20, 60 };
	struct layer eth = back ? (struct layer)FROM : (struct layer)E;
	size_t size = (f->v6 ? 40 : 20) + sizes[rnd(state) % 3];

	if (size > quoted->len - 14)
		size = quoted->len - 14;
	if (f->v6)
		PKT(p, eth, IP6(.src = ROUTER6, .dst = back ? edge[1] : vip[1]),
		    ICMP6(.icmp_type = 2, .icmp_rest = 1300), RAW(quoted->data + 14, size));
	else
		PKT(p, eth, IP4(.src = ROUTER4, .dst = back ? edge[0] : vip[0]),
		    ICMP(.icmp_type = 3, .icmp_code = 4, .icmp_rest = 1300),
		    RAW(quoted->data + 14, size));
}

/* A packet that flow may send now, from either side, or an error about one that was sent on. */
static void gen_nat_packet(struct pktbuf *p, struct flow *f, uint64_t *state)
{
	static const uint8_t flags[] = { TCP_SYN, TCP_SYN, TCP_ACK, TCP_ACK, TCP_ACK,
					 TCP_ACK, SYN_ACK, FIN_ACK, TCP_RST };
	const uint64_t r = rnd(state);
	struct pkt_opts o = { .flags = flags[r % 9],
			      .size = r >> 8 & 31 ? r >> 16 & 255 : 1300 + (r >> 16 & 511),
			      .no_csum = !f->v6 && !(r >> 32 & 7),
			      .ttl = r >> 36 & 31 ? 64 : 1 + (r >> 41 & 1),
			      .frag = r >> 42 & 31 ? 0 : 0x2000 };
	const unsigned what = r >> 48 & 7;
	struct pktbuf sent;

	if (what < 4 || !f->edge_port) {
		to_vip(p, f, &o);
	} else if (what < 6) {
		from_backend(p, f, &o);
	} else {
		if (what == 6)
			to_backend(&sent, f, &o);
		else
			to_client(&sent, f, &o);
		gen_error(p, f, what == 6, &sent, state);
	}
}

/* Where the packet's flow lives now, by the table. */
static void learn_port(struct flow *f)
{
	const struct hg_nat_conn *c = row_of(f);

	f->edge_port = c ? ntohs(c->edge_port) : 0;
}

/* Counts are what the rows say. */
static void check_counts(void)
{
	unsigned n[5] = { 0 };

	for (unsigned i = 0; i < LB_NAT; i++)
		if (hg_nat_is_counted(HG_NAT_STATE(lb.nat_conns[i].life)))
			n[lb.nat_conns[i].backend]++;
	for (unsigned i = 1; i < 5; i++)
		assert_int_equal(lb.live_backends[i].xdp, n[i]);
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s && *s ? strtoull(s, NULL, 0) : otherwise;
}

static void test_random(void **state)
{
	const uint64_t seed = env_number("HG_PACKET_SEED", 1),
		       n = env_number("HG_PACKET_MUTATIONS", 30000);
	static const enum hg_drop must[] = { HG_DROP_BAD_HEADER, HG_DROP_FRAGMENT, HG_DROP_TTL,
					     HG_DROP_NAT_UNKNOWN };
	uint64_t drops[HG_DROP_COUNT] = { 0 };
	struct flow flows[N_FLOWS];

	addrs = map_mmap(lb.skel->maps.nat_addrs, sizeof(*addrs) * LB_NAT);
	print_message("seed %llu, %llu packets\n", (unsigned long long)seed, (unsigned long long)n);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t random = seed << 32 ^ i;
		struct flow *f = &flows[rnd(&random) % N_FLOWS];
		const char *wrong;
		struct pktbuf p;

		if (i % PER_TABLE == 0) {
			for (unsigned d = 1; i && d < HG_DROP_COUNT; d++)
				drops[d] += lb_drops(&lb, d);
			rows(state);
			memset(owners, 0, sizeof(owners));
			for (unsigned k = 0; k < N_FLOWS; k++)
				flows[k] = (struct flow){ .v6 = k & 1,
							  .udp = k & 2,
							  .port = (uint16_t)(40000 + k / 4) };
		}
		gen_nat_packet(&p, f, &random);
		if (rnd(&random) % 3 == 0)
			gen_damage(&p, &random);
		wrong = run(&p);
		if (wrong)
			fail_msg("seed %llu, packet %llu: %s", (unsigned long long)seed,
				 (unsigned long long)i, wrong);
		learn_port(f);
		if (i % 50 == 0)
			check_counts();
	}
	for (unsigned i = 0; n >= 30000 && i < sizeof(must) / sizeof(must[0]); i++)
		if (!drops[must[i]])
			fail_msg("drop reason %u was never given", must[i]);
	assert_true(seen_out > n / 10 && seen_back > n / 50 && seen_error > n / 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_random) };

	return cmocka_run_group_tests_name("nat_fuzz", tests, setup, teardown);
}
