/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which server of the L7 tier counts in which row of `live_backends`, with which limit; and what becomes of the part of a
 * process that is gone.
 */
/* links: dp lb net conf expr http ev base */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "unit/program_model.h"

static struct fixture *f;
static struct hg_live_server live[MAX_IDS];

static int set_up(void **state)
{
	memset(live, 0, sizeof(live));
	f = fixture_new();
	f->dp.nat.live_backends = live;
	f->dp.share.part = 1;
	return 0;
}

static int tear_down(void **state)
{
	fixture_free(f);
	return 0;
}

#define DEFAULTS "defaults\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n"
#define L4(name, bind, rest, server) \
	"listen " name "\n mode l4\n bind " bind "\n" rest "\n server " server "\n"
#define TRACKED			" forward ipip\n track on\n maglev-table-size 251"
#define L7(name, port, servers) "listen " name "\n mode tcp\n bind 127.0.0.1:" port "\n" servers

static struct server *server_of(const char *section, const char *name)
{
	struct server *s = lb_find_server(&f->registry, str_from_cstr(section),
					  str_from_cstr(name));

	assert_non_null(s);
	return s;
}

/* The section whose row the server counts in, "" for none. */
static const char *row_of(const char *section, const char *name)
{
	struct hg_live_server *row = server_of(section, name)->live;

	return row ? f->dp.backends[row - live].service_name : "";
}

