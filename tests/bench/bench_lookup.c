/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ns per update of a stick table (open, count, close, as http-request track-sc does) and per lookup in a map,
 * by the number of entries; keys at random. Sizes take turns, so that a busy machine spoils all alike; the
 * least of the rounds counts. What matters is the ratio to the smallest.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "expr/expr.h"
#include "lb/stick.h"

#define ROUNDS	7
#define UPDATES 200000u
#define AT_ONCE 32u

static const uint32_t sizes[] = { 1000, 10000, 100000, 1000000 };
#define N_SIZES ARRAY_SIZE(sizes)

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint32_t rnd(void)
{
	static uint64_t x = 88172645463325252ull;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (uint32_t)(x >> 32);
}

static struct stick_table *table_of(uint32_t n)
{
	struct conf_stick_table c = { .name = (char *)"t",
				      .type = STICK_IP,
				      .key_len = 4,
				      .size = n,
				      .expire = 3600ull * 1000000000 };
	struct stick_table *t;

	c.store[STICK_DATA_HTTP_REQ_RATE] = (struct conf_stick_store){ 1, 10ull * 1000000000 };
	c.store[STICK_DATA_GPC0] = (struct conf_stick_store){ 1, 0 };
	c.store[STICK_DATA_HTTP_REQ_CNT] = (struct conf_stick_store){ 1, 0 };
	if (stick_table_new(&c, &t))
		exit(1);
	return t;
}

static void update(struct stick_table *t, uint32_t k, uint64_t now_ms)
{
	static const struct stick_delta d = { .n[STICK_HTTP_REQ] = 1 };
	struct stick_ref r;

	k *= 2654435761u;
	if (stick_open(t, str_make((char *)&k, 4), &d, now_ms, &r) == 0)
		stick_close(&r, NULL, now_ms);
}

/* As a worker does with the events of one round: all keys, then all entries, then all updates. */
static double round_ahead(struct stick_table *t, uint32_t n, uint64_t now_ms)
{
	struct stick_ahead ahead[AT_ONCE];
	uint32_t keys[AT_ONCE];
	uint64_t t0 = now_ns();

	for (uint32_t i = 0; i < UPDATES / AT_ONCE; i++) {
		for (unsigned k = 0; k < AT_ONCE; k++) {
			uint32_t key;

			keys[k] = (uint32_t)((uint64_t)rnd() * n >> 32);
			key = keys[k] * 2654435761u;
			stick_ahead(t, str_make((char *)&key, 4), &ahead[k]);
		}
		for (unsigned k = 0; k < AT_ONCE; k++)
			stick_ahead_entry(&ahead[k]);
		for (unsigned k = 0; k < AT_ONCE; k++)
			update(t, keys[k], now_ms);
	}
	return (double)(now_ns() - t0) / UPDATES;
}

static double round_stick(struct stick_table *t, uint32_t n, uint64_t now_ms)
{
	uint64_t t0 = now_ns();

	for (uint32_t i = 0; i < UPDATES; i++)
		update(t, (uint32_t)((uint64_t)rnd() * n >> 32), now_ms);
	return (double)(now_ns() - t0) / UPDATES;
}

static void bench_stick(void)
{
	static double (*const rounds[])(struct stick_table *t, uint32_t n,
					uint64_t now_ms) = { round_stick, round_ahead };
	static const char *const names[] = { "stick update", "looked ahead" };
	double best[ARRAY_SIZE(rounds)][N_SIZES];
	struct stick_table *t[N_SIZES];

	for (unsigned i = 0; i < N_SIZES; i++) {
		t[i] = table_of(sizes[i]);
		best[0][i] = best[1][i] = 1e9;
		for (uint32_t k = 0; k < sizes[i]; k++)
			update(t[i], k, 1000);
	}
	for (unsigned r = 0; r < ROUNDS * ARRAY_SIZE(rounds); r++) {
		unsigned how = r % ARRAY_SIZE(rounds);

		for (unsigned i = 0; i < N_SIZES; i++) {
			double ns = rounds[how](t[i], sizes[i], 2000);

			if (ns < best[how][i])
				best[how][i] = ns;
		}
	}
	for (unsigned how = 0; how < ARRAY_SIZE(rounds); how++)
		for (unsigned i = 0; i < N_SIZES; i++)
			printf("%-13s %8u entries  %7.1f ns  %5.2f x\n", names[how], sizes[i],
			       best[how][i], best[how][i] / best[how][0]);
	for (unsigned i = 0; i < N_SIZES; i++)
		stick_table_free(t[i]);
}

