/* SPDX-License-Identifier: BSD-2-Clause */
/* Addresses, prefixes, endpoints. links: base */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "base/addr.h"

static struct addr parsed(const char *text)
{
	struct addr a;

	if (addr_parse_ip(str_from_cstr(text), &a))
		fail_msg("'%s'", text);
	return a;
}

static void parse_and_format(void **state)
{
	static const char *const good[][3] = {
		{ "192.0.2.1", "192.0.2.1", "192.0.2.1:65535" },
		{ "0.0.0.0", "0.0.0.0", "0.0.0.0:65535" },
		{ "255.255.255.255", "255.255.255.255", "255.255.255.255:65535" },
		{ "2001:db8::1", "2001:db8::1", "[2001:db8::1]:65535" },
		{ "[2001:DB8:0::1]", "2001:db8::1", "[2001:db8::1]:65535" },
		{ "::", "::", "[::]:65535" },
		{ "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255",
		  "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
		  "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535" },
		{ "::ffff:192.0.2.1", "::ffff:192.0.2.1", "[::ffff:192.0.2.1]:65535" },
	};
	static const char *const bad[] = { "",	       "1.2.3",	    "1.2.3.4.5",  "256.1.1.1",
					   "1.2.3.4 ", "[1.2.3.4]", "[::1",	  "::1]",
					   ":::",      "g::1",	    "fe80::1%lo", "[]",
					   "01.2.3.4x" };
	char text[ADDR_TEXT_MAX];
	struct addr a;

	for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
		a = parsed(good[i][0]);
		assert_int_equal(addr_port(&a), 0);
		assert_int_equal(addr_format_ip(&a, text, sizeof(text)), strlen(good[i][1]));
		assert_string_equal(text, good[i][1]);
		addr_set_port(&a, 65535);
		assert_int_equal(addr_format(&a, text, sizeof(text)), strlen(good[i][2]));
		assert_string_equal(text, good[i][2]);
	}
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (addr_parse_ip(str_from_cstr(bad[i]), &a) != -EINVAL)
			fail_msg("'%s' accepted", bad[i]);
	}
	assert_int_equal(addr_parse_ip(str_make("1.2.3.4\0", 8), &a), -EINVAL);
	memset(&a, 0, sizeof(a));
	a.sa.sa_family = AF_UNIX;
	addr_format(&a, text, sizeof(text));
	assert_string_equal(text, "unix");
	srand(5);
	for (int i = 0; i < 2000; i++) {
		uint32_t ip = (uint32_t)rand() << 16 ^ (uint32_t)rand();
		struct addr b = { .in = { .sin_family = AF_INET, .sin_addr = { ip } } };

		addr_format_ip(&b, text, sizeof(text));
		a = parsed(text);
		assert_true(addr_is_eq(&a, &b));
	}
}

static void compare(void **state)
{
	struct addr a = parsed("192.0.2.1"), b = parsed("192.0.2.1"),
		    c = parsed("::ffff:192.0.2.1");
	struct addr none = { .sa = { .sa_family = AF_UNSPEC } };
	uint8_t ka[16], kc[16];

	addr_set_port(&b, 80);
	assert_true(addr_is_ip_eq(&a, &b));
	assert_false(addr_is_eq(&a, &b));
	assert_false(addr_is_ip_eq(&a, &c));
	addr_to_v6_mapped(&a, ka);
	addr_to_v6_mapped(&c, kc);
	assert_memory_equal(ka, kc, 16);
	assert_int_equal(addr_len(&a), sizeof(struct sockaddr_in));
	assert_int_equal(addr_len(&c), sizeof(struct sockaddr_in6));
	assert_false(addr_is_any(&a));
	assert_false(addr_is_any(&none));
	a = parsed("0.0.0.0");
	assert_true(addr_is_any(&a));
	a = parsed("::");
	assert_true(addr_is_any(&a));
}

