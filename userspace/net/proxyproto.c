/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * PROXY protocol, versions 1 and 2, as "The PROXY protocol" (haproxy.org, proxy-protocol.txt)
 * defines them. Pure functions, any thread. The reader is strict: every byte is the peer's.
 */
#include <errno.h>
#include <stdio.h>

#include "base/buf.h"
#include "net/net.h"

#define V1_MAX	    107 /* longest line with its CRLF (2.1) */
#define V2_HEAD	    16
#define V2_ADDR_MAX 36
#define V2_TLV_HEAD 3 /* type, length */
#define V2_SSL_HEAD 5 /* client flags, verification result */

static const char v2_signature[12] = "\r\n\r\n\0\r\nQUIT\n";

enum v2_family {
	V2_UNSPEC = 0x00,
	V2_TCP4 = 0x11,
	V2_UDP4 = 0x12,
	V2_TCP6 = 0x21,
	V2_UDP6 = 0x22,
	V2_UNIX_STREAM = 0x31,
	V2_UNIX_DGRAM = 0x32
};

/* --- reading version 1 --- */

/* Decimal, no sign, no leading zero (2.1). */
static int v1_port(struct str s, struct addr *a)
{
	uint64_t port;

	if (s.len == 0 || s.len > 5 || (s.len > 1 && s.p[0] == '0') || str_to_u64(s, &port) ||
	    port > UINT16_MAX)
		return -EBADMSG;
	addr_set_port(a, (uint16_t)port);
	return 0;
}

static int v1_ip(struct str s, int family, struct addr *ret)
{
	if (s.len == 0 || s.p[0] == '[' || addr_parse_ip(s, ret) || ret->sa.sa_family != family)
		return -EBADMSG;
	return 0;
}

static int v1_line(struct str line, struct addr *ret_src, struct addr *ret_dst)
{
	struct str src, dst, sport;
	int family;

	if (str_is_eq(line, STR("UNKNOWN")) || str_is_prefix(line, STR("UNKNOWN ")))
		return 0;
	if (str_is_prefix(line, STR("TCP4 ")))
		family = AF_INET;
	else if (str_is_prefix(line, STR("TCP6 ")))
		family = AF_INET6;
	else
		return -EBADMSG;
	line = str_from(line, 5);
	src = str_cut(&line, ' ');
	dst = str_cut(&line, ' ');
	sport = str_cut(&line, ' ');
	if (!line.p || v1_ip(src, family, ret_src) || v1_ip(dst, family, ret_dst) ||
	    v1_port(sport, ret_src) || v1_port(line, ret_dst))
		return -EBADMSG;
	return 0;
}

static int read_v1(struct str in, struct addr *ret_src, struct addr *ret_dst)
{
	struct str head = str_sub(in, 0, V1_MAX);
	size_t cr = str_find_char(head, '\r');

	/* No NUL and no bare LF can be part of a line. */
	for (size_t i = 0; i < (cr == SIZE_MAX ? head.len : cr); i++) {
		if (head.p[i] == '\n' || head.p[i] == '\0')
			return -EBADMSG;
	}
	if (cr == SIZE_MAX || cr + 1 == head.len)
		return head.len == V1_MAX ? -EBADMSG : 0;
	if (head.p[cr + 1] != '\n')
		return -EBADMSG;
	if (v1_line(str_sub(head, 6, cr - 6), ret_src, ret_dst))
		return -EBADMSG;
	return (int)cr + 2;
}

/* --- reading version 2 --- */

/* CRC32c (RFC 3309), bit by bit: headers that carry it are rare and short. */
static uint32_t crc32c(uint32_t crc, const uint8_t *p, size_t len)
{
	while (len--) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return crc;
}

/* Of a whole header, with the sum's own field zero (2.2.3). */
static uint32_t header_crc(const uint8_t *head, size_t total, size_t crc_off)
{
	static const uint8_t zero[4];
	uint32_t crc = 0xffffffffu;

	crc = crc32c(crc, head, crc_off);
	crc = crc32c(crc, zero, 4);
	return ~crc32c(crc, head + crc_off + 4, total - crc_off - 4);
}

