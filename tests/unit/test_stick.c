/* SPDX-License-Identifier: BSD-2-Clause */
/* links: lb net conf expr http ev base */
/* Stick tables: keys, rates, eviction, expiry, references, reloads, several threads at once. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <cmocka.h>

#include "lb/stick.h"

static struct conf *conf;
static struct stick_registry reg;

static void report(void *ctx, enum conf_severity sev, const struct conf_pos *pos, const char *text)
{
	if (sev == CONF_ERROR)
		fprintf(stderr, "%u:%u: %s\n", pos->line, pos->column, text);
}

static struct conf *load(const char *stick_table)
{
	struct conf_source src = { .report = report };
	struct conf *c = NULL;
	char text[512];

	snprintf(text, sizeof(text), "backend t\n stick-table %s\n", stick_table);
	assert_int_equal(conf_load_text(str_from_cstr(text), "t", &src, &c), 0);
	return c;
}

static struct conf_stick_table *line_of(struct conf *c)
{
	return conf_find_stick_table(c, STR("t"));
}

static struct stick_table *make(const char *stick_table)
{
	struct stick_table *t = NULL;

	conf = load(stick_table);
	assert_int_equal(stick_table_new(line_of(conf), &t), 0);
	return t;
}

static void done(struct stick_table *t)
{
	stick_table_free(t);
	conf_free(conf);
}

static struct str num_key(uint32_t n)
{
	static _Thread_local uint32_t mem;

	mem = n;
	return str_make((const char *)&mem, 4);
}

/* Counts one request of a key at a time. */
static int hit(struct stick_table *t, uint32_t key, uint64_t now)
{
	static const struct stick_delta d = { .n = { [STICK_HTTP_REQ] = 1, [STICK_CONN] = 1 } };
	struct stick_ref r;
	int rc = stick_open(t, num_key(key), &d, now, &r);

	if (!rc)
		stick_close(&r, NULL, now);
	return rc;
}

static bool has(struct stick_table *t, uint32_t key, uint64_t now)
{
	uint64_t v;

	return stick_read_key(t, num_key(key), STICK_FACT_REFS, 0, now, &v) == 0;
}

static uint64_t get(struct stick_table *t, uint32_t key, unsigned what, unsigned idx, uint64_t now)
{
	uint64_t v = UINT64_MAX;

	assert_int_equal(stick_read_key(t, num_key(key), what, idx, now, &v), 0);
	return v;
}

/* --- counting ------------------------------------------------------------------------------------- */

static void test_counters(void **state)
{
	struct stick_table *t = make("type integer size 100 store "
				     "conn_cnt,conn_cur,http_req_rate(10s),bytes_in_cnt,gpc0,gpt0");
	const struct stick_delta d = {
		.n = { [STICK_CONN] = 1, [STICK_BYTES_IN] = 5000, [STICK_SESS] = 3 }, .conn_cur = 1
	};
	const struct stick_delta end = { .conn_cur = -1 };
	struct stick_ref r, r2;
	uint64_t v;

	assert_int_equal(stick_open(t, num_key(7), &d, 1000, &r), 0);
	assert_int_equal(stick_open(t, num_key(7), &d, 1000, &r2), 0);
	assert_int_equal(get(t, 7, STICK_DATA_CONN_CNT, 0, 1000), 2);
	assert_int_equal(get(t, 7, STICK_DATA_CONN_CUR, 0, 1000), 2);
	assert_int_equal(get(t, 7, STICK_DATA_BYTES_IN_CNT, 0, 1000), 10000);
	assert_int_equal(get(t, 7, STICK_FACT_REFS, 0, 1000), 2);
	assert_int_equal(stick_read_key(t, num_key(7), STICK_DATA_SESS_CNT, 0, 1000, &v), -ENODATA);
	assert_int_equal(stick_read_key(t, num_key(8), STICK_DATA_CONN_CNT, 0, 1000, &v), -ENOENT);
	/* gpc and gpt find the single ones; there is no second. */
	assert_int_equal(stick_gpc_add(&r, 0, 5, 1000, &v), 0);
	assert_int_equal(v, 5);
	assert_int_equal(stick_gpc_add(&r, 1, 5, 1000, &v), -ENODATA);
	assert_int_equal(stick_write(&r, STICK_DATA_GPC, 0, 0, 1000, &v), 0);
	assert_int_equal(v, 5);
	assert_int_equal(stick_write(&r, STICK_DATA_GPT, 0, 77, 1000, &v), 0);
	assert_int_equal(get(t, 7, STICK_DATA_GPT0, 0, 1000), 77);
	assert_int_equal(stick_remove(t, num_key(7)), -EBUSY);
	stick_close(&r, &end, 1000);
	assert_null(r.t);
	stick_close(&r, &end, 1000); /* harmless */
	assert_int_equal(get(t, 7, STICK_DATA_CONN_CUR, 0, 1000), 1);
	/* Written over while somebody is connected: never below zero. */
	assert_int_equal(stick_write(&r2, STICK_DATA_CONN_CUR, 0, 0, 1000, &v), 0);
	stick_close(&r2, &end, 1000);
	assert_int_equal(get(t, 7, STICK_DATA_CONN_CUR, 0, 1000), 0);
	assert_int_equal(stick_remove(t, num_key(7)), 0);
	assert_int_equal(stick_remove(t, num_key(7)), -ENOENT);
	assert_int_equal(stick_used(t), 0);
	done(t);
}