static void prefixes(void **state)
{
	static const struct {
		const char *prefix, *addr;
		bool has;
	} t[] = {
		{ "192.0.2.77/24", "192.0.2.0", true },
		{ "192.0.2.0/24", "192.0.3.0", false },
		{ "192.0.2.0/255.255.255.128", "192.0.2.127", true },
		{ "192.0.2.0/255.255.255.128", "192.0.2.128", false },
		{ "0.0.0.0/0", "255.1.2.3", true },
		{ "192.0.2.1", "192.0.2.1", true },
		{ "192.0.2.1", "192.0.2.2", false },
		{ "10.0.0.0/9", "10.127.0.1", true },
		{ "10.0.0.0/9", "10.128.0.1", false },
		{ "192.0.2.0/24", "::ffff:192.0.2.9", true },
		{ "2001:db8::/33", "2001:db8:7fff::1", true },
		{ "2001:db8::/33", "2001:db8:8000::1", false },
		{ "::1/128", "::1", true },
		{ "::/0", "2001:db8::1", true },
		{ "0.0.0.0/0", "2001:db8::1", false },
	};
	static const char *const bad[] = {
		"192.0.2.0/33", "::/129", "1.2.3.4/", "1.2.3.4/-1", "1.2.3.4/255.0.255.0",
		"::/255.0.0.0", "/24",	  "x/8",      "1.2.3.4/8/8"
	};
	struct addr_prefix p;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		struct addr a = parsed(t[i].addr);

		assert_int_equal(addr_prefix_parse(str_from_cstr(t[i].prefix), &p), 0);
		if (addr_prefix_has(&p, &a) != t[i].has)
			fail_msg("%s %s", t[i].prefix, t[i].addr);
	}
	assert_int_equal(addr_prefix_parse(STR("192.0.2.77/24"), &p), 0);
	assert_int_equal(ntohl(p.addr.in.sin_addr.s_addr), 0xc0000200);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		if (addr_prefix_parse(str_from_cstr(bad[i]), &p) != -EINVAL)
			fail_msg("'%s' accepted", bad[i]);
	}
}

