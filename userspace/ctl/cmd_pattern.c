/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `show|get|add|del|set|clear|prepare|commit map|acl`, in HAProxy's words, and `get var`, `set var`. A
 * change is visible to traffic when its command is answered. Control thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/cmd_rows.h"

struct pattern_cmd {
	struct cmd *c;
	bool is_map;
	bool has_version;
	uint32_t version; /* of "@<n>", else the one that traffic sees */
	unsigned at; /* first argument behind the name */
	struct pat_ref *ref;
};

static void pattern_later(void *ctx, void (*call)(void *arg), void *arg)
{
	struct ctl *ctl = ctx;

	quiesce_after(&ctl->registry, call, arg);
}

int ctl_publish_patterns(struct ctl *ctl, struct pat_ref *ref, struct err *err)
{
	struct pat_defer d = { .later = pattern_later, .ctx = ctl };

	return pat_ref_publish(ref, &d, err);
}

void ctl_sync_patterns(struct deferred *d)
{
	struct ctl *ctl = container_of(d, struct ctl, pattern_sync);
	struct pat_ref *ref = NULL;
	struct err err = { "" };

	/* Those without changes cost a look. */
	while ((ref = pat_ref_next(ctl->current->conf->pat_refs, ref))) {
		if (ctl_publish_patterns(ctl, ref, &err))
			log_msg(LOG_LVL_WARNING,
				"out of memory: changes of a map or ACL have to wait");
	}
}

void ctl_edit_pattern(struct mail *m)
{
	struct pattern_edit *e = container_of(m, struct pattern_edit, mail);
	struct ctl *ctl = e->owner;
	struct pat_ref *ref = pat_ref_find(ctl->current->conf->pat_refs, e->file, e->is_map);
	struct err err = { "" };
	int r = 0;

	/* A reload may have taken the list away. */
	if (ref && e->kind == PATTERN_SET)
		r = pat_ref_set(ref, e->key, e->value, &err);
	else if (ref && e->kind == PATTERN_DEL)
		r = pat_ref_del(ref, e->key);
	/* An ACL has each pattern once, however many requests add it. */
	if (ref &&
	    (e->kind == PATTERN_ADD ? !pat_ref_has(ref, e->key) : e->kind == PATTERN_SET && r == 0))
		r = pat_ref_add(ref, pat_ref_info(ref).curr, e->key, e->value, &err);
	if (ref)
		loop_defer(ctl->loop, &ctl->pattern_sync);
	/* What a client sends need not be a pattern: no line of log for each. */
	ctl->n_bad_patterns += r < 0;
	atomic_fetch_sub_explicit(&ctl->shared.pattern_edits, 1, memory_order_relaxed);
	mem_free(e);
}

static void pattern_publish(const struct pattern_cmd *p)
{
	struct err err = { "" };

	if (ctl_publish_patterns(p->c->ctl, p->ref, &err))
		cmd_say(p->c, "Out of memory: the change is not visible yet.");
}

/* "[@<version>] <name>". False: answered. */
static bool pattern_open(struct cmd *c, struct pattern_cmd *p)
{
	const char *name = cmd_arg(c, 0);
	uint64_t v;

	*p = (struct pattern_cmd){ .c = c, .is_map = strcmp(c->argv[c->n_words - 1], "map") == 0 };
	if (name && name[0] == '@' && str_to_u64(str_from_cstr(name + 1), &v) == 0 &&
	    v <= UINT32_MAX) {
		p->has_version = true;
		p->version = (uint32_t)v;
		name = cmd_arg(c, ++p->at);
	}
	p->at++;
	if (name)
		p->ref = pat_ref_find(c->ctl->current->conf->pat_refs, str_from_cstr(name),
				      p->is_map);
	if (!p->ref) {
		cmd_say(c, "Unknown %s identifier. Please use #<id> or <file>.",
			p->is_map ? "map" : "ACL");
		return false;
	}
	if (!p->has_version)
		p->version = pat_ref_info(p->ref).curr;
	return true;
}

static const char *pattern_arg(const struct pattern_cmd *p, unsigned i)
{
	return cmd_arg(p->c, p->at + i);
}

/* How many arguments there are besides the version. */
static unsigned arg_count(const struct cmd *c)
{
	unsigned n = c->argc - c->n_words;

	return n && cmd_arg(c, 0)[0] == '@' ? n - 1 : n;
}

/* --- looking ---------------------------------------------------------------------------------------------- */

static void print_entry(void *ctx, const void *id, struct str key, struct str value)
{
	FILE *out = ctx;

	fprintf(out, "%p " STR_FMT, id, STR_ARG(key));
	if (value.p)
		fprintf(out, " " STR_FMT, STR_ARG(value));
	putc('\n', out);
}