static void test_arrays(void **state)
{
	struct stick_table *t = make("type integer size 10 store gpc(3),gpc_rate(2,1s),gpt(2)");
	struct stick_ref r;
	uint64_t v;

	assert_int_equal(stick_open(t, num_key(1), NULL, 500, &r), 0);
	assert_int_equal(stick_gpc_add(&r, 2, 9, 500, &v), 0);
	assert_int_equal(v, 9);
	assert_int_equal(stick_gpc_add(&r, 1, 4, 500, &v), 0);
	assert_int_equal(stick_gpc_add(&r, 3, 4, 500, &v), -ENODATA);
	assert_int_equal(stick_write(&r, STICK_DATA_GPT, 1, 6, 500, &v), 0);
	assert_int_equal(stick_write(&r, STICK_DATA_GPT, 2, 6, 500, &v), -ENODATA);
	assert_int_equal(get(t, 1, STICK_DATA_GPC, 0, 500), 0);
	assert_int_equal(get(t, 1, STICK_DATA_GPC, 1, 500), 4);
	assert_int_equal(get(t, 1, STICK_DATA_GPC, 2, 500), 9);
	assert_int_equal(get(t, 1, STICK_DATA_GPC_RATE, 1, 500), 4);
	assert_int_equal(get(t, 1, STICK_DATA_GPC_RATE, 0, 500), 0);
	assert_int_equal(get(t, 1, STICK_DATA_GPT, 1, 500), 6);
	stick_close(&r, NULL, 500);
	done(t);
}

static void test_rates(void **state)
{
	struct stick_table *t = make("type integer size 10 store http_req_rate(1s)");
	uint64_t now = 1000000;
	struct stick_ref r;
	uint64_t v;

	for (int i = 0; i < 100; i++)
		assert_int_equal(hit(t, 1, now), 0);
	assert_int_equal(get(t, 1, STICK_DATA_HTTP_REQ_RATE, 0, now), 100);
	assert_int_equal(get(t, 1, STICK_DATA_HTTP_REQ_RATE, 0, now + 999), 100);
	/* In the next period what is left of the old one counts. */
	assert_int_equal(get(t, 1, STICK_DATA_HTTP_REQ_RATE, 0, now + 1000), 100);
	assert_int_equal(get(t, 1, STICK_DATA_HTTP_REQ_RATE, 0, now + 1500), 50);
	assert_int_equal(hit(t, 1, now + 1500), 0);
	assert_int_equal(get(t, 1, STICK_DATA_HTTP_REQ_RATE, 0, now + 1500), 51);
	assert_int_equal(get(t, 1, STICK_DATA_HTTP_REQ_RATE, 0, now + 1900), 11);
	/* The single one of the last period stays 1 until it is two periods old. */
	assert_int_equal(get(t, 1, STICK_DATA_HTTP_REQ_RATE, 0, now + 2999), 1);
	assert_int_equal(get(t, 1, STICK_DATA_HTTP_REQ_RATE, 0, now + 3000), 0);
	/* After a long pause it begins anew. */
	assert_int_equal(hit(t, 1, now + 60000), 0);
	assert_int_equal(get(t, 1, STICK_DATA_HTTP_REQ_RATE, 0, now + 60000), 1);
	/* Another worker's clock lies back a little. */
	assert_int_equal(hit(t, 1, now + 59990), 0);
	assert_int_equal(get(t, 1, STICK_DATA_HTTP_REQ_RATE, 0, now + 59990), 2);
	assert_int_equal(stick_find(t, num_key(1), now + 60000, &r), 0);
	assert_int_equal(stick_write(&r, STICK_DATA_HTTP_REQ_RATE, 0, 40, now + 60000, &v), 0);
	stick_close(&r, NULL, now + 60000);
	assert_int_equal(get(t, 1, STICK_DATA_HTTP_REQ_RATE, 0, now + 60500), 20);
	done(t);
}

