/* SPDX-License-Identifier: BSD-2-Clause */
/* Converters of addresses and dates, variables, servers. Workers; results in the arena. */
#include "expr/expr_priv.h"

#include <time.h>
#include <unistd.h>

#include "base/log.h"

static int conv_ipmask(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *smp)
{
	uint8_t *ip;
	const uint8_t *mask;

	if (smp->addr.sa.sa_family == AF_INET) {
		smp->addr.in.sin_addr.s_addr &= args[0].addr.in.sin_addr.s_addr;
		return 0;
	}
	if (smp->addr.sa.sa_family != AF_INET6 || args[1].type != ARG_ADDR)
		return -ENOENT;
	ip = (uint8_t *)&smp->addr.in6.sin6_addr;
	mask = (const uint8_t *)&args[1].addr.in6.sin6_addr;
	for (unsigned i = 0; i < 16; i++)
		ip[i] &= mask[i];
	return 0;
}

/* --- dates --- */

static const char days[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

int date_http(uint64_t sec, char out[32])
{
	time_t t = (time_t)sec;
	struct tm tm;

	if (!gmtime_r(&t, &tm) || tm.tm_year > 8099)
		return -EINVAL;
	return snprintf(out, 32, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + 3 * tm.tm_wday,
			tm.tm_mday, months + 3 * tm.tm_mon, tm.tm_year + 1900, tm.tm_hour,
			tm.tm_min, tm.tm_sec);
}

static int64_t unit_per_s(struct str unit)
{
	return str_is_eq(unit, STR("ms")) ? 1000 : str_is_eq(unit, STR("us")) ? 1000000 : 1;
}

static int check_http_date(struct fn_check *c, struct err *err)
{
	struct str u = c->args[1].str;

	c->args[1].num = unit_per_s(u);
	if (c->args[1].type == ARG_STR && c->args[1].num == 1 && !str_is_eq(u, STR("s")))
		return err_set(err, -EINVAL, "'" STR_FMT "' is not s, ms or us", STR_ARG(u));
	return 0;
}

static int conv_http_date(struct eval *ev, const struct expr_arg *args, unsigned kw,
			  struct sample *smp)
{
	int64_t v = smp->sint;
	char *p = eval_alloc(ev, 32);
	int n;

	if (!p)
		return -ENOMEM;
	if (args[0].type == ARG_INT && __builtin_add_overflow(v, args[0].num, &v))
		return -ENOENT;
	v /= args[1].num;
	if (v < 0)
		return -ENOENT;
	n = date_http((uint64_t)v, p);
	if (n < 0)
		return -ENOENT;
	sample_set_str(smp, SAMPLE_STR, str_make(p, (size_t)n));
	return 0;
}

#define TIME_UTC_KW 1
#define TIME_MS_KW  2
#define TIME_US_KW  4

/* strftime() with %N for the fraction of ms_ and us_ forms. */
static int conv_time(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	int64_t v = smp->sint, per = kw & TIME_MS_KW ? 1000 : kw & TIME_US_KW ? 1000000 : 1;
	char fmt[256], *p = eval_alloc(ev, 512);
	struct tm tm;
	time_t t;
	size_t n = 0;

	if (!p)
		return -ENOMEM;
	if (args[1].type == ARG_INT && __builtin_add_overflow(v, args[1].num, &v))
		return -ENOENT;
	t = (time_t)(v / per);
	if (v < 0 || !(kw & TIME_UTC_KW ? gmtime_r(&t, &tm) : localtime_r(&t, &tm)))
		return -ENOENT;
	for (size_t i = 0; i < args[0].str.len && n < sizeof(fmt) - 12; i++) {
		const char *f = args[0].str.p + i;

		if (f[0] == '%' && f[1] == 'N') {
			n += (size_t)snprintf(fmt + n, 12, "%0*d", per == 1000 ? 3 : 6,
					      per == 1 ? 0 : (int)(v % per));
			i++;
		} else if (f[0] == '%' && f[1]) {
			fmt[n++] = f[0];
			fmt[n++] = f[1];
			i++;
		} else {
			fmt[n++] = f[0];
		}
	}
	fmt[n] = '\0';
	n = strftime(p, 512, fmt, &tm);
	if (n == 0)
		return -ENOENT;
	sample_set_str(smp, SAMPLE_STR, str_make(p, n));
	return 0;
}

/* --- variables, servers --- */

static int check_set_var(struct fn_check *c, struct err *err)
{
	uint8_t conds = 0;
	int r = 0;

	for (unsigned i = 1; r == 0 && i < c->n_args; i++) {
		uint8_t one;

		c->error_at = c->args[i].at;
		r = var_cond_parse(c->args[i].str, &one, err);
		conds |= r ? 0 : one;
	}
	c->args[1].num = conds;
	return r;
}

static int conv_set_var(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *smp)
{
	/* expr.h: set-var writes to the subject's variables; the subject itself is never constant. */
	struct subject *s = (struct subject *)(uintptr_t)ev->s;

	if (kw) {
		subject_var_unset(s, (enum var_scope)args[0].scope, args[0].var);
		return 0;
	}
	return subject_var_set_if(s, (enum var_scope)args[0].scope, args[0].var,
				  (uint8_t)args[1].num, smp);
}

static int conv_count(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	const struct subject *s = ev->s;
	int64_t v;
	int r;

	if (!s->ops || !s->ops->count || smp->str.len == 0)
		return -ENOENT;
	r = s->ops->count(s, (enum subject_count)kw, smp->str, &v);
	if (r)
		return r;
	if (kw == COUNT_SRV_IS_UP || kw == COUNT_FE_EXISTS)
		sample_set_bool(smp, v != 0);
	else
		sample_set_int(smp, v);
	return 0;
}

/* --- debug([prefix],[stdout|stderr]) --- */

#define DEBUG_VALUE_MAX 1024

static int check_debug(struct fn_check *c, struct err *err)
{
	struct str to = c->args[1].str;

	c->args[1].num = -1;
	if (c->args[1].type == ARG_NONE)
		return 0;
	c->error_at = c->args[1].at;
	if (str_is_eq(to, STR("stdout")))
		c->args[1].num = STDOUT_FILENO;
	else if (str_is_eq(to, STR("stderr")))
		c->args[1].num = STDERR_FILENO;
	else
		return err_set(
			err, -EINVAL,
			"expected stdout or stderr (nothing: the log of the process) instead "
			"of '" STR_FMT "'",
			STR_ARG(str_sub(to, 0, 40)));
	return 0;
}

/* Bytes that a terminal would act on become dots. */
static struct str debug_text(struct eval *ev, const struct sample *smp)
{
	struct sample text = *smp;
	struct str v;
	char *p;

	if (sample_cast(&text, SAMPLE_STR, ev->arena))
		return STR("?");
	v = str_sub(text.str, 0, DEBUG_VALUE_MAX);
	p = eval_alloc(ev, v.len);
	for (size_t i = 0; p && i < v.len; i++)
		p[i] = (uint8_t)v.p[i] < 0x20 || (uint8_t)v.p[i] >= 0x7f ? '.' : v.p[i];
	return p ? str_make(p, v.len) : STR("?");
}

static int conv_debug(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	const struct log_target to = { .transport = LOG_TO_FD,
				       .fd = (int)args[1].num,
				       .format = LOG_FMT_RAW,
				       .max_level = LOG_LVL_DEBUG,
				       .max_len = 2 * DEBUG_VALUE_MAX };
	struct str prefix = args[0].type == ARG_STR ? args[0].str : STR("");
	struct str line = arena_printf(
		ev->arena, "[debug] " STR_FMT ": type=%s <" STR_FMT ">", STR_ARG(prefix),
		sample_type_name((enum sample_type)smp->type), STR_ARG(debug_text(ev, smp)));

	if (!line.p)
		return -ENOMEM;
	if (args[1].num < 0)
		log_msg(LOG_LVL_DEBUG, STR_FMT, STR_ARG(line));
	else
		log_emit(&to, 1, LOG_LVL_DEBUG, STR_NULL, STR_NULL, line);
	return 0;
}

#define TIME(n, k, h) C(n, "format,[offset]", "s[i", SINT, STR, k, conv_time, NULL, h)
static const struct conv_def convs[] = {
	C("ipmask", "mask4,[mask6]", "m[n", ADDR, ADDR, 0, conv_ipmask, NULL,
	  "network of an address"),
	C("http_date", "[offset],[unit]", "[is", SINT, STR, 0, conv_http_date, check_http_date,
	  "date as in HTTP headers"),
	TIME("ltime", 0, "local date by strftime(3)"),
	TIME("utime", TIME_UTC_KW, "UTC date by strftime(3)"),
	TIME("ms_ltime", TIME_MS_KW, "the same from milliseconds; %N is the fraction"),
	TIME("ms_utime", TIME_MS_KW | TIME_UTC_KW,
	     "the same from milliseconds; %N is the fraction"),
	TIME("us_ltime", TIME_US_KW, "the same from microseconds; %N is the fraction"),
	TIME("us_utime", TIME_US_KW | TIME_UTC_KW,
	     "the same from microseconds; %N is the fraction"),
	C("set-var", "name,[condition...]", "v[ssss", ANY, SAME, 0, conv_set_var, check_set_var,
	  "keeps the value in a variable; ifexists, ifnotexists, ifempty, ifnotempty, ifset, "
	  "ifnotset, ifgt, iflt: only if the old value is so"),
	C("debug", "[prefix],[stdout|stderr]", "[ss", ANY, SAME, 0, conv_debug, check_debug,
	  "tells the log of the process, or one of these, what comes by"),
	C("unset-var", "name", "v", ANY, SAME, 1, conv_set_var, NULL, "forgets a variable"),
	C("nbsrv", "", "", STR, SINT, COUNT_NBSRV, conv_count, NULL,
	  "usable servers of this backend"),
	C("fe_exists", "", "", STR, BOOL, COUNT_FE_EXISTS, conv_count, NULL,
	  "is there a frontend of this name"),
	C("srv_is_up", "", "", STR, BOOL, COUNT_SRV_IS_UP, conv_count, NULL,
	  "is backend/server up"),
	C("srv_queue", "", "", STR, SINT, COUNT_SRV_QUEUE, conv_count, NULL,
	  "requests waiting for backend/server"),
};

const struct conv_table conv_misc_table = { convs, ARRAY_SIZE(convs) };
