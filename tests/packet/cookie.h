/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SYN cookies as the tests know them: another SipHash-2-4 than the programs', over bytes, and what follows from it.
 * Each test program has its own copy.
 */
#ifndef PACKET_COOKIE_H
#define PACKET_COOKIE_H

#include <arpa/inet.h>
#include <string.h>
#include <time.h>

#include <headgate/syn.h>

#include "packet/run.h"

#define MAYBE_UNUSED __attribute__((unused))
#define MINUTE	     30000001u /* in which tests begin */

static uint64_t rot(uint64_t x, int n)
{
	return x << n | x >> (64 - n);
}

static void rounds(uint64_t v[4], int n)
{
	while (n--) {
		v[0] += v[1];
		v[1] = rot(v[1], 13) ^ v[0];
		v[0] = rot(v[0], 32);
		v[2] += v[3];
		v[3] = rot(v[3], 16) ^ v[2];
		v[0] += v[3];
		v[3] = rot(v[3], 21) ^ v[0];
		v[2] += v[1];
		v[1] = rot(v[1], 17) ^ v[2];
		v[2] = rot(v[2], 32);
	}
}

static uint64_t siphash(const __u64 k[2], const uint8_t *m, size_t len)
{
	uint64_t v[4] = { k[0] ^ 0x736f6d6570736575ull, k[1] ^ 0x646f72616e646f6dull,
			  k[0] ^ 0x6c7967656e657261ull, k[1] ^ 0x7465646279746573ull };
	uint64_t w = 0;

	for (size_t i = 0; i <= len; i++) {
		uint64_t byte = i == len ? (uint64_t)len << 56 : (uint64_t)m[i] << (i % 8 * 8);

		w |= byte;
		if (i % 8 == 7 || i == len) {
			v[3] ^= w;
			rounds(v, 2);
			v[0] ^= w;
			w = 0;
		}
	}
	v[2] ^= 0xff;
	rounds(v, 4);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* The programs' wall clock: a second into that minute. */
static MAYBE_UNUSED void cookie_clock(struct hg_syn_control *c, uint64_t minute)
{
	struct timespec tai;

	clock_gettime(CLOCK_TAI, &tai);
	c->wall_ns = (int64_t)(minute * 60 + 1 - (uint64_t)tai.tv_sec) * 1000000000 - tai.tv_nsec;
	c->generation++;
}

/* Three secrets, of which the second makes cookies. */
static MAYBE_UNUSED void cookie_secrets(struct hg_syn_control *c)
{
	c->n_secrets = 3;
	c->make = 1;
	for (unsigned i = 0; i < 12; i++)
		c->secrets[i / 4].k[i % 4] = 0x1122334455667788ull * (i + 1) + i;
	cookie_clock(c, MINUTE);
}

static MAYBE_UNUSED void minute_key(const struct hg_syn_secret *s, uint64_t minute, __u64 ret[2])
{
	uint8_t m[8];

	for (unsigned i = 0; i < 8; i++)
		m[i] = (uint8_t)(minute >> 8 * i);
	ret[0] = siphash(&s->k[0], m, 8);
	ret[1] = siphash(&s->k[2], m, 8);
}

struct cookie_flow {
	bool v6;
	const char *src, *dst;
	uint16_t sport, dport;
	uint32_t isn;
};

/* `stamp`: the timestamp's lowest bits, or -1 without timestamps. */
static MAYBE_UNUSED uint32_t cookie_of_flow(const struct hg_syn_secret *s, uint64_t minute,
					    const struct cookie_flow *f, unsigned mss, int stamp)
{
	uint8_t m[48] = { 0 };
	__be32 src[4], dst[4];
	size_t n = f->v6 ? 16 : 4;
	uint16_t ports[2] = { htons(f->sport), htons(f->dport) };
	uint32_t low = (uint32_t)(minute & 3) << 3 | mss;
	uint32_t last = (stamp < 0 ? 0 : 64u | (unsigned)stamp) << 5 | low;
	__u64 key[2];

	addr_of(src, f->src);
	addr_of(dst, f->dst);
	memcpy(m, f->v6 ? &src[0] : &src[3], n);
	memcpy(m + n, f->v6 ? &dst[0] : &dst[3], n);
	memcpy(m + 2 * n, ports, 4);
	memcpy(m + 2 * n + 4, &f->isn, 4);
	memcpy(m + 2 * n + 8, &last, 4);
	minute_key(s, minute, key);
	return ((uint32_t)siphash(key, m, 2 * n + 15) & ~31u) | low;
}

#endif
