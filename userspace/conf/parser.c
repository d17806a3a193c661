/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lines to keywords: opens sections, finds the row of each keyword in the tables of its section, and
 * says what is wrong when there is none: another section, a keyword of HAProxy that is not
 * offered, or a misspelling. An error never ends the file. Control thread.
 */
#include <errno.h>
#include <stdio.h>

#include "conf/conf_priv.h"

static const struct section_name {
	struct str name;
	uint16_t bit;
} section_names[] = {
	{ NAME("global"), SEC_GLOBAL },
	{ NAME("defaults"), SEC_DEFAULTS },
	{ NAME("frontend"), SEC_FRONTEND },
	{ NAME("listen"), SEC_LISTEN },
	{ NAME("backend"), SEC_BACKEND },
	{ NAME("userlist"), SEC_USERLIST },
	{ NAME("http-errors"), SEC_HTTP_ERRORS },
	{ NAME("resolvers"), SEC_RESOLVERS },
	{ NAME("ring"), SEC_RING },
	{ NAME("crt-store"), SEC_CRT_STORE },
	{ NAME("bind"), SEC_BIND },
	{ NAME("stats socket"), SEC_STATS_SOCKET },
	{ NAME("server"), SEC_SERVER },
	{ NAME("default-server"), SEC_DEFAULT_SERVER },
	{ NAME("load"), SEC_LOAD },
};
#define N_SECTIONS 10 /* the first rows; the others are kinds of lines with options */

static const char *const sections_pending[] = { "peers", NULL };
static const char *const sections_refused[] = { "log-forward", "log-profile", "program", "cache",
						"fcgi-app",    "mailers",     "traces",	 "acme",
						"healthcheck", NULL };

static const struct keyword_table *const tables_global[] = {
	&conf_kw_global,	&conf_kw_global_tls, &conf_kw_env, &conf_kw_xdp,
	&conf_kw_vars,		&conf_kw_log,	     &conf_kw_h2,  &conf_kw_crt_files,
	&conf_kw_socket_global, &conf_kw_case
};
static const struct keyword_table *const tables_proxy[] = {
	&conf_kw_proxy,	 &conf_kw_balance, &conf_kw_l4,	     &conf_kw_nat,
	&conf_kw_check,	 &conf_kw_rules,   &conf_kw_stick,   &conf_kw_log,
	&conf_kw_errors, &conf_kw_guard,   &conf_kw_persist, &conf_kw_socket
};
static const struct keyword_table *const tables_userlist[] = { &conf_kw_userlist };
static const struct keyword_table *const tables_errors[] = { &conf_kw_errors };
static const struct keyword_table *const tables_resolvers[] = { &conf_kw_resolvers };
static const struct keyword_table *const tables_ring[] = { &conf_kw_ring };
static const struct keyword_table *const tables_crt_store[] = { &conf_kw_crt_store };

const char *section_list(uint16_t sections, char out[96])
{
	size_t len = 0;

	out[0] = '\0';
	for (size_t i = 0; i < ARRAY_SIZE(section_names); i++) {
		if (sections & section_names[i].bit)
			len += (size_t)snprintf(out + len, 96 - len, "%s" STR_FMT, len ? ", " : "",
						STR_ARG(section_names[i].name));
	}
	return out;
}

bool name_pattern_has(const char *const *list, struct str name)
{
	for (; list && *list; list++) {
		struct str p = str_from_cstr(*list);

		if (p.p[p.len - 1] == '*' ? str_is_prefix(name, str_sub(p, 0, p.len - 1))
					  : str_is_eq(name, p))
			return true;
	}
	return false;
}

/* --- lookup ------------------------------------------------------------------------------------ */

struct found {
	const struct keyword *kw;
	void *obj;
	const struct keyword *elsewhere; /* the same name in another section */
};

struct str call_argument(struct str word)
{
	size_t open = str_find_char(word, '(');

	if (open == SIZE_MAX || word.p[word.len - 1] != ')')
		return STR_NULL;
	return str_sub(word, open + 1, word.len - open - 2);
}

static bool is_named(const struct keyword *kw, struct str word)
{
	if (kw->flags & KW_CALL)
		return call_argument(word).p && str_is_prefix(word, kw->name) &&
		       word.p[kw->name.len] == '(';
	return str_is_eq(kw->name, word);
}

static struct found lookup(struct str word, uint16_t section, const struct scope *scopes,
			   unsigned n)
{
	struct found f = { 0 };

	for (unsigned i = 0; i < n; i++) {
		const struct keyword_table *t = scopes[i].table;

		for (unsigned j = 0; j < t->n; j++) {
			const struct keyword *kw = &t->rows[j];

			if (!is_named(kw, word))
				continue;
			if (kw->sections & section) {
				f.kw = kw;
				f.obj = scopes[i].obj;
				return f;
			}
			f.elsewhere = kw;
		}
	}
	return f;
}

