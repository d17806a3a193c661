/* SPDX-License-Identifier: BSD-2-Clause */
/* Choosing servers: balance, hash-type, http-reuse, and what `mode l4` adds. */
#include <errno.h>

#include "conf/conf_priv.h"

#define AT(field) .offset = offsetof(struct conf_proxy, field)

/* "name(argument)"; *ret_arg p NULL without parentheses. */
static struct str split_call(struct str w, struct str *ret_arg)
{
	size_t open = str_find_char(w, '(');

	*ret_arg = STR_NULL;
	if (open == SIZE_MAX || w.p[w.len - 1] != ')')
		return w;
	*ret_arg = str_sub(w, open + 1, w.len - open - 2);
	return str_sub(w, 0, open);
}

static int keep_name(struct parser *ps, struct line *l, struct str arg, const char *what,
		     struct conf_balance_params *p)
{
	if (!arg.p || !arg.len)
		return conf_fail(ps, l, l->at - 1, "'balance' expects %s", what);
	p->name = arena_strdup(&ps->conf->arena, arg);
	return p->name ? 0 : -ENOMEM;
}

static int balance_random(struct parser *ps, struct line *l, struct str arg,
			  struct conf_balance_params *p)
{
	uint64_t draws = 2;

	if (arg.p && (str_to_u64(arg, &draws) || draws < 1 || draws > 65535))
		return conf_fail(ps, l, l->at - 1,
				 "'random' expects a number of draws from 1 to 65535");
	p->random_draws = (uint16_t)draws;
	return 0;
}

static int balance_uri(struct parser *ps, struct line *l, struct str arg,
		       struct conf_balance_params *p)
{
	uint64_t v;
	int r = 0;

	while (r == 0 && line_has(l)) {
		if (line_accept(l, "whole")) {
			p->uri_whole = true;
		} else if (line_accept(l, "path-only")) {
			p->uri_path_only = true;
		} else if (line_accept(l, "len")) {
			r = arg_u64(ps, l, 0, 65535, &v);
			p->uri_len = r ? 0 : (uint32_t)v;
		} else if (line_accept(l, "depth")) {
			r = arg_u64(ps, l, 0, 65535, &v);
			p->uri_depth = r ? 0 : (uint32_t)v;
		} else {
			r = conf_fail(ps, l, l->at,
				      "'balance uri' expects whole, path-only, len or depth "
				      "instead of '" STR_FMT "'",
				      STR_ARG(str_sub(line_peek(l), 0, 64)));
		}
	}
	return r;
}

static int balance_url_param(struct parser *ps, struct line *l, struct str arg,
			     struct conf_balance_params *p)
{
	struct str name;
	uint64_t max_wait;
	int r = line_want(ps, l, "the name of a parameter", &name);

	if (r == 0)
		r = keep_name(ps, l, name, "the name of a parameter", p);
	if (r || !line_accept(l, "check_post"))
		return r;
	p->check_post = true;
	/* How long to wait for, once; HAProxy ignores it, too. */
	return line_has(l) ? arg_u64(ps, l, 0, UINT32_MAX, &max_wait) : 0;
}

static int balance_hdr(struct parser *ps, struct line *l, struct str arg,
		       struct conf_balance_params *p)
{
	p->hdr_use_domain_only = line_accept(l, "use_domain_only");
	return keep_name(ps, l, arg, "hdr(<name>)", p);
}

static int balance_hash(struct parser *ps, struct line *l, struct str arg,
			struct conf_balance_params *p)
{
	return compile_expr(ps, ps->px, l, PLACE_REQ | PLACE_CONTENT, &p->hash_expr);
}

/* The fetch behind `balance` and `persist`. */
static int compile_rdp(struct parser *ps, struct line *l, struct str name, const char *def,
		       struct expr **ret)
{
	struct str text = arena_printf(&ps->conf->arena, "req.rdp_cookie(" STR_FMT ")",
				       STR_ARG(name.len ? name : str_from_cstr(def)));

	return text.p ? compile_expr_text(ps, ps->px, l, text, PLACE_CONTENT, ret) : -ENOMEM;
}

