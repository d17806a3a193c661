/* SPDX-License-Identifier: BSD-2-Clause */
/* IP addresses and prefixes: comparing, parsing, printing. Values; any thread, no allocation. */
#include "base/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

socklen_t addr_len(const struct addr *a)
{
	switch (a->sa.sa_family) {
	case AF_INET:
		return sizeof(a->in);
	case AF_INET6:
		return sizeof(a->in6);
	default:
		return sizeof(a->sa.sa_family);
	}
}

bool addr_is_ip_eq(const struct addr *a, const struct addr *b)
{
	if (a->sa.sa_family != b->sa.sa_family)
		return false;
	switch (a->sa.sa_family) {
	case AF_INET:
		return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
	case AF_INET6:
		return memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, 16) == 0;
	default:
		return true;
	}
}

bool addr_is_eq(const struct addr *a, const struct addr *b)
{
	return addr_is_ip_eq(a, b) && addr_port(a) == addr_port(b);
}

bool addr_is_any(const struct addr *a)
{
	switch (a->sa.sa_family) {
	case AF_INET:
		return a->in.sin_addr.s_addr == htonl(INADDR_ANY);
	case AF_INET6:
		return IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
	default:
		return false;
	}
}

uint16_t addr_port(const struct addr *a)
{
	switch (a->sa.sa_family) {
	case AF_INET:
		return ntohs(a->in.sin_port);
	case AF_INET6:
		return ntohs(a->in6.sin6_port);
	default:
		return 0;
	}
}

void addr_set_port(struct addr *a, uint16_t port)
{
	if (a->sa.sa_family == AF_INET)
		a->in.sin_port = htons(port);
	else if (a->sa.sa_family == AF_INET6)
		a->in6.sin6_port = htons(port);
}

void addr_to_v6_mapped(const struct addr *a, uint8_t ret_bytes[16])
{
	memset(ret_bytes, 0, 16);
	if (a->sa.sa_family == AF_INET) {
		ret_bytes[10] = 0xff;
		ret_bytes[11] = 0xff;
		memcpy(ret_bytes + 12, &a->in.sin_addr, 4);
	} else if (a->sa.sa_family == AF_INET6) {
		memcpy(ret_bytes, &a->in6.sin6_addr, 16);
	}
}

int addr_parse_ip(struct str s, struct addr *ret_addr)
{
	char text[INET6_ADDRSTRLEN];
	bool is_bracketed = s.len >= 2 && s.p[0] == '[' && s.p[s.len - 1] == ']';
	struct addr a;

	if (is_bracketed)
		s = str_sub(s, 1, s.len - 2);
	if (s.len == 0 || s.len >= sizeof(text) || memchr(s.p, '\0', s.len))
		return -EINVAL;
	memcpy(text, s.p, s.len);
	text[s.len] = '\0';
	memset(&a, 0, sizeof(a));
	if (!is_bracketed && inet_pton(AF_INET, text, &a.in.sin_addr) == 1)
		a.sa.sa_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &a.in6.sin6_addr) == 1)
		a.sa.sa_family = AF_INET6;
	else
		return -EINVAL;
	*ret_addr = a;
	return 0;
}

static char *put_u8(char *p, unsigned v)
{
	if (v >= 100) {
		*p++ = (char)('0' + v / 100);
		v %= 100;
		*p++ = (char)('0' + v / 10);
	} else if (v >= 10) {
		*p++ = (char)('0' + v / 10);
	}
	*p++ = (char)('0' + v % 10);
	return p;
}

static char *put_v4(char *p, const void *ip)
{
	const uint8_t *b = ip;

	p = put_u8(p, b[0]);
	*p++ = '.';
	p = put_u8(p, b[1]);
	*p++ = '.';
	p = put_u8(p, b[2]);
	*p++ = '.';
	return put_u8(p, b[3]);
}

