/* SPDX-License-Identifier: BSD-2-Clause */
/* PROXY protocol: both versions read and written, every truncation, every malformed form. */
/* links: net ev base */
#include "net_help.h"

static struct addr ip(const char *text, uint16_t port)
{
	struct addr a;

	assert_int_equal(addr_parse_ip(str_from_cstr(text), &a), 0);
	addr_set_port(&a, port);
	return a;
}

/* A copy of exact size, so that the sanitizer sees every byte read too far. */
static int read_exact(const void *p, size_t len, struct addr *src, struct addr *dst)
{
	char *copy = malloc(len ? len : 1);
	int r;

	memcpy(copy, p, len);
	r = proxy_header_read(str_make(copy, len), src, dst);
	free(copy);
	return r;
}

static void round_trip(unsigned version, struct addr src, struct addr dst)
{
	char out[128];
	struct addr s, d;
	size_t len = proxy_header_write(version, &src, &dst, out);

	assert_true(len <= 108);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(read_exact(out, i, &s, &d), 0);
	assert_int_equal(read_exact(out, len, &s, &d), (int)len);
	assert_true(addr_is_eq(&s, &src));
	assert_true(addr_is_eq(&d, &dst));
	/* What follows is not ours. */
	memcpy(out + len, "GET / HTTP/1.1", 14);
	assert_int_equal(read_exact(out, len + 14, &s, &d), (int)len);
}

static void test_round_trip(void **state)
{
	const char *v6 = "1111:2222:3333:4444:5555:6666:7777:8888";

	for (unsigned v = 1; v <= 2; v++) {
		round_trip(v, ip("192.0.2.1", 12345), ip("198.51.100.7", 443));
		round_trip(v, ip("2001:db8::1", 1), ip("::1", 65535));
		round_trip(v, ip(v6, 65535), ip(v6, 65535));
		round_trip(v, ip("255.255.255.255", 0), ip("0.0.0.0", 0));
	}
}

static void test_write_text(void **state)
{
	struct addr a = ip("10.0.0.1", 1000), b = ip("10.0.0.2", 80), six = ip("2001:db8::1", 7);
	char out[128];
	size_t n = proxy_header_write(1, &a, &b, out);

	assert_int_equal(n, strlen("PROXY TCP4 10.0.0.1 10.0.0.2 1000 80\r\n"));
	assert_memory_equal(out, "PROXY TCP4 10.0.0.1 10.0.0.2 1000 80\r\n", n);
	/* Mixed families are said in IPv6. */
	n = proxy_header_write(1, &a, &six, out);
	assert_memory_equal(out, "PROXY TCP6 ::ffff:10.0.0.1 2001:db8::1 1000 7\r\n", n);
	n = proxy_header_write(1, NULL, &b, out);
	assert_int_equal(n, 15);
	assert_memory_equal(out, "PROXY UNKNOWN\r\n", n);
	n = proxy_header_write(2, NULL, NULL, out);
	assert_int_equal(n, 16);
	assert_memory_equal(out, "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", n);
}