static bool is_crc_right(const uint8_t *head, size_t total, size_t crc_off)
{
	return header_crc(head, total, crc_off) == get_be32(head + crc_off);
}

/* Every TLV must fit exactly; unknown ones are skipped. */
static int check_tlvs(const uint8_t *head, size_t off, size_t total)
{
	while (off < total) {
		size_t len;

		if (total - off < 3)
			return -EBADMSG;
		len = get_be16(head + off + 1);
		if (len > total - off - 3)
			return -EBADMSG;
		if (head[off] == PROXY_TLV_CRC32C &&
		    (len != 4 || !is_crc_right(head, total, off + 3)))
			return -EBADMSG;
		off += 3 + len;
	}
	return 0;
}

static void v2_addr4(const uint8_t *ip, const uint8_t *port, struct addr *a)
{
	a->in.sin_family = AF_INET;
	memcpy(&a->in.sin_addr, ip, 4);
	memcpy(&a->in.sin_port, port, 2);
}

static void v2_addr6(const uint8_t *ip, const uint8_t *port, struct addr *a)
{
	a->in6.sin6_family = AF_INET6;
	memcpy(&a->in6.sin6_addr, ip, 16);
	memcpy(&a->in6.sin6_port, port, 2);
}

/* Bytes of addresses that the family byte announces, or -EBADMSG. */
static int v2_addr_size(uint8_t family)
{
	switch (family) {
	case V2_UNSPEC:
		return 0;
	case V2_TCP4:
	case V2_UDP4:
		return 12;
	case V2_TCP6:
	case V2_UDP6:
		return 36;
	case V2_UNIX_STREAM:
	case V2_UNIX_DGRAM:
		return 216;
	default:
		return -EBADMSG;
	}
}

static int read_v2(struct str in, struct addr *ret_src, struct addr *ret_dst)
{
	const uint8_t *h = (const uint8_t *)in.p, *a = h + V2_HEAD;
	size_t total;
	int size;

	if (in.len > 12 && h[12] != 0x20 && h[12] != 0x21)
		return -EBADMSG;
	if (in.len > 13 && h[12] == 0x21 && v2_addr_size(h[13]) < 0)
		return -EBADMSG;
	if (in.len < V2_HEAD)
		return 0;
	total = V2_HEAD + (size_t)get_be16(h + 14);
	/* LOCAL: whatever family and addresses it carries is ignored (2.2). */
	size = h[12] == 0x21 ? v2_addr_size(h[13]) : 0;
	if (total - V2_HEAD < (size_t)size)
		return -EBADMSG;
	if (in.len < total)
		return 0;
	if (h[12] == 0x20)
		return (int)total;
	/* Nothing is defined behind an address of unknown form. */
	if (h[13] != V2_UNSPEC && check_tlvs(h, V2_HEAD + (size_t)size, total))
		return -EBADMSG;
	if (size == 12) {
		v2_addr4(a, a + 8, ret_src);
		v2_addr4(a + 4, a + 10, ret_dst);
	} else if (size == 36) {
		v2_addr6(a, a + 32, ret_src);
		v2_addr6(a + 16, a + 34, ret_dst);
	}
	return (int)total;
}

int proxy_header_read(struct str in, struct addr *ret_src, struct addr *ret_dst)
{
	const struct str v1 = STR("PROXY "), v2 = { v2_signature, sizeof(v2_signature) };
	struct addr src, dst;
	int n;

	memset(ret_src, 0, sizeof(*ret_src));
	memset(ret_dst, 0, sizeof(*ret_dst));
	memset(&src, 0, sizeof(src));
	memset(&dst, 0, sizeof(dst));
	if (in.len == 0)
		return 0;
	if (in.len < v1.len && str_is_prefix(v1, in))
		return 0;
	if (in.len < v2.len && str_is_prefix(v2, in))
		return 0;
	if (str_is_prefix(in, v1))
		n = read_v1(in, &src, &dst);
	else if (str_is_prefix(in, v2))
		n = read_v2(in, &src, &dst);
	else
		return -EBADMSG;
	if (n > 0) {
		*ret_src = src;
		*ret_dst = dst;
	}
	return n;
}

