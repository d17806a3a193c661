/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `headgate check --explain`: what a configuration comes to. For each section the rules in the order in which
 * they run, what it has from its defaults and who leads to it; then what nobody uses, and which tier
 * does what. One description in two notations: lines for people, JSON for programs. Any thread.
 */
#include <stdlib.h>

#include "base/json.h"
#include "conf/conf_priv.h"

/* --- notation --- */

struct out {
	FILE *f;
	bool is_json, has_item;
	unsigned depth;
};

static void item_begin(struct out *o, const char *name)
{
	if (o->is_json && o->has_item)
		fputs(",", o->f);
	if (o->is_json && o->depth)
		putc('\n', o->f);
	fprintf(o->f, "%*s", (int)(2 * o->depth), "");
	if (name && o->is_json) {
		putc('"', o->f);
		for (; *name; name++)
			putc(*name == ' ' ? '_' : *name, o->f);
		fputs("\": ", o->f);
	} else if (name)
		fprintf(o->f, "%s: ", name);
	o->has_item = true;
}

static void nest(struct out *o, const char *name, char open)
{
	if (o->is_json) {
		item_begin(o, name);
		putc(open, o->f);
		o->has_item = false;
		o->depth++;
		return;
	}
	if (name) {
		fprintf(o->f, "%*s%s:\n", (int)(2 * o->depth), "", name);
		o->depth++;
	}
}

/* `name` as given to nest(). */
static void unnest(struct out *o, const char *name, char close)
{
	if (o->is_json) {
		o->depth--;
		fprintf(o->f, "\n%*s%c", (int)(2 * o->depth), "", close);
		o->has_item = true;
	} else if (name) {
		o->depth--;
	}
}

static void put_text(struct out *o, const char *name, const char *text)
{
	item_begin(o, name);
	if (o->is_json)
		json_put_str(o->f, str_from_cstr(text));
	else
		fprintf(o->f, "%s\n", text);
}

/* A thing and where it is written. */
static void put_placed(struct out *o, const char *kind, const char *text,
		       const struct conf_pos *pos, const struct conf_pos *defaults)
{
	item_begin(o, NULL);
	if (!o->is_json) {
		fprintf(o->f, "%s%s%s  (%s:%u%s)\n", kind ? kind : "", kind ? " " : "", text,
			pos->file, pos->line, defaults ? ", from defaults" : "");
		return;
	}
	fputs("{ ", o->f);
	if (kind) {
		fputs("\"kind\": ", o->f);
		json_put_str(o->f, str_from_cstr(kind));
		fputs(", ", o->f);
	}
	fputs("\"text\": ", o->f);
	json_put_str(o->f, str_from_cstr(text));
	fputs(", \"file\": ", o->f);
	json_put_str(o->f, str_from_cstr(pos->file));
	fprintf(o->f, ", \"line\": %u, \"from_defaults\": %s }", pos->line,
		defaults ? "true" : "false");
}

/* --- sections --- */

static const char *kind_of(const struct conf_proxy *px)
{
	static const char *const kinds[] = { "?", "frontend", "backend", "listen" };

	return kinds[px->caps & 3];
}

static const char *tier_of(const struct conf_proxy *px)
{
	static const char *const tiers[] = { [CONF_MODE_TCP] = "worker (TCP)",
					     [CONF_MODE_HTTP] = "worker (HTTP)",
					     [CONF_MODE_L4] = "XDP" };

	return tiers[px->mode];
}

static const char *text_of_use(struct arena *a, const char *what, const char *name, bool has_cond)
{
	struct str s = arena_printf(a, "%s %s%s", what, name,
				    has_cond ? ", if its condition holds" : "");

	return s.p ? s.p : name;
}

