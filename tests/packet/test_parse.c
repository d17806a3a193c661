/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Shapes of packets: what is not for a service passes byte for byte whatever it looks like; what is
 * for one is forwarded whole or dropped by name. Rows, and every prefix of many packets; test_fuzz.c has
 * the random ones.
 * links:
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "packet/edge.h"

#define TO4(a, ...) IP4(.src = CLIENT4, .dst = a, __VA_ARGS__)
#define TO6(a, ...) IP6(.src = CLIENT6, .dst = a, __VA_ARGS__)
#define HTTP	    TCP(.sport = 40000, .dport = 80, .flags = TCP_SYN), DATA(20)

/* VIP4, VIP6: port 80 of TCP and 53 of UDP forwarded, over either outer family. LOCAL4: port 80. */
static int services(void **state)
{
	static const uint16_t ids[] = { 1, 2 };

	lb_clear(&lb);
	LB_BACKEND(&lb, .id = 1, .addr = "10.0.0.21", .src = "10.0.0.1");
	LB_BACKEND(&lb, .id = 2, .addr = "fd00::21", .src = "fd00::1", .ifindex = IFINDEX_OUT);
	for (int udp = 0; udp <= 1; udp++) {
		uint8_t proto = udp ? 17 : 6;
		uint16_t port = udp ? 53 : 80;

		LB_SERVICE(&lb, .addr = VIP4, .port = port, .proto = proto, .id = 1, .slots = 13,
			   .backends = ids, .n = 2);
		LB_SERVICE(&lb, .addr = VIP6, .port = port, .proto = proto, .id = 2, .slots = 13,
			   .backends = ids, .n = 2);
	}
	LB_SERVICE(&lb, .addr = LOCAL4, .port = 80, .id = 3, .mode = HG_MODE_LOCAL);
	return 0;
}

/* Also with a service on any port, so that everything of VIP4 and VIP6 is ours. */
static int services_any(void **state)
{
	static const uint16_t ids[] = { 1, 2 };

	services(state);
	LB_SERVICE(&lb, .addr = VIP4, .proto = ANY_PROTO, .id = 4, .slots = 13, .backends = ids,
		   .n = 2);
	LB_SERVICE(&lb, .addr = VIP6, .proto = ANY_PROTO, .id = 5, .slots = 13, .backends = ids,
		   .n = 2);
	return 0;
}

#define PASSES(...)                                  \
	do {                                         \
		PKT(&in, __VA_ARGS__);               \
		EXPECT(lb.prog, &in, XDP_PASS, &in); \
	} while (0)

static void test_not_ours_passes(void **state)
{
	struct pktbuf in;

	PASSES(ETH(.ethertype = 0x0806), DATA(46));
	PASSES(ETH(.ethertype = 0x0800));
	PASSES(ETH(.ethertype = 0x86dd), DATA(10));
	PASSES(ETH(.ethertype = 0x8100));
	PASSES(E, VLAN(.ethertype = 0x8100));
	PASSES(E, VLAN(), VLAN(), VLAN(.tci = 9), TO4(VIP4),
	       HTTP); /* three tags: not looked into */
	PASSES(ETH(.ethertype = 60), DATA(60)); /* 802.3 length: LLC */
	PASSES(E, TO4(OTHER4), HTTP);
	PASSES(E, TO4(OTHER4, .frag = 0x2000), HTTP);
	PASSES(E, TO4(OTHER4, .frag = 5), DATA(30));
	PASSES(E, TO4(OTHER4, .opt_words = 10), HTTP);
	PASSES(E, TO4(OTHER4, .ihl = 3), HTTP);
	PASSES(E, TO4(OTHER4, .ihl = 15), DATA(10));
	PASSES(E, TO4(OTHER4, .version = 7), HTTP);
	PASSES(E, TO4(OTHER4, .length = 1), HTTP);
	PASSES(E, TO4(OTHER4, .length = 65535), HTTP);
	PASSES(E, TO4(OTHER4, .ttl = 1), HTTP);
	PASSES(E, TO4(OTHER4, .bad_csum = true), HTTP);
	PASSES(E, TO6(OTHER6), EXT(0), EXT(43), EXT(60), EXT(44), EXT(51), EXT(60), EXT(60), HTTP);
	PASSES(E, TO6(OTHER6, .length = 9), HTTP);
	PASSES(E, TO6(OTHER6, .ttl = 1), HTTP);
	PASSES(E, TO6(OTHER6), EXT(60, .opt_words = 200), DATA(10));
	PASSES(E, TO6(OTHER6, .proto = 59), DATA(10));
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_DROP), 0);
}

