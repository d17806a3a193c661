/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The SYN cookie itself, for the program that makes it and the one that takes the connection: its hash, TCP
 * options, and what is hidden in a timestamp. See include/headgate/syn.h.
 */
#ifndef HG_BPF_SYN_COOKIE_H
#define HG_BPF_SYN_COOKIE_H

#include <headgate/syn.h>

#include "bpf/pkt.h"

/* Writers: control thread; `check_until`: XDP. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_syn_control);
} syn_control SEC(".maps");

/* --- SipHash-2-4 ---------------------------------------------------------------------------------------- */

struct sip {
	u64 a, b, c, d;
};

INLINE u64 rotl64(u64 x, u32 n)
{
	return x << n | x >> (64 - n);
}

INLINE void sip_round(struct sip *s)
{
	s->a += s->b;
	s->c += s->d;
	s->b = rotl64(s->b, 13) ^ s->a;
	s->d = rotl64(s->d, 16) ^ s->c;
	s->a = rotl64(s->a, 32);
	s->c += s->b;
	s->a += s->d;
	s->b = rotl64(s->b, 17) ^ s->c;
	s->d = rotl64(s->d, 21) ^ s->a;
	s->c = rotl64(s->c, 32);
}

INLINE void sip_word(struct sip *s, u64 word)
{
	s->d ^= word;
	sip_round(s);
	sip_round(s);
	s->a ^= word;
}

INLINE u64 sip_end(struct sip *s)
{
	s->c ^= 0xff;
	sip_round(s);
	sip_round(s);
	sip_round(s);
	sip_round(s);
	return s->a ^ s->b ^ s->c ^ s->d;
}

/* --- keys -------------------------------------------------------------------------------------------------- */

INLINE u64 minute_key(u64 k0, u64 k1, u64 minute)
{
	struct sip s = {
		.a = k0 ^ 0x736f6d6570736575ull,
		.b = k1 ^ 0x646f72616e646f6dull,
		.c = k0 ^ 0x6c7967656e657261ull,
		.d = k1 ^ 0x7465646279746573ull,
	};

	sip_word(&s, minute);
	sip_word(&s, 8ull << 56);
	return sip_end(&s);
}

INLINE bool keys_are_fresh(const struct hg_syn_control *c)
{
	return bpf_jiffies64() < READ_ONCE(c->keys_until) &&
	       READ_ONCE(c->keys_of) >> 32 == READ_ONCE(c->generation);
}

/*
 * The minute's keys where they are needed, once a minute. All CPUs may do it at once: they write the same, unless the secrets
 * are just being replaced, and then `keys_of` ends with a generation that makes the next packet do it again.
 */
GLOBAL u32 derive_keys(void)
{
	u32 zero = 0, generation, i;
	struct hg_syn_control *c = bpf_map_lookup_elem(&syn_control, &zero);
	u64 now, minute;

	if (!c)
		return 0;
	generation = READ_ONCE(c->generation);
	now = bpf_ktime_get_tai_ns() + READ_ONCE(c->wall_ns);
	minute = now / (HG_SYN_KEY_S * 1000000000ull);
#pragma clang loop unroll(disable)
	for (i = 0; i < HG_SYN_SECRETS * HG_SYN_MINUTES; i++) {
		/* From two ago to the next one. */
		u64 m = minute - 2 + i % HG_SYN_MINUTES;
		const struct hg_syn_secret *s = &c->secrets[i / HG_SYN_MINUTES];
		struct hg_syn_key *k = &c->keys[i / HG_SYN_MINUTES][m % HG_SYN_MINUTES];

		k->k[0] = minute_key(s->k[0], s->k[1], m);
		k->k[1] = minute_key(s->k[2], s->k[3], m);
	}
	now = (minute + 1) * HG_SYN_KEY_S * 1000 - now / 1000000;
	*(volatile u64 *)&c->keys_until = bpf_jiffies64() + now * c->tick / 1000 + 1;
	*(volatile u64 *)&c->keys_of = (u64)generation << 32 | (u32)minute;
	return 1;
}

INLINE void syn_keys(const struct hg_syn_control *c)
{
	if (unlikely(!keys_are_fresh(c)))
		derive_keys();
}

/* --- the cookie ------------------------------------------------------------------------------------------- */

/*
 * What of the packet goes into the hash beside the addresses: ports as they lie and the client's first sequence
 * number; what `stamp` stands for, with `has_stamp`.
 */
struct cookie_of {
	u32 ports, isn;
	u32 options; /* cookie_options() */
};

/* With timestamps: their lowest bits. Without: the client has to send none either. */
INLINE u32 cookie_options(bool has_stamp, u32 stamp)
{
	return has_stamp ? 1u << HG_SYN_STAMP_BITS | (stamp & ((1u << HG_SYN_STAMP_BITS) - 1)) : 0;
}