/* --- room ----------------------------------------------------------------------------------------- */

/* Bandwidth limits: never more than the limit in a period, in the long run not much less, evenly, and not in crumbs. */
static void test_take(void **state)
{
	static const struct {
		struct stick_limit l;
		uint64_t want, crumb;
	} cases[] = {
		{ { .limit = 100000, .period_ms = 1000, .step = 2000 }, 16384, 1000 },
		{ { .limit = 100000, .period_ms = 1000, .step = 2000, .least = 8192 },
		  16384,
		  8192 },
		{ { .limit = 100000, .period_ms = 1000, .step = 2000 }, 900, 900 },
		{ { .limit = 3, .period_ms = 1000, .step = 3 }, 1, 1 },
		{ { .limit = 7000, .period_ms = 60000, .step = 1460 }, 65536, 730 },
		{ { .limit = 1 << 30, .period_ms = 100, .step = 1 << 28 }, 65536, 65536 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t w[STICK_RATE_WORDS] = { 0 }, total = 0, now = 777777;
		const struct stick_limit *l = &cases[i].l;
		const uint64_t from = now, end = now + 20ull * l->period_ms;
		const uint64_t piece = l->step > l->least ? l->step : l->least;

		while (now < end) {
			uint32_t wait = 0;
			uint64_t n = stick_rate_take(w, l, cases[i].want, now, &wait);

			total += n;
			if (!n) {
				assert_in_range(wait, 1, l->period_ms);
				now += wait;
				continue;
			}
			assert_in_range(n, cases[i].crumb, cases[i].want);
			assert_true(w[0] <= l->limit);
			assert_true(total <= l->limit * (now - from) / l->period_ms + 2 * piece);
		}
		assert_true(total >= 20 * l->limit * 8 / 10);
	}
}

static void test_take_shared(void **state)
{
	struct stick_table *t = make("type integer size 100 expire 1h store bytes_out_rate(2s)");
	const struct stick_limit l = { .limit = 1000, .period_ms = 1, .step = 100 };
	struct stick_ref a = { NULL }, b = { NULL };
	uint64_t n, total = 0;
	uint32_t wait;

	assert_int_equal(stick_open(t, num_key(7), NULL, 10000, &a), 0);
	assert_int_equal(stick_open(t, num_key(7), NULL, 10000, &b), 0);
	/* The period is the table's, and both take of the same. */
	for (uint64_t now = 10000; now < 30000; now++) {
		assert_int_equal(stick_take(now & 1 ? &a : &b, STICK_DATA_BYTES_OUT_RATE, &l, 400,
					    now, &n, &wait),
				 0);
		total += n;
	}
	assert_in_range(total, 9000, 10100);
	assert_int_equal(stick_take(&a, STICK_DATA_BYTES_IN_RATE, &l, 1, 1, &n, &wait), -ENODATA);
	stick_close(&a, NULL, 30000);
	stick_close(&b, NULL, 30000);
	done(t);
}

static void test_eviction(void **state)
{
	struct stick_table *t = make("type integer size 3 store conn_cnt");
	struct stick_ref held;

	for (uint32_t k = 1; k <= 3; k++)
		assert_int_equal(hit(t, k, 100 * k), 0);
	assert_int_equal(hit(t, 1, 400), 0); /* used again: 2 is the oldest now */
	assert_int_equal(hit(t, 4, 500), 0);
	assert_int_equal(stick_used(t), 3);
	assert_false(has(t, 2, 500));
	assert_true(has(t, 1, 500) && has(t, 3, 500) && has(t, 4, 500));
	/* What is held stays, however old. */
	assert_int_equal(stick_open(t, num_key(3), NULL, 600, &held), 0);
	for (uint32_t k = 10; k < 50; k++)
		assert_int_equal(hit(t, k, 600 + k), 0);
	assert_true(has(t, 3, 700));
	assert_int_equal(stick_used(t), 3);
	stick_close(&held, NULL, 700);
	done(t);
}

static void test_all_held(void **state)
{
	struct stick_table *t = make("type integer size 2 store conn_cnt");
	struct stick_ref a, b, c;

	assert_int_equal(stick_open(t, num_key(1), NULL, 1, &a), 0);
	assert_int_equal(stick_open(t, num_key(2), NULL, 1, &b), 0);
	assert_int_equal(stick_open(t, num_key(3), NULL, 1, &c), -ENOSPC);
	assert_null(c.t);
	assert_int_equal(stick_used(t), 2);
	stick_close(&a, NULL, 1);
	assert_int_equal(stick_open(t, num_key(3), NULL, 1, &c), 0);
	stick_close(&b, NULL, 1);
	stick_close(&c, NULL, 1);
	assert_int_equal(stick_n_refs(t), 0);
	done(t);
}

static void test_nopurge(void **state)
{
	struct stick_table *t = make("type integer size 2 expire 1s nopurge store conn_cnt");

	assert_int_equal(hit(t, 1, 1000), 0);
	assert_int_equal(hit(t, 2, 1500), 0);
	assert_int_equal(hit(t, 3, 1600), -ENOSPC);
	assert_int_equal(hit(t, 1, 1700), 0);
	/* 2 has expired: there is room. */
	assert_int_equal(hit(t, 3, 2600), 0);
	assert_true(has(t, 1, 2600));
	assert_false(has(t, 2, 2600));
	done(t);
}

static void test_expiry(void **state)
{
	struct stick_table *t = make("type integer size 1000 expire 10s store conn_cnt");
	struct stick_ref held;
	uint64_t now = 5000;

	for (uint32_t k = 0; k < 1000; k++)
		assert_int_equal(hit(t, k, now), 0);
	assert_int_equal(stick_open(t, num_key(5), NULL, now, &held), 0);
	assert_int_equal(hit(t, 6, now + 5000), 0);
	assert_int_equal(get(t, 6, STICK_FACT_EXPIRE_MS, 0, now + 6000), 9000);
	assert_int_equal(get(t, 6, STICK_FACT_IDLE_MS, 0, now + 6000), 1000);
	assert_int_equal(stick_expire(t, now + 9999, 100000), 0);
	/* Gone for who asks, at once; the memory follows. */
	assert_false(has(t, 7, now + 10000));
	assert_true(has(t, 6, now + 10000));
	assert_true(has(t, 5, now + 10000));
	stick_expire(t, now + 10000, 100000);
	assert_int_equal(stick_used(t), 2);
	/* The time of what was held begins when it is let go. */
	stick_close(&held, NULL, now + 20000);
	assert_true(has(t, 5, now + 29999));
	stick_expire(t, now + 30000, 100000);
	stick_expire(t, now + 41000, 100000);
	assert_int_equal(stick_used(t), 0);
	done(t);
}

/* Exactly `size` entries fit, however the keys fall. */
static void test_size_is_exact(void **state)
{
	static const unsigned sizes[] = { 1, 2, 255, 256, 1000, 5000, 20000 };
	char text[64];

	for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct stick_table *t;

		snprintf(text, sizeof(text), "type integer size %u nopurge store gpc0", sizes[i]);
		t = make(text);
		for (uint32_t k = 0; k < sizes[i]; k++)
			assert_int_equal(hit(t, k, 1), 0);
		assert_int_equal(stick_used(t), sizes[i]);
		assert_int_equal(hit(t, sizes[i], 1), -ENOSPC);
		for (uint32_t k = 0; k < sizes[i]; k++)
			assert_true(has(t, k, 1));
		done(t);
	}
}