/* Addresses of services, but nothing that names one of them: for the kernel. */
static void test_vip_without_service(void **state)
{
	struct pktbuf in;

	PASSES(E, TO4(VIP4), ICMP(.icmp_type = 8), DATA(40));
	PASSES(E, TO4(VIP4, .frag = 5, .proto = 6), DATA(30));
	PASSES(E, TO4(VIP4, .ihl = 15), DATA(10));
	PASSES(E, TO4(VIP4, .ihl = 4), HTTP);
	PASSES(E, TO4(VIP4, .version = 6), HTTP);
	PASSES(E, TO4(VIP4, .proto = 6), DATA(3));
	PASSES(E, TO6(VIP6), EXT(44, .frag = 0x100, .proto = 6), DATA(30));
	PASSES(E, TO6(VIP6), EXT(60), EXT(60), EXT(60), EXT(60), EXT(60), EXT(60), EXT(60), HTTP);
	PASSES(E, TO6(VIP6, .proto = 58), DATA(30));
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_PASS_NOT_OURS), 9);
}

#define DROPS(reason, ...)                     \
	do {                                   \
		PKT(&in, __VA_ARGS__);         \
		EXPECT_DROP(&lb, &in, reason); \
	} while (0)

static void test_ours_malformed(void **state)
{
	struct pktbuf in;

	DROPS(HG_DROP_BAD_HEADER, E, TO4(VIP4, .frag = 0x2000, .length = 39), HTTP);
	DROPS(HG_DROP_BAD_HEADER, E, VLAN(), TO4(VIP4, .frag = 0x2000, .opt_words = 1, .length = 9),
	      HTTP);
	DROPS(HG_DROP_BAD_HEADER, E, TO6(VIP6, .length = 27), EXT(44, .frag = 1), HTTP);
	DROPS(HG_DROP_BAD_HEADER, E, TO6(VIP6, .length = 35), EXT(60), EXT(44, .frag = 1), HTTP);
	DROPS(HG_DROP_BAD_HEADER, E, TO4(VIP4, .length = 61), HTTP);
	DROPS(HG_DROP_BAD_HEADER, E, TO4(VIP4, .length = 65535), HTTP);
	DROPS(HG_DROP_BAD_HEADER, E, TO4(VIP4, .length = 39), HTTP);
	DROPS(HG_DROP_BAD_HEADER, E, TO4(VIP4, .length = 19), HTTP);
	DROPS(HG_DROP_BAD_HEADER, E, TO4(VIP4, .length = 27), UDP(.sport = 1, .dport = 53),
	      DATA(20));
	DROPS(HG_DROP_BAD_HEADER, E, TO4(VIP4, .opt_words = 2, .length = 47), HTTP);
	DROPS(HG_DROP_BAD_HEADER, E, TO6(VIP6, .length = 41), HTTP);
	DROPS(HG_DROP_BAD_HEADER, E, TO6(VIP6, .length = 19), HTTP);
	DROPS(HG_DROP_BAD_HEADER, E, TO6(VIP6, .length = 7), UDP(.sport = 1, .dport = 53),
	      DATA(20));
	assert_int_equal(lb_service_counters(&lb, 1).dropped, 8);
	assert_int_equal(lb_service_counters(&lb, 2).dropped, 5);
	/* A length field beyond the frame is not believed by the counters either. */
	assert_true(lb_service_counters(&lb, 1).bytes <= 8 * 80);
}

/* Small but whole UDP, below the length of a TCP header. */
static void test_short_udp(void **state)
{
	struct pktbuf in, out;

	for (size_t n = 0; n < 16; n++) {
		PKT(&in, E, TO4(VIP4), UDP(.sport = 5, .dport = 53), DATA(n));
		assert_true(prog_run(lb.prog, &in, &out) >= XDP_TX);
		PKT(&in, E, TO6(VIP6), UDP(.sport = 5, .dport = 53), DATA(n));
		assert_true(prog_run(lb.prog, &in, &out) >= XDP_TX);
	}
	assert_int_equal(lb_verdicts(&lb, HG_VERDICT_DROP), 0);
}

/* A fragment header on a packet that is whole (RFC 6946). */
static void test_atomic_fragment(void **state)
{
	struct pktbuf in, out;

	PKT(&in, E, TO6(VIP6), EXT(44), HTTP);
	assert_true(prog_run(lb.prog, &in, &out) >= XDP_TX);
	assert_int_equal(lb_service_counters(&lb, 2).forwarded, 1);
}

