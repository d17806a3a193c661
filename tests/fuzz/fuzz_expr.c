/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Expressions, log formats and conditions from arbitrary text, evaluated on a message whose parts are
 * the rest of the input: byte 0 chooses what is compiled, the text ends at the first NUL.
 * links: expr http base
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "expr/expr.h"

#define TEXT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int no_files(struct expr_env *env, struct str path, struct str *ret, struct err *err)
{
	*ret = STR("a b\n1:5 7\n10.0.0.0/8 x\n.com y\n");
	return 0;
}

static void fill(struct subject *s, struct http_msg *m, struct str rest)
{
	struct str line = str_cut(&rest, '\n');

	m->method = HTTP_METHOD_GET;
	m->major = 1;
	m->path = m->target = m->start_line = line;
	for (unsigned i = 0; rest.p && i < 50; i++) {
		struct str value = str_cut(&rest, '\n');
		struct str name = str_cut(&value, ':');

		if (http_msg_add(m, name, value.p ? value : STR("")))
			break;
	}
	s->payload = s->req_body = line;
}

static void run_cond(struct expr_env *env, struct subject *s, struct str text)
{
	struct str words[32];
	struct cond *c;
	struct err err;
	unsigned n = 0, at;

	while (text.p && n < 32)
		words[n++] = str_cut(&text, ' ');
	if (cond_compile(env, words, n, false, &c, &at, &err) == 0)
		(void)!cond_eval(c, s);
	else if (n && at >= n)
		abort();
}

static void run(struct expr_env *env, struct subject *s, unsigned what, struct str text)
{
	static char line[8192];
	struct logfmt *fmt;
	struct expr *e;
	struct err err;
	size_t at;

	if (what == 0) {
		if (expr_compile(env, text, &e, &at, &err) == 0)
			(void)expr_eval_str(e, s);
		else if (at > text.len)
			abort();
	} else if (what == 1) {
		env->place = text.len & 1 ? PLACE_LOG : PLACE_REQ;
		if (logfmt_compile(env, text, &fmt, &at, &err) == 0)
			(void)logfmt_eval(fmt, s, line, sizeof(line));
		else if (at > text.len)
			abort();
	} else {
		run_cond(env, s, text);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct str text = str_make((const char *)data, size), rest;
	struct expr_owned *owned = NULL;
	struct arena conf, stream;
	struct subject_log log = { 0 };
	struct addr src;
	struct subject s = { .log = &log, .wall_ns = 1772352930042000000ull };
	struct http_msg m;
	struct expr_env env = { .read_file = no_files, .owned = &owned };
	unsigned what;

	if (size < 1)
		return 0;
	what = data[0] % 3;
	rest = text = str_from(text, 1);
	text = str_sub(str_cut(&rest, '\0'), 0, TEXT_MAX);
	arena_init(&conf, 4096);
	arena_init(&stream, 4096);
	env.arena = &conf;
	s.arena = s.sess_arena = &stream;
	if (addr_parse_ip(STR("10.1.2.3"), &src) == 0)
		s.front.src = s.front.dst = &src;
	if (http_msg_init(&m, &stream, 64) == 0) {
		fill(&s, &m, rest);
		s.req = s.rsp = &m;
		run(&env, &s, what, text);
		s.req = NULL;
		run(&env, &s, what, text);
	}
	expr_owned_free(&owned);
	arena_free(&conf);
	arena_free(&stream);
	return 0;
}