/* --- keys ----------------------------------------------------------------------------------------- */

static void check_key(const char *table, const char *in, const char *out)
{
	struct stick_table *t = make(table);
	char key[CONF_STICK_KEY_MAX], text[STICK_KEY_TEXT_MAX];
	size_t len;

	if (!out) {
		assert_int_equal(stick_key_parse(t, str_from_cstr(in), key, &len), -EINVAL);
	} else {
		assert_int_equal(stick_key_parse(t, str_from_cstr(in), key, &len), 0);
		stick_key_format(t, str_make(key, len), text);
		assert_string_equal(text, out);
	}
	done(t);
}

static void test_keys(void **state)
{
	check_key("type ip size 9", "192.0.2.1", "192.0.2.1");
	check_key("type ip size 9", "2001:db8::1", NULL);
	check_key("type ip size 9", "x", NULL);
	check_key("type ipv6 size 9", "2001:db8::1", "2001:db8::1");
	check_key("type ipv6 size 9", "192.0.2.1", "::ffff:192.0.2.1");
	check_key("type integer size 9", "4294967295", "4294967295");
	check_key("type integer size 9", "4294967296", NULL);
	check_key("type string len 5 size 9", "abcdefg", "abcde");
	check_key("type string len 9 size 9", "a b=\t\x01", "a\\ b\\=\\t\\x01");
	check_key("type binary len 4 size 9", "0aFF", "0AFF0000");
	check_key("type binary len 4 size 9", "0a0", NULL);
	check_key("type binary len 1 size 9", "0a0b", NULL);
	check_key("type binary len 4 size 9", "0x", NULL);
}