static size_t ip_offset(const struct pktbuf *p, unsigned *type)
{
	size_t off = 12;

	*type = 0;
	for (int tags = 0; off + 2 <= p->len; tags++, off += 4) {
		*type = (unsigned)p->data[off] << 8 | p->data[off + 1];
		if ((*type != 0x8100 && *type != 0x88a8) || tags == 2)
			break;
	}
	return off + 2;
}

/* Whether the destination address is a service's: all an outsider may know without parsing more. */
static bool to_service(const struct pktbuf *p)
{
	unsigned type;
	size_t off = ip_offset(p, &type);
	__be32 vip4[4], vip6[4], local[4];

	addr_of(vip4, VIP4);
	addr_of(local, LOCAL4);
	addr_of(vip6, VIP6);
	if (type == 0x0800 && p->len >= off + 20)
		return !memcmp(p->data + off + 16, &vip4[3], 4) ||
		       !memcmp(p->data + off + 16, &local[3], 4);
	if (type == 0x86dd && p->len >= off + 40) /* IPv4-mapped ones are the IPv4 services */
		return !memcmp(p->data + off + 24, vip6, 16) ||
		       !memcmp(p->data + off + 24, vip4, 16) ||
		       !memcmp(p->data + off + 24, local, 16);
	return false;
}

/* What a packet must be to be sent on: lengths that agree, a TTL to spend, room. */
static bool forwardable(const struct pktbuf *in, size_t off, unsigned type, size_t outer)
{
	const uint8_t *ip = in->data + off;
	size_t have = in->len - off, len, head;

	if (type == 0x86dd) {
		len = 40 + ((size_t)ip[4] << 8 | ip[5]);
		return ip[0] >> 4 == 6 && len <= have && ip[7] > 1 && len + outer <= 1500;
	}
	len = (size_t)ip[2] << 8 | ip[3];
	head = (ip[0] & 15) * 4u;
	if (!((ip[6] << 8 | ip[7]) & 0x1fff) &&
	    ((ip[9] == 6 && len < head + 20) || (ip[9] == 17 && len < head + 8)))
		return false;
	return ip[0] >> 4 == 4 && head >= 20 && len >= head && len <= have && ip[8] > 1 &&
	       len + outer <= 1500;
}

/* The frame without its tags: the next hops here know none. */
static void untag(struct pktbuf *p)
{
	unsigned type;
	size_t tags = ip_offset(p, &type) - 14;

	memmove(p->data + 12, p->data + 12 + tags, p->len - 12 - tags);
	p->len -= tags;
}

/* The inner packet as it came but for TTL and header checksum, behind a head of 20 or 40 bytes. */
static bool forwarded_whole(const struct pktbuf *tagged, const struct pktbuf *out)
{
	struct pktbuf a = *tagged, b = *out;
	const struct pktbuf *in = &a;
	unsigned type, outer_type;
	size_t off, outer;

	untag(&a);
	off = ip_offset(in, &type);
	outer = out->len - in->len;
	if (out->len <= in->len || (outer != 20 && outer != 40))
		return false;
	if (ip_offset(out, &outer_type) != off || outer_type != (outer == 20 ? 0x0800u : 0x86ddu))
		return false;
	if (!forwardable(in, off, type, outer))
		return false;
	if (outer == 20 && pkt_checksum(out->data + off, 20, 0))
		return false;
	memmove(b.data, b.data + outer, in->len);
	memset(a.data, 0, off);
	memset(b.data, 0, off);
	if (type == 0x0800) {
		a.data[off + 8]--;
		memset(a.data + off + 10, 0, 2);
		memset(b.data + off + 10, 0, 2);
	} else {
		a.data[off + 7]--;
	}
	return !memcmp(a.data, b.data, in->len);
}

/* The property that holds for any frame at all. */
static void check_any(const struct pktbuf *in)
{
	struct hg_verdict_counters before = { 0 }, after = { 0 };
	struct pktbuf out;
	uint64_t changed = 0;
	int action;
	bool ok;

	for (int i = 0; i < HG_VERDICT_COUNT; i++)
		before.verdict[i] = lb_verdicts(&lb, i);
	action = prog_run(lb.prog, in, &out);
	for (int i = 0; i < HG_VERDICT_COUNT; i++) {
		after.verdict[i] = lb_verdicts(&lb, i);
		changed += after.verdict[i] - before.verdict[i];
	}
	ok = changed == 1;
	if (action == XDP_PASS)
		ok = ok && out.len == in->len && !memcmp(out.data, in->data, in->len);
	else if (action == XDP_TX || action == XDP_REDIRECT)
		ok = ok && to_service(in) && forwarded_whole(in, &out);
	else
		ok = ok && action == XDP_DROP && to_service(in);
	if (ok)
		return;
	pkt_diff(in->data, in->len, out.data, out.len);
	fail_msg("action %d, %llu verdicts counted, %s", action, (unsigned long long)changed,
		 to_service(in) ? "address of a service" : "not ours");
}

