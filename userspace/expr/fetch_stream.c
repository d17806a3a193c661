/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fetches of what only the proxy knows about a stream (times that are in force, the rule that decided), of named
 * ACLs and of the PROXY header; and `when`, which asks the same. Workers.
 */
#include "expr/expr_priv.h"

#include <stdlib.h>

static int ask(const struct eval *ev, unsigned fact, struct sample *ret)
{
	const struct subject *s = ev->s;

	*ret = (struct sample){ .type = SAMPLE_SINT, .is_const = true };
	return s->ops && s->ops->fact ? s->ops->fact(s, (enum subject_fact)fact, ret) : -ENOENT;
}

static int fetch_fact(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	return ask(ev, kw, ret);
}

static int64_t us_per(struct str unit)
{
	return str_is_eq(unit, STR("us")) ? 1 : str_is_eq(unit, STR("ms")) ? 1000 : 1000000;
}

static int check_unit(struct fn_check *c, struct err *err)
{
	struct str u = c->args[0].str;

	c->args[0].num = us_per(u);
	if (c->args[0].type == ARG_STR && c->args[0].num == 1000000 && !str_is_eq(u, STR("s")))
		return err_set(err, -EINVAL, "'" STR_FMT "' is not s, ms or us", STR_ARG(u));
	return 0;
}

static int fetch_moment(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *ret)
{
	int r = ask(ev, kw, ret);

	ret->sint /= args[0].num;
	return r;
}

/* --- named ACLs --------------------------------------------------------------------------------------- */

/* acl(a,!b): both, as in a condition. */
static int check_acl(struct fn_check *c, struct err *err)
{
	struct str words[EXPR_ARGS_MAX] = { { 0 } };
	struct cond *cond = NULL;
	unsigned at = 0, n = 0;
	int r;

	while (n < c->n_args && c->args[n].type == ARG_STR) {
		words[n] = c->args[n].str;
		if (!str_is_eq(words[n], STR("{")) && !str_is_case_eq(words[n], STR("or")) &&
		    !str_is_eq(words[n], STR("||")))
			n++;
		else
			return err_set(err, -EINVAL, "expected the name of an ACL");
	}
	r = cond_compile(c->env, words, n, false, &cond, &at, err);
	if (r) {
		c->error_at = c->args[at < n ? at : 0].at;
		return r;
	}
	acl_set_seal(c->env->acls, words, n);
	c->args[0].type = ARG_PTR;
	c->args[0].ptr = cond;
	return 0;
}

static int fetch_acl(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	int r = cond_eval(args[0].ptr, ev->s);

	if (r < 0)
		return r;
	sample_set_bool(ret, r);
	return 0;
}

/* --- the PROXY header ------------------------------------------------------------------------------------ */

static int check_tlv(struct fn_check *c, struct err *err)
{
	static const struct {
		const char *name;
		uint8_t type;
	} names[] = { { "ALPN", 0x01 },	       { "AUTHORITY", 0x02 },	{ "CRC32C", 0x03 },
		      { "NOOP", 0x04 },	       { "UNIQUE_ID", 0x05 },	{ "SSL", 0x20 },
		      { "SSL_VERSION", 0x21 }, { "SSL_CN", 0x22 },	{ "SSL_CIPHER", 0x23 },
		      { "SSL_SIG_ALG", 0x24 }, { "SSL_KEY_ALG", 0x25 }, { "NETNS", 0x30 } };
	struct expr_arg *a = &c->args[0];
	char *end;

	for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
		if (str_is_case_eq(a->str, str_from_cstr(names[i].name))) {
			a->num = names[i].type;
			return 0;
		}
	}
	a->num = strtol(a->str.p, &end, 0);
	if (*end || a->str.len == 0 || a->num < 0 || a->num > 255)
		return err_set(err, -EINVAL,
			       "'" STR_FMT "' is neither a number from 0 to 255 nor the name of a "
			       "field, such as AUTHORITY",
			       STR_ARG(str_sub(a->str, 0, 40)));
	return 0;
}