static void test_view(void **state)
{
	struct stick_table *t =
		make("type integer size 5000 expire 1m store http_req_rate(1s),gpc0");
	struct stick_view *v = calloc(1, sizeof(*v));
	struct stick_cursor c = { 0 };
	uint64_t n = 0, value;

	for (uint32_t k = 0; k < 3000; k++)
		assert_int_equal(hit(t, k, 10), 0);
	while (stick_next(t, &c, 10, v)) {
		assert_int_equal(v->key_len, 4);
		assert_int_equal(v->expire_ms, 60000);
		assert_int_equal(stick_view_get(t, v, STICK_DATA_HTTP_REQ_RATE, 0, 10, &value), 0);
		assert_int_equal(value, 1);
		assert_int_equal(stick_view_get(t, v, STICK_DATA_GPC1, 0, 10, &value), -ENODATA);
		n++;
	}
	assert_int_equal(n, 3000);
	assert_int_equal(stick_view_key(t, num_key(17), 10, v), 0);
	assert_int_equal(stick_view_key(t, num_key(3017), 10, v), -ENOENT);
	memset(&c, 0, sizeof(c));
	assert_false(stick_next(t, &c, 61000, v)); /* expired, not yet taken away */
	free(v);
	done(t);
}

/* --- reloads -------------------------------------------------------------------------------------- */

static struct conf *adopt(const char *stick_table, uint64_t now)
{
	struct conf *c = load(stick_table);
	struct err err;

	assert_int_equal(stick_registry_prepare(&reg, c, &err), 0);
	stick_registry_commit(&reg, c, now);
	return c;
}

static void drop(struct conf *c)
{
	stick_registry_release(&reg, c);
	conf_free(c);
}

static unsigned n_tables(void)
{
	struct list *p;
	unsigned n = 0;

	list_for_each(p, &reg.tables)
		n++;
	return n;
}

