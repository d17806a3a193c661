/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening a proxy section: its name, what it inherits, and the defaults of the language. A new proxy is
 * a copy of its `defaults` section with everything that belongs to one section made its own.
 * Control thread, configuration's arena.
 */
#include <errno.h>

#include "conf/kw_action_priv.h"

#define S 1000000000ull

void conf_server_init(struct conf_server *s)
{
	*s = (struct conf_server){ .weight = 1,
				   .inter = 2 * S,
				   .rise = 2,
				   .fall = 3,
				   .error_limit = 10,
				   .pool_max_conn = UINT32_MAX,
				   .pool_purge_delay = 5 * S };
	s->ep.fd = -1;
	s->check_ep.fd = -1;
	s->agent_ep.fd = -1;
}

static void lists_init(struct conf_proxy *px)
{
	list_init(&px->binds);
	list_init(&px->use_backends);
	list_init(&px->captures);
	list_init(&px->monitor_fail);
	list_init(&px->stats.auths);
	list_init(&px->stats.scopes);
	list_init(&px->stats.rules);
	list_init(&px->servers);
	list_init(&px->use_servers);
	list_init(&px->persist_rules);
	list_init(&px->stick_rules);
	list_init(&px->bwlims);
	list_init(&px->check.steps);
	for (int i = 0; i < RULES_COUNT; i++)
		list_init(&px->rules[i]);
}

static void language_defaults(struct proxy_build *b)
{
	struct conf_proxy *px = &b->px;

	lists_init(px);
	px->retries = 3;
	px->retry_on = RETRY_CONN_FAILURE;
	px->redispatch_interval = -1;
	for (unsigned i = 0; i < ARRAY_SIZE(px->min_rate); i++)
		px->min_rate[i] = (struct conf_min_rate){ .bytes_per_s = 128,
							  .after_ns = 30000000000ull };
	px->stats.uri = (char *)"/haproxy?stats";
	px->stats.realm = (char *)"HAProxy Statistics";
	px->balance = (struct conf_balance_params){ .algo = BALANCE_RANDOM, .random_draws = 2 };
	px->http_reuse = REUSE_SAFE;
	px->learn_window = 3600ull * 1000000000;
	px->check.type = CHECK_TCP;
	conf_server_init(&b->default_server);
}

/* Entries of a list copied one by one: an entry is on one list only. */
static int copy_list(struct arena *a, struct list *to, const struct list *from, size_t size,
		     size_t link_offset)
{
	struct list *p;

	list_init(to);
	list_for_each(p, from) {
		char *copy = arena_alloc(a, size);

		if (!copy)
			return -ENOMEM;
		memcpy(copy, (char *)p - link_offset, size);
		list_push_back(to, (struct list *)(void *)(copy + link_offset));
	}
	return 0;
}

#define COPY_LIST(field, type)                                               \
	copy_list(arena, &b->px.field, &from->px.field, sizeof(struct type), \
		  offsetof(struct type, link))

static const struct conf_proxy *freeze(struct arena *arena, struct proxy_build *from)
{
	struct conf_proxy *copy;

	if (from->frozen)
		return from->frozen;
	copy = arena_alloc(arena, sizeof(*copy));
	if (copy)
		*copy = from->px;
	return from->frozen = copy;
}

static void mark_inherited(struct list *rules)
{
	struct list *p;

	list_for_each(p, rules)
		list_entry(p, struct conf_rule, link)->is_inherited = true;
}

static int inherit(struct parser *ps, struct proxy_build *b, struct proxy_build *from)
{
	struct arena *arena = &ps->conf->arena;
	int r = 0;

	*b = *from;
	lists_init(&b->px);
	b->is_named = false;
	b->has_own_steps = b->has_own_request = b->has_balance = false;
	b->http_check_last = HTTP_CHECK_NOTHING;
	b->rank = RANK_NONE;
	b->frozen = NULL;
	b->px.defaults = freeze(arena, from);
	if (!b->px.defaults)
		return -ENOMEM;
	for (int i = 0; i < RULES_COUNT && r == 0; i++) {
		r = COPY_LIST(rules[i], conf_rule);
		mark_inherited(&b->px.rules[i]);
	}
	if (r == 0)
		r = COPY_LIST(monitor_fail, conf_rule);
	if (r == 0)
		r = COPY_LIST(stats.auths, conf_stats_auth);
	if (r == 0)
		r = COPY_LIST(stats.scopes, conf_stats_scope);
	if (r == 0)
		r = COPY_LIST(stats.rules, conf_rule);
	if (r == 0)
		r = COPY_LIST(check.steps, conf_check_step);
	return r;
}