/* --- fields of version 2 --- */

struct str proxy_header_tlvs(struct str header)
{
	const uint8_t *h = (const uint8_t *)header.p;
	int size;

	if (header.len < V2_HEAD || memcmp(h, v2_signature, sizeof(v2_signature)) != 0 ||
	    h[12] != 0x21 || h[13] == V2_UNSPEC)
		return STR_NULL;
	size = v2_addr_size(h[13]);
	return size < 0 ? STR_NULL : str_from(header, V2_HEAD + (size_t)size);
}

static bool tlv_find(struct str tlvs, uint8_t type, struct str *ret)
{
	while (tlvs.len >= 3) {
		size_t len = get_be16((const uint8_t *)tlvs.p + 1);

		*ret = str_sub(tlvs, 3, len);
		if (ret->len != len)
			return false; /* inside PP2_TYPE_SSL nobody has looked */
		if ((uint8_t)*tlvs.p == type)
			return true;
		tlvs = str_from(tlvs, 3 + len);
	}
	return false;
}

bool proxy_tlv_find(struct str tlvs, uint8_t type, struct str *ret)
{
	struct str ssl;

	if (tlv_find(tlvs, type, ret))
		return true;
	return tlv_find(tlvs, PROXY_TLV_SSL, &ssl) && ssl.len >= V2_SSL_HEAD &&
	       tlv_find(str_from(ssl, V2_SSL_HEAD), type, ret);
}

/* --- writing --- */

/* AF_INET or AF_INET6 when both can be said in one family, else AF_UNSPEC. */
static int common_family(const struct addr *src, const struct addr *dst)
{
	int s = src ? src->sa.sa_family : AF_UNSPEC, d = dst ? dst->sa.sa_family : AF_UNSPEC;

	if (s == AF_INET && d == AF_INET)
		return AF_INET;
	if ((s == AF_INET || s == AF_INET6) && (d == AF_INET || d == AF_INET6))
		return AF_INET6;
	return AF_UNSPEC;
}

static void as_family(const struct addr *a, int family, struct addr *ret)
{
	memset(ret, 0, sizeof(*ret));
	if (a->sa.sa_family == family) {
		*ret = *a;
		return;
	}
	ret->in6.sin6_family = AF_INET6;
	addr_to_v6_mapped(a, ret->in6.sin6_addr.s6_addr);
	ret->in6.sin6_port = a->in.sin_port;
}

static size_t write_v1(int family, const struct addr *src, const struct addr *dst, char *out)
{
	char s[ADDR_TEXT_MAX], d[ADDR_TEXT_MAX];

	if (family == AF_UNSPEC) {
		memcpy(out, "PROXY UNKNOWN\r\n", 15);
		return 15;
	}
	addr_format_ip(src, s, sizeof(s));
	addr_format_ip(dst, d, sizeof(d));
	/* 108 bytes: the longest line and printf's NUL. */
	return (size_t)snprintf(out, V1_MAX + 1, "PROXY TCP%c %.45s %.45s %u %u\r\n",
				family == AF_INET ? '4' : '6', s, d, addr_port(src),
				addr_port(dst));
}