static void endpoints_good(void **state)
{
	static const struct {
		const char *text;
		enum endpoint_kind kind;
		int family; /* demanded */
		const char *what; /* address, name or path */
		int port, last; /* -1: none */
		const char *flags; /* "*" any host, "d" datagram, "+" and "-" port offset */
	} t[] = {
		{ "192.0.2.1:80", ENDPOINT_IP, AF_UNSPEC, "192.0.2.1:80", 80, 80, "" },
		{ ":80", ENDPOINT_IP, AF_UNSPEC, "0.0.0.0:80", 80, 80, "*" },
		{ "*:80", ENDPOINT_IP, AF_UNSPEC, "0.0.0.0:80", 80, 80, "*" },
		{ "*", ENDPOINT_IP, AF_UNSPEC, "0.0.0.0:0", -1, -1, "*" },
		{ "ipv6@:80", ENDPOINT_IP, AF_INET6, "[::]:80", 80, 80, "*" },
		{ "ipv6@*:80", ENDPOINT_IP, AF_INET6, "[::]:80", 80, 80, "*" },
		{ "ipv4@*:80", ENDPOINT_IP, AF_INET, "0.0.0.0:80", 80, 80, "*" },
		{ "[2001:db8::1]:443", ENDPOINT_IP, AF_UNSPEC, "[2001:db8::1]:443", 443, 443, "" },
		{ "2001:db8::1:443", ENDPOINT_IP, AF_UNSPEC, "[2001:db8::1]:443", 443, 443, "" },
		{ "2001:db8::1", ENDPOINT_IP, AF_UNSPEC, "[2001:db8::1]:0", -1, -1, "" },
		{ "::1", ENDPOINT_IP, AF_UNSPEC, "[::1]:0", -1, -1, "" },
		{ "::", ENDPOINT_IP, AF_UNSPEC, "[::]:0", -1, -1, "*" },
		{ ":::80", ENDPOINT_IP, AF_UNSPEC, "[::]:80", 80, 80, "*" },
		{ "[::]", ENDPOINT_IP, AF_UNSPEC, "[::]:0", -1, -1, "*" },
		{ "192.0.2.1", ENDPOINT_IP, AF_UNSPEC, "192.0.2.1:0", -1, -1, "" },
		{ "192.0.2.1:", ENDPOINT_IP, AF_UNSPEC, "192.0.2.1:0", -1, -1, "" },
		{ "192.0.2.1:80-90", ENDPOINT_IP, AF_UNSPEC, "192.0.2.1:80", 80, 90, "" },
		{ "192.0.2.1:+80", ENDPOINT_IP, AF_UNSPEC, "192.0.2.1:0", 80, 80, "+" },
		{ "192.0.2.1:-80", ENDPOINT_IP, AF_UNSPEC, "192.0.2.1:0", 80, 80, "-" },
		{ "udp@192.0.2.53:53", ENDPOINT_IP, AF_UNSPEC, "192.0.2.53:53", 53, 53, "d" },
		{ "udp6@:53", ENDPOINT_IP, AF_INET6, "[::]:53", 53, 53, "*d" },
		{ "dgram+ipv4@1.2.3.4:5", ENDPOINT_IP, AF_INET, "1.2.3.4:5", 5, 5, "d" },
		{ "stream+1.2.3.4:5", ENDPOINT_IP, AF_UNSPEC, "1.2.3.4:5", 5, 5, "" },
		{ "tcp4@1.2.3.4:5", ENDPOINT_IP, AF_INET, "1.2.3.4:5", 5, 5, "" },
		{ "app-1.example.org:8080", ENDPOINT_NAME, AF_UNSPEC, "app-1.example.org", 8080,
		  8080, "" },
		{ "localhost", ENDPOINT_NAME, AF_UNSPEC, "localhost", -1, -1, "" },
		{ "tcp6@my_host:1", ENDPOINT_NAME, AF_INET6, "my_host", 1, 1, "" },
		{ "unix@/run/a.sock", ENDPOINT_UNIX, AF_UNIX, "/run/a.sock", -1, -1, "" },
		{ "unix@a.sock", ENDPOINT_UNIX, AF_UNIX, "a.sock", -1, -1, "" },
		{ "/run/a:b@c.sock", ENDPOINT_UNIX, AF_UNIX, "/run/a:b@c.sock", -1, -1, "" },
		{ "abns@name", ENDPOINT_ABNS, AF_UNIX, "name", -1, -1, "" },
		{ "uxdg@/dev/log", ENDPOINT_UNIX, AF_UNIX, "/dev/log", -1, -1, "d" },
	};
	char text[ADDR_TEXT_MAX];
	struct endpoint ep;
	struct err e;

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		if (endpoint_parse(str_from_cstr(t[i].text), &ep, &e))
			fail_msg("'%s': %s", t[i].text, e.text);
		if (ep.kind != t[i].kind || ep.family != t[i].family ||
		    ep.has_port != (t[i].port >= 0) || ep.is_dgram != !!strchr(t[i].flags, 'd') ||
		    ep.has_any_host != !!strchr(t[i].flags, '*') ||
		    (ep.port_offset_sign > 0) != !!strchr(t[i].flags, '+') ||
		    (ep.port_offset_sign < 0) != !!strchr(t[i].flags, '-'))
			fail_msg("'%s': wrong kind, family or flag", t[i].text);
		if (ep.has_port && (ep.port != t[i].port || ep.port_last != t[i].last))
			fail_msg("'%s': port %u-%u", t[i].text, ep.port, ep.port_last);
		if (ep.kind == ENDPOINT_IP) {
			addr_format(&ep.addr, text, sizeof(text));
			assert_string_equal(text, t[i].what);
		} else {
			struct str s = ep.kind == ENDPOINT_NAME ? ep.host : ep.path;

			assert_true(str_is_eq(s, str_from_cstr(t[i].what)));
		}
	}
	assert_int_equal(endpoint_parse(STR("fd@7"), &ep, &e), 0);
	assert_int_equal(ep.kind, ENDPOINT_FD);
	assert_int_equal(ep.fd, 7);
	assert_false(ep.is_sockpair);
	assert_int_equal(endpoint_parse(STR("sockpair@9"), &ep, &e), 0);
	assert_int_equal(ep.fd, 9);
	assert_true(ep.is_sockpair);
}