static void test_reload(void **state)
{
	struct conf *a, *b, *c, *d;
	struct stick_table *t;
	struct stick_ref held;

	stick_registry_init(&reg);
	a = adopt("type integer size 100 expire 1m store conn_cnt,http_req_rate(10s)", 0);
	t = line_of(a)->rt;
	for (uint32_t k = 0; k < 50; k++)
		assert_int_equal(hit(t, k, 1000 + k), 0);
	assert_int_equal(hit(t, 3, 1100), 0);
	/* The same but for the time: the very table. */
	b = adopt("type integer size 100 expire 5m store conn_cnt,http_req_rate(10s)", 2000);
	assert_ptr_equal(line_of(b)->rt, t);
	assert_int_equal(get(t, 3, STICK_FACT_EXPIRE_MS, 0, 1100), 300000);
	drop(a);
	/* Other data and a smaller size: entries move, the youngest stay. Somebody holds one of the old. */
	assert_int_equal(stick_open(t, num_key(49), NULL, 2000, &held), 0);
	c = adopt("type integer size 20 expire 5m store gpc0,conn_cnt,http_req_rate(20s)", 3000);
	assert_ptr_not_equal(line_of(c)->rt, t);
	assert_int_equal(stick_used(line_of(c)->rt), 20);
	assert_int_equal(get(line_of(c)->rt, 3, STICK_DATA_CONN_CNT, 0, 3000), 2);
	assert_int_equal(get(line_of(c)->rt, 3, STICK_DATA_GPC0, 0, 3000), 0);
	assert_int_equal(get(line_of(c)->rt, 3, STICK_DATA_HTTP_REQ_RATE, 0, 3000), 0);
	assert_false(has(line_of(c)->rt, 4, 3000));
	drop(b);
	assert_int_equal(n_tables(), 2);
	stick_close(&held, NULL, 3000);
	stick_registry_tick(&reg, 3000);
	assert_int_equal(n_tables(), 1);
	/* Another type of key: from nothing. */
	d = adopt("type string size 20 store conn_cnt", 3000);
	assert_int_equal(stick_used(line_of(d)->rt), 0);
	drop(c);
	drop(d);
	assert_int_equal(n_tables(), 0);
	stick_registry_fini(&reg);
}

/* A reload that does not come to be leaves the running table as it is. */
static void test_reload_aborted(void **state)
{
	struct conf *a, *b;
	struct stick_table *t;
	struct err err;

	stick_registry_init(&reg);
	a = adopt("type integer size 100 expire 1m store conn_cnt", 0);
	t = line_of(a)->rt;
	assert_int_equal(hit(t, 1, 10), 0);
	b = load("type integer size 100 expire 5m store conn_cnt");
	assert_int_equal(stick_registry_prepare(&reg, b, &err), 0);
	drop(b);
	assert_int_equal(get(t, 1, STICK_FACT_EXPIRE_MS, 0, 10), 60000);
	b = load("type integer size 200 store conn_cnt");
	assert_int_equal(stick_registry_prepare(&reg, b, &err), 0);
	drop(b);
	assert_int_equal(n_tables(), 1);
	for (uint64_t n = 1;; n++) {
		int rc;

		b = load("type integer size 200 store conn_cnt");
		mem_fail_at(n);
		rc = stick_registry_prepare(&reg, b, &err);
		mem_fail_at(0);
		drop(b);
		assert_int_equal(n_tables(), 1);
		if (rc == 0)
			break;
		assert_int_equal(rc, -ENOMEM);
		assert_true(n < 50);
	}
	drop(a);
	stick_registry_fini(&reg);
}

/* Hints change nothing, whether the key is there, gone or has never been. */
static void test_ahead(void **state)
{
	struct stick_table *t = make("type integer size 1000 store conn_cnt");
	struct stick_ahead ahead;
	struct stick_ref ref;

	for (uint32_t k = 0; k < 3000; k++) {
		stick_ahead(t, num_key(k), &ahead);
		stick_ahead_entry(&ahead);
		assert_ptr_equal(ahead.t, t);
		assert_int_equal(stick_used(t), k < 1000 ? k : 1000);
		assert_int_equal(stick_open(t, num_key(k), NULL, k, &ref), 0);
		stick_ahead(t, num_key(k), &ahead);
		stick_ahead_entry(&ahead);
		stick_close(&ref, NULL, k);
	}
	assert_int_equal(stick_remove(t, num_key(2999)), 0);
	stick_ahead_entry(&ahead);
	assert_int_equal(stick_find(t, num_key(2999), 3000, &ref), -ENOENT);
	assert_int_equal(stick_n_refs(t), 0);
	done(t);
}

/* --- threads -------------------------------------------------------------------------------------- */

#define ROUNDS 20000

struct runner {
	pthread_t thread;
	struct stick_table *t;
	uint32_t seed;
	unsigned full;
};

