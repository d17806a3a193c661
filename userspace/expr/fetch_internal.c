/* SPDX-License-Identifier: BSD-2-Clause */
/* Fetches that need no traffic: constants, variables, the clock, random numbers, the process. */
#include "expr/expr_priv.h"

#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

int64_t now_wall_s(const struct subject *s)
{
	return (int64_t)(s->wall_ns / 1000000000u);
}

static int fetch_bool(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	sample_set_bool(ret, kw);
	return 0;
}

static int fetch_arg_num(struct eval *ev, const struct expr_arg *args, unsigned kw,
			 struct sample *ret)
{
	sample_set_int(ret, args[0].num);
	ret->type = (uint8_t)kw;
	return 0;
}

static int fetch_arg_str(struct eval *ev, const struct expr_arg *args, unsigned kw,
			 struct sample *ret)
{
	if (!args[0].str.p)
		return -ENOENT;
	sample_set_str(ret, (enum sample_type)kw, args[0].str);
	return 0;
}

static int fetch_arg_addr(struct eval *ev, const struct expr_arg *args, unsigned kw,
			  struct sample *ret)
{
	ret->type = SAMPLE_ADDR;
	ret->is_const = false;
	ret->addr = args[0].addr;
	return 0;
}

static int check_bool(struct fn_check *c, struct err *err)
{
	struct str s = c->args[0].str;

	c->args[0].num = str_is_case_eq(s, STR("true")) || str_is_eq(s, STR("1")) ||
			 str_is_case_eq(s, STR("yes")) || str_is_case_eq(s, STR("on"));
	if (c->args[0].num || str_is_case_eq(s, STR("false")) || str_is_eq(s, STR("0")) ||
	    str_is_case_eq(s, STR("no")) || str_is_case_eq(s, STR("off")))
		return 0;
	return err_set(err, -EINVAL, "'" STR_FMT "' is neither true nor false", STR_ARG(s));
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = str_lower_char(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int check_bin(struct fn_check *c, struct err *err)
{
	struct str s = c->args[0].str;
	char *p = (char *)s.p; /* the compiler's own copy */

	if (s.len % 2)
		return err_set(err, -EINVAL, "an even number of hexadecimal digits is needed");
	for (size_t i = 0; i < s.len; i += 2) {
		int hi = hex_digit(s.p[i]), lo = hex_digit(s.p[i + 1]);

		if (hi < 0 || lo < 0)
			return err_set(err, -EINVAL, "'%.2s' is not hexadecimal", s.p + i);
		p[i / 2] = (char)(hi << 4 | lo);
	}
	c->args[0].str.len = s.len / 2;
	return 0;
}

static int check_addr(struct fn_check *c, struct err *err)
{
	struct expr_arg *a = &c->args[0];

	if (addr_parse_ip(a->str, &a->addr) || a->addr.sa.sa_family != (int)c->kw)
		return err_set(err, -EINVAL, "'" STR_FMT "' is not an %s address", STR_ARG(a->str),
			       c->kw == AF_INET ? "IPv4" : "IPv6");
	return 0;
}

/* Environment and host name are read while compiling: getenv() is no business of a worker. */
static int check_env(struct fn_check *c, struct err *err)
{
	struct str v = c->env->getenv ? c->env->getenv(c->env, c->args[0].str)
				      : str_from_cstr(getenv(c->args[0].str.p));

	c->args[0].str = v.p ? arena_str(c->env->arena, v) : STR_NULL;
	return v.p && !c->args[0].str.p ? -ENOMEM : 0;
}

static int check_hostname(struct fn_check *c, struct err *err)
{
	char name[256] = "";

	if (gethostname(name, sizeof(name) - 1))
		return err_set(err, -EINVAL, "the host has no name");
	c->args[0].str = arena_str(c->env->arena, str_from_cstr(name));
	return c->args[0].str.p ? 0 : -ENOMEM;
}

static int fetch_var(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	const struct sample *v = subject_var_get(ev->s, (enum var_scope)args[0].scope, args[0].var);

	if (v) {
		*ret = *v;
		return 0;
	}
	if (args[1].type != ARG_STR)
		return -ENOENT;
	sample_set_str(ret, SAMPLE_STR, args[1].str);
	return 0;
}

enum date_unit {
	UNIT_S,
	UNIT_MS,
	UNIT_US
};

static int check_date(struct fn_check *c, struct err *err)
{
	struct str u = c->args[1].str;

	if (c->args[1].type == ARG_NONE)
		c->args[1].num = UNIT_S;
	else if (str_is_eq(u, STR("s")))
		c->args[1].num = UNIT_S;
	else if (str_is_eq(u, STR("ms")))
		c->args[1].num = UNIT_MS;
	else if (str_is_eq(u, STR("us")))
		c->args[1].num = UNIT_US;
	else
		return err_set(err, -EINVAL, "'" STR_FMT "' is not s, ms or us", STR_ARG(u));
	return 0;
}

static int fetch_date(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	static const uint32_t ns_per[] = { 1000000000u, 1000000u, 1000u };
	int64_t v = (int64_t)(ev->s->wall_ns / ns_per[args[1].num]);

	if (__builtin_add_overflow(v, args[0].type == ARG_INT ? args[0].num : 0, &v))
		return -ENOENT;
	sample_set_int(ret, v);
	return 0;
}

static int fetch_date_us(struct eval *ev, const struct expr_arg *args, unsigned kw,
			 struct sample *ret)
{
	sample_set_int(ret, (int64_t)(ev->s->wall_ns / 1000 % 1000000));
	return 0;
}

/* xorshift64* per thread; not for secrets. */
static uint64_t random_u64(void)
{
	static _Thread_local uint64_t state;

	while (unlikely(!state)) {
		if (getrandom(&state, sizeof(state), GRND_NONBLOCK) != sizeof(state))
			state = (uintptr_t)&state * 0x9e3779b97f4a7c15ull;
	}
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * 0x2545f4914f6cdd1dull;
}

static int fetch_rand(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	uint64_t v = random_u64() >> 32;

	if (args[0].type == ARG_INT)
		v = v * (uint64_t)args[0].num >> 32;
	sample_set_int(ret, (int64_t)v);
	return 0;
}

static int check_rand(struct fn_check *c, struct err *err)
{
	if (c->args[0].type == ARG_INT && (c->args[0].num < 1 || c->args[0].num > UINT32_MAX))
		return err_set(err, -EINVAL, "the range must be between 1 and 4294967295");
	return 0;
}

static int check_uuid(struct fn_check *c, struct err *err)
{
	if (c->args[0].type == ARG_NONE)
		c->args[0].num = 4;
	if (c->args[0].num != 4 && c->args[0].num != 7)
		return err_set(err, -EINVAL, "only versions 4 and 7 can be made");
	return 0;
}

static int fetch_uuid(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	static const char hex[] = "0123456789abcdef";
	uint64_t hi = random_u64(), lo = random_u64();
	char *p = eval_alloc(ev, 36), *q = p;

	if (!p)
		return -ENOMEM;
	if (args[0].num == 7) /* RFC 9562 5.7: 48 bits of milliseconds first */
		hi = ev->s->wall_ns / 1000000 << 16 | (hi & 0xffff);
	hi = (hi & ~0xf000ull) | (uint64_t)args[0].num << 12;
	lo = (lo & ~(3ull << 62)) | 2ull << 62;
	for (unsigned i = 0; i < 32; i++) {
		uint64_t half = i < 16 ? hi : lo;

		if (i == 8 || i == 12 || i == 16 || i == 20)
			*q++ = '-';
		*q++ = hex[half >> (60 - 4 * (i & 15)) & 15];
	}
	sample_set_str(ret, SAMPLE_STR, str_make(p, 36));
	return 0;
}

enum proc_fact {
	PROC_NBPROC,
	PROC_PID,
	PROC_STOPPING,
	PROC_THREAD,
	PROC_UPTIME
};

static int fetch_proc(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	static _Thread_local pid_t pid; /* asked once per thread, after daemonising */
	const struct subject *s = ev->s;

	switch ((enum proc_fact)kw) {
	case PROC_NBPROC:
		sample_set_int(ret, 1);
		break;
	case PROC_PID:
		if (!pid)
			pid = getpid();
		sample_set_int(ret, pid);
		break;
	case PROC_STOPPING:
		sample_set_bool(ret, s->is_stopping);
		break;
	case PROC_THREAD:
		sample_set_int(ret, s->thread_id);
		break;
	case PROC_UPTIME:
		sample_set_int(ret,
			       s->wall_ns > s->start_wall_ns
				       ? (int64_t)((s->wall_ns - s->start_wall_ns) / 1000000000u)
				       : 0);
		break;
	}
	return 0;
}

#define P PLACES_ANY
static const struct fetch_def defs[] = {
	F("always_true", "", "", BOOL, P, 1, fetch_bool, NULL, "true"),
	F("always_false", "", "", BOOL, P, 0, fetch_bool, NULL, "false"),
	F("bool", "value", "s", BOOL, P, SAMPLE_BOOL, fetch_arg_num, check_bool, "a constant"),
	F("int", "value", "i", SINT, P, SAMPLE_SINT, fetch_arg_num, NULL, "a constant"),
	F("str", "text", "s", STR, P, SAMPLE_STR, fetch_arg_str, NULL, "a constant"),
	F("bin", "hex", "s", BIN, P, SAMPLE_BIN, fetch_arg_str, check_bin, "a constant"),
	F("meth", "method", "s", METH, P, SAMPLE_METH, fetch_arg_str, NULL, "a constant"),
	F("ipv4", "address", "s", ADDR, P, AF_INET, fetch_arg_addr, check_addr, "a constant"),
	F("ipv6", "address", "s", ADDR, P, AF_INET6, fetch_arg_addr, check_addr, "a constant"),
	F("var", "scope.name,[default]", "v[s", ANY, P, 0, fetch_var, NULL, "a variable"),
	F("env", "name", "s", STR, P, SAMPLE_STR, fetch_arg_str, check_env,
	  "environment variable, as it was when the configuration was read"),
	F("hostname", "", "", STR, P, SAMPLE_STR, fetch_arg_str, check_hostname,
	  "name of this host"),
	F("date", "[offset],[s|ms|us]", "[is", SINT, P, 0, fetch_date, check_date,
	  "time since 1970, plus offset in that unit"),
	F("date_us", "", "", SINT, P, 0, fetch_date_us, NULL, "microseconds of the current second"),
	F("rand", "[range]", "[i", SINT, P, 0, fetch_rand, check_rand,
	  "random number from 0 to range - 1 (2^32 - 1)"),
	F("uuid", "[version]", "[i", STR, P, 0, fetch_uuid, check_uuid,
	  "random UUID of version 4 or 7 (RFC 9562)"),
	F("nbproc", "", "", SINT, P, PROC_NBPROC, fetch_proc, NULL, "1: workers are threads"),
	F("pid", "", "", SINT, P, PROC_PID, fetch_proc, NULL, "number of the process"),
	F("stopping", "", "", BOOL, P, PROC_STOPPING, fetch_proc, NULL, "is the process stopping"),
	F("thread", "", "", SINT, P, PROC_THREAD, fetch_proc, NULL, "number of the worker, from 0"),
	F("uptime", "", "", SINT, P, PROC_UPTIME, fetch_proc, NULL, "seconds since the start"),
};

const struct fetch_table fetch_internal_table = { defs, ARRAY_SIZE(defs) };