/* Fields come back as they were given, and the checksum is one that the reader accepts. */
static void test_write_fields(void **state)
{
	static const char big[70000];
	struct addr a = ip("10.0.0.1", 1000), b = ip("10.0.0.2", 80), src, dst;
	const struct proxy_tlv tlvs[] = { { PROXY_TLV_AUTHORITY, STR("a.example") },
					  { 0xe0, STR("") } };
	const struct proxy_tlv in_ssl[] = { { PROXY_TLV_SSL_VERSION, STR("TLSv1.3") } };
	struct proxy_extra x = { .tlvs = tlvs,
				 .n_tlvs = 2,
				 .has_ssl = true,
				 .ssl_client = PROXY_CLIENT_SSL,
				 .ssl_verify = 0x01020304,
				 .ssl_tlvs = in_ssl,
				 .n_ssl_tlvs = 1 };
	struct proxy_tlv long_tlv[] = { { 0xe1, str_make(big, 65535 - 12 - 3) },
					{ 0xe2, STR("") } };
	char *out = malloc(80000);
	struct str all, v;
	int n;

	for (int crc = 0; crc < 2; crc++) {
		x.has_crc32c = crc;
		n = proxy_header_write_more(&a, &b, &x, out);
		assert_int_equal(n, 16 + 12 + 12 + 3 + (3 + 5 + 10) + 7 * crc);
		assert_true((size_t)n <= proxy_header_bound(&x));
		assert_int_equal(read_exact(out, (size_t)n, &src, &dst), n);
		assert_true(addr_is_eq(&src, &a) && addr_is_eq(&dst, &b));
		all = proxy_header_tlvs(str_make(out, (size_t)n));
		assert_true(proxy_tlv_find(all, PROXY_TLV_AUTHORITY, &v));
		assert_true(str_is_eq(v, STR("a.example")));
		assert_true(proxy_tlv_find(all, PROXY_TLV_SSL_VERSION, &v));
		assert_true(proxy_tlv_find(all, PROXY_TLV_SSL, &v));
		assert_memory_equal(v.p, "\1\1\2\3\4", 5);
	}
	/* One bit of an address: only the sum can tell. */
	out[16] ^= 1;
	assert_int_equal(read_exact(out, (size_t)n, &src, &dst), -EBADMSG);
	/* Without addresses: LOCAL; of an unknown family: still about a client. */
	assert_true(proxy_header_write_more(NULL, NULL, &x, out) > 16);
	assert_memory_equal(out + 12, "\x20\0", 2);
	a.sa.sa_family = AF_UNIX;
	assert_true(proxy_header_write_more(&a, &a, &x, out) > 16);
	assert_memory_equal(out + 12, "\x21\0", 2);
	/* As long as a length can say, and one field more. */
	a = ip("10.0.0.1", 1000);
	x = (struct proxy_extra){ .tlvs = long_tlv, .n_tlvs = 1 };
	assert_int_equal(proxy_header_write_more(&a, &b, &x, out), 16 + 65535);
	x.n_tlvs = 2;
	assert_int_equal(proxy_header_write_more(&a, &b, &x, out), -E2BIG);
	free(out);
}

static void test_v1_unknown(void **state)
{
	struct addr s, d;
	const char *lines[] = { "PROXY UNKNOWN\r\n", "PROXY UNKNOWN whatever 1 2 3\r\n" };

	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		assert_int_equal(read_exact(lines[i], strlen(lines[i]), &s, &d),
				 (int)strlen(lines[i]));
		assert_int_equal(s.sa.sa_family, AF_UNSPEC);
	}
}

static void test_v1_bad(void **state)
{
	static const char *const bad[] = {
		"GET / HTTP/1.1\r\n",
		"PROXY  TCP4 1.2.3.4 5.6.7.8 1 2\r\n",
		"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 \r\n",
		"PROXY TCP4 1.2.3.4 5.6.7.8 1 2 3\r\n",
		"PROXY TCP4 1.2.3.4 5.6.7.8 1\r\n",
		"PROXY TCP4 1.2.3.4  5.6.7.8 1 2\r\n",
		"PROXY TCP4 1.2.3.4 5.6.7.8 01 2\r\n",
		"PROXY TCP4 1.2.3.4 5.6.7.8 1 65536\r\n",
		"PROXY TCP4 1.2.3.4 5.6.7.8 -1 2\r\n",
		"PROXY TCP4 1.2.3 5.6.7.8 1 2\r\n",
		"PROXY TCP4 ::1 ::1 1 2\r\n",
		"PROXY TCP6 1.2.3.4 5.6.7.8 1 2\r\n",
		"PROXY TCP6 [::1] ::1 1 2\r\n",
		"PROXY TCP7 ::1 ::1 1 2\r\n",
		"PROXY tcp4 1.2.3.4 5.6.7.8 1 2\r\n",
		"PROXY UNKNOWNX\r\n",
		"PROXY UNKNOWN\n",
		"PROXY UNKNOWN\rX",
		"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\n\r\n",
		"PROXX",
		"\r\n\r\n\1",
	};
	struct addr s, d;
	char longest[160];

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		int r = read_exact(bad[i], strlen(bad[i]), &s, &d);

		if (r != -EBADMSG)
			fail_msg("accepted (%d): %s", r, bad[i]);
		assert_int_equal(s.sa.sa_family, AF_UNSPEC);
	}
	/* 107 bytes are the most a line may have. */
	memset(longest, 'x', sizeof(longest));
	memcpy(longest, "PROXY UNKNOWN ", 14);
	assert_int_equal(read_exact(longest, 106, &s, &d), 0);
	assert_int_equal(read_exact(longest, 107, &s, &d), -EBADMSG);
	longest[105] = '\r';
	longest[106] = '\n';
	assert_int_equal(read_exact(longest, 107, &s, &d), 107);
}