static char *put_port(char *p, unsigned v)
{
	char digits[5];
	unsigned n = 0;

	*p++ = ':';
	do {
		digits[n++] = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	while (n)
		*p++ = digits[--n];
	return p;
}

/* Without a NUL; p has room for ADDR_TEXT_MAX. */
static char *put_ip(char *p, const struct addr *a)
{
	switch (a->sa.sa_family) {
	case AF_INET:
		return put_v4(p, &a->in.sin_addr);
	case AF_INET6:
		if (!inet_ntop(AF_INET6, &a->in6.sin6_addr, p, INET6_ADDRSTRLEN))
			return p;
		return p + strlen(p);
	case AF_UNIX:
		memcpy(p, "unix", 4);
		return p + 4;
	default:
		return p;
	}
}

size_t addr_format_ip(const struct addr *a, char *out, size_t size)
{
	char *p;

	BUG_ON(size < ADDR_TEXT_MAX);
	p = put_ip(out, a);
	*p = '\0';
	return (size_t)(p - out);
}

size_t addr_format(const struct addr *a, char *out, size_t size)
{
	char *p = out;

	BUG_ON(size < ADDR_TEXT_MAX);
	if (a->sa.sa_family == AF_INET6)
		*p++ = '[';
	p = put_ip(p, a);
	if (a->sa.sa_family == AF_INET6)
		*p++ = ']';
	if (a->sa.sa_family == AF_INET || a->sa.sa_family == AF_INET6)
		p = put_port(p, addr_port(a));
	*p = '\0';
	return (size_t)(p - out);
}

/* --- prefixes --- */

static uint8_t *ip_bytes(struct addr *a)
{
	return a->sa.sa_family == AF_INET ? (uint8_t *)&a->in.sin_addr
					  : (uint8_t *)&a->in6.sin6_addr;
}

/* "24" or, for IPv4, "255.255.255.0". */
static int parse_mask(struct str s, int family, unsigned *ret_bits)
{
	struct addr mask;
	uint64_t bits;
	uint32_t m;

	if (str_to_u64(s, &bits) == 0) {
		if (bits > (family == AF_INET ? 32 : 128))
			return -EINVAL;
		*ret_bits = (unsigned)bits;
		return 0;
	}
	if (family != AF_INET || addr_parse_ip(s, &mask) || mask.sa.sa_family != AF_INET)
		return -EINVAL;
	m = ntohl(mask.in.sin_addr.s_addr);
	/* A mask with a hole is not a prefix: its complement plus one must be a power of two. */
	if (~m & (~m + 1))
		return -EINVAL;
	*ret_bits = (unsigned)__builtin_popcount(m);
	return 0;
}

int addr_prefix_parse(struct str s, struct addr_prefix *ret_prefix)
{
	struct addr_prefix p;
	unsigned bits, size;
	uint8_t *b;

	if (addr_parse_ip(str_cut(&s, '/'), &p.addr))
		return -EINVAL;
	size = p.addr.sa.sa_family == AF_INET ? 32 : 128;
	bits = size;
	if (s.p && parse_mask(s, p.addr.sa.sa_family, &bits))
		return -EINVAL;
	p.bits = (uint8_t)bits;
	b = ip_bytes(&p.addr);
	for (unsigned i = 0; i < size / 8; i++) {
		unsigned kept = bits > i * 8 ? bits - i * 8 : 0;

		if (kept < 8)
			b[i] &= (uint8_t)(0xff00u >> kept);
	}
	*ret_prefix = p;
	return 0;
}

static bool has_prefix(const uint8_t *ip, const uint8_t *prefix, unsigned bits)
{
	unsigned rest = bits % 8;

	if (memcmp(ip, prefix, bits / 8) != 0)
		return false;
	return rest == 0 || ((ip[bits / 8] ^ prefix[bits / 8]) & (0xff00u >> rest) & 0xff) == 0;
}

bool addr_prefix_has(const struct addr_prefix *p, const struct addr *a)
{
	uint8_t ip[16], prefix[16];
	unsigned bits = p->bits;

	if (a->sa.sa_family != AF_INET && a->sa.sa_family != AF_INET6)
		return false;
	/* One comparison for both families: IPv4 is ::ffff:0:0/96, also when a v6 socket reports it. */
	addr_to_v6_mapped(a, ip);
	addr_to_v6_mapped(&p->addr, prefix);
	if (p->addr.sa.sa_family == AF_INET)
		bits += 96;
	return has_prefix(ip, prefix, bits);
}