/* --- maps --- */

struct map {
	struct arena arena, run;
	struct expr_owned *owned;
	struct pat_refs *refs;
	struct expr *e;
	struct subject s;
	enum var_scope scope;
	uint32_t var, n;
};

static void map_init(struct map *m, const char *conv, uint32_t n)
{
	char path[] = "/tmp/hg-bench-XXXXXX", text[100];
	int fd = mkstemp(path);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
	struct err err = { "" };
	size_t at;

	if (!f)
		exit(1);
	for (uint32_t i = 0; i < n; i++) {
		if (strcmp(conv, "map_ip") == 0)
			fprintf(f, "%u.%u.%u.%u/32 b%u\n", 1 + i % 199, i >> 16 & 255, i >> 8 & 255,
				i & 255, i % 100);
		else
			fprintf(f, "/p%u/item%u/ b%u\n", i % 97, i, i % 100);
	}
	fclose(f);
	arena_init(&m->arena, 65536);
	arena_init(&m->run, 65536);
	m->n = n;
	m->owned = NULL;
	m->refs = pat_refs_new(&m->arena);
	{
		struct expr_env env = { .arena = &m->arena, .owned = &m->owned, .refs = m->refs };

		snprintf(text, sizeof(text), "var(txn.k),%s(%s)", conv, path);
		if (expr_compile(&env, str_from_cstr(text), &m->e, &at, &err) ||
		    vars_intern(STR("txn.k"), &m->scope, &m->var, &err)) {
			fprintf(stderr, "%s\n", err.text);
			exit(1);
		}
	}
	unlink(path);
	m->s = (struct subject){ .arena = &m->run };
}

static double round_map(struct map *m, bool is_ip)
{
	uint64_t t0 = now_ns();
	unsigned hits = 0;
	struct sample v = { .type = SAMPLE_STR }, out;
	char text[64];

	for (uint32_t k = 0; k < UPDATES / 4; k++) {
		uint32_t i = (uint32_t)((uint64_t)rnd() * m->n >> 32);

		if (is_ip) {
			uint32_t ip = (1 + i % 199) << 24 | (i & 0xffffff);

			v.type = SAMPLE_ADDR;
			memset(&v.addr, 0, sizeof(v.addr));
			v.addr.sa.sa_family = AF_INET;
			v.addr.in.sin_addr.s_addr = __builtin_bswap32(ip);
		} else {
			v.str = str_make(text, (size_t)snprintf(text, sizeof(text), "/p%u/item%u/",
								i % 97, i));
		}
		if (vars_set(&m->s.vars[m->scope], &m->run, m->var, &v))
			exit(1);
		hits += expr_eval(m->e, &m->s, &out) == 0;
		if (k % 64 == 0) {
			arena_reset(&m->run);
			vars_init(&m->s.vars[m->scope]);
		}
	}
	if (hits != UPDATES / 4)
		exit(1);
	return (double)(now_ns() - t0) / (UPDATES / 4);
}

static void bench_map(const char *conv)
{
	static struct map m[N_SIZES];
	double best[N_SIZES];
	bool is_ip = strcmp(conv, "map_ip") == 0;

	memset(m, 0, sizeof(m));
	for (unsigned i = 0; i < N_SIZES; i++) {
		map_init(&m[i], conv, sizes[i]);
		best[i] = 1e9;
	}
	for (unsigned r = 0; r < ROUNDS; r++) {
		for (unsigned i = 0; i < N_SIZES; i++) {
			double ns = round_map(&m[i], is_ip);

			best[i] = ns < best[i] ? ns : best[i];
		}
	}
	for (unsigned i = 0; i < N_SIZES; i++) {
		printf("%-13s %8u entries  %7.1f ns  %5.2f x\n", conv, sizes[i], best[i],
		       best[i] / best[0]);
		pat_refs_free(m[i].refs);
		expr_owned_free(&m[i].owned);
		arena_free(&m[i].arena);
		arena_free(&m[i].run);
	}
}

int main(void)
{
	bench_stick();
	bench_map("map_str");
	bench_map("map_beg");
	bench_map("map_ip");
	return 0;
}