static size_t v2(char *out, uint8_t cmd, uint8_t family, const void *body, uint16_t len)
{
	memcpy(out, "\r\n\r\n\0\r\nQUIT\n", 12);
	out[12] = (char)cmd;
	out[13] = (char)family;
	out[14] = (char)(len >> 8);
	out[15] = (char)len;
	memcpy(out + 16, body, len);
	return 16u + len;
}

static void test_v2_forms(void **state)
{
	char out[512], body[300] = { 10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 1, 187 };
	struct addr s, d;
	size_t n;

	/* LOCAL with any content; UNSPEC; Unix: no addresses. */
	n = v2(out, 0x20, 0x99, body, 12);
	assert_int_equal(read_exact(out, n, &s, &d), (int)n);
	assert_int_equal(s.sa.sa_family, AF_UNSPEC);
	n = v2(out, 0x21, 0x00, body, 5);
	assert_int_equal(read_exact(out, n, &s, &d), (int)n);
	n = v2(out, 0x21, 0x31, body, 216);
	assert_int_equal(read_exact(out, n, &s, &d), (int)n);
	assert_int_equal(s.sa.sa_family, AF_UNSPEC);
	/* TLVs behind the addresses: a name, a no-op, an empty one. */
	memcpy(body + 12,
	       "\x02\x00\x03"
	       "abc\x04\x00\x00",
	       9);
	n = v2(out, 0x21, 0x11, body, 21);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(read_exact(out, i, &s, &d), 0);
	assert_int_equal(read_exact(out, n, &s, &d), (int)n);
	assert_int_equal(addr_port(&s), 80);
	assert_int_equal(addr_port(&d), 443);
	/* TLVs that do not fit. */
	for (uint16_t len = 13; len < 21; len++) {
		n = v2(out, 0x21, 0x11, body, len);
		assert_int_equal(read_exact(out, n, &s, &d), len == 18 ? (int)n : -EBADMSG);
	}
	/* Wrong version, command, family, too short. */
	n = v2(out, 0x11, 0x11, body, 12);
	assert_int_equal(read_exact(out, n, &s, &d), -EBADMSG);
	assert_int_equal(read_exact(out, 13, &s, &d), -EBADMSG);
	n = v2(out, 0x22, 0x11, body, 12);
	assert_int_equal(read_exact(out, n, &s, &d), -EBADMSG);
	n = v2(out, 0x21, 0x41, body, 12);
	assert_int_equal(read_exact(out, 14, &s, &d), -EBADMSG);
	n = v2(out, 0x21, 0x11, body, 11);
	assert_int_equal(read_exact(out, 16, &s, &d), -EBADMSG);
	n = v2(out, 0x21, 0x21, body, 35);
	assert_int_equal(read_exact(out, n, &s, &d), -EBADMSG);
}