static void endpoints_bad(void **state)
{
	static const char *const t[][2] = {
		{ "", "missing address" },
		{ "1.2.3.4:65536", "port '65536' of '1.2.3.4:65536' is not in the range 0-65535" },
		{ "1.2.3.4:99999999999999999999", "not in the range" },
		{ "1.2.3.4:8x", "invalid character 'x' in port '8x' of '1.2.3.4:8x'" },
		{ "1.2.3.4:80-", "missing port number" },
		{ "1.2.3.4:90-80", "ends before it begins (90-80)" },
		{ "1.2.3.4:+", "missing port number" },
		{ "1.2.3.4:80-90-95", "invalid character '-'" },
		{ "1.2.3:80", "'1.2.3' is not an IP address or host name" },
		{ "ipv4@::1:80", "'::1' is not an IPv4 address" },
		{ "ipv6@1.2.3.4:80", "'1.2.3.4' is not an IPv6 address" },
		{ "[1.2.3.4]:80", "'[1.2.3.4]' is not an IP" },
		{ "[::1:80", "is not an IP" },
		{ "a b:80", "'a b' is not an IP address or host name" },
		{ "-x:80", "is not an IP" },
		{ "unix@", "missing path" },
		{ "abns@", "missing name" },
		{ "fd@x", "'x' is not a file descriptor number" },
		{ "fd@99999999999", "'99999999999' is not a file descriptor number" },
		{ "fd@-1", "not a file descriptor" },
		{ "tpc@1.2.3.4:80", "did you mean 'tcp@'?" },
		{ "foobarbaz@1.2.3.4:80", "unknown address prefix 'foobarbaz@'" },
		{ "quic4@:443", "'quic4@' are not supported" },
		{ "mptcp@:443", "not supported" },
		{ "stream+udp@:53", "'stream+' contradicts 'udp@'" },
	};
	struct endpoint ep = { .fd = 42 };
	struct err e;
	char path[200];

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		e.text[0] = '\0';
		if (endpoint_parse(str_from_cstr(t[i][0]), &ep, &e) != -EINVAL)
			fail_msg("'%s' accepted", t[i][0]);
		if (!strstr(e.text, t[i][1]))
			fail_msg("'%s': %s", t[i][0], e.text);
		assert_int_equal(endpoint_parse(str_from_cstr(t[i][0]), &ep, NULL), -EINVAL);
	}
	assert_int_equal(ep.fd, 42); /* untouched on error */
	memset(path, 'a', sizeof(path));
	path[0] = '/';
	assert_int_equal(endpoint_parse(str_make(path, 107), &ep, &e), 0);
	assert_int_equal(endpoint_parse(str_make(path, 108), &ep, &e), -EINVAL);
	assert_non_null(strstr(e.text, "too long (max 107)"));
	assert_int_equal(endpoint_parse(str_make("/a\0b", 4), &ep, &e), -EINVAL);
}

/* No text crashes it or reads past its end (the copies are exact for AddressSanitizer). */
static void endpoints_random(void **state)
{
	static const char alphabet[] = "0123456789.:[]@+-*/abcdefuxipvtn";
	struct endpoint ep;
	struct err e;

	srand(11);
	for (int i = 0; i < 200000; i++) {
		size_t n = (size_t)rand() % 14;
		char *text = malloc(n + 1);

		assert_non_null(text);
		for (size_t k = 0; k < n; k++)
			text[k] = alphabet[(size_t)rand() % (sizeof(alphabet) - 1)];
		if (endpoint_parse(str_make(text, n), &ep, &e) == 0)
			assert_true(ep.port <= ep.port_last || !ep.has_port);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse_and_format), cmocka_unit_test(compare),
		cmocka_unit_test(prefixes),	    cmocka_unit_test(endpoints_good),
		cmocka_unit_test(endpoints_bad),    cmocka_unit_test(endpoints_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
