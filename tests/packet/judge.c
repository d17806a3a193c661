/* SPDX-License-Identifier: BSD-2-Clause */
#include "packet/judge.h"

#include <arpa/inet.h>
#include <string.h>

#include "packet/fuzz.h"

/* One thing that must hold: what was seen otherwise is the answer. */
#define MUST(cond, what)             \
	do {                         \
		if (!(cond))         \
			return what; \
	} while (0)
/* An answer of a part is the answer. */
#define PASS_ON(call)                   \
	do {                            \
		const char *no_ = call; \
		if (no_)                \
			return no_;     \
	} while (0)

#define NO_SERVICE (-1)

struct scene {
	const struct fuzz *f;
	const struct pktbuf *in, *out;
	const struct deltas *d;
	struct view v;
	enum hg_verdict verdict;
	int svc; /* the service that was counted */
	uint32_t be; /* the backend that was counted, 0: none */
};

static bool same_frame(const struct pktbuf *a, const struct pktbuf *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* --- counters ----------------------------------------------------------------------------------- */

/* The one verdict, with its action; a drop's one reason. */
static const char *judge_verdict(const struct hg_verdict_counters *d, int action,
				 enum hg_verdict *ret)
{
	static const int actions[HG_VERDICT_COUNT] = {
		[HG_VERDICT_PASS_NOT_IP] = XDP_PASS,  [HG_VERDICT_PASS_NOT_OURS] = XDP_PASS,
		[HG_VERDICT_PASS_LOCAL] = XDP_PASS,   [HG_VERDICT_TX] = XDP_TX,
		[HG_VERDICT_REDIRECT] = XDP_REDIRECT, [HG_VERDICT_DROP] = XDP_DROP,
		[HG_VERDICT_DECAP] = XDP_PASS,	      [HG_VERDICT_REPLY] = XDP_TX,
	};
	unsigned verdicts = 0, reasons = 0, reason = 0;

	for (unsigned i = 0; i < 8; i++) {
		verdicts += (unsigned)d->verdict[i];
		if (d->verdict[i])
			*ret = i;
	}
	for (unsigned i = 0; i < 32; i++) {
		reasons += (unsigned)d->drop[i];
		if (d->drop[i])
			reason = i;
	}
	MUST(verdicts == 1, "not exactly one verdict counted");
	MUST(actions[*ret] == action, "the action is not the verdict's");
	MUST(reasons == (*ret == HG_VERDICT_DROP), "reasons counted do not match the verdict");
	if (*ret == HG_VERDICT_DROP)
		MUST(reason != HG_DROP_NONE && reason != HG_DROP_INTERNAL && reason < HG_DROP_COUNT,
		     "a drop for an impossible reason");
	return NULL;
}

static const char *judge_counts(struct scene *s)
{
	const struct hg_service_counters *c = NULL;
	unsigned n = 0;

	s->svc = NO_SERVICE;
	for (int i = 0; i < FUZZ_SERVICES; i++) {
		n += (unsigned)s->d->svc[i].packets;
		if (s->d->svc[i].packets) {
			s->svc = i;
			c = &s->d->svc[i];
		}
	}
	MUST(n <= 1, "more than one service counted");
	n = 0;
	for (uint32_t i = 0; i < FUZZ_BACKENDS; i++) {
		n += (unsigned)s->d->be[i].packets;
		if (s->d->be[i].packets)
			s->be = i;
	}
	MUST(n == (s->verdict == HG_VERDICT_TX || s->verdict == HG_VERDICT_REDIRECT),
	     "a backend is counted with TX and REDIRECT, and only then");
	if (s->verdict == HG_VERDICT_PASS_NOT_IP || s->verdict == HG_VERDICT_PASS_NOT_OURS) {
		MUST(!c, "nobody's packet counted for a service");
		return NULL;
	}
	MUST(c, "no service counted");
	MUST(s->f->services[s->svc], "a service that is not there was counted");
	MUST(c->forwarded == n, "forwarded");
	MUST(c->local == (s->verdict == HG_VERDICT_PASS_LOCAL), "local");
	MUST(c->dropped == (s->verdict == HG_VERDICT_DROP), "dropped");
	MUST(c->answered == (s->verdict == HG_VERDICT_REPLY), "answered");
	MUST(c->bytes == s->v.l3_len, "bytes of the service");
	MUST(!s->be || s->d->be[s->be].bytes == s->v.l3_len, "bytes of the backend");
	return NULL;
}

/* --- who it is for ------------------------------------------------------------------------------ */

static const struct hg_service *find(const struct fuzz *f, const uint8_t addr[16], uint16_t port,
				     uint8_t proto, bool addr_row)
{
	for (unsigned i = 0; i < FUZZ_SERVICES; i++) {
		const struct hg_service *s = f->services[i];

		if (s && memcmp(s->key.addr, addr, 16) == 0 && s->key.port == htons(port) &&
		    s->key.proto == proto && (s->mode == HG_MODE_ADDR) == addr_row)
			return s;
	}
	return NULL;
}

/* What the look-up order says; for packets that are not ICMP and no later fragments. */
static const struct hg_service *expected_service(const struct scene *s)
{
	const struct view *v = &s->v;
	const struct hg_service *svc = NULL;

	if (v->has_ports)
		svc = find(s->f, v->dst, v->dport, v->proto, false);
	if (!svc)
		svc = find(s->f, v->dst, 0, v->proto, false);
	return svc ? svc : find(s->f, v->dst, 0, 0, false);
}

static bool is_service_address(const struct scene *s)
{
	for (unsigned i = 0; i < FUZZ_SERVICES; i++)
		if (s->f->services[i] && memcmp(s->f->services[i]->key.addr, s->v.dst, 16) == 0)
			return true;
	return false;
}

static const char *judge_service(const struct scene *s)
{
	bool is_icmp = s->v.proto == (s->v.v6 ? 58 : 1) || s->v.proto == (s->v.v6 ? 1 : 58);
	const struct hg_service *svc = s->svc == NO_SERVICE ? NULL : s->f->services[s->svc];

	MUST(s->v.is_ip == (s->verdict != HG_VERDICT_PASS_NOT_IP), "IP or not");
	if (!s->v.is_whole || !is_service_address(s)) {
		MUST(!svc, "a packet to no address of a service was not passed");
		return NULL;
	}
	if (svc)
		MUST(memcmp(svc->key.addr, s->v.dst, 16) == 0, "a service of another address");
	if (is_icmp || s->v.is_later || s->v.is_deep)
		return NULL;
	MUST(svc == expected_service(s), "not the service that the look-up order says");
	if (!svc)
		return NULL;
	MUST((svc->mode == HG_MODE_LOCAL) == (s->verdict == HG_VERDICT_PASS_LOCAL),
	     "services of the L7 tier pass, and only those");
	if (svc->mode != HG_MODE_LOCAL)
		MUST(s->v.has_defect == (s->d->all.drop[HG_DROP_BAD_HEADER] == 1),
		     "faults are drops, and only those");
	return NULL;
}

/* The owner by hash and table, where no memory of flows takes part. */
static uint32_t owner_of(const struct scene *s, const struct hg_service *svc)
{
	bool hash_ports = s->v.has_ports && !(svc->flags & HG_SVC_NO_PORT_HASH);
	struct hg_flow_key k = { .proto = s->v.proto };
	uint32_t slot;

	memcpy(k.src, s->v.src, 16);
	memcpy(k.dst, s->v.dst, 16);
	if (hash_ports) {
		k.sport = htons(s->v.sport);
		k.dport = htons(s->v.dport);
	}
	slot = hg_flow_slot(hg_flow_hash(&k, LB_SEED), svc->slots);
	return s->f->lb.slots[svc->slots_block + slot / HG_SLOTS_PER_BLOCK]
		.slot[slot % HG_SLOTS_PER_BLOCK];
}

static const char *judge_backend(const struct scene *s)
{
	const struct hg_backend *b = &s->f->lb.backends[s->be];
	const struct hg_service *svc = s->f->services[s->svc];
	uint32_t word;

	MUST(b->flags & HG_BE_VALID, "sent to a backend that is not valid");
	MUST(b->neigh.state & HG_NEIGH_OK, "sent without next hop");
	MUST((b->ifindex == IFINDEX_IN) == (s->verdict == HG_VERDICT_TX), "TX or REDIRECT");
	if (s->v.is_later || s->v.is_deep || s->v.proto == 1 || s->v.proto == 58 ||
	    svc->flags & (HG_SVC_QUIC_CID | HG_SVC_TRACK_ON))
		return NULL;
	word = owner_of(s, svc);
	if (word & HG_SLOT_TRACKED)
		MUST(s->be == HG_SLOT_CURRENT(word) || s->be == HG_SLOT_BASE(word),
		     "neither the old nor the new owner");
	else
		MUST(s->be == HG_SLOT_CURRENT(word), "not the slot's owner");
	return NULL;
}

/* --- the frame ---------------------------------------------------------------------------------- */

/* The packet at `off` of the result is the one that came in, one TTL older. */
static const char *judge_inner(const struct scene *s, size_t off)
{
	const uint8_t *in = s->in->data + s->v.l3, *out = s->out->data + off;
	size_t n = s->in->len - s->v.l3, ttl = s->v.v6 ? 7 : 8;

	MUST(off + n == s->out->len, "inner packet of another length");
	MUST(s->v.ttl > 1 && out[ttl] == s->v.ttl - 1, "TTL");
	for (size_t i = 0; i < n; i++) {
		if (i == ttl || (!s->v.v6 && (i == 10 || i == 11)))
			continue;
		MUST(in[i] == out[i], "inner packet changed");
	}
	if (!s->v.v6)
		MUST(sums_agree(in, out, 20), "checksum of the inner header");
	return NULL;
}

/* The tags that the next hop wants, as they should be in the frame; how many bytes. */
static size_t tags_wanted(const struct scene *s, const struct hg_backend *b, uint8_t tags[8])
{
	uint16_t vlan = b->neigh.state >> HG_NEIGH_VLAN_SHIFT;
	size_t had = s->v.type_off - 12;

	if (b->neigh.state & HG_NEIGH_KEEP_TAGS) {
		memcpy(tags, s->in->data + 12, had);
		return had;
	}
	if (!vlan)
		return 0;
	tags[0] = b->neigh.state & HG_NEIGH_TAG_AD ? 0x88 : 0x81;
	tags[1] = b->neigh.state & HG_NEIGH_TAG_AD ? 0xa8 : 0x00;
	tags[2] = (uint8_t)((had ? s->in->data[14] & 0xf0 : 0) | vlan >> 8);
	tags[3] = (uint8_t)vlan;
	return 4;
}

/* Sets where the IP header should be. */
static const char *judge_link(const struct scene *s, const struct hg_backend *b, size_t *ret_l3)
{
	uint8_t tags[8];
	size_t n = tags_wanted(s, b, tags);

	*ret_l3 = 14 + n;
	MUST(s->out->len >= *ret_l3 + 20, "no room for a header");
	MUST(memcmp(s->out->data, b->neigh.mac, 6) == 0, "destination MAC");
	MUST(memcmp(s->out->data + 6, b->src_mac, 6) == 0, "source MAC");
	MUST(memcmp(tags, s->out->data + 12, n) == 0, "VLAN tags");
	return NULL;
}

/* `src` with bits of the mask left to the program. */
static bool is_outer_source(const uint8_t *src, const struct hg_backend *b, size_t len)
{
	uint8_t want[16], got[16];
	const uint8_t *mask = (const uint8_t *)&b->entropy_mask;

	memcpy(want, (const uint8_t *)b->outer_src + 16 - len, len);
	memcpy(got, src, len);
	for (unsigned i = 0; i < 4; i++)
		got[len - 4 + i] &= (uint8_t)~mask[i];
	return memcmp(want, got, len) == 0;
}

static const char *judge_outer4(const struct scene *s, const struct hg_backend *b,
				const uint8_t *ip, size_t len)
{
	MUST(ip[0] == 0x45 && ip[1] == s->v.tos, "outer version or TOS");
	MUST(get16(ip + 2) == len, "outer total length");
	MUST(get16(ip + 4) == 0 && get16(ip + 6) == 0x4000 && ip[8] == 64, "outer id, DF, TTL");
	MUST(pkt_checksum(ip, 20, 0) == 0, "outer checksum");
	MUST(is_outer_source(ip + 12, b, 4), "outer source");
	MUST(memcmp(ip + 16, &b->addr[3], 4) == 0, "outer destination");
	return NULL;
}

static const char *judge_outer6(const struct scene *s, const struct hg_backend *b,
				const uint8_t *ip, size_t len)
{
	MUST(ip[0] >> 4 == 6 && (uint8_t)(get16(ip) >> 4) == s->v.tos, "outer version or class");
	MUST(get16(ip + 4) + 40u == len, "outer payload length");
	MUST(ip[7] == 64, "outer hop limit");
	MUST(is_outer_source(ip + 8, b, 16), "outer source");
	MUST(memcmp(ip + 24, b->addr, 16) == 0, "outer destination");
	return NULL;
}

/* UDP and GUE at `udp`, `rest` bytes to the end of the packet; sets the bytes both take. */
static const char *judge_gue(const struct scene *s, const uint8_t *udp, bool outer6, size_t *ret)
{
	const struct hg_service *svc = s->f->services[s->svc];
	const uint8_t *gue = udp + 8, *alt = gue + 4;
	size_t words = gue[0];

	MUST(get16(udp) >= 49152 && get16(udp + 2) == 6080 && get16(udp + 6) == 0, "outer UDP");
	MUST(gue[1] == (s->v.v6 ? 41 : 4) && get16(gue + 2) == 0, "GUE header");
	*ret = 12 + 4 * words;
	MUST(get16(udp + 4) == s->v.l3_len + *ret, "UDP length");
	if (!words)
		return NULL;
	MUST(words == (outer6 ? 5 : 2), "GUE header length");
	MUST(svc->slots && s->f->lb.slots[svc->slots_block].slot[0] & HG_SLOT_TRACKED,
	     "an alternative though no slot has moved");
	MUST(alt[0] == 'H' && alt[1] == 1 && alt[2] == 1 && alt[3] == (outer6 ? 6 : 4),
	     "head of the alternative");
	for (uint32_t i = 1; i < FUZZ_BACKENDS; i++) {
		const struct hg_backend *b = &s->f->lb.backends[i];
		const uint8_t *addr = (const uint8_t *)b->addr + (outer6 ? 0 : 12);

		if (i != s->be && (b->flags & HG_BE_USABLE) == HG_BE_USABLE &&
		    memcmp(alt + 4, addr, outer6 ? 16 : 4) == 0)
			return NULL;
	}
	return "an alternative that is no usable other backend";
}

static const char *judge_tunnel(const struct scene *s, const struct hg_backend *b, size_t l3,
				bool is_gue)
{
	bool outer6 = b->flags & HG_BE_OUTER_V6;
	size_t outer = outer6 ? 40 : 20, extra = 0, len;
	const uint8_t *ip = s->out->data + l3;
	uint8_t proto = s->v.v6 ? 41 : 4;

	MUST(s->out->len >= l3 + outer + (is_gue ? 32 : 0), "no room for an outer header");
	MUST(get16(s->out->data + l3 - 2) == (outer6 ? 0x86dd : 0x0800), "outer type");
	if (is_gue) {
		PASS_ON(judge_gue(s, ip + outer, outer6, &extra));
		proto = 17;
	}
	len = s->v.l3_len + outer + extra;
	MUST(len <= b->mtu, "larger than the MTU");
	MUST(ip[outer6 ? 6 : 9] == proto, "outer protocol");
	PASS_ON(outer6 ? judge_outer6(s, b, ip, len) : judge_outer4(s, b, ip, len));
	return judge_inner(s, l3 + outer + extra);
}

static const char *judge_forwarded(const struct scene *s)
{
	const struct hg_backend *b = &s->f->lb.backends[s->be];
	size_t l3;

	PASS_ON(judge_backend(s));
	PASS_ON(judge_link(s, b, &l3));
	switch (s->f->services[s->svc]->mode) {
	case HG_MODE_IPIP:
		return judge_tunnel(s, b, l3, false);
	case HG_MODE_GUE:
		return judge_tunnel(s, b, l3, true);
	case HG_MODE_L2:
		MUST(s->v.l3_len <= b->mtu, "larger than the MTU");
		MUST(get16(s->in->data + s->v.type_off) == get16(s->out->data + l3 - 2), "type");
		return judge_inner(s, l3);
	default:
		return "forwarded for a service that does not forward";
	}
}

/* --- answers ------------------------------------------------------------------------------------ */

static const char *judge_way_back(const struct scene *s, const uint8_t *out_ip)
{
	size_t n = s->v.v6 ? 16 : 4, src = s->v.v6 ? 8 : 12;

	MUST(memcmp(s->out->data, s->in->data + 6, 6) == 0 &&
		     memcmp(s->out->data + 6, s->in->data, 6) == 0,
	     "MACs not turned round");
	MUST(memcmp(s->out->data + 12, s->in->data + 12, s->v.l3 - 12) == 0, "tags or type");
	MUST(memcmp(out_ip + src, s->v.dst + 16 - n, n) == 0 &&
		     memcmp(out_ip + src + n, s->v.src + 16 - n, n) == 0,
	     "addresses not turned round");
	return NULL;
}

/* RFC 1122 3.2.2, RFC 4443 2.4 (e.6): who may be sent an answer at all. */
static bool is_single_host(const struct view *v)
{
	static const uint8_t unspecified[16];

	if (v->v6)
		return v->src[0] != 0xff && memcmp(v->src, unspecified, 16) != 0;
	return v->src[12] && v->src[12] != 127 && v->src[12] < 224;
}

static const char *judge_echo(const struct scene *s)
{
	const uint8_t *in = s->in->data, *out = s->out->data;
	size_t l4 = s->v.l4, n = s->v.l3_len + s->v.l3 - l4;

	MUST(s->out->len == s->in->len, "echo reply of another length");
	MUST(find(s->f, s->v.dst, 0, s->v.v6 ? 58 : 1, true), "echo for a strange address");
	MUST(is_single_host(&s->v), "echo to a group or to nobody");
	PASS_ON(judge_way_back(s, out + s->v.l3));
	MUST(in[l4] == (s->v.v6 ? 128 : 8) && out[l4] == (s->v.v6 ? 129 : 0), "ICMP type");
	MUST(out[s->v.l3 + (s->v.v6 ? 7 : 8)] == 64, "TTL");
	MUST(memcmp(in + l4 + 4, out + l4 + 4, s->in->len - l4 - 4) == 0, "echo data changed");
	if (!s->v.v6) {
		MUST((pkt_checksum(in + s->v.l3, 20, 0) == 0) ==
			     (pkt_checksum(out + s->v.l3, 20, 0) == 0),
		     "header checksum");
		MUST((pkt_checksum(in + l4, n, 0) == 0) == (pkt_checksum(out + l4, n, 0) == 0),
		     "ICMP checksum");
	} else {
		/* The type fell by one in a word that is covered once: 128 to 129 adds 0x0100. */
		MUST((get16(out + l4 + 2) + 0x0100u) % 0xffff == get16(in + l4 + 2) % 0xffff,
		     "ICMPv6 checksum");
	}
	return NULL;
}

static const char *judge_too_big4(const struct scene *s, const uint8_t *ip)
{
	MUST(s->out->len == s->v.l3 + 576 && get16(ip + 2) == 576, "length of the message");
	MUST(ip[0] == 0x45 && ip[9] == 1 && pkt_checksum(ip, 20, 0) == 0, "header of the message");
	MUST(pkt_checksum(ip + 20, 556, 0) == 0, "checksum of the message");
	MUST(ip[20] == 3 && ip[21] == 4, "type of the message");
	MUST(get16(ip + 26) < s->v.l3_len && get16(ip + 26) >= 1200, "MTU of the message");
	MUST(memcmp(ip + 28, s->in->data + s->v.l3, 548) == 0, "quote");
	return NULL;
}

static const char *judge_too_big6(const struct scene *s, const uint8_t *ip)
{
	uint32_t pseudo = 1240 + 58;

	MUST(s->out->len == s->v.l3 + 1280 && get16(ip + 4) == 1240, "length of the message");
	for (unsigned i = 8; i < 40; i += 2)
		pseudo += get16(ip + i);
	MUST(ip[0] == 0x60 && ip[6] == 58, "header of the message");
	MUST(pkt_checksum(ip + 40, 1240, pseudo) == 0, "checksum of the message");
	MUST(ip[40] == 2 && ip[41] == 0, "type of the message");
	MUST(get16(ip + 46) < s->v.l3_len && get16(ip + 46) >= 1280, "MTU of the message");
	MUST(memcmp(ip + 48, s->in->data + s->v.l3, 1232) == 0, "quote");
	return NULL;
}

static const char *judge_reply(const struct scene *s)
{
	const uint8_t *ip = s->out->data + s->v.l3;

	if (s->d->all.event[HG_EVENT_ECHO])
		return judge_echo(s);
	MUST(s->d->all.event[HG_EVENT_TOO_BIG_SENT], "an answer that is no event");
	MUST(s->v.proto != 1 && s->v.proto != 58, "a message about ICMP");
	MUST(s->v.v6 || !s->v.is_later, "a message about a later fragment");
	MUST(is_single_host(&s->v), "a message to a group or to nobody");
	MUST(s->out->len > s->v.l3 + 48, "message cut short");
	PASS_ON(judge_way_back(s, ip));
	return s->v.v6 ? judge_too_big6(s, ip) : judge_too_big4(s, ip);
}

const char *judge_balancer(const struct fuzz *f, const struct pktbuf *in, int action,
			   const struct pktbuf *out, const struct deltas *d)
{
	struct scene s = { .f = f, .in = in, .out = out, .d = d };

	view_read(&s.v, in);
	PASS_ON(judge_verdict(&d->all, action, &s.verdict));
	MUST(s.verdict != HG_VERDICT_DECAP, "a verdict of the agent");
	PASS_ON(judge_counts(&s));
	PASS_ON(judge_service(&s));
	switch (s.verdict) {
	case HG_VERDICT_DROP:
		return NULL;
	case HG_VERDICT_TX:
	case HG_VERDICT_REDIRECT:
		return judge_forwarded(&s);
	case HG_VERDICT_REPLY:
		return judge_reply(&s);
	default:
		MUST(same_frame(in, out), "a packet that passes was changed");
		return NULL;
	}
}

/* --- the agent ---------------------------------------------------------------------------------- */

struct shell {
	size_t len; /* bytes in front of the inner packet */
	const uint8_t *alt; /* of GUE, NULL: none that could be used */
	bool inner6;
};

/* The tunnel around a packet, by a reading of its own; false: no tunnel, or none for us. */
static bool read_shell(const struct view *v, const struct pktbuf *in, struct shell *sh)
{
	static const struct {
		const char *addr;
		bool ipip, gue;
	} here[] = { { FUZZ_HERE4, true, true },
		     { FUZZ_HERE6, true, true },
		     { FUZZ_GUE_ONLY4, false, true },
		     { FUZZ_IPIP_ONLY6, true, false } };
	bool ipip = v->proto == 4 || v->proto == 41;
	const uint8_t *udp = in->data + v->l4, *gue = udp + 8;
	__be32 addr[4];

	*sh = (struct shell){ .len = v->l4 - v->l3, .inner6 = v->proto == 41 };
	if (!v->l4 || v->is_fragment || (!ipip && v->proto != 17))
		return false;
	for (unsigned i = 0;; i++) {
		if (i == sizeof(here) / sizeof(here[0]))
			return false;
		addr_of(addr, here[i].addr);
		if (memcmp(addr, v->dst, 16) == 0 && (ipip ? here[i].ipip : here[i].gue))
			break;
	}
	if (ipip)
		return true;
	if (v->l4 + 12 > in->len || get16(udp + 2) != 6080)
		return false;
	if (gue[0] >> 6 == 1) {
		sh->len += 8;
		sh->inner6 = gue[0] >> 4 == 6;
		return true;
	}
	if (gue[0] & 0xe0 || (gue[1] != 4 && gue[1] != 41))
		return false;
	sh->len += 12 + 4u * (gue[0] & 0x1f);
	sh->inner6 = gue[1] == 41;
	if ((gue[0] & 0x1f) >= (v->v6 ? 5 : 2))
		sh->alt = gue + 4;
	return true;
}

static const char *judge_decap(const struct view *v, const struct pktbuf *in,
			       const struct pktbuf *out, const struct shell *sh)
{
	const uint8_t *was = in->data + v->l3 + sh->len, *is = out->data + v->l3;
	size_t n = in->len - v->l3 - sh->len;
	struct view inner = { 0 };

	MUST(out->len + sh->len == in->len, "more or less than the outer header was taken off");
	MUST(memcmp(in->data, out->data, v->type_off) == 0, "MACs or tags changed");
	MUST(get16(out->data + v->type_off) == (sh->inner6 ? 0x86dd : 0x0800), "inner type");
	view_read_ip(&inner, out, v->l3, sh->inner6);
	MUST(inner.is_whole && is[0] >> 4 == (sh->inner6 ? 6 : 4), "an inner packet that is none");
	MUST(sh->len + (sh->inner6 ? get16(is + 4) + 40u : get16(is + 2)) <= v->l3_len,
	     "an inner packet larger than the outer one");
	for (size_t i = 0; i < n; i++) {
		bool ecn = sh->inner6 ? i <= 1 : i == 1 || i == 10 || i == 11;

		MUST(was[i] == is[i] || (ecn && (v->tos & 3) == 3), "inner packet changed");
	}
	if (!sh->inner6)
		MUST(sums_agree(was, is, 20), "checksum of the inner header");
	return NULL;
}

/* Second chance: the tunnel goes on, from us to the alternative, for the last time. */
static const char *judge_sent_on(const struct view *v, const struct pktbuf *in,
				 const struct pktbuf *out, const struct shell *sh)
{
	size_t n = v->v6 ? 16 : 4, src = v->l3 + (v->v6 ? 8 : 12);
	const uint8_t *alt = sh->alt;
	struct view is;

	MUST(alt && alt[0] == 'H' && alt[2], "sent on without an alternative, or without hops");
	MUST(out->len == in->len, "sent on with another length");
	view_read(&is, out);
	MUST(memcmp(out->data + src, in->data + src + n, n) == 0, "source is not us");
	MUST(memcmp(out->data + src + n, alt + 4, n) == 0, "destination is not the alternative");
	MUST(out->data[alt - in->data + 2] == 0, "hops left");
	MUST(get16(out->data + v->l4 + 6) == 0, "UDP checksum left");
	if (!v->v6)
		MUST((pkt_checksum(in->data + v->l3, is.l4 - v->l3, 0) == 0) ==
			     (pkt_checksum(out->data + v->l3, is.l4 - v->l3, 0) == 0),
		     "outer checksum");
	MUST(memcmp(in->data + v->l3 + sh->len, out->data + v->l3 + sh->len,
		    in->len - v->l3 - sh->len) == 0,
	     "inner packet changed");
	return NULL;
}

const char *judge_agent(const struct pktbuf *in, int action, const struct pktbuf *out,
			const struct hg_verdict_counters *d)
{
	enum hg_verdict verdict;
	struct shell sh = { 0 };
	struct view v;
	bool ours;

	view_read(&v, in);
	PASS_ON(judge_verdict(d, action, &verdict));
	MUST(v.is_ip == (verdict != HG_VERDICT_PASS_NOT_IP), "IP or not");
	ours = v.is_ip && v.is_whole && in->data[v.l3] >> 4 == (v.v6 ? 6 : 4) &&
	       read_shell(&v, in, &sh);
	switch (verdict) {
	case HG_VERDICT_PASS_NOT_IP:
	case HG_VERDICT_PASS_NOT_OURS:
		MUST(!ours || v.is_deep, "a tunnel for us was passed");
		MUST(same_frame(in, out), "a packet that passes was changed");
		return NULL;
	case HG_VERDICT_DROP:
		MUST(ours && d->drop[HG_DROP_BAD_HEADER], "dropped, but no tunnel for us");
		return NULL;
	case HG_VERDICT_DECAP:
		MUST(ours, "decapsulated, but no tunnel for us");
		return judge_decap(&v, in, out, &sh);
	case HG_VERDICT_TX:
	case HG_VERDICT_REDIRECT:
		MUST(ours && d->event[HG_EVENT_SECOND_CHANCE], "sent on for no reason");
		return judge_sent_on(&v, in, out, &sh);
	default:
		return "a verdict of the balancer";
	}
}