static void *run(void *arg)
{
	static const struct stick_delta begin = { .n = { [STICK_CONN] = 1 }, .conn_cur = 1 };
	static const struct stick_delta end = { .conn_cur = -1 };
	struct runner *r = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct stick_ref a, b;
		struct stick_ahead ahead;
		uint64_t now = i / 10, v;

		r->seed = r->seed * 1664525 + 1013904223;
		stick_ahead(r->t, num_key(r->seed >> 21), &ahead);
		stick_ahead_entry(&ahead);
		if (stick_open(r->t, num_key(r->seed >> 21), &begin, now, &a)) {
			r->full++;
			continue;
		}
		if (!stick_open(r->t, num_key(1u << 30), NULL, now, &b)) {
			assert_int_equal(stick_gpc_add(&b, 0, 1, now, &v), 0);
			stick_close(&b, NULL, now);
		}
		stick_close(&a, &end, now);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct stick_table *t =
		make("type integer size 1000 expire 200ms store conn_cnt,conn_cur,gpc0");
	struct stick_view *v = calloc(1, sizeof(*v));
	struct stick_cursor c = { 0 };
	struct runner r[4];
	struct stick_ref keep;
	uint64_t value;

	/* Held, so that it counts all of them. */
	assert_int_equal(stick_open(t, num_key(1u << 30), NULL, 0, &keep), 0);
	for (unsigned i = 0; i < 4; i++) {
		r[i] = (struct runner){ .t = t, .seed = i * 7919 + 1 };
		assert_int_equal(pthread_create(&r[i].thread, NULL, run, &r[i]), 0);
	}
	for (unsigned i = 0; i < 50; i++) {
		stick_expire(t, i * 40, 1000);
		while (stick_next(t, &c, i * 40, v))
			;
		assert_true(stick_used(t) <= 1000);
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(r[i].thread, NULL);
		assert_int_equal(r[i].full, 0);
	}
	assert_int_equal(stick_read(&keep, STICK_DATA_GPC0, 0, 0, &value), 0);
	assert_int_equal(value, 4 * ROUNDS);
	assert_int_equal(stick_n_refs(t), 1);
	stick_close(&keep, NULL, 0);
	/* Nobody is connected any more, in no entry. */
	memset(&c, 0, sizeof(c));
	while (stick_next(t, &c, ROUNDS / 10, v)) {
		assert_int_equal(stick_view_get(t, v, STICK_DATA_CONN_CUR, 0, 0, &value), 0);
		assert_int_equal(value, 0);
	}
	free(v);
	done(t);
}

/* --- cost ----------------------------------------------------------------------------------------- */

static double cost(uint32_t n)
{
	struct timespec a, b;
	struct stick_table *t;
	char text[96];
	uint32_t x = 1;

	snprintf(text, sizeof(text), "type integer size %u expire 1h store gpc0,http_req_rate(10s)",
		 n);
	t = make(text);
	for (uint32_t k = 0; k < n; k++)
		assert_int_equal(hit(t, k, 1), 0);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (unsigned i = 0; i < 2000000; i++) {
		x = x * 1664525 + 1013904223;
		(void)hit(t, (uint32_t)((uint64_t)x * n >> 32), 1 + i / 200);
	}
	clock_gettime(CLOCK_MONOTONIC, &b);
	done(t);
	return ((double)(b.tv_sec - a.tv_sec) * 1e9 + (double)(b.tv_nsec - a.tv_nsec)) / 2e6;
}

/* Figures for people, with STICK_BENCH=1: they depend on the machine. */
static void test_cost(void **state)
{
	if (!getenv("STICK_BENCH"))
		return;
	for (int i = 0; i < 3; i++)
		printf("ns per request: 1k %.0f, 10k %.0f, 100k %.0f, 1M %.0f\n", cost(1000),
		       cost(10000), cost(100000), cost(1000000));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counters),    cmocka_unit_test(test_arrays),
		cmocka_unit_test(test_rates),	    cmocka_unit_test(test_take),
		cmocka_unit_test(test_take_shared), cmocka_unit_test(test_eviction),
		cmocka_unit_test(test_all_held),    cmocka_unit_test(test_nopurge),
		cmocka_unit_test(test_expiry),	    cmocka_unit_test(test_size_is_exact),
		cmocka_unit_test(test_keys),	    cmocka_unit_test(test_view),
		cmocka_unit_test(test_reload),	    cmocka_unit_test(test_reload_aborted),
		cmocka_unit_test(test_ahead),	    cmocka_unit_test(test_threads),
		cmocka_unit_test(test_cost),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