static void test_who_is_the_same(void **state)
{
	static const struct {
		const char *l4, *addr, *row;
	} t[] = {
		/* Address and port. */
		{ L4("a", "tcp@" VIP ":80", TRACKED, "s 10.0.0.1:80"), "10.0.0.1:80", "a" },
		{ L4("a", "tcp@" VIP ":80", TRACKED, "s 10.0.0.1:80"), "10.0.0.1:81", "" },
		{ L4("a", "tcp@" VIP ":80", TRACKED, "s 10.0.0.1:80"), "10.0.0.2:80", "" },
		{ L4("a", "tcp@[2001:db8::1]:80", TRACKED, "s [2001:db8::2]:80"),
		  "[2001:db8::2]:80", "a" },
		/* The port that packets keep. */
		{ L4("a", "tcp@" VIP ":80", TRACKED, "s 10.0.0.1"), "10.0.0.1:80", "a" },
		{ L4("a", "tcp@" VIP ":80,tcp@" VIP ":443", TRACKED, "s 10.0.0.1"), "10.0.0.1:443",
		  "a" },
		{ L4("a", "tcp@" VIP ":80", TRACKED, "s 10.0.0.1"), "10.0.0.1:443", "" },
		/* The L7 tier has no datagrams. */
		{ L4("a", "udp@" VIP ":80", TRACKED, "s 10.0.0.1:80"), "10.0.0.1:80", "" },
		{ L4("a", "udp@" VIP ":80,tcp@" VIP ":81", TRACKED, "s 10.0.0.1"), "10.0.0.1:80",
		  "" },
		/* Nobody counts there. */
		{ L4("a", "tcp@" VIP ":80", " forward ipip\n maglev-table-size 251",
		     "s 10.0.0.1:80"),
		  "10.0.0.1:80", "" },
		/* Of several the first. */
		{ L4("a", "tcp@" VIP ":80", TRACKED, "s 10.0.0.9:80")
			  L4("b", "tcp@192.0.2.21:80", TRACKED, "s 10.0.0.1:80")
				  L4("c", "tcp@192.0.2.22:80", TRACKED, "s 10.0.0.1:80"),
		  "10.0.0.1:80", "b" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char text[2000];

		snprintf(text, sizeof(text), DEFAULTS "%s" L7("web", "8080", " server x %s\n"),
			 t[i].l4, t[i].addr);
		fixture_conf(f, text);
		fixture_sync(f);
		if (strcmp(row_of("web", "x"), t[i].row) != 0)
			fail_msg("case %zu: counts in '%s', expected '%s'", i, row_of("web", "x"),
				 t[i].row);
		assert_int_equal(server_of("web", "x")->be->n_shared, *t[i].row != '\0');
	}
}

/* The strictest line counts for all; what the runtime API says does, too. */
static void test_limits(void **state)
{
	static const struct {
		const char *l4, *x, *y;
		uint32_t limit;
	} t[] = {
		{ "", "", "", 0 },
		{ " maxconn 9", "", "", 9 },
		{ " maxconn 9", " maxconn 7", "", 7 },
		{ " maxconn 9", " maxconn 7", " maxconn 5", 5 },
		{ " maxconn 9", " maxconn 70", " maxconn 50", 9 },
		{ "", " maxconn 7", "", 7 },
		{ "", "", "", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
		char text[2000];

		snprintf(text, sizeof(text),
			 DEFAULTS L4("a", "tcp@" VIP ":80", TRACKED, "s 10.0.0.1:80%s")
				 L7("web", "8080",
				    " server x 10.0.0.1:80%s\n server z 10.0.0.3:80 maxconn 1\n")
					 L7("more", "8081", " server y 10.0.0.1:80%s\n"),
			 t[i].l4, t[i].x, t[i].y);
		fixture_conf(f, text);
		fixture_sync(f);
		assert_ptr_equal(server_of("web", "x")->live, server_of("more", "y")->live);
		assert_non_null(server_of("web", "x")->live);
		assert_int_equal(server_of("web", "x")->live->limit, t[i].limit);
		assert_int_equal(server_of("web", "x")->be->n_shared, 1);
	}
	server_set_maxconn(&f->registry, server_of("more", "y"), 4);
	fixture_sync(f);
	assert_int_equal(server_of("web", "x")->live->limit, 4);
	server_set_maxconn(&f->registry, server_of("more", "y"), 0);
	fixture_sync(f);
	assert_int_equal(server_of("web", "x")->live->limit, 0);
}

/* Streams go along when the server's address changes, and when the section goes that had the row. */
static void test_changes(void **state)
{
	static const char both[] = DEFAULTS L4("a", "tcp@" VIP ":80", TRACKED, "s 10.0.0.1:80")
		L4("b", "tcp@192.0.2.21:80", TRACKED, "s 10.0.0.2:80")
			L7("web", "8080", " server x 10.0.0.1:80\n");
	static const char one[] = DEFAULTS L4("b", "tcp@192.0.2.21:80", TRACKED, "s 10.0.0.2:80")
		L7("web", "8080", " server x 10.0.0.1:80\n");
	struct hg_live_server *a, *b;
	struct server *x;
	struct addr to;

	fixture_conf(f, both);
	fixture_sync(f);
	x = server_of("web", "x");
	a = x->live;
	assert_true(server_try_take(x, 0, 0));
	assert_true(server_try_take(x, 0, 0));
	assert_int_equal(a->word, 2 * HG_LIVE_L7(1));
	assert_int_equal(addr_parse_ip(STR("10.0.0.2"), &to), 0);
	addr_set_port(&to, 80);
	server_set_addr(&f->registry, x, &to);
	fixture_sync(f);
	b = x->live;
	assert_string_equal(row_of("web", "x"), "b");
	assert_int_equal(a->word, 0);
	assert_int_equal(b->word, 2 * HG_LIVE_L7(1));
	assert_int_equal(addr_parse_ip(STR("10.0.0.1"), &to), 0);
	addr_set_port(&to, 80);
	server_set_addr(&f->registry, x, &to);
	fixture_sync(f);
	assert_int_equal(a->word, 2 * HG_LIVE_L7(1));
	fixture_conf(f, one);
	fixture_sync(f);
	assert_null(x->live);
	assert_int_equal(a->word + b->word, 0);
	server_release(x->be, x, 0);
	fixture_conf(f, both);
	fixture_sync(f);
	assert_int_equal(x->live->word, HG_LIVE_L7(1));
	server_release(x->be, x, 0);
	assert_int_equal(x->live->word, 0);
}

/* --- parts ------------------------------------------------------------------------------------------------ */

static char dir[] = "/tmp/hg-share-XXXXXX";

static int make_dir(void **state)
{
	memcpy(dir + sizeof(dir) - 7, "XXXXXX", 6);
	memset(live, 0, sizeof(live));
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	return rmdir(dir);
}

/* A process as far as parts are concerned. */
static void begin(struct dp *dp)
{
	struct err err = { "" };

	*dp = (struct dp){ .t.max_backends = MAX_IDS, .nat.live_backends = live };
	snprintf(dp->dir, sizeof(dp->dir), "%s", dir);
	if (dp_share_open(dp, &err) != 0)
		fail_msg("%s", err.text);
}

/* kill -9: locks end with the descriptor. */
static void die(struct dp *dp)
{
	close(dp->share.fd);
}

static void count(const struct dp *dp, uint32_t id, uint32_t n)
{
	live[id].word += n * HG_LIVE_L7(dp->share.part);
}

static void test_crash(void **state)
{
	struct dp a, b;

	live[2].word = 5 * HG_LIVE_XDP;
	begin(&a);
	count(&a, 1, 3);
	count(&a, 2, 4);
	die(&a);
	begin(&b);
	assert_int_equal(live[1].word, 0);
	assert_int_equal(live[2].word, 5 * HG_LIVE_XDP);
	/* A clean end leaves nothing either. */
	count(&b, 2, 1);
	dp_share_close(&b);
	assert_int_equal(live[2].word, 5 * HG_LIVE_XDP);
}

/* An upgrade: both count, and who is left clears what the other could not. */
static void test_upgrade(void **state)
{
	for (unsigned killed = 0; killed < 2; killed++) {
		struct dp a, b;

		begin(&a);
		count(&a, 1, 3);
		begin(&b);
		assert_int_not_equal(a.share.part, b.share.part);
		count(&b, 1, 2);
		dp_share_tick(&b);
		dp_share_tick(&a);
		assert_int_equal(hg_live_all(live[1].word), 5);
		if (killed) {
			die(&a);
			assert_int_equal(hg_live_all(live[1].word), 5);
			dp_share_tick(&b);
		} else {
			dp_share_close(&a);
		}
		assert_int_equal(live[1].word, 2 * HG_LIVE_L7(b.share.part));
		dp_share_close(&b);
		assert_int_equal(live[1].word, 0);
	}
}

/* Three at once: two share a part, nothing is cleared that is somebody's, and all ends at zero. */
static void test_upgrade_upon_upgrade(void **state)
{
	struct dp a, b, c, d;

	begin(&a);
	count(&a, 1, 1);
	begin(&b);
	count(&b, 1, 10);
	begin(&c); /* from b */
	assert_int_equal(c.share.part, a.share.part);
	count(&c, 1, 100);
	dp_share_tick(&c);
	assert_int_equal(hg_live_all(live[1].word), 111);
	live[1].word -= HG_LIVE_L7(a.share.part);
	dp_share_close(&a);
	assert_int_equal(hg_live_all(live[1].word), 110);
	die(&b);
	dp_share_tick(&c);
	assert_int_equal(hg_live_all(live[1].word), 100);
	begin(&d);
	assert_int_not_equal(d.share.part, c.share.part);
	assert_int_equal(hg_live_all(live[1].word), 100);
	die(&c);
	dp_share_tick(&d);
	assert_int_equal(live[1].word, 0);
	dp_share_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_who_is_the_same, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_limits, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_changes, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_crash, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_upgrade, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_upgrade_upon_upgrade, make_dir, remove_dir),
	};

	return cmocka_run_group_tests_name("share rows", tests, NULL, NULL);
}