static void list_patterns(struct cmd *c, bool is_map)
{
	struct pat_ref *r = NULL;

	fputs("# id (file) description\n", c->out);
	while ((r = pat_ref_next(c->ctl->current->conf->pat_refs, r))) {
		struct pat_ref_info i = pat_ref_info(r);

		if (is_map ? !i.is_map : !i.is_acl)
			continue;
		fprintf(c->out, "%u (" STR_FMT ") ", i.id, STR_ARG(i.name));
		if (i.name.len)
			fprintf(c->out, "pattern loaded from file '" STR_FMT "'", STR_ARG(i.name));
		fprintf(c->out, STR_FMT ". curr_ver=%u next_ver=%u entry_cnt=%u\n",
			STR_ARG(i.about), i.curr, i.next, i.n);
	}
}

int cmd_show_pattern(struct cmd *c)
{
	struct pattern_cmd p;

	if (!cmd_arg(c, 0))
		list_patterns(c, strcmp(c->argv[c->n_words - 1], "map") == 0);
	else if (pattern_open(c, &p))
		pat_ref_each(p.ref, p.version, print_entry, c->out);
	return 0;
}

struct lookup_ctx {
	FILE *out;
	bool is_map;
};

static void print_lookup(void *ctx, const struct pat_lookup *f)
{
	const struct lookup_ctx *l = ctx;

	fprintf(l->out, "type=%s, case=%s, %s=%s", f->match, f->icase ? "insensitive" : "sensitive",
		l->is_map ? "found" : "match", f->is_found ? "yes" : "no");
	if (f->is_found)
		fprintf(l->out, ", idx=%s, %s=\"" STR_FMT "\"", f->is_tree ? "tree" : "list",
			l->is_map ? "key" : "pattern", STR_ARG(f->key));
	if (f->is_found && l->is_map)
		fprintf(l->out, ", value=\"" STR_FMT "\", type=\"str\"", STR_ARG(f->value));
	putc('\n', l->out);
}

int cmd_get_pattern(struct cmd *c)
{
	struct lookup_ctx l = { .out = c->out };
	struct pattern_cmd p;

	if (!cmd_arg(c, 0) || !cmd_arg(c, 1)) {
		cmd_say(c, "Missing %s identifier and/or key.",
			strcmp(c->argv[c->n_words - 1], "map") == 0 ? "map" : "ACL");
	} else if (pattern_open(c, &p)) {
		l.is_map = p.is_map;
		pat_ref_lookup(p.ref, str_from_cstr(pattern_arg(&p, 0)), print_lookup, &l);
	}
	return 0;
}

/* --- changing --------------------------------------------------------------------------------------------- */

/* Lines "<key> <value>", or patterns. Stops at the first that is wrong; what came before it stays. */
static void add_payload(const struct pattern_cmd *p, struct str text)
{
	struct err err = { "" };

	for (unsigned line = 1; text.p; line++) {
		struct str rest = str_trim(str_cut(&text, '\n')), key = rest;
		size_t i = 0;

		if (!rest.len)
			continue;
		while (p->is_map && i < rest.len && rest.p[i] != ' ' && rest.p[i] != '\t')
			i++;
		if (p->is_map) {
			key = str_sub(rest, 0, i);
			rest = str_trim(str_from(rest, i));
			if (!rest.len) {
				cmd_say(p->c, "Missing value in line %u of the payload.", line);
				return;
			}
		}
		if (pat_ref_add(p->ref, p->version, key, rest, &err)) {
			cmd_say(p->c, "%s (line %u of the payload)", err.text, line);
			return;
		}
	}
}

int cmd_add_pattern(struct cmd *c)
{
	bool is_map = strcmp(c->argv[c->n_words - 1], "map") == 0;
	unsigned n = arg_count(c);
	struct err err = { "" };
	struct pattern_cmd p;

	if (c->payload ? n != 1 : n < (is_map ? 3 : 2)) {
		cmd_say(c,
			is_map ? "'add map' expects three parameters (map identifier, key and "
				 "value) or one parameter (map identifier) and a payload"
			       : "'add acl' expects two parameters: ACL identifier and pattern.");
		return 0;
	}
	if (!pattern_open(c, &p))
		return 0;
	if (c->payload)
		add_payload(&p, str_from_cstr(c->payload));
	else if (pat_ref_add(p.ref, p.version, str_from_cstr(pattern_arg(&p, 0)),
			     str_from_cstr(is_map ? pattern_arg(&p, 1) : NULL), &err))
		cmd_say(c, "%s", err.text);
	pattern_publish(&p);
	return 0;
}

int cmd_del_pattern(struct cmd *c)
{
	struct pattern_cmd p;
	int n;

	if (arg_count(c) < 2) {
		cmd_say(c, "This command expects two parameters: %s identifier and key.",
			strcmp(c->argv[c->n_words - 1], "map") == 0 ? "map" : "ACL");
		return 0;
	}
	if (!pattern_open(c, &p))
		return 0;
	n = pat_ref_del(p.ref, str_from_cstr(pattern_arg(&p, 0)));
	if (n <= 0)
		cmd_say(c, n ? "Out of memory." : "Key not found.");
	pattern_publish(&p);
	return 0;
}