/* A keyword of another kind of section. */
static const struct keyword *top_level(struct str word)
{
	const struct keyword_table *const *const all[] = { tables_global, tables_proxy,
							   tables_userlist };
	const size_t n[] = { ARRAY_SIZE(tables_global), ARRAY_SIZE(tables_proxy),
			     ARRAY_SIZE(tables_userlist) };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		for (size_t j = 0; j < n[i]; j++) {
			struct found f = lookup(word, UINT16_MAX,
						&(struct scope){ .table = all[i][j] }, 1);

			if (f.kw)
				return f.kw;
		}
	}
	return NULL;
}

/* The row of a keyword that is written as "name(argument)" and was not; NULL: none. */
static const struct keyword *call_named(struct str word, uint16_t section,
					const struct scope *scopes, unsigned n)
{
	struct str name = str_sub(word, 0, str_find_char(word, '('));

	for (unsigned i = 0; i < n; i++) {
		for (unsigned j = 0; j < scopes[i].table->n; j++) {
			const struct keyword *kw = &scopes[i].table->rows[j];

			if (kw->flags & KW_CALL && kw->sections & section &&
			    str_is_eq(kw->name, name))
				return kw;
		}
	}
	return NULL;
}

static int fail_unknown(struct parser *ps, struct line *l, uint16_t section,
			const struct scope *scopes, unsigned n, const struct keyword *elsewhere)
{
	struct str w = str_sub(l->words[l->at], 0, 64);
	char hint[96], list[96], here[96];
	const struct keyword_removed *gone;
	const struct keyword *call = call_named(l->words[l->at], section, scopes, n);
	struct nearest near;

	if (call)
		return conf_fail(ps, l, l->at, "'" STR_FMT "' expects parentheses: '" STR_FMT "%s'",
				 STR_ARG(call->name), STR_ARG(call->name), call->args);
	for (unsigned i = 0; i < n; i++) {
		const struct keyword_table *t = scopes[i].table;

		if (name_pattern_has(t->pending, w))
			return conf_fail(ps, l, l->at,
					 "'" STR_FMT "' is not supported by this version",
					 STR_ARG(w));
		if (name_pattern_has(t->refused, w))
			return conf_fail(ps, l, l->at,
					 "'" STR_FMT
					 "' is known by HAProxy but not supported by Headgate",
					 STR_ARG(w));
		for (gone = t->removed; gone && gone->name; gone++) {
			if (str_is_eq(str_from_cstr(gone->name), w))
				return conf_fail(ps, l, l->at,
						 "'" STR_FMT
						 "' no longer exists in HAProxy: use %s",
						 STR_ARG(w), gone->instead);
		}
	}
	if (!elsewhere && strcmp(scopes[0].table->what, "keyword") == 0)
		elsewhere = top_level(w);
	if (elsewhere)
		return conf_fail(ps, l, l->at,
				 "'" STR_FMT "' is not allowed in a '%s' section (only in: %s)",
				 STR_ARG(w), section_list(section, here),
				 section_list(elsewhere->sections, list));
	nearest_init(&near, w);
	for (unsigned i = 0; i < n; i++) {
		for (unsigned j = 0; j < scopes[i].table->n; j++) {
			const struct keyword *kw = &scopes[i].table->rows[j];

			if ((kw->sections & section) && !(kw->flags & KW_PENDING))
				nearest_offer(&near, kw->name);
		}
	}
	return conf_fail(ps, l, l->at, "unknown %s '" STR_FMT "' in '%s'%s", scopes[0].table->what,
			 STR_ARG(w), section_list(section, here), nearest_hint(&near, hint));
}

static int push_late(struct parser *ps, struct line *l, const struct keyword *kw)
{
	struct late_line *late = arena_zalloc(&ps->arena, sizeof(*late));

	if (!late)
		return -ENOMEM;
	*late = (struct late_line){ .line = l, .kw = kw, .at = l->at };
	list_push_back(&ps->px->late, &late->link);
	l->at = l->n;
	return 0;
}