static int fetch_tlv(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	const struct subject *s = ev->s;
	struct str v;
	int r;

	if (!s->ops || !s->ops->proxy_tlv)
		return -ENOENT;
	r = s->ops->proxy_tlv(s, kw ? (uint8_t)kw : (uint8_t)args[0].num, &v);
	if (r == 0)
		sample_set_str(ret, SAMPLE_STR, v);
	return r;
}

/* --- converters ---------------------------------------------------------------------------------------- */

enum when {
	WHEN_ERROR,
	WHEN_FORWARDED,
	WHEN_NORMAL,
	WHEN_PROCESSED,
	WHEN_TOAPPLET,
	WHEN_ACL,
	WHEN_COUNT
};

static const char *const when_names[WHEN_COUNT] = {
	[WHEN_ERROR] = "error",		[WHEN_FORWARDED] = "forwarded", [WHEN_NORMAL] = "normal",
	[WHEN_PROCESSED] = "processed", [WHEN_TOAPPLET] = "toapplet",	[WHEN_ACL] = "acl",
};

#define WHEN_NOT 0x100

/* ([!]condition), or (acl,[!]name). */
static int check_when(struct fn_check *c, struct err *err)
{
	struct expr_arg *a = &c->args[0];
	struct near near = { .want = a->str };
	char hint[96];

	a->num = 0;
	if (a->str.len && a->str.p[0] == '!') {
		a->num = WHEN_NOT;
		near.want = a->str = str_from(a->str, 1);
	}
	for (unsigned i = 0; i < WHEN_COUNT; i++) {
		near_add(&near, str_from_cstr(when_names[i]));
		if (!str_is_eq(a->str, str_from_cstr(when_names[i])))
			continue;
		a->num |= i;
		if ((i == WHEN_ACL) != (c->n_args > 1))
			return err_set(err, -EINVAL,
				       i == WHEN_ACL ? "expected the name of an ACL behind 'acl'"
						     : "only 'acl' has an argument");
		if (i == WHEN_ACL) {
			c->args++;
			c->n_args--;
			return check_acl(c, err);
		}
		return 0;
	}
	return err_set(err, -EINVAL, "unknown condition '" STR_FMT "'%s",
		       STR_ARG(str_sub(a->str, 0, 40)), near_text(&near, hint, sizeof(hint)));
}

static int is_when(struct eval *ev, const struct expr_arg *args)
{
	struct sample s, more = { .sint = 0 };
	int r;

	switch ((enum when)(args[0].num & ~WHEN_NOT)) {
	case WHEN_ACL:
		return cond_eval(args[1].ptr, ev->s);
	case WHEN_ERROR:
	case WHEN_NORMAL:
		r = ask(ev, FACT_IS_ERROR, &s);
		return r ? r : (s.sint != 0) == ((args[0].num & ~WHEN_NOT) == WHEN_ERROR);
	case WHEN_FORWARDED:
		r = ask(ev, FACT_IS_FORWARDED, &s);
		break;
	case WHEN_TOAPPLET:
		r = ask(ev, FACT_IS_SERVICE, &s);
		break;
	default:
		r = ask(ev, FACT_IS_FORWARDED, &s);
		if (r == 0)
			r = ask(ev, FACT_IS_SERVICE, &more);
		break;
	}
	return r ? r : s.sint || more.sint;
}

static int conv_when(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	int r = is_when(ev, args);

	if (r < 0)
		return r;
	return r != ((args[0].num & WHEN_NOT) != 0) ? 0 : -ENOENT;
}

static int check_slot(struct fn_check *c, struct err *err)
{
	if (c->args[0].num < 0 || c->args[0].num > UINT16_MAX)
		return err_set(err, -EINVAL, "a capture has a number from 0 on");
	return 0;
}

static int conv_capture(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *smp)
{
	const struct subject *s = ev->s;

	if (!s->ops || !s->ops->capture)
		return 0;
	return s->ops->capture(s, kw, (unsigned)args[0].num, smp->str);
}