int line_want_name(struct parser *ps, struct line *l, struct str *ret)
{
	int r = line_want(ps, l, "a name", ret);

	if (r)
		return r;
	for (size_t i = 0; i < ret->len; i++) {
		char c = str_lower_char(ret->p[i]);

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("-_.:", c)) || !c)
			return conf_fail_off(
				ps, l, l->at - 1, i,
				"character '%c' is not permitted in a name (letters, digits "
				"and '-', '_', '.', ':' are)",
				c > ' ' && c < 127 ? c : '?');
	}
	return ret->len ? 0 : conf_fail(ps, l, l->at - 1, "empty name");
}

/* "from x", or the latest defaults. */
static int want_defaults(struct parser *ps, struct line *l, struct proxy_build **ret)
{
	struct nearest near;
	struct str name;
	char hint[96];
	int r;

	*ret = ps->defaults;
	if (!line_accept(l, "from"))
		return 0;
	r = line_want(ps, l, "the name of a defaults section", &name);
	if (r)
		return r;
	*ret = names_find(ps->defaults_names, name);
	if (*ret)
		return 0;
	nearest_init(&near, name);
	nearest_offer_names(&near, ps->defaults_names);
	*ret = ps->defaults;
	return conf_fail(ps, l, l->at - 1,
			 "there is no defaults section named '" STR_FMT "' before this%s",
			 (int)(name.len > 64 ? 64 : name.len), name.p, nearest_hint(&near, hint));
}

static int add_name(struct parser *ps, struct line *l, struct conf_names *t, struct str name,
		    struct proxy_build *b, const char *what)
{
	const struct proxy_build *other = names_find(t, name);
	int r;

	if (other)
		return conf_fail(ps, l, 1, "%s '" STR_FMT "' has the same name as the %s in %s:%u",
				 what, (int)(name.len > 64 ? 64 : name.len), name.p, other->kind,
				 other->px.pos.file, other->px.pos.line);
	r = names_add(t, name, b);
	return r == -EEXIST ? 0 : r;
}

static int register_proxy(struct parser *ps, struct line *l, struct proxy_build *b, struct str name)
{
	struct conf *c = ps->conf;
	int r = 0;

	if (b->section & SEC_DEFAULTS) {
		list_push_back(&ps->all_defaults, &b->link);
		ps->defaults = b;
		return name.len ? add_name(ps, l, ps->defaults_names, name, b, "defaults section")
				: 0;
	}
	list_push_back(&ps->builds, &b->link);
	list_push_back(&c->proxies, &b->px.link);
	b->px.index = c->n_proxies++;
	if (b->px.caps & CONF_CAP_FRONTEND)
		r = add_name(ps, l, c->frontends, name, b, b->kind);
	if (r == 0 && (b->px.caps & CONF_CAP_BACKEND))
		r = add_name(ps, l, c->backends, name, b, b->kind);
	return r;
}

static int proxy_alloc(struct parser *ps, struct proxy_build *from, struct proxy_build **ret)
{
	struct arena *arena = &ps->conf->arena;
	struct proxy_build *b = arena_zalloc(arena, sizeof(*b));
	int r = 0;

	if (!b)
		return -ENOMEM;
	if (from)
		r = inherit(ps, b, from);
	else
		language_defaults(b);
	if (r)
		return r;
	list_init(&b->link);
	list_init(&b->px.link);
	list_init(&b->late);
	list_init(&b->redirects);
	b->px.acls = acl_set_new(arena, from ? from->px.acls : NULL);
	b->px.server_names = names_new(arena);
	if (!b->px.acls || !b->px.server_names)
		return -ENOMEM;
	*ret = b;
	return 0;
}

int proxy_open(struct parser *ps, struct line *l, uint16_t section)
{
	bool is_defaults = section & SEC_DEFAULTS;
	struct proxy_build *from = NULL, *b;
	struct str name = STR("");
	bool has_from;
	int r = 0;

	if (!is_defaults || (line_has(l) && !str_is_eq(line_peek(l), STR("from"))))
		r = line_want_name(ps, l, &name);
	has_from = str_is_eq(line_peek(l), STR("from"));
	if (r == 0)
		r = want_defaults(ps, l, &from);
	if (r == 0)
		r = line_want_end(ps, l);
	if (r == -ENOMEM)
		return r;
	/* A defaults section starts from nothing unless it says `from`. */
	if (is_defaults && !has_from)
		from = NULL;
	r = proxy_alloc(ps, from, &b);
	if (r)
		return r;
	b->section = section;
	b->line = l;
	b->kind = l->words[0].p;
	b->is_named = name.len;
	b->px.conf = ps->conf;
	b->px.pos = l->pos;
	b->px.name = (char *)name.p;
	b->px.id = 0;
	b->px.caps = is_defaults	       ? CONF_CAP_DEFAULTS
		     : section == SEC_FRONTEND ? CONF_CAP_FRONTEND
		     : section == SEC_BACKEND  ? CONF_CAP_BACKEND
					       : CONF_CAP_FRONTEND | CONF_CAP_BACKEND;
	ps->px = b;
	return register_proxy(ps, l, b, name);
}