int keyword_dispatch(struct parser *ps, struct line *l, uint16_t section,
		     const struct scope *scopes, unsigned n)
{
	struct found f;

	if (!line_has(l)) {
		char hint[96];

		return conf_fail(ps, l, l->n, "missing %s in '%s'", scopes[0].table->what,
				 section_list(section, hint));
	}
	f = lookup(l->words[l->at], section, scopes, n);
	if (!f.kw) {
		for (unsigned i = 0; i < n; i++) {
			if (!name_pattern_has(scopes[i].table->noop, l->words[l->at]))
				continue;
			l->at = l->n;
			return 0;
		}
		return fail_unknown(ps, l, section, scopes, n, f.elsewhere);
	}
	if (f.kw->flags & KW_PENDING)
		return conf_fail(ps, l, l->at, "'" STR_FMT "' is not supported by this version",
				 STR_ARG(f.kw->name));
	if (l->is_negated && f.kw->type != ARG_SUB && f.kw->type != ARG_NOOP &&
	    !(f.kw->flags & KW_NO))
		return conf_fail(ps, l, l->at, "'no' cannot stand before '" STR_FMT "'",
				 STR_ARG(f.kw->name));
	l->at++;
	l->kw_n = l->at - l->kw;
	if (f.kw->flags & KW_LATE)
		return push_late(ps, l, f.kw);
	return keyword_apply(ps, l, f.obj, f.kw);
}

int keyword_options(struct parser *ps, struct line *l, uint16_t section, const struct scope *scopes,
		    unsigned n)
{
	while (line_has(l)) {
		struct found f = lookup(l->words[l->at], section, scopes, n);
		int r;

		l->is_negated = false;
		if (!f.kw && str_is_prefix(l->words[l->at], STR("no-"))) {
			struct found pos = lookup(str_from(l->words[l->at], 3), section, scopes, n);

			if (pos.kw && (pos.kw->flags & KW_NO)) {
				f = pos;
				l->is_negated = true;
			}
		}
		if (!f.kw)
			return fail_unknown(ps, l, section, scopes, n, f.elsewhere);
		if (f.kw->flags & KW_PENDING)
			return conf_fail(ps, l, l->at,
					 "'" STR_FMT "' is not supported by this version",
					 STR_ARG(l->words[l->at]));
		l->kw = l->at++;
		l->kw_n = 1;
		r = keyword_apply(ps, l, f.obj, f.kw);
		if (r)
			return r;
	}
	l->is_negated = false;
	return 0;
}

/* --- sections ---------------------------------------------------------------------------------- */

int parser_end_section(struct parser *ps)
{
	struct list *p;

	if (ps->px) {
		list_for_each(p, &ps->px->late) {
			struct late_line *late = list_entry(p, struct late_line, link);
			struct line *l = late->line;
			int r;

			l->at = late->at;
			r = keyword_apply(ps, l, ps->px, late->kw);
			if (r == 0)
				r = line_want_end(ps, l);
			if (r == -ENOMEM)
				return r;
		}
		list_init(&ps->px->late);
	}
	ps->px = NULL;
	ps->userlist = NULL;
	ps->http_errors = NULL;
	ps->resolvers = NULL;
	ps->ring = NULL;
	ps->crt_store = NULL;
	ps->section = 0;
	ps->is_skipping = false;
	return 0;
}

static int open_section(struct parser *ps, struct line *l, const struct section_name *s)
{
	int r = parser_end_section(ps);

	if (r)
		return r;
	ps->section = s->bit;
	ps->section_name = s->name.p;
	l->kw = 0;
	l->kw_n = 1;
	l->at = 1;
	if (s->bit == SEC_GLOBAL)
		r = line_want_end(ps, l);
	else if (s->bit == SEC_USERLIST)
		r = userlist_open(ps, l);
	else if (s->bit == SEC_HTTP_ERRORS)
		r = errors_open(ps, l);
	else if (s->bit == SEC_RESOLVERS)
		r = resolvers_open(ps, l);
	else if (s->bit == SEC_RING)
		r = ring_open(ps, l);
	else if (s->bit == SEC_CRT_STORE)
		r = crt_store_open(ps, l);
	else
		r = proxy_open(ps, l, s->bit);
	return r;
}

/* Also a section that is refused is one: what it holds is not looked at. */
static int refuse_section(struct parser *ps, struct line *l, const char *why)
{
	int r = parser_end_section(ps);

	if (r)
		return r;
	ps->is_skipping = true;
	return conf_fail(ps, l, 0, "section '" STR_FMT "' is %s", STR_ARG(l->words[0]), why);
}

/* -ENOENT: the line opens no section. */
static int try_section(struct parser *ps, struct line *l)
{
	struct str w = l->words[0];

	for (size_t i = 0; i < N_SECTIONS; i++) {
		if (str_is_eq(w, section_names[i].name))
			return open_section(ps, l, &section_names[i]);
	}
	if (ps->section == 0 || l->pos.column == 1 || ps->is_skipping) {
		if (name_pattern_has(sections_pending, w))
			return refuse_section(ps, l, "not supported by this version");
		if (name_pattern_has(sections_refused, w))
			return refuse_section(ps, l,
					      "known by HAProxy but not supported by Headgate");
	}
	return -ENOENT;
}

