/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maps and ACLs that change at run time: random changes against a plain list that is searched from the
 * start, versions, threads that look up meanwhile. links: expr http base
 */
#include <pthread.h>
#include <unistd.h>

#include "unit/expr_subject.h"

/* --- what a plain list would say --- */

#define MODEL_MAX 4000
struct model {
	struct model_entry {
		char key[24], value[24];
	} e[MODEL_MAX];
	unsigned n;
};

struct kind {
	const char *conv, *fetch;
	bool (*matches)(const char *key, const char *in);
	unsigned (*weight)(const char *key); /* NULL: the first one counts */
	void (*make)(char *out, unsigned r);
};

static unsigned rnd(void)
{
	static uint32_t x = 12345;

	x ^= x << 13;
	x ^= x >> 17;
	x ^= x << 5;
	return x;
}

static bool is_equal(const char *key, const char *in)
{
	return strcmp(key, in) == 0;
}

static bool is_begin(const char *key, const char *in)
{
	return strncmp(key, in, strlen(key)) == 0;
}

static bool is_end(const char *key, const char *in)
{
	return strlen(key) <= strlen(in) && strcmp(in + strlen(in) - strlen(key), key) == 0;
}

static bool is_part(const char *key, const char *in)
{
	return strstr(in, key);
}

static bool is_in_net(const char *key, const char *in)
{
	struct addr_prefix p;
	struct addr a;
	uint32_t mask;

	assert_int_equal(addr_prefix_parse(str_from_cstr(key), &p), 0);
	assert_int_equal(addr_parse_ip(str_from_cstr(in), &a), 0);
	mask = p.bits ? ~0u << (32 - p.bits) : 0;
	return ((ntohl(p.addr.in.sin_addr.s_addr) ^ ntohl(a.in.sin_addr.s_addr)) & mask) == 0;
}

static unsigned text_weight(const char *key)
{
	return (unsigned)strlen(key);
}

static unsigned net_weight(const char *key)
{
	struct addr_prefix p;

	assert_int_equal(addr_prefix_parse(str_from_cstr(key), &p), 0);
	return p.bits;
}

static void make_text(char *out, unsigned r)
{
	unsigned n = 1 + r % 5;

	for (unsigned i = 0; i < n; i++, r /= 3)
		out[i] = (char)('a' + r % 3);
	out[n] = '\0';
}

static void make_net(char *out, unsigned r)
{
	unsigned bits = 24 + r % 9;

	/* The address of the network: the same network has one text only. */
	snprintf(out, 24, "10.0.0.%u/%u", (r >> 8) % 256 & (0xff00u >> (bits - 24) & 0xff), bits);
}

static void make_int(char *out, unsigned r)
{
	snprintf(out, 24, "%u", r % 40);
}

static const struct kind kinds[] = {
	{ "map_str", "str", is_equal, NULL, make_text },
	{ "map_beg", "str", is_begin, text_weight, make_text },
	{ "map_end", "str", is_end, NULL, make_text },
	{ "map_sub", "str", is_part, NULL, make_text },
	{ "map_ip", "ipv4", is_in_net, net_weight, make_net },
	{ "map_int", "int", is_equal, NULL, make_int },
};

static const char *model_find(const struct kind *k, const struct model *m, const char *in)
{
	const struct model_entry *best = NULL;

	for (unsigned i = 0; i < m->n; i++) {
		if (!k->matches(m->e[i].key, in))
			continue;
		if (!best || (k->weight && k->weight(m->e[i].key) > k->weight(best->key)))
			best = &m->e[i];
	}
	return best ? best->value : NULL;
}

/* --- the map --- */

struct rig {
	struct fixture f;
	struct pat_ref *ref;
	struct expr *expr;
	enum var_scope scope;
	uint32_t var;
	struct pat_defer defer;
	char path[40];
};

static void at_once(void *ctx, void (*call)(void *arg), void *arg)
{
	call(arg);
}