static int balance_rdp(struct parser *ps, struct line *l, struct str arg,
		       struct conf_balance_params *p)
{
	return compile_rdp(ps, l, arg, "mstshash", &p->hash_expr);
}

static int parse_persist(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct str w, arg;
	int r = line_want(ps, l, "rdp-cookie", &w);

	if (r)
		return r;
	if (!str_is_eq(split_call(w, &arg), STR("rdp-cookie")))
		return conf_fail(ps, l, l->at - 1, "'persist' expects rdp-cookie[(<name>)]");
	return compile_rdp(ps, l, arg, "msts", &((struct proxy_build *)obj)->px.rdp_cookie);
}

static const struct algorithm {
	struct str name;
	uint8_t algo;
	bool has_arg;
	int (*parse)(struct parser *ps, struct line *l, struct str arg,
		     struct conf_balance_params *p);
} algorithms[] = {
	{ NAME("roundrobin"), BALANCE_ROUNDROBIN, false, NULL },
	{ NAME("static-rr"), BALANCE_STATIC_RR, false, NULL },
	{ NAME("leastconn"), BALANCE_LEASTCONN, false, NULL },
	{ NAME("first"), BALANCE_FIRST, false, NULL },
	{ NAME("source"), BALANCE_SOURCE, false, NULL },
	{ NAME("uri"), BALANCE_URI, false, balance_uri },
	{ NAME("url_param"), BALANCE_URL_PARAM, false, balance_url_param },
	{ NAME("hdr"), BALANCE_HDR, true, balance_hdr },
	{ NAME("random"), BALANCE_RANDOM, true, balance_random },
	{ NAME("hash"), BALANCE_HASH, false, balance_hash },
	{ NAME("rdp-cookie"), BALANCE_RDP_COOKIE, true, balance_rdp },
	{ NAME("maglev"), BALANCE_MAGLEV, false, NULL },
	{ NAME("peak-ewma"), BALANCE_PEAK_EWMA, false, NULL },
};
static const char *const algorithms_refused[] = { "log-hash", "sticky", "log-sticky", NULL };

static int parse_balance(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	struct conf_balance_params *p = &b->px.balance;
	struct str w, name, arg;
	struct nearest near;
	char hint[96];
	int r = line_want(ps, l, "an algorithm such as roundrobin or leastconn", &w);

	if (r)
		return r;
	b->has_balance = true;
	name = split_call(w, &arg);
	nearest_init(&near, name);
	for (size_t i = 0; i < ARRAY_SIZE(algorithms); i++) {
		const struct algorithm *a = &algorithms[i];

		nearest_offer(&near, a->name);
		if (!str_is_eq(a->name, name))
			continue;
		if (arg.p && !a->has_arg)
			return conf_fail_off(ps, l, l->at - 1, name.len,
					     "'" STR_FMT "' takes no argument", STR_ARG(name));
		p->algo = a->algo;
		p->uri_len = p->uri_depth = 0;
		p->uri_whole = p->uri_path_only = p->check_post = false;
		return a->parse ? a->parse(ps, l, arg, p) : 0;
	}
	if (name_pattern_has(algorithms_refused, name))
		return conf_fail(ps, l, l->at - 1,
				 "'balance " STR_FMT
				 "' is known by HAProxy but not supported by Headgate",
				 STR_ARG(name));
	return conf_fail(ps, l, l->at - 1,
			 "'balance' expects roundrobin, static-rr, leastconn, first, source, uri, "
			 "url_param, "
			 "hdr(<name>), random, hash or maglev instead of '" STR_FMT "'%s",
			 STR_ARG(str_sub(w, 0, 64)), nearest_hint(&near, hint));
}

static int parse_hash_type(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value types[] = { VALUE("map-based", HASH_MAP_BASED),
						      VALUE("consistent", HASH_CONSISTENT),
						      VALUES_END };
	static const struct keyword_value functions[] = {
		VALUE("sdbm", HASH_SDBM),   VALUE("djb2", HASH_DJB2), VALUE("wt6", HASH_WT6),
		VALUE("crc32", HASH_CRC32), VALUE("none", HASH_NONE), VALUES_END
	};
	struct proxy_build *b = obj;
	struct conf_balance_params *p = &b->px.balance;
	int r = arg_value(ps, l, types, &p->hash_type);

	if (r)
		return r;
	p->hash_func = HASH_SDBM;
	p->has_avalanche = p->hash_type == HASH_CONSISTENT; /* sdbm alone spreads badly on a ring */
	if (line_has(l) && !str_is_eq(line_peek(l), STR("avalanche"))) {
		r = arg_value(ps, l, functions, &p->hash_func);
		if (r)
			return r;
		p->has_avalanche = false;
	}
	if (line_accept(l, "avalanche"))
		p->has_avalanche = true;
	return 0;
}