int cmd_set_map(struct cmd *c)
{
	struct err err = { "Out of memory." };
	struct pattern_cmd p;
	int n;

	if (arg_count(c) < 3) {
		cmd_say(c, "'set map' expects three parameters: map identifier, key and value.");
		return 0;
	}
	if (!pattern_open(c, &p))
		return 0;
	n = pat_ref_set(p.ref, str_from_cstr(pattern_arg(&p, 0)), str_from_cstr(pattern_arg(&p, 1)),
			&err);
	if (n <= 0)
		cmd_say(c, "%s", n ? err.text : "entry not found.");
	pattern_publish(&p);
	return 0;
}

int cmd_clear_pattern(struct cmd *c)
{
	struct pattern_cmd p;

	if (!pattern_open(c, &p))
		return 0;
	pat_ref_clear(p.ref, p.version);
	pattern_publish(&p);
	return 0;
}

int cmd_prepare_pattern(struct cmd *c)
{
	struct pattern_cmd p;

	if (pattern_open(c, &p))
		cmd_tell(c, "New version created: %u", pat_ref_prepare(p.ref));
	return 0;
}

int cmd_commit_pattern(struct cmd *c)
{
	struct err err = { "" };
	struct pattern_cmd p;

	if (!cmd_arg(c, 0) || cmd_arg(c, 0)[0] != '@') {
		cmd_say(c, "Missing version number.");
		return 0;
	}
	if (!pattern_open(c, &p))
		return 0;
	if (pat_ref_commit(p.ref, p.version, &err))
		cmd_say(c, "%s", err.text);
	pattern_publish(&p);
	return 0;
}

/* --- variables of the process ------------------------------------------------------------------------------ */

static const char *const type_words[] = {
	[SAMPLE_BOOL] = "bool", [SAMPLE_SINT] = "sint", [SAMPLE_ADDR] = "ip",
	[SAMPLE_STR] = "str",	[SAMPLE_BIN] = "bin",	[SAMPLE_METH] = "meth",
};

static bool proc_var(struct cmd *c, uint32_t *ret_id)
{
	enum var_scope scope;
	struct err err;

	if (!cmd_arg(c, 0)) {
		cmd_say(c, "Missing process-wide variable identifier.");
		return false;
	}
	if (vars_intern(str_from_cstr(cmd_arg(c, 0)), &scope, ret_id, &err)) {
		cmd_say(c, "%s", err.text);
		return false;
	}
	if (scope != VAR_PROC) {
		cmd_say(c, "Only process-wide variables are supported ('proc.…').");
		return false;
	}
	return true;
}

int cmd_get_var(struct cmd *c)
{
	struct arena arena;
	struct sample v;
	const char *type;
	uint32_t id;

	if (!proc_var(c, &id))
		return 0;
	arena_init(&arena, 2048);
	if (vars_proc_get(id, &arena, &v)) {
		cmd_say(c, "Variable not found.");
	} else {
		type = v.type == SAMPLE_ADDR && v.addr.sa.sa_family == AF_INET ? "ipv4"
		       : v.type == SAMPLE_ADDR				       ? "ipv6"
									       : type_words[v.type];
		if (sample_cast(&v, SAMPLE_STR, &arena) == 0)
			cmd_data(c, "%s: type=%s value=<" STR_FMT ">", cmd_arg(c, 0), type,
				 STR_ARG(v.str));
	}
	arena_free(&arena);
	return 0;
}

/* set var <name> expr <expression> | fmt <format> */
int cmd_set_var(struct cmd *c)
{
	const char *kind = cmd_arg(c, 1), *text = cmd_arg(c, 2);
	struct expr_owned *owned = NULL;
	struct sample v = { .type = SAMPLE_STR };
	struct err err = { "out of memory" };
	struct logfmt *fmt;
	struct expr *expr;
	struct arena arena;
	uint32_t id;
	size_t at;
	int r;

	if (!proc_var(c, &id))
		return 0;
	if (!kind || !text || (strcmp(kind, "expr") != 0 && strcmp(kind, "fmt") != 0)) {
		cmd_say(c,
			"'set var': the variable must be followed by 'expr' or 'fmt' and a value.");
		return 0;
	}
	arena_init(&arena, 4096);
	{
		struct expr_env env = { .arena = &arena, .place = PLACE_INIT, .owned = &owned };
		struct subject s = { .arena = &arena,
				     .wall_ns = loop_wall(c->ctl->loop),
				     .start_wall_ns = c->ctl->start_wall_ns };

		if (kind[0] == 'f') {
			r = logfmt_compile(&env, str_from_cstr(text), &fmt, &at, &err);
			if (r == 0)
				v.str = logfmt_eval_str(fmt, &s);
		} else {
			r = expr_compile(&env, str_from_cstr(text), &expr, &at, &err);
			if (r == 0 && expr_eval(expr, &s, &v))
				r = err_set(&err, -EINVAL, "the expression has no value");
		}
	}
	if (r == 0 && vars_proc_set(id, &v))
		r = err_set(&err, -EINVAL, "the value is too long");
	if (r)
		cmd_say(c, "'set var': %s", err.text);
	expr_owned_free(&owned);
	arena_free(&arena);
	return 0;
}