#define P		     PLACES_CONN
#define R		     (PLACE_CONTENT | PLACE_REQ | PLACE_RSP | PLACE_LOG)
#define B		     (PLACE_RSP | PLACE_LOG)
#define TIMEOUT(n, pl, f, h) F(n, "", "", SINT, pl, f, fetch_fact, NULL, h)
static const struct fetch_def defs[] = {
	F("acl", "[!]name,[...]", "s[sssssssss", BOOL, PLACES_ANY, 0, fetch_acl, check_acl,
	  "do all these ACLs match, as in a condition"),
	TIMEOUT("cur_client_timeout", R, FACT_CUR_CLIENT_TIMEOUT,
		"timeout client that is in force, in ms"),
	TIMEOUT("cur_connect_timeout", R, FACT_CUR_CONNECT_TIMEOUT, "the same of connect"),
	TIMEOUT("cur_queue_timeout", R, FACT_CUR_QUEUE_TIMEOUT, "the same of queue"),
	TIMEOUT("cur_server_timeout", R, FACT_CUR_SERVER_TIMEOUT, "the same of server"),
	TIMEOUT("cur_tarpit_timeout", R, FACT_CUR_TARPIT_TIMEOUT, "the same of tarpit"),
	TIMEOUT("cur_tunnel_timeout", R, FACT_CUR_TUNNEL_TIMEOUT, "the same of tunnel"),
	TIMEOUT("fe_client_timeout", P, FACT_FE_CLIENT_TIMEOUT,
		"timeout client of the frontend, in ms"),
	TIMEOUT("be_connect_timeout", R, FACT_BE_CONNECT_TIMEOUT,
		"timeout connect of the backend, in ms"),
	TIMEOUT("be_queue_timeout", R, FACT_BE_QUEUE_TIMEOUT,
		"timeout queue of the backend, in ms"),
	TIMEOUT("be_server_timeout", R, FACT_BE_SERVER_TIMEOUT,
		"timeout server of the backend, in ms"),
	TIMEOUT("be_tarpit_timeout", R, FACT_BE_TARPIT_TIMEOUT,
		"timeout tarpit of the backend, in ms"),
	TIMEOUT("be_tunnel_timeout", R, FACT_BE_TUNNEL_TIMEOUT,
		"timeout tunnel of the backend, in ms"),
	F("fe_defbe", "", "", STR, P, FACT_FE_DEFAULT_BACKEND, fetch_fact, NULL,
	  "the frontend's default_backend"),
	F("last_rule_file", "", "", STR, R, FACT_LAST_RULE_FILE, fetch_fact, NULL,
	  "file of the last rule that ended its list"),
	F("last_rule_line", "", "", SINT, R, FACT_LAST_RULE_LINE, fetch_fact, NULL, "its line"),
	F("bc_reused", "", "", BOOL, B, FACT_BC_REUSED, fetch_fact, NULL,
	  "has the server's connection carried other requests"),
	F("txn.redispatched", "", "", BOOL, B, FACT_IS_REDISPATCHED, fetch_fact, NULL,
	  "did the request go to another server than was chosen first"),
	F("accept_date", "[s|ms|us]", "[s", SINT, P, FACT_ACCEPT_WALL_US, fetch_moment, check_unit,
	  "when the connection was accepted, since 1970"),
	F("request_date", "[s|ms|us]", "[s", SINT, R, FACT_REQUEST_WALL_US, fetch_moment,
	  check_unit, "when the request began to arrive, since 1970"),
	F("fc_pp_authority", "", "", STR, P, 0x02, fetch_tlv, NULL,
	  "host name in the client's PROXY header"),
	F("fc_pp_unique_id", "", "", STR, P, 0x05, fetch_tlv, NULL,
	  "unique id in the client's PROXY header"),
	F("fc_pp_tlv", "type", "s", STR, P, 0, fetch_tlv, check_tlv,
	  "a field of the client's PROXY header, by number or name"),
};

static const struct conv_def convs[] = {
	C("when", "condition,[...]", "s[sssssssss", ANY, SAME, 0, conv_when, check_when,
	  "the value, if error, forwarded, normal, processed, toapplet or acl,name is so; ! "
	  "negates"),
	C("capture-req", "slot", "i", STR, STR, 0, conv_capture, check_slot,
	  "also puts the value into a declared request capture"),
	C("capture-res", "slot", "i", STR, STR, 1, conv_capture, check_slot,
	  "also puts the value into a declared response capture"),
};

const struct fetch_table fetch_stream_table = { defs, ARRAY_SIZE(defs) };
const struct conv_table conv_stream_table = { convs, ARRAY_SIZE(convs) };