#define N_TEMPLATES 16

static void make_template(struct pktbuf *p, unsigned i, bool ours)
{
	const char *v4 = ours ? VIP4 : OTHER4, *v6 = ours ? VIP6 : OTHER6;

	switch (i) {
	case 0:
		PKT(p, E, TO4(v4), HTTP);
		break;
	case 1:
		PKT(p, E, TO6(v6), HTTP);
		break;
	case 2:
		PKT(p, E, TO4(v4), UDP(.sport = 9, .dport = 53), DATA(40));
		break;
	case 3:
		PKT(p, E, TO6(v6), UDP(.sport = 9, .dport = 53), DATA(40));
		break;
	case 4:
		PKT(p, E, VLAN(.tci = 5), TO4(v4, .opt_words = 4), HTTP);
		break;
	case 5:
		PKT(p, ETH(.ethertype = 0x88a8), VLAN(.tci = 5), VLAN(.tci = 6), TO6(v6), EXT(60),
		    HTTP);
		break;
	case 6:
		PKT(p, E, TO6(v6), EXT(0, .opt_words = 1), EXT(43), EXT(51),
		    EXT(60, .opt_words = 3), HTTP);
		break;
	case 7:
		PKT(p, E, TO6(v6), EXT(44, .frag = 1), HTTP);
		break;
	case 8:
		PKT(p, E, TO4(v4, .frag = 0x2000), HTTP);
		break;
	case 9:
		PKT(p, E, TO4(v4, .frag = 0x0010, .proto = 17), DATA(64));
		break;
	case 10:
		PKT(p, E, TO4(v4), ICMP(.icmp_type = 3, .icmp_code = 4),
		    IP4(.src = v4, .dst = CLIENT4), TCP(.sport = 80, .dport = 9));
		break;
	case 11:
		PKT(p, E, TO4(v4, .opt_words = 10), TCP(.sport = 5, .dport = 80, .opt_words = 10),
		    DATA(100));
		break;
	case 12:
		PKT(p, E, TO4(LOCAL4), HTTP);
		break;
	case 13:
		PKT(p, E, TO6(v6), ICMP6(.icmp_type = 2), IP6(.src = v6, .dst = CLIENT6),
		    UDP(.sport = 53, .dport = 9), DATA(30));
		break;
	case 14:
		PKT(p, E, TO6(v6), EXT(44, .frag = 0x100, .proto = 6), DATA(64));
		break;
	default:
		PKT(p, E, TO4(v4), TO6(v6), HTTP);
	}
}

static void test_every_prefix(void **state)
{
	for (unsigned i = 0; i < N_TEMPLATES; i++)
		for (int ours = 0; ours <= 1; ours++) {
			struct pktbuf whole, in;

			make_template(&whole, i, ours);
			for (size_t len = 14; len <= whole.len; len++) {
				in = whole;
				in.len = len;
				check_any(&in);
			}
		}
}

/* Prefixes whose own length field agrees with the cut, so that they get further. */
static void test_every_prefix_agreeing(void **state)
{
	for (unsigned i = 0; i < N_TEMPLATES; i++) {
		struct pktbuf whole, in;
		unsigned type;
		size_t off;

		make_template(&whole, i, true);
		off = ip_offset(&whole, &type);
		for (size_t len = off + 8; len <= whole.len; len++) {
			size_t rest = len - off;

			in = whole;
			in.len = len;
			if (type == 0x0800) {
				in.data[off + 2] = (uint8_t)(rest >> 8);
				in.data[off + 3] = (uint8_t)rest;
			} else {
				rest = rest > 40 ? rest - 40 : 0;
				in.data[off + 4] = (uint8_t)(rest >> 8);
				in.data[off + 5] = (uint8_t)rest;
			}
			check_any(&in);
		}
	}
}

int main(void)
{
#define ROW(f) cmocka_unit_test_setup(f, services)
#define ANY(f) { #f " (any port)", f, services_any, NULL, NULL }
	const struct CMUnitTest tests[] = {
		ROW(test_not_ours_passes),	 ROW(test_vip_without_service),
		ROW(test_ours_malformed),	 ROW(test_short_udp),
		ROW(test_atomic_fragment),	 ROW(test_every_prefix),
		ANY(test_every_prefix),		 ROW(test_every_prefix_agreeing),
		ANY(test_every_prefix_agreeing),
	};

	return cmocka_run_group_tests_name("parse", tests, edge_setup, edge_teardown);
}