static void test_v2_fields(void **state)
{
	static const char fields[] = "\x02\x00\x03"
				     "abc"
				     "\x20\x00\x0f"
				     "\x01\0\0\0\0"
				     "\x21\x00\x07"
				     "TLSv1.3"
				     "\xe0\x00\x00"
				     "\x22\x00\x01"
				     "x";
	char out[512], body[300] = { 10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 1, 44 };
	struct str tlvs, v;
	size_t n;

	memcpy(body + 12, fields, sizeof(fields) - 1);
	n = v2(out, 0x21, 0x11, body, (uint16_t)(12 + sizeof(fields) - 1));
	tlvs = proxy_header_tlvs(str_make(out, n));
	assert_true(proxy_tlv_find(tlvs, 0x02, &v) && str_is_eq(v, STR("abc")));
	assert_true(proxy_tlv_find(tlvs, 0x21, &v) && str_is_eq(v, STR("TLSv1.3")));
	assert_true(proxy_tlv_find(tlvs, 0xe0, &v) && v.len == 0);
	assert_true(proxy_tlv_find(tlvs, 0x22, &v) && str_is_eq(v, STR("x")));
	assert_false(proxy_tlv_find(tlvs, 0x23, &v));
	/* What is cut, inside and outside, is not there; what stands before is. */
	for (size_t cut = 0; cut < tlvs.len; cut++) {
		char *copy = mem_alloc(cut + 1);

		memcpy(copy, tlvs.p, cut);
		assert_int_equal(proxy_tlv_find(str_make(copy, cut), 0x02, &v), cut >= 6);
		assert_false(proxy_tlv_find(str_make(copy, cut), 0x22, &v));
		mem_free(copy);
	}
	/* None in LOCAL, in version 1, behind an address of unknown form. */
	assert_int_equal(proxy_header_tlvs(str_make(out, v2(out, 0x20, 0x11, body, 30))).len, 0);
	assert_int_equal(proxy_header_tlvs(str_make(out, v2(out, 0x21, 0x00, body, 30))).len, 0);
	assert_int_equal(proxy_header_tlvs(STR("PROXY UNKNOWN\r\n")).len, 0);
}

static uint32_t crc32c_of(const uint8_t *p, size_t len)
{
	uint32_t crc = ~0u;

	for (size_t i = 0; i < len; i++) {
		crc ^= p[i];
		for (int k = 0; k < 8; k++)
			crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
	}
	return ~crc;
}

static void test_v2_crc(void **state)
{
	char out[64], body[] = { 10, 0, 0, 1, 10, 0, 0, 2, 0, 80, 1, 44, 3, 0, 4, 0, 0, 0, 0 };
	struct addr s, d;
	size_t n = v2(out, 0x21, 0x11, body, sizeof(body));
	uint32_t crc;

	/* The published check value, so that both sums are not wrong in the same way. */
	assert_int_equal(crc32c_of((const uint8_t *)"123456789", 9), 0xe3069283u);
	assert_int_equal(read_exact(out, n, &s, &d), -EBADMSG);
	crc = crc32c_of((uint8_t *)out, n);
	for (int i = 0; i < 4; i++)
		out[31 + i] = (char)(crc >> (24 - 8 * i));
	assert_int_equal(read_exact(out, n, &s, &d), (int)n);
	out[20] ^= 1;
	assert_int_equal(read_exact(out, n, &s, &d), -EBADMSG);
}

/* Seeded noise: whatever the bytes, no length beyond the input, addresses only with a length. */
static void test_noise(void **state)
{
	unsigned seed = 7;
	char out[128];

	for (int round = 0; round < 20000; round++) {
		struct addr a = ip("192.0.2.1", 1), b = ip("192.0.2.2", 2), s, d;
		size_t n = proxy_header_write(1 + round % 2, &a, &b, out);
		int r;

		for (int k = rand_r(&seed) % 3; k >= 0; k--)
			out[(size_t)rand_r(&seed) % n] = (char)rand_r(&seed);
		n = (size_t)rand_r(&seed) % (n + 1);
		r = read_exact(out, n, &s, &d);
		assert_true(r == -EBADMSG || r == 0 || (r > 0 && (size_t)r <= n));
		if (r <= 0)
			assert_int_equal(s.sa.sa_family, AF_UNSPEC);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_write_text),
		cmocka_unit_test(test_write_fields), cmocka_unit_test(test_v1_unknown),
		cmocka_unit_test(test_v1_bad),	     cmocka_unit_test(test_v2_forms),
		cmocka_unit_test(test_v2_crc),	     cmocka_unit_test(test_v2_fields),
		cmocka_unit_test(test_noise),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