static void rig_init(struct rig *r, const char *conv, const char *text)
{
	struct err err = { "" };
	char e[100];
	size_t at;
	int fd;

	fixture_init(&r->f);
	strcpy(r->path, "/tmp/hg-map-XXXXXX");
	fd = mkstemp(r->path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	r->f.env.refs = pat_refs_new(&r->f.conf);
	r->defer = (struct pat_defer){ .later = at_once };
	assert_int_equal(vars_intern(STR("txn.in"), &r->scope, &r->var, NULL), 0);
	snprintf(e, sizeof(e), "var(txn.in),%s(%s)", conv, r->path);
	if (expr_compile(&r->f.env, str_from_cstr(e), &r->expr, &at, &err))
		fail_msg("%s: %s", e, err.text);
	pat_refs_number(r->f.env.refs);
	r->ref = pat_ref_find(r->f.env.refs, str_from_cstr(r->path), true);
	assert_non_null(r->ref);
}

static void rig_free(struct rig *r)
{
	unlink(r->path);
	pat_refs_free(r->f.env.refs);
	fixture_free(&r->f);
}

static void publish(struct rig *r)
{
	struct err err;

	assert_int_equal(pat_ref_publish(r->ref, &r->defer, &err), 0);
}

static void check_one(struct rig *r, const struct kind *k, const struct model *m, const char *in)
{
	struct sample v = { .type = SAMPLE_STR, .str = str_from_cstr(in) };
	const char *want = model_find(k, m, in);
	int rc;

	assert_int_equal(subject_var_set(&r->f.s, r->scope, r->var, &v), 0);
	rc = expr_eval(r->expr, &r->f.s, &v);
	if ((rc == 0) != (want != NULL) || (want && !str_is_eq(v.str, str_from_cstr(want))))
		fail_msg("%s: '%s' gives '" STR_FMT "', not '%s'", k->conv, in,
			 STR_ARG(rc ? STR("(none)") : v.str), want ? want : "(none)");
	if (want)
		assert_int_equal(v.type, SAMPLE_STR);
}

static void change(struct rig *r, const struct kind *k, struct model *m, unsigned step)
{
	struct str key, value;
	char text[24], val[24];
	struct err err;
	unsigned i;
	int n = 0, want = 0;

	k->make(text, rnd());
	snprintf(val, sizeof(val), "v%u", step);
	key = str_from_cstr(text);
	value = str_from_cstr(val);
	switch (rnd() % 4) {
	case 0:
	case 1:
		if (m->n == MODEL_MAX)
			return;
		strcpy(m->e[m->n].key, text);
		strcpy(m->e[m->n++].value, val);
		assert_int_equal(pat_ref_add(r->ref, pat_ref_info(r->ref).curr, key, value, &err),
				 0);
		break;
	case 2:
		for (i = 0; i < m->n;) {
			if (strcmp(m->e[i].key, text) != 0) {
				i++;
				continue;
			}
			memmove(&m->e[i], &m->e[i + 1], (--m->n - i) * sizeof(m->e[0]));
			want++;
		}
		n = pat_ref_del(r->ref, key);
		assert_int_equal(n, want);
		break;
	case 3:
		for (i = 0; i < m->n; i++) {
			if (strcmp(m->e[i].key, text) == 0) {
				strcpy(m->e[i].value, val);
				want++;
			}
		}
		assert_int_equal(pat_ref_set(r->ref, key, value, &err), want);
		break;
	}
	assert_int_equal(pat_ref_info(r->ref).n, m->n);
}

static void test_against_list(void **state)
{
	static struct model m;

	for (unsigned i = 0; i < ARRAY_SIZE(kinds); i++) {
		const struct kind *k = &kinds[i];
		struct rig r;
		char in[24];

		m.n = 0;
		rig_init(&r, k->conv, "");
		for (unsigned step = 0; step < 2500; step++) {
			change(&r, k, &m, step);
			if (rnd() % 3 == 0)
				continue; /* several changes in one go */
			publish(&r);
			for (unsigned q = 0; q < 8; q++) {
				k->make(in, rnd());
				in[strcspn(in, "/")] = '\0';
				check_one(&r, k, &m, in);
			}
			arena_reset(&r.f.run);
			vars_init(&r.f.s.vars[VAR_TXN]);
		}
		pat_ref_clear(r.ref, pat_ref_info(r.ref).curr);
		publish(&r);
		m.n = 0;
		k->make(in, rnd());
		in[strcspn(in, "/")] = '\0';
		check_one(&r, k, &m, in);
		rig_free(&r);
	}
}

/* More additions than a delta takes: it becomes part of the base, and order and values stay. */
static void test_many_additions(void **state)
{
	static struct model m;
	struct rig r;
	char in[24];
	struct err err;

	rig_init(&r, "map_str", "first one\n");
	m.n = 1;
	strcpy(m.e[0].key, "first");
	strcpy(m.e[0].value, "one");
	for (unsigned i = 0; i < 3000; i++) {
		snprintf(m.e[m.n].key, 24, "key%u", i);
		snprintf(m.e[m.n].value, 24, "value%u", i);
		assert_int_equal(pat_ref_add(r.ref, 0, str_from_cstr(m.e[m.n].key),
					     str_from_cstr(m.e[m.n].value), &err),
				 0);
		m.n++;
		if (i % 100 == 0)
			publish(&r);
	}
	publish(&r);
	for (unsigned i = 0; i < 3000; i += 7) {
		snprintf(in, sizeof(in), "key%u", i);
		check_one(&r, &kinds[0], &m, in);
	}
	check_one(&r, &kinds[0], &m, "first");
	rig_free(&r);
}

static const char *ask(struct rig *r, const char *in)
{
	static char out[64];
	struct sample v = { .type = SAMPLE_STR, .str = str_from_cstr(in) };

	assert_int_equal(subject_var_set(&r->f.s, r->scope, r->var, &v), 0);
	if (expr_eval(r->expr, &r->f.s, &v))
		return "-";
	snprintf(out, sizeof(out), STR_FMT, STR_ARG(v.str));
	return out;
}

static void test_versions(void **state)
{
	struct err err = { "" };
	struct rig r;

	rig_init(&r, "map", "# comment\na 1\n\nb  two words \n");
	assert_int_equal(pat_ref_info(r.ref).n, 2);
	assert_string_equal(ask(&r, "b"), "two words");
	assert_int_equal(pat_ref_add(r.ref, 1, STR("c"), STR("3"), &err), -EINVAL);
	assert_string_equal(err.text, "Version number out of range.");
	assert_int_equal(pat_ref_prepare(r.ref), 1);
	assert_int_equal(pat_ref_prepare(r.ref), 2);
	assert_int_equal(pat_ref_add(r.ref, 2, STR("c"), STR("3"), &err), 0);
	assert_int_equal(pat_ref_add(r.ref, 1, STR("d"), STR("4"), &err), 0);
	publish(&r);
	assert_string_equal(ask(&r, "c"), "-");
	assert_string_equal(ask(&r, "a"), "1");
	assert_int_equal(pat_ref_commit(r.ref, 3, &err), -EINVAL);
	assert_int_equal(pat_ref_commit(r.ref, 2, &err), 0);
	publish(&r);
	assert_string_equal(ask(&r, "c"), "3");
	assert_string_equal(ask(&r, "a"), "-");
	assert_string_equal(ask(&r, "d"), "-");
	assert_int_equal(pat_ref_info(r.ref).n, 1);
	assert_int_equal(pat_ref_info(r.ref).curr, 2);
	rig_free(&r);
}

/* What an entry must look like depends on who uses the list. */
static void test_refused(void **state)
{
	static const struct {
		const char *conv, *key, *value, *part;
	} rows[] = {
		{ "map_ip", "1.2.3", "x", "neither an address" },
		{ "map_int", "x", "y", "neither an integer" },
		{ "map_str_int", "k", "x", "not an integer" },
		{ "map_str_ip", "k", "x", "not an address" },
		{ "map_reg", "a(", "x", "missing" },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err err = { "" };
		struct rig r;

		rig_init(&r, rows[i].conv, "");
		assert_int_equal(pat_ref_add(r.ref, 0, str_from_cstr(rows[i].key),
					     str_from_cstr(rows[i].value), &err),
				 -EINVAL);
		if (!strstr(err.text, rows[i].part))
			fail_msg("%s: %s", rows[i].conv, err.text);
		assert_int_equal(pat_ref_info(r.ref).n, 0);
		rig_free(&r);
	}
}

/* Two users of one file: each gets every change, in its own way of matching. */
static void test_shared_file(void **state)
{
	struct str words[] = { STR("str(abc)"), STR("-i"), STR("-m"), STR("sub"),
			       STR("-f"),	STR_NULL,  STR("XYZ") };
	struct acl_set *acls;
	struct cond *cond;
	struct err err = { "" };
	unsigned at;
	struct str name = STR("a");
	struct rig r;

	rig_init(&r, "map_beg", "");
	acls = acl_set_new(&r.f.conf, NULL);
	words[5] = str_from_cstr(r.path);
	assert_int_equal(acl_add(acls, &r.f.env, name, words, 7, &at, &err), -EINVAL);
	assert_non_null(strstr(err.text, "as a map"));
	/* With -M the values are there for the map and ignored here. */
	words[1] = STR("-M");
	if (acl_add(acls, &r.f.env, name, words, 7, &at, &err))
		fail_msg("%s", err.text);
	r.f.env.acls = acls;
	assert_int_equal(cond_compile(&r.f.env, &name, 1, false, &cond, &at, &err), 0);
	assert_int_equal(cond_eval(cond, &r.f.s), 0);
	assert_int_equal(pat_ref_add(r.ref, 0, STR("bc"), STR("v"), &err), 0);
	publish(&r);
	assert_int_equal(cond_eval(cond, &r.f.s), 1);
	assert_string_equal(ask(&r, "bcd"), "v");
	assert_string_equal(ask(&r, "abc"), "-");
	assert_int_equal(pat_ref_del(r.ref, STR("bc")), 1);
	publish(&r);
	assert_int_equal(cond_eval(cond, &r.f.s), 0);
	assert_string_equal(ask(&r, "bcd"), "-");
	rig_free(&r);
}

/* --- threads --- */

struct old {
	void (*call)(void *arg);
	void *arg;
	struct old *next;
};
static struct old *olds;

static void keep(void *ctx, void (*call)(void *arg), void *arg)
{
	struct old *o = mem_alloc(sizeof(*o));

	assert_non_null(o);
	*o = (struct old){ call, arg, olds };
	olds = o;
}

struct reader {
	struct rig *r;
	_Atomic bool *stop;
	unsigned n;
};

/* "k" is always there: its value is one of those that were ever set, never half of one. */
static void *read_map(void *arg)
{
	struct reader *rd = arg;
	struct arena arena;
	struct subject s = rd->r->f.s;
	struct sample v = { .type = SAMPLE_STR, .str = STR("k") };

	arena_init(&arena, 4096);
	s.arena = &arena;
	while (!*rd->stop) {
		vars_init(&s.vars[VAR_TXN]);
		assert_int_equal(vars_set(&s.vars[VAR_TXN], &arena, rd->r->var, &v), 0);
		{
			struct sample out;

			assert_int_equal(expr_eval(rd->r->expr, &s, &out), 0);
			for (size_t i = 1; i < out.str.len; i++)
				assert_int_equal(out.str.p[i], out.str.p[0]);
			rd->n += out.str.len > 0;
		}
		arena_reset(&arena);
	}
	arena_free(&arena);
	return NULL;
}

static void test_threads(void **state)
{
	_Atomic bool stop = false;
	struct reader rd;
	pthread_t t;
	struct err err;
	struct rig r;
	char text[40];

	rig_init(&r, "map_str", "k aaaa\n");
	r.defer = (struct pat_defer){ .later = keep };
	rd = (struct reader){ .r = &r, .stop = &stop };
	assert_int_equal(pthread_create(&t, NULL, read_map, &rd), 0);
	for (unsigned i = 0; i < 1500; i++) {
		size_t n = 1 + i % 30;

		memset(text, 'a' + (int)(i % 26), n);
		assert_int_equal(pat_ref_set(r.ref, STR("k"), str_make(text, n), &err), 1);
		snprintf(text, sizeof(text), "other%u", i);
		assert_int_equal(pat_ref_add(r.ref, 0, str_from_cstr(text), STR("zz"), &err), 0);
		publish(&r);
	}
	stop = true;
	pthread_join(t, NULL);
	assert_true(rd.n > 0);
	while (olds) {
		struct old *o = olds;

		olds = o->next;
		o->call(o->arg);
		mem_free(o);
	}
	rig_free(&r);
}

/* Whatever allocation fails: the old contents stay, and the next publish succeeds. */
static void test_out_of_memory(void **state)
{
	bool done = false;

	for (uint64_t n = 1; !done; n++) {
		struct err err = { "" };
		struct rig r;
		int rc;

		rig_init(&r, "map_beg", "a 1\nb 2\n");
		mem_fail_at(n);
		rc = pat_ref_add(r.ref, 0, STR("c"), STR("3"), &err);
		if (rc == 0)
			rc = pat_ref_del(r.ref, STR("a")) == 1 ? 0 : -ENOMEM;
		if (rc == 0)
			rc = pat_ref_publish(r.ref, &r.defer, &err);
		done = mem_alloc_count() < n;
		mem_fail_at(0);
		assert_true(rc == 0 || rc == -ENOMEM);
		if (rc)
			assert_string_equal(ask(&r, "a"), "1");
		publish(&r);
		assert_string_equal(ask(&r, "b"), "2");
		rig_free(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_list),  cmocka_unit_test(test_many_additions),
		cmocka_unit_test(test_versions),      cmocka_unit_test(test_refused),
		cmocka_unit_test(test_shared_file),   cmocka_unit_test(test_threads),
		cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