/* The cookie under the key of minute `which`, for an MSS of that index. The IP header's fixed part is in the frame. */
INLINE u32 cookie_make(const struct hg_syn_key *key, u32 which, const void *l3, bool v6,
		       const struct cookie_of *of, u32 mss)
{
	struct sip s = {
		.a = key->k[0] ^ 0x736f6d6570736575ull,
		.b = key->k[1] ^ 0x646f72616e646f6dull,
		.c = key->k[0] ^ 0x6c7967656e657261ull,
		.d = key->k[1] ^ 0x7465646279746573ull,
	};
	u32 low = which << 3 | mss;

	if (v6) {
		sip_word(&s, *(const u64a *)(l3 + 8));
		sip_word(&s, *(const u64a *)(l3 + 16));
		sip_word(&s, *(const u64a *)(l3 + 24));
		sip_word(&s, *(const u64a *)(l3 + 32));
	} else {
		sip_word(&s, *(const u64a *)(l3 + 12));
	}
	sip_word(&s, (u64)of->isn << 32 | of->ports);
	/* The message's length is the last byte: 47 or 23. */
	sip_word(&s, (v6 ? 47ull : 23ull) << 56 | of->options << HG_SYN_LOW_BITS | low);
	return ((u32)sip_end(&s) & HG_SYN_TAG_MASK) | low;
}

/* Was it made under one of our secrets, for this packet's connection and these options? */
INLINE bool cookie_is_ours(const struct hg_syn_control *c, u32 cookie, const void *l3, bool v6,
			   const struct cookie_of *of)
{
	u32 which = cookie >> 3 & (HG_SYN_MINUTES - 1), n = READ_ONCE(c->n_secrets), i;

#pragma clang loop unroll(disable)
	for (i = 0; i < HG_SYN_SECRETS; i++) {
		if (i >= n)
			break;
		if (cookie_make(&c->keys[i][which], which, l3, v6, of, cookie & HG_SYN_MSS_MASK) ==
		    cookie)
			return true;
	}
	return false;
}

/*
 * What a server may send in one segment; the largest that the client takes. The kernel takes none smaller than
 * the first.
 */
static const u16 mss_v4[8] = { 536, 1200, 1300, 1360, 1400, 1440, 1460, 8960 };
static const u16 mss_v6[8] = { 1220, 1280, 1320, 1360, 1400, 1420, 1440, 8940 };

INLINE u32 mss_value(u32 index, bool v6)
{
	return (v6 ? mss_v6 : mss_v4)[index & HG_SYN_MSS_MASK];
}

INLINE u32 mss_index(u32 mss, bool v6)
{
	const u16 *t = v6 ? mss_v6 : mss_v4;
	u32 i, best = 0;

#pragma clang loop unroll(full)
	for (i = 1; i < 8; i++)
		if (mss >= t[i])
			best = i;
	return best;
}

/* --- TCP options ------------------------------------------------------------------------------------------ */

#define TCPOPT_END    0
#define TCPOPT_NOP    1
#define TCPOPT_MSS    2
#define TCPOPT_WSCALE 3
#define TCPOPT_SACK   4
#define TCPOPT_STAMP  8

#define OPTIONS_MAX  40
#define OPTIONS_ROOM 72 /* of a buffer that may be read 8 bytes behind its 64th */
#define WSCALE_MAX   14 /* RFC 7323 2.3 */

struct options {
	u32 value, echo; /* timestamps, host order */
	u16 mss; /* 0: none */
	u8 wscale;
	bool has_stamp, has_wscale, has_sack;
};

/* Byte by byte: the verifier wants accesses to the stack aligned. */
INLINE u32 option_u32(const u8 *b, u32 at)
{
	b += at & 63;
	return (u32)b[0] << 24 | (u32)b[1] << 16 | (u32)b[2] << 8 | b[3];
}

/* Where an option of this size is, as read_options() has found it; 0: nowhere, else one more than that. */
INLINE u32 option_at(const u8 *b, const u8 *found, u32 kind, u32 size)
{
	u32 at = found[kind];

	return at && b[at & 63] == size ? at : 0;
}

/*
 * `len` bytes of options, up to OPTIONS_MAX of the OPTIONS_ROOM in `b`. Nonsense ends them, as in the kernel. The
 * loop only notes places, in memory and without branches, so that the verifier has few paths to follow.
 */
INLINE void read_options(const u8 *b, u32 len, struct options *o)
{
	u8 found[16] __attribute__((aligned(8))) = {};
	u32 at = 0, i;

#pragma clang loop unroll(disable)
	for (i = 0; i < OPTIONS_MAX; i++) {
		u32 kind, size;

		if (at >= len)
			break;
		kind = b[at & 63];
		size = b[(at + 1) & 63];
		if (kind == TCPOPT_END)
			break;
		if (kind == TCPOPT_NOP)
			size = 1;
		else if (size < 2 || at + size > len)
			break;
		if (kind < sizeof(found))
			found[kind] = at + 1;
		at = (at + size) & 63;
	}
	at = option_at(b, found, TCPOPT_MSS, 4);
	if (at)
		o->mss = option_u32(b, at - 1) & 0xffff;
	at = option_at(b, found, TCPOPT_WSCALE, 3);
	if (at) {
		o->wscale = b[(at + 1) & 63];
		if (o->wscale > WSCALE_MAX)
			o->wscale = WSCALE_MAX;
		o->has_wscale = true;
	}
	o->has_sack = option_at(b, found, TCPOPT_SACK, 2);
	at = option_at(b, found, TCPOPT_STAMP, 10);
	if (at) {
		o->value = option_u32(b, at + 1);
		o->echo = option_u32(b, at + 5);
		o->has_stamp = true;
	}
}

#endif