/* The lists as the proxy runs them: those of the frontend, its choice of a backend, the answer's. */
static void put_rules(struct out *o, const struct conf_proxy *px)
{
	static const uint8_t before[] = { RULES_TCP_CONNECTION, RULES_TCP_SESSION,
					  RULES_TCP_CONTENT, RULES_HTTP_REQUEST };
	static const uint8_t after[] = { RULES_TCP_RESPONSE, RULES_HTTP_RESPONSE,
					 RULES_HTTP_AFTER_RESPONSE };
	struct arena arena;
	struct list *p;

	arena_init(&arena, 2048);
	nest(o, "runs in this order", '[');
	for (unsigned half = 0; half < 2; half++) {
		const uint8_t *sets = half ? after : before;

		for (unsigned i = 0; i < (half ? ARRAY_SIZE(after) : ARRAY_SIZE(before)); i++) {
			list_for_each(p, &px->rules[sets[i]]) {
				const struct conf_rule *r = list_entry(p, struct conf_rule, link);

				put_placed(o, NULL, r->text, &r->pos,
					   r->is_inherited ? &px->pos : NULL);
			}
		}
		if (half)
			break;
		list_for_each(p, &px->use_backends) {
			const struct conf_use_backend *u = list_entry(p, struct conf_use_backend,
								      link);

			put_placed(o, NULL, text_of_use(&arena, "use_backend", u->text, u->cond),
				   &u->pos, NULL);
		}
		if (px->default_backend)
			put_placed(o, NULL,
				   text_of_use(&arena, "default_backend", px->default_backend->name,
					       false),
				   &px->pos, NULL);
		list_for_each(p, &px->use_servers) {
			const struct conf_use_server *u = list_entry(p, struct conf_use_server,
								     link);

			put_placed(o, NULL, text_of_use(&arena, "use-server", u->text, u->cond),
				   &u->pos, NULL);
		}
	}
	unnest(o, "runs in this order", ']');
	arena_free(&arena);
}

static void put_inherited_table(struct out *o, const char *prefix, const struct keyword_table *t,
				const struct conf_proxy *px)
{
	for (unsigned i = 0; i < t->n; i++) {
		char *text = NULL;
		size_t n = 0;
		FILE *mem;

		if (t->rows[i].grade == 'n' || !conf_row_is_same(&t->rows[i], px, px->defaults))
			continue;
		mem = open_memstream(&text, &n);
		if (!mem)
			continue;
		conf_dump_row(mem, prefix, &t->rows[i], px);
		fclose(mem);
		if (n && text[n - 1] == '\n')
			text[n - 1] = '\0';
		if (n)
			put_text(o, NULL, text);
		free(text); /* lint: libc memory, open_memstream's */
	}
}

static void put_defaults(struct out *o, const struct conf_proxy *px)
{
	const struct conf_proxy *d = px->defaults;
	char text[400];

	if (!d)
		return;
	snprintf(text, sizeof(text), "%s%s(%s:%u)", d->name ? d->name : "", d->name ? " " : "",
		 d->pos.file, d->pos.line);
	put_text(o, "defaults", text);
	nest(o, "has from there", '[');
	put_inherited_table(o, "", &conf_kw_proxy, px);
	put_inherited_table(o, "timeout ", &conf_kw_timeout, px);
	put_inherited_table(o, "rate-limit ", &conf_kw_rate_limit, px);
	if (px->caps & CONF_CAP_BACKEND)
		put_inherited_table(o, "", &conf_kw_balance, px);
	for (unsigned i = 0; i < CONF_OPT_COUNT; i++) {
		snprintf(text, sizeof(text), "option %s", conf_option_name(i));
		if (px->options & d->options & 1ull << i)
			put_text(o, NULL, text);
	}
	unnest(o, "has from there", ']');
}

/* --- who leads where --- */

static bool leads_to(const struct conf_proxy *from, const struct conf_proxy *to)
{
	struct list *p;

	if (from->default_backend == to)
		return true;
	list_for_each(p, &from->use_backends) {
		if (list_entry(p, struct conf_use_backend, link)->backend == to)
			return true;
	}
	return false;
}

static bool has_dynamic(const struct conf *c)
{
	struct list *p, *q;

	list_for_each(p, &c->proxies) {
		list_for_each(q, &list_entry(p, struct conf_proxy, link)->use_backends) {
			if (list_entry(q, struct conf_use_backend, link)->name)
				return true;
		}
	}
	return false;
}

static bool is_reached(const struct conf *c, const struct conf_proxy *px)
{
	struct list *p;

	/* Its own frontend, or only there for its stick table. */
	if (px->caps & CONF_CAP_FRONTEND || (px->stick_table && !px->n_servers))
		return true;
	list_for_each(p, &c->proxies) {
		if (leads_to(list_entry(p, struct conf_proxy, link), px))
			return true;
	}
	return false;
}