static int parse_balance_factor(struct parser *ps, struct line *l, void *obj,
				const struct keyword *kw)
{
	uint64_t v;
	int r = arg_u64(ps, l, 0, 65535, &v);

	if (r)
		return r;
	if (v && v <= 100)
		return conf_fail(ps, l, l->at - 1,
				 "'hash-balance-factor' expects 0, or a percentage above 100");
	((struct proxy_build *)obj)->px.balance.hash_balance_factor = (uint16_t)v;
	return 0;
}

static int parse_forward(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value values[] = { VALUE("ipip", FORWARD_IPIP),
						       VALUE("gue", FORWARD_GUE),
						       VALUE("l2", FORWARD_L2),
						       VALUE("nat", FORWARD_NAT), VALUES_END };

	return arg_value(ps, l, values, &((struct proxy_build *)obj)->px.forward);
}

static const struct keyword_value reuses[] = { VALUE("never", REUSE_NEVER),
					       VALUE("safe", REUSE_SAFE),
					       VALUE("aggressive", REUSE_AGGRESSIVE),
					       VALUE("always", REUSE_ALWAYS), VALUES_END };

static const struct keyword_value affinities[] = { VALUE("always", HASH_AFFINITY_ALWAYS),
						   VALUE("maxconn", HASH_AFFINITY_MAXCONN),
						   VALUE("maxqueue", HASH_AFFINITY_MAXQUEUE),
						   VALUES_END };

static const struct keyword rows[] = {
	{ NAME("balance"), SEC_DLB, ARG_FUNC, .parse = parse_balance, .grade = '1',
	  .args = "<algorithm> [<argument>...]", .def = "random",
	  .help = "how a server is chosen" },
	{ NAME("persist"), SEC_DLB, ARG_FUNC, .parse = parse_persist, .grade = '2',
	  .args = "rdp-cookie[(<name>)]",
	  .help = "the server that an RDP client's cookie names by address and port" },
	{ NAME("hash-type"), SEC_DLB, ARG_FUNC, .parse = parse_hash_type, .grade = '1',
	  .args = "map-based|consistent [<function>] [avalanche]", .def = "map-based sdbm",
	  .help = "how a hash becomes a server" },
	{ NAME("hash-balance-factor"), SEC_DLB, ARG_FUNC, .parse = parse_balance_factor,
	  .grade = '2', .args = "<percent>", .def = "0",
	  .help = "no server gets more than this share of the average" },
	{ NAME("hash-preserve-affinity"), SEC_DLB, ARG_ENUM, AT(balance.hash_affinity),
	  .values = affinities, .grade = '2', .args = "always|maxconn|maxqueue", .def = "always",
	  .help = "when the server of a hash is full: it is waited for; another is taken; another "
		  "is taken when its queue is full, too" },
	{ NAME("http-reuse"), SEC_DLB, ARG_ENUM, AT(http_reuse), .values = reuses, .grade = '1',
	  .args = "never|safe|aggressive|always", .def = "safe",
	  .help = "which requests may use an idle connection" },
	{ NAME("forward"), SEC_DLB, ARG_FUNC, .parse = parse_forward, .grade = '1',
	  .args = "ipip|gue|l2|nat",
	  .help = "mode l4, and nat also mode tcp: how packets reach the servers" },
	{ NAME("maglev-table-size"), SEC_DLB, ARG_UINT, AT(maglev_table_size), NUMBER(3, 655373),
	  .grade = '1', .args = "<prime>", .def = "the smallest that is 100 times the servers",
	  .help = "slots of the table" },
};
const struct keyword_table conf_kw_balance = KEYWORDS("keyword", rows);