/* --- userlists --------------------------------------------------------------------------------- */

static struct conf_userlist *userlist_get(struct parser *ps, struct str name,
					  const struct conf_pos *pos)
{
	struct conf_userlist *ul = names_find(ps->userlist_names, name);

	if (ul)
		return ul;
	ul = arena_zalloc(&ps->conf->arena, sizeof(*ul));
	if (!ul)
		return NULL;
	ul->list.name = str_make(arena_strdup(&ps->conf->arena, name), name.len);
	ul->pos = *pos;
	list_push_back(&ps->conf->userlists, &ul->link);
	if (!ul->list.name.p || names_add(ps->userlist_names, ul->list.name, ul))
		return NULL;
	return ul;
}

int section_want_name(struct parser *ps, struct line *l, struct str *ret_name)
{
	int r = line_want_name(ps, l, ret_name);

	if (r == 0)
		r = line_want_end(ps, l);
	if (r) {
		ps->is_skipping = true;
		ps->section = 0;
	}
	return r;
}

int userlist_open(struct parser *ps, struct line *l)
{
	struct conf_userlist *ul;
	struct str name;
	int r = section_want_name(ps, l, &name);

	if (r)
		return r;
	ul = userlist_get(ps, name, &l->pos);
	if (!ul)
		return -ENOMEM;
	ps->userlist = ul;
	if (ul->is_defined)
		return conf_fail(
			ps, l, 1, "userlist '" STR_FMT "' has the same name as the one in %s:%u",
			(int)(name.len > 64 ? 64 : name.len), name.p, ul->pos.file, ul->pos.line);
	ul->is_defined = true;
	ul->pos = l->pos;
	return 0;
}

/* --- expressions ------------------------------------------------------------------------------- */

struct expr_owner {
	struct parser *ps;
	const struct proxy_build *b;
	struct line *line;
};

static const struct expr_userlist *find_userlist(struct expr_env *env, struct str name,
						 struct err *err)
{
	struct expr_owner *o = env->owner;
	struct conf_userlist *ul = userlist_get(o->ps, name, &o->line->pos);

	if (!ul)
		err_set(err, -ENOMEM, "out of memory");
	return ul ? &ul->list : NULL;
}

static void on_warning(struct expr_env *env, const char *text)
{
	struct expr_owner *o = env->owner;

	if (conf_warn(o->ps, o->line, o->line->kw, "%s", text))
		o->ps->is_out_of_memory = true;
}

static int read_pattern_file(struct expr_env *env, struct str path, struct str *ret_text,
			     struct err *err)
{
	struct expr_owner *o = env->owner;
	char *name = arena_strdup(&o->ps->arena, path);

	return name ? conf_read_path(o->ps, env->arena, name, ret_text, err) : -ENOMEM;
}

static struct str env_of_parser(struct expr_env *env, struct str name)
{
	struct expr_owner *o = env->owner;

	return parser_getenv(o->ps, name);
}

static int use_table(struct expr_env *env, struct table_op *op, struct err *err)
{
	struct expr_owner *o = env->owner;

	return stick_note_use(o->ps, o->b, o->line, op);
}

static int use_kernel(struct expr_env *env, const char *name, enum kernel_fact f)
{
	struct expr_owner *o = env->owner;

	if (f != KERNEL_CONNS)
		o->ps->conf->global.xdp_watch = true;
	return guard_note_use(o->ps, o->line, 0, name);
}

static int expr_env_init(struct parser *ps, const struct proxy_build *b, struct line *l,
			 unsigned place, struct expr_env *env)
{
	struct expr_owner *o = arena_alloc(&ps->arena, sizeof(*o));

	if (!o)
		return -ENOMEM;
	*o = (struct expr_owner){ .ps = ps, .b = b, .line = l };
	*env = (struct expr_env){
		.arena = &ps->conf->arena,
		.place = place,
		/* HTTP rules decide themselves; defaults may be inherited by either mode. */
		.is_http = b->px.mode == CONF_MODE_HTTP || (b->section & SEC_DEFAULTS) ||
			   !(place & (PLACE_CONN | PLACE_CONTENT | PLACE_LOG)),
		.acls = b->px.acls,
		.read_file = read_pattern_file,
		.find_userlist = find_userlist,
		.use_table = use_table,
		.use_kernel = use_kernel,
		.getenv = env_of_parser,
		.owned = &ps->conf->expr_owned,
		.refs = ps->conf->pat_refs,
		.file = l ? l->pos.file : NULL,
		.line = l ? l->pos.line : 0,
		.warn = on_warning,
		.owner = o,
	};
	return 0;
}