static void put_section(struct out *o, const struct conf *c, const struct conf_proxy *px)
{
	char text[400];
	struct list *p;

	snprintf(text, sizeof(text), "%s %s", kind_of(px), px->name);
	if (o->is_json)
		nest(o, NULL, '{');
	else
		nest(o, text, '{');
	if (o->is_json) {
		put_text(o, "kind", kind_of(px));
		put_text(o, "name", px->name);
	}
	snprintf(text, sizeof(text), "%s:%u", px->pos.file, px->pos.line);
	put_text(o, "written in", text);
	put_text(o, "runs in", tier_of(px));
	if (px->caps & CONF_CAP_BACKEND && !(px->caps & CONF_CAP_FRONTEND)) {
		nest(o, "used by", '[');
		list_for_each(p, &c->proxies) {
			const struct conf_proxy *from = list_entry(p, struct conf_proxy, link);

			if (leads_to(from, px))
				put_text(o, NULL, from->name);
		}
		unnest(o, "used by", ']');
	}
	put_defaults(o, px);
	put_rules(o, px);
	unnest(o, "section", '}');
	if (!o->is_json)
		putc('\n', o->f);
}

static void put_unused(struct out *o, const struct conf *c)
{
	bool is_dynamic = has_dynamic(c);
	struct list *p;

	nest(o, "unused backends", '[');
	list_for_each(p, &c->proxies) {
		const struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		if (!is_reached(c, px))
			put_placed(o,
				   is_dynamic ? "(unless a 'use_backend %[…]' gives its name)"
					      : NULL,
				   px->name, &px->pos, NULL);
	}
	unnest(o, "unused backends", ']');
	nest(o, "unused ACLs", '[');
	list_for_each(p, &c->proxies) {
		const struct conf_proxy *px = list_entry(p, struct conf_proxy, link);
		struct acl_use u;

		for (unsigned i = 0; acl_set_use(px->acls, i, &u); i++) {
			struct conf_pos pos = { .file = u.file ? u.file : px->pos.file,
						.line = u.line };

			if (!u.is_used)
				put_placed(o, px->name, u.name.p, &pos, NULL);
		}
	}
	unnest(o, "unused ACLs", ']');
}

/* --- tiers --- */

static void put_tier(struct out *o, const struct conf *c, const char *name, bool is_xdp)
{
	char text[400];
	struct list *p;

	nest(o, name, '[');
	list_for_each(p, &c->proxies) {
		const struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		if ((px->mode == CONF_MODE_L4) != is_xdp)
			continue;
		snprintf(text, sizeof(text), "%s %s", kind_of(px), px->name);
		put_text(o, NULL, text);
	}
	unnest(o, name, ']');
}

static void put_control(struct out *o, const struct conf *c)
{
	unsigned n = 0;
	char text[400];
	struct list *p, *q;

	list_for_each(p, &c->proxies) {
		list_for_each(q, &list_entry(p, struct conf_proxy, link)->servers)
			n += list_entry(q, struct conf_server, link)->has_check;
	}
	nest(o, "control", '[');
	snprintf(text, sizeof(text), "health checks: %u", n);
	put_text(o, NULL, text);
	list_for_each(p, &c->global.stats_sockets) {
		snprintf(text, sizeof(text), "runtime API at %s",
			 list_entry(p, struct conf_stats_socket, link)->text);
		put_text(o, NULL, text);
	}
	unnest(o, "control", ']');
}

void conf_explain(const struct conf *c, bool is_json, FILE *out)
{
	struct out o = { .f = out, .is_json = is_json };
	struct list *p;

	nest(&o, NULL, '{');
	if (is_json)
		nest(&o, "sections", '[');
	list_for_each(p, &c->proxies)
		put_section(&o, c, list_entry(p, struct conf_proxy, link));
	if (is_json)
		unnest(&o, "sections", ']');
	put_unused(&o, c);
	put_tier(&o, c, "XDP", true);
	put_tier(&o, c, "worker", false);
	put_control(&o, c);
	unnest(&o, NULL, '}');
	if (is_json)
		putc('\n', out);
}
