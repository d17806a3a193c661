/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Hash functions and key extraction. The expected numbers, and the servers in test_balance.c, are
 * what HAProxy 2.6 answered for the same keys.
 *
 * links: lb base
 */
#include "unit/lb_fixture.h"

static const struct {
	const char *key;
	uint32_t sdbm, djb2, wt6, crc32, sdbm_avalanche;
} vectors[] = {
	{ "a", 97u, 177670u, 1900802597u, 3904355907u, 1830748055u },
	{ "foo", 849955110u, 193491849u, 3349746274u, 2356372769u, 2735148936u },
	{ "/index.html", 858007926u, 3776231887u, 822151038u, 3928116034u, 4217574924u },
	{ "user-12345", 2885789521u, 1281106256u, 1529220u, 1876782478u, 1227678707u },
	{ "The quick brown fox jumps over the lazy dog", 2359783795u, 885799134u, 3840389189u,
	  1095738169u, 4144961173u },
	{ "0", 48u, 177621u, 1880084069u, 4108050209u, 554408395u },
	{ "99999", 2549097401u, 203862146u, 1662978548u, 2634760556u, 1576959544u },
	{ "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 1849066496u, 210523301u,
	  702930432u, 2220255353u, 1793660031u },
};

static void test_functions(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(vectors); i++) {
		struct str k = str_from_cstr(vectors[i].key);

		assert_int_equal(lb_hash_key(HASH_SDBM, false, k), vectors[i].sdbm);
		assert_int_equal(lb_hash_key(HASH_DJB2, false, k), vectors[i].djb2);
		assert_int_equal(lb_hash_key(HASH_WT6, false, k), vectors[i].wt6);
		assert_int_equal(lb_hash_key(HASH_CRC32, false, k), vectors[i].crc32);
		assert_int_equal(lb_hash_key(HASH_SDBM, true, k), vectors[i].sdbm_avalanche);
	}
	assert_int_equal(lb_hash_key(HASH_SDBM, false, STR_NULL), 0);
	assert_int_equal(lb_hash_key(HASH_DJB2, false, STR("")), 5381);
	assert_int_equal(lb_hash_key(HASH_CRC32, false, STR("")), 0);
	/* bytes above 127 are unsigned */
	assert_int_equal(lb_hash_key(HASH_SDBM, false, STR("\xff")), 255);
}

static void test_none_reads_a_number(void **state)
{
	static const struct {
		const char *key;
		uint32_t hash;
	} t[] = {
		{ "", 0 },
		{ "42", 42 },
		{ "+7", 7 },
		{ "-1", UINT32_MAX },
		{ "12abc", 12 },
		{ "abc", 0 },
		{ "4294967296", 0 },
		{ "4294967301", 5 },
		{ "9223372036854775807", UINT32_MAX },
		{ "9223372036854775808", UINT32_MAX }, /* sticks */
		{ "99999999999999999999999999", UINT32_MAX },
		{ "-9223372036854775808", 0 },
		{ "-99999999999999999999999999", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++)
		assert_int_equal(lb_hash_key(HASH_NONE, false, str_from_cstr(t[i].key)), t[i].hash);
}

static void test_addresses(void **state)
{
	struct addr a;

	assert_int_equal(addr_parse_ip(STR("192.0.2.1"), &a), 0);
	assert_int_equal(lb_hash_addr(&a), 0xc0000201);
	assert_int_equal(addr_parse_ip(STR("2001:db8::1"), &a), 0);
	assert_int_equal(lb_hash_addr(&a), 0x20010db8 ^ 1);
	a.sa.sa_family = AF_UNIX;
	assert_int_equal(lb_hash_addr(&a), 0);
}

static void test_uri_key(void **state)
{
	static const struct {
		const char *uri;
		uint32_t len, depth;
		bool whole;
		const char *key;
	} t[] = {
		{ "/a/b?x=1", 0, 0, false, "/a/b" },
		{ "/a/b?x=1", 0, 0, true, "/a/b?x=1" },
		{ "/a/b/c", 0, 1, false, "/a" },
		{ "/a/b/c", 0, 2, false, "/a/b" },
		{ "/a/b/c", 0, 9, false, "/a/b/c" },
		{ "/abc", 2, 0, false, "/a" },
		{ "/abc", 90, 0, false, "/abc" },
		{ "/a/b", 3, 1, false, "/a" },
		{ "", 0, 1, false, "" },
		{ "?", 0, 0, false, "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct conf_balance_params p = {
			.uri_len = t[i].len,
			.uri_depth = t[i].depth,
			.uri_whole = t[i].whole,
		};
		struct str key = lb_uri_key(&p, str_from_cstr(t[i].uri));

		if (!str_is_eq(key, str_from_cstr(t[i].key)))
			fail_msg("%s: " STR_FMT, t[i].uri, STR_ARG(key));
	}
}

static void test_domain_key(void **state)
{
	static const char *const t[][2] = {
		{ "www.example.com", "example" },
		{ "example.com", "example" },
		{ "a.b.test.org:80", "test" },
		{ "localhost", "localhost" },
		{ "1.2.3.4", "3" },
		{ ".com", ".com" },
		{ ".", "." },
		{ "", "" },
		{ "a..b", "a." },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct str key = lb_domain_key(str_from_cstr(t[i][0]));

		if (!str_is_eq(key, str_from_cstr(t[i][1])))
			fail_msg("%s: " STR_FMT, t[i][0], STR_ARG(key));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_functions),  cmocka_unit_test(test_none_reads_a_number),
		cmocka_unit_test(test_addresses),  cmocka_unit_test(test_uri_key),
		cmocka_unit_test(test_domain_key),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
