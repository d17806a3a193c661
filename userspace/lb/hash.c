/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hash functions of `hash-type`, and what of a request they look at. Same results as HAProxy, so that
 * the same key reaches the same server behind both. Pure functions, any thread.
 */
#include "lb/lb.h"

#include <arpa/inet.h>

static uint32_t rotl(uint32_t v, unsigned n)
{
	return v << (n & 31) | v >> (-n & 31);
}

/* The hash of the sdbm library: h * 65599 + c. */
static uint32_t hash_sdbm(struct str key)
{
	uint32_t h = 0;

	for (size_t i = 0; i < key.len; i++)
		h = h * 65599u + (uint8_t)key.p[i];
	return h;
}

/* Bernstein's second: h * 33 + c. */
static uint32_t hash_djb2(struct str key)
{
	uint32_t h = 5381;

	for (size_t i = 0; i < key.len; i++)
		h = h * 33u + (uint8_t)key.p[i];
	return h;
}

/* Two words that swap places and are rotated by amounts taken from themselves. */
static uint32_t hash_wt6(struct str key)
{
	uint32_t a = 0xa53c965a, b = 0x5ca6953a;
	unsigned rot_a = 6, rot_b = 18;

	for (size_t i = 0; i < key.len; i++) {
		uint32_t c = (uint8_t)key.p[i];
		uint32_t na = rotl(~(b + c), rot_a);
		uint32_t nb = rotl(~(a ^ c), rot_b);
		uint32_t mix = (na >> 16 ^ nb) & 0xffff;

		a = na;
		b = nb;
		rot_a = mix & 31;
		rot_b = mix >> 11;
	}
	return a ^ b;
}

/* CRC-32 of Ethernet and zlib (reflected 0x04c11db7), a nibble at a time. */
static uint32_t hash_crc32(struct str key)
{
	static const uint32_t nibble[16] = {
		0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
		0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
		0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
	};
	uint32_t h = ~0u;

	for (size_t i = 0; i < key.len; i++) {
		h ^= (uint8_t)key.p[i];
		h = h >> 4 ^ nibble[h & 15];
		h = h >> 4 ^ nibble[h & 15];
	}
	return ~h;
}

/* `none`: the key is a decimal number already; what follows the digits is ignored, too large sticks at the end. */
static uint32_t hash_none(struct str key)
{
	size_t i = 0;
	bool is_negative = false;
	uint64_t v = 0, limit;

	if (key.len && (key.p[0] == '-' || key.p[0] == '+'))
		is_negative = key.p[i++] == '-';
	limit = (uint64_t)INT64_MAX + is_negative;
	for (; i < key.len && key.p[i] >= '0' && key.p[i] <= '9'; i++) {
		uint64_t digit = (uint64_t)(key.p[i] - '0');

		if (v > (limit - digit) / 10) {
			v = limit;
			break;
		}
		v = v * 10 + digit;
	}
	return (uint32_t)(is_negative ? -v : v);
}

/* Jenkins' full avalanche of an integer, then spread over the ring by a prime near 3/4 of 2^32. */
uint32_t lb_hash_avalanche(uint32_t h)
{
	h += 0x7ed55d16 + (h << 12);
	h ^= 0xc761c23c ^ h >> 19;
	h += 0x165667b1 + (h << 5);
	h = (h + 0xd3a2646c) ^ h << 9;
	h += 0xfd7046c5 + (h << 3);
	h ^= 0xb55a4f09 ^ h >> 16;
	return h * 3221225473u;
}

uint32_t lb_hash_key(enum conf_hash_func f, bool avalanche, struct str key)
{
	uint32_t h = 0;

	switch (f) {
	case HASH_SDBM:
		h = hash_sdbm(key);
		break;
	case HASH_DJB2:
		h = hash_djb2(key);
		break;
	case HASH_WT6:
		h = hash_wt6(key);
		break;
	case HASH_CRC32:
		h = hash_crc32(key);
		break;
	case HASH_NONE:
		h = hash_none(key);
		break;
	}
	return avalanche ? lb_hash_avalanche(h) : h;
}

uint32_t lb_hash_addr(const struct addr *a)
{
	uint32_t words[4], h = 0;

	if (a->sa.sa_family == AF_INET)
		return ntohl(a->in.sin_addr.s_addr);
	if (a->sa.sa_family != AF_INET6)
		return 0;
	memcpy(words, &a->in6.sin6_addr, sizeof(words));
	for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
		h ^= ntohl(words[i]);
	return h;
}

struct str lb_uri_key(const struct conf_balance_params *p, struct str uri)
{
	uint32_t slashes = 0;
	size_t end;

	if (p->uri_len && uri.len > p->uri_len)
		uri.len = p->uri_len;
	for (end = 0; end < uri.len; end++) {
		if (uri.p[end] == '?' && !p->uri_whole)
			break;
		/* depth n: n directories, so up to the slash after the n-th */
		if (uri.p[end] == '/' && p->uri_depth && ++slashes == p->uri_depth + 1)
			break;
	}
	return str_sub(uri, 0, end);
}

/* "www.example.com:80": "example", the label before the last dot; without a dot the whole. */
struct str lb_domain_key(struct str host)
{
	size_t start, dot = host.len;

	while (dot > 0 && host.p[dot - 1] != '.')
		dot--;
	if (dot <= 1)
		return host;
	dot--;
	for (start = dot - 1; start > 0 && host.p[start - 1] != '.';)
		start--;
	return str_sub(host, start, dot - start);
}