static size_t write_v2(int family, const struct addr *src, const struct addr *dst, char *out)
{
	char *p = out + V2_HEAD;

	memcpy(out, v2_signature, sizeof(v2_signature));
	out[12] = family == AF_UNSPEC ? 0x20 : 0x21;
	out[13] = family == AF_UNSPEC ? V2_UNSPEC : family == AF_INET ? V2_TCP4 : V2_TCP6;
	if (family == AF_INET) {
		memcpy(p, &src->in.sin_addr, 4);
		memcpy(p + 4, &dst->in.sin_addr, 4);
		memcpy(p + 8, &src->in.sin_port, 2);
		memcpy(p + 10, &dst->in.sin_port, 2);
		p += 12;
	} else if (family == AF_INET6) {
		memcpy(p, &src->in6.sin6_addr, 16);
		memcpy(p + 16, &dst->in6.sin6_addr, 16);
		memcpy(p + 32, &src->in6.sin6_port, 2);
		memcpy(p + 34, &dst->in6.sin6_port, 2);
		p += 36;
	}
	put_be16(out + 14, (uint16_t)(p - out - V2_HEAD));
	return (size_t)(p - out);
}

size_t proxy_header_write(unsigned version, const struct addr *src, const struct addr *dst,
			  char *out)
{
	int family = common_family(src, dst);
	struct addr s, d;

	memset(&s, 0, sizeof(s));
	memset(&d, 0, sizeof(d));
	if (family != AF_UNSPEC) {
		as_family(src, family, &s);
		as_family(dst, family, &d);
	}
	return version == 2 ? write_v2(family, &s, &d, out) : write_v1(family, &s, &d, out);
}

/* --- fields ---- */

static size_t tlvs_size(const struct proxy_tlv *tlvs, unsigned n)
{
	size_t size = 0;

	for (unsigned i = 0; i < n; i++)
		size += V2_TLV_HEAD + tlvs[i].value.len;
	return size;
}

static size_t ssl_size(const struct proxy_extra *x)
{
	return V2_SSL_HEAD + tlvs_size(x->ssl_tlvs, x->n_ssl_tlvs);
}

static size_t extra_size(const struct proxy_extra *x)
{
	return tlvs_size(x->tlvs, x->n_tlvs) + (x->has_ssl ? V2_TLV_HEAD + ssl_size(x) : 0) +
	       (x->has_crc32c ? V2_TLV_HEAD + 4 : 0);
}

size_t proxy_header_bound(const struct proxy_extra *x)
{
	return V2_HEAD + V2_ADDR_MAX + extra_size(x);
}

static char *put_tlv_head(char *p, uint8_t type, size_t len)
{
	*p = (char)type;
	put_be16(p + 1, (uint16_t)len);
	return p + V2_TLV_HEAD;
}

static char *put_tlvs(char *p, const struct proxy_tlv *tlvs, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		p = put_tlv_head(p, tlvs[i].type, tlvs[i].value.len);
		if (tlvs[i].value.len)
			memcpy(p, tlvs[i].value.p, tlvs[i].value.len);
		p += tlvs[i].value.len;
	}
	return p;
}

int proxy_header_write_more(const struct addr *src, const struct addr *dst,
			    const struct proxy_extra *x, char *out)
{
	size_t n = proxy_header_write(2, src, dst, out), total = n + extra_size(x);
	char *p = out + n, *crc = NULL;

	/* Every field is shorter than all of them together. */
	if (total - V2_HEAD > UINT16_MAX)
		return -E2BIG;
	/* PROXY, though nothing is known of addresses: of LOCAL nobody reads the fields. */
	if (src && src->sa.sa_family != AF_UNSPEC)
		out[12] = 0x21;
	p = put_tlvs(p, x->tlvs, x->n_tlvs);
	if (x->has_ssl) {
		p = put_tlv_head(p, PROXY_TLV_SSL, ssl_size(x));
		*p = (char)x->ssl_client;
		put_be32(p + 1, x->ssl_verify);
		p = put_tlvs(p + V2_SSL_HEAD, x->ssl_tlvs, x->n_ssl_tlvs);
	}
	if (x->has_crc32c)
		crc = put_tlv_head(p, PROXY_TLV_CRC32C, 4);
	put_be16(out + 14, (uint16_t)(total - V2_HEAD));
	if (crc) {
		size_t off = (size_t)(crc - out);

		put_be32(crc, header_crc((const uint8_t *)out, total, off));
	}
	return (int)total;
}