int compile_text(struct parser *ps, struct proxy_build *b, struct line *l, unsigned word,
		 struct str text, unsigned place, struct logfmt **ret)
{
	struct expr_env env;
	struct err err;
	size_t at = 0;
	int r = expr_env_init(ps, b, l, place, &env);

	if (r == 0)
		r = logfmt_compile(&env, text, ret, &at, &err);
	if (r == 0 || r == -ENOMEM)
		return r;
	return conf_fail_off(ps, l, word, at, "%s", err.text);
}

int compile_format(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
		   struct logfmt **ret)
{
	struct str text;
	int r = line_want(ps, l, "a format string", &text);

	return r ? r : compile_text(ps, b, l, l->at - 1, text, place, ret);
}

int compile_expr(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
		 struct expr **ret)
{
	struct str text;
	int r = line_want(ps, l, "a sample expression such as hdr(host)", &text);

	return r ? r : compile_expr_text(ps, b, l, text, place, ret);
}

/* Errors are shown at the word just read. */
int compile_expr_text(struct parser *ps, struct proxy_build *b, struct line *l, struct str text,
		      unsigned place, struct expr **ret)
{
	struct expr_env env;
	struct err err;
	size_t at = 0;
	int r = expr_env_init(ps, b, l, place, &env);

	if (r)
		return r;
	r = expr_compile(&env, text, ret, &at, &err);
	if (r == 0 || r == -ENOMEM)
		return r;
	return conf_fail_off(ps, l, l->at - 1, at, "%s", err.text);
}

/* The word just read. */
int compile_regex(struct parser *ps, struct proxy_build *b, struct line *l, void **ret)
{
	struct regex *re = NULL;
	struct expr_env env;
	struct err err;
	int r = expr_env_init(ps, b, l, 0, &env);

	if (r == 0)
		r = regex_compile(&env, l->words[l->at - 1], false, &re, &err);
	*ret = re;
	if (r == 0 || r == -ENOMEM)
		return r;
	return conf_fail(ps, l, l->at - 1, "%s", err.text);
}

int compile_condition(struct parser *ps, struct proxy_build *b, struct line *l, unsigned place,
		      struct cond **ret)
{
	bool is_unless = false;
	unsigned at = 0, first;
	struct expr_env env;
	struct err err;
	int r;

	*ret = NULL;
	if (!line_has(l))
		return 0;
	if (line_accept(l, "unless"))
		is_unless = true;
	else if (!line_accept(l, "if"))
		return conf_fail(
			ps, l, l->at,
			"expects 'if', 'unless' or the end of the line instead of '" STR_FMT "'",
			(int)(line_peek(l).len > 64 ? 64 : line_peek(l).len), line_peek(l).p);
	first = l->at;
	if (!line_has(l))
		return conf_fail(ps, l, l->n, "missing condition behind '%s'",
				 is_unless ? "unless" : "if");
	r = expr_env_init(ps, b, l, place, &env);
	if (r)
		return r;
	r = cond_compile(&env, l->words + first, l->n - first, is_unless, ret, &at, &err);
	l->at = l->n;
	if (r == 0 || r == -ENOMEM)
		return r;
	return conf_fail(ps, l, first + at, "%s", err.text);
}

int compile_acl(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = obj;
	unsigned at = 0, first;
	struct expr_env env;
	struct str name;
	struct err err;
	int r = line_want_name(ps, l, &name);

	if (r)
		return r;
	if (!line_has(l))
		return conf_fail(ps, l, l->n, "'acl' expects a sample expression behind the name");
	if ((b->section & SEC_DEFAULTS) && !b->is_named)
		return conf_fail(ps, l, 0,
				 "ACLs are only allowed in a defaults section that has a name");
	first = l->at;
	r = expr_env_init(ps, b, l, PLACE_CONN | PLACE_CONTENT | PLACE_REQ | PLACE_RSP | PLACE_LOG,
			  &env);
	if (r)
		return r;
	env.is_http = true; /* whether a fetch fits is decided where the ACL is used */
	r = acl_add(b->px.acls, &env, name, l->words + first, l->n - first, &at, &err);
	l->at = l->n;
	if (r == 0 || r == -ENOMEM)
		return r;
	return conf_fail(ps, l, first + at, "%s", err.text);
}

unsigned ruleset_place(enum conf_ruleset set)
{
	static const unsigned places[RULES_COUNT] = {
		[RULES_TCP_CONNECTION] = PLACE_CONN,	 [RULES_TCP_SESSION] = PLACE_CONN,
		[RULES_TCP_CONTENT] = PLACE_CONTENT,	 [RULES_TCP_RESPONSE] = PLACE_CONTENT,
		[RULES_HTTP_REQUEST] = PLACE_REQ,	 [RULES_HTTP_RESPONSE] = PLACE_RSP,
		[RULES_HTTP_AFTER_RESPONSE] = PLACE_RSP,
	};

	return places[set];
}