static int fail_outside(struct parser *ps, struct line *l)
{
	struct str w = str_sub(l->words[0], 0, 64);
	struct nearest near;
	char hint[96];

	nearest_init(&near, w);
	for (size_t i = 0; i < N_SECTIONS; i++)
		nearest_offer(&near, section_names[i].name);
	return conf_fail(ps, l, 0,
			 "'" STR_FMT
			 "' stands outside of any section (expects global, defaults, frontend, "
			 "backend, listen or userlist first)%s",
			 STR_ARG(w), nearest_hint(&near, hint));
}

/* A section's line is looked for in as many tables as the largest list has; the others have one. */
enum {
	SCOPES_MAX = ARRAY_SIZE(tables_proxy) > ARRAY_SIZE(tables_global)
			     ? ARRAY_SIZE(tables_proxy)
			     : ARRAY_SIZE(tables_global)
};

static int keyword_line(struct parser *ps, struct line *l)
{
	const struct keyword_table *const *tables = tables_proxy;
	unsigned n = ARRAY_SIZE(tables_proxy);
	struct scope scopes[SCOPES_MAX];
	void *obj = ps->px;
	int r;

	if (ps->section == SEC_GLOBAL) {
		tables = tables_global;
		n = ARRAY_SIZE(tables_global);
		obj = &ps->conf->global;
	} else if (ps->section == SEC_USERLIST) {
		tables = tables_userlist;
		n = 1;
		obj = ps->userlist;
	} else if (ps->section == SEC_HTTP_ERRORS) {
		tables = tables_errors;
		n = 1;
		obj = ps->http_errors;
	} else if (ps->section == SEC_RESOLVERS) {
		tables = tables_resolvers;
		n = 1;
		obj = ps->resolvers;
	} else if (ps->section == SEC_RING) {
		tables = tables_ring;
		n = 1;
		obj = ps->ring;
	} else if (ps->section == SEC_CRT_STORE) {
		tables = tables_crt_store;
		n = 1;
		obj = ps->crt_store;
	}
	if (l->n > 1 && str_is_eq(l->words[0], STR("no"))) {
		l->is_negated = true;
		l->at = 1;
	}
	l->kw = l->at;
	for (unsigned i = 0; i < n; i++)
		scopes[i] = (struct scope){ .table = tables[i], .obj = obj };
	r = keyword_dispatch(ps, l, ps->section, scopes, n);
	return r ? r : line_want_end(ps, l);
}

static int words_line(struct parser *ps, struct line *l)
{
	int r;

	if (str_is_eq(l->words[0], STR("include")))
		return include_line(ps, l);
	r = try_section(ps, l);

	if (r != -ENOENT)
		return r;
	if (ps->is_skipping)
		return 0;
	if (!ps->section)
		return fail_outside(ps, l);
	return keyword_line(ps, l);
}

/* 0 and -EINVAL both mean: go on with the next line. */
static int raw_line(struct parser *ps, struct str raw)
{
	struct str text = str_trim(raw);
	unsigned column;
	struct line *l;
	struct err err;
	int r;

	if (!text.len || text.p[0] == '#')
		return 0;
	if (!directive_is_active(ps) && text.p[0] != '.')
		return 0;
	l = arena_zalloc(&ps->arena, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->pos = (struct conf_pos){ .file = ps->file, .line = ps->line_no };
	r = lex_line(&ps->lexer, raw, l, &column, &err);
	if (r == -ENOMEM)
		return r;
	if (r) {
		l->pos.column = column;
		return directive_is_active(ps) ? conf_fail_pos(ps, &l->pos, "%s", err.text) : 0;
	}
	if (!l->n)
		return 0;
	if (str_is_prefix(l->words[0], STR(".")))
		return directive_line(ps, l);
	return words_line(ps, l);
}

int parser_lines(struct parser *ps, struct str text)
{
	bool has_newline = !text.len || text.p[text.len - 1] == '\n';
	int r = 0;

	ps->line_no = 0;
	while (text.p && text.len) {
		struct str line = str_cut(&text, '\n');

		ps->line_no++;
		r = raw_line(ps, line);
		if (r && r != -EINVAL)
			return r;
	}
	if (!has_newline) {
		struct conf_pos pos = { .file = ps->file, .line = ps->line_no, .column = 1 };

		r = report_at(ps, CONF_WARNING, &pos,
			      "the last line has no end: the file may have been cut off");
		if (r)
			return r;
	}
	r = directive_end_of_file(ps);
	return r == -ENOMEM ? r : 0;
}

int parser_text(struct parser *ps, struct str text)
{
	int r = parser_lines(ps, text);

	return r ? r : parser_end_section(ps);
}
