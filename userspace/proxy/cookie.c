/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Persistence by cookie: which server a client was on (request), and telling it where it is now
 * (response). Modes insert, prefix and rewrite; the third and fourth characters of the log's
 * termination code say what was found and done.
 */
#include <errno.h>

#include "proxy/worker_priv.h"

void persist_rules_run(struct stream *st)
{
	struct list *pos;

	list_for_each(pos, &st->be->persist_rules) {
		const struct conf_persist_rule *r = list_entry(pos, struct conf_persist_rule, link);

		if (cond_eval(r->cond, stream_subject(st)) <= 0)
			continue;
		st->flags |= r->is_force ? STREAM_FORCE_PERSIST : STREAM_IGNORE_PERSIST;
		return;
	}
}

#define DYNAMIC_LEN 16 /* hexadecimal digits */

static struct server *server_by_dynamic(const struct stream *st, struct str value)
{
	struct list *pos;
	struct server *s;
	unsigned n = 0;
	uint64_t v = 0;

	if (value.len != DYNAMIC_LEN)
		return NULL;
	for (size_t i = 0; i < DYNAMIC_LEN; i++) {
		const char *d = value.p[i] ? strchr("0123456789abcdef", value.p[i]) : NULL;

		if (!d)
			return NULL;
		v = v << 4 | (uint64_t)((d[0] <= '9' ? d[0] - '0' : d[0] - 'a' + 10));
	}
	list_for_each(pos, &st->be->servers) {
		s = lb_server_of(st->be_rt, list_entry(pos, struct conf_server, link));
		if (v && s && atomic_load_explicit(&s->dynamic_cookie, memory_order_relaxed) == v)
			return s;
	}
	for (; (s = lb_added_server(st->be_rt, &n)); n++)
		if (v && atomic_load_explicit(&s->dynamic_cookie, memory_order_relaxed) == v)
			return s;
	return NULL;
}

static bool has_cookie(const struct conf_server *cs, struct str value)
{
	return cs->cookie && str_is_eq(str_from_cstr(cs->cookie), value);
}

/* NULL: no server says so, or it is gone. */
static struct server *server_by_cookie(struct stream *st, struct str value)
{
	struct server *s = NULL;
	struct list *l;
	unsigned pos = 0;

	list_for_each(l, &st->be->servers) {
		const struct conf_server *cs = list_entry(l, struct conf_server, link);

		if (has_cookie(cs, value) && (s = lb_server_of(st->be_rt, cs)))
			return s;
	}
	for (; (s = lb_added_server(st->be_rt, &pos)); pos++)
		if (has_cookie(s->own->line, value))
			return s;
	return NULL;
}

/* One "name=value" pair of a Cookie field; `*rest` moves on. */
static struct str cookie_next(struct str *rest, struct str *ret_name, struct str *ret_value)
{
	struct str pair = str_trim(str_cut(rest, ';')), v = pair;

	*ret_name = str_trim(str_cut(&v, '='));
	*ret_value = v.p ? str_trim(v) : STR("");
	return pair;
}

/* The field without the pair at [from, from + pair.len): indirect mode, prefix mode. */
static int cookie_rewrite_field(struct stream *st, struct http_field *f, struct str skip,
				struct str replacement)
{
	char *out = arena_alloc(&st->arena, f->value.len + replacement.len + 3);
	struct str rest = f->value, name, value;
	size_t n = 0;

	if (!out)
		return -ENOMEM;
	while (rest.p) {
		struct str pair = cookie_next(&rest, &name, &value);

		if (pair.p == skip.p)
			pair = replacement;
		if (!pair.len)
			continue;
		if (n) {
			memcpy(out + n, "; ", 2);
			n += 2;
		}
		memcpy(out + n, pair.p, pair.len);
		n += pair.len;
	}
	if (!n)
		http_msg_del_field(&st->req, f);
	else
		f->value = str_make(out, n);
	return 0;
}

/* --- ages --------------------------------------------------------------------------------------------------
 *
 * With maxidle or maxlife the value is "id|last|first": when the client was last seen and when it got its
 * cookie, each in units of four seconds, 30 bits in five digits of base64, as HAProxy writes them.
 */
#define DATE_LEN     5
#define FUTURE_MAX_S 86400 /* clocks of a fleet differ; further away than this nobody's does */

static const char digits64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int64_t now_s(const struct stream *st)
{
	return (int64_t)(loop_wall(st->w->loop) / 1000000000u);
}

static void date_write(int64_t seconds, char out[DATE_LEN])
{
	uint32_t v = (uint32_t)((seconds + 3) >> 2);

	for (int i = 0; i < DATE_LEN; i++)
		out[i] = digits64[v >> (24 - 6 * i) & 63];
}

/* Seconds; 0: none. */
static int64_t date_read(struct str s)
{
	uint32_t v = 0;

	if (!s.p || s.len < DATE_LEN)
		return 0;
	for (int i = 0; i < DATE_LEN; i++) {
		const char *d = s.p[i] ? strchr(digits64, s.p[i]) : NULL;

		if (!d)
			return 0;
		v = v << 6 | (uint32_t)(d - digits64);
	}
	return (int64_t)v << 2;
}

/* Takes "|last|first" off the value. False: too old, term[2] says why. */
static bool cookie_read_dates(struct stream *st, struct str *id)
{
	const struct conf_cookie *c = &st->be->cookie;
	struct str rest = *id;
	int64_t now = now_s(st), age;

	*id = str_cut(&rest, '|');
	st->cookie_last = date_read(str_cut(&rest, '|'));
	st->cookie_first = date_read(rest);
	age = now - st->cookie_last;
	if (c->maxidle && st->cookie_last &&
	    (age > (int64_t)(c->maxidle / 1000000000u) || age < -FUTURE_MAX_S)) {
		st->term[2] = 'E';
		return false;
	}
	age = now - st->cookie_first;
	if (c->maxlife && st->cookie_first &&
	    (age > (int64_t)(c->maxlife / 1000000000u) || age < -FUTURE_MAX_S)) {
		st->term[2] = 'O';
		return false;
	}
	return true;
}

/* Does the client's cookie need other dates than it has? */
static bool cookie_is_stale(const struct stream *st)
{
	const struct conf_cookie *c = &st->be->cookie;

	if ((c->maxidle || st->cookie_last) && st->cookie_last < now_s(st))
		return true;
	return !c->maxlife != !st->cookie_first;
}

static struct str cookie_value(struct stream *st, struct str id)
{
	const struct conf_cookie *c = &st->be->cookie;
	char last[DATE_LEN], first[DATE_LEN];

	if (!c->maxidle && !c->maxlife)
		return id;
	date_write(now_s(st), last);
	date_write(st->cookie_first ? st->cookie_first - 3 : now_s(st), first);
	return arena_printf(&st->arena, STR_FMT "|%.*s%s%.*s", STR_ARG(id), DATE_LEN, last,
			    c->maxlife ? "|" : "", c->maxlife ? DATE_LEN : 0, first);
}

/* --- request ------------------------------------------------------------------------------------------------ */

static void cookie_found(struct stream *st, struct str id)
{
	struct server *s = server_by_cookie(st, id);

	if (!s)
		s = server_by_dynamic(st, id);
	if (!s) {
		st->term[2] = 'I';
		return;
	}
	if (!server_is_usable(s)) {
		st->term[2] = 'D';
		if (!stream_may_use_down(st))
			return;
	} else {
		st->term[2] = 'V';
	}
	st->force = s;
	st->flags |= STREAM_ASSIGNED;
}

void cookie_read_request(struct stream *st)
{
	const struct conf_cookie *c = &st->be->cookie;
	struct str want = str_from_cstr(c->name);

	st->term[2] = 'N';
	st->term[3] = 'N';
	for (unsigned i = 0; i < st->req.n_fields; i++) {
		struct http_field *f = &st->req.fields[i];
		struct str rest = f->value, name, value;

		if (f->id != HTTP_FIELD_COOKIE || f->is_removed)
			continue;
		while (rest.p) {
			struct str pair = cookie_next(&rest, &name, &value);
			struct str id = value, changed = STR("");
			size_t tilde;

			if (!str_is_eq(name, want))
				continue;
			if (c->prefix) {
				tilde = str_find_char(value, '~');
				if (tilde == SIZE_MAX)
					return;
				id = str_sub(value, 0, tilde);
				changed = arena_printf(&st->arena, STR_FMT "=" STR_FMT,
						       STR_ARG(name),
						       STR_ARG(str_from(value, tilde + 1)));
			} else if (!cookie_read_dates(st, &id)) {
				st->cookie_first = st->cookie_last = 0;
				id = STR_NULL;
			}
			if (id.p) {
				cookie_found(st, id);
				st->srv_cookie = id;
				st->flags |= STREAM_COOKIE_SEEN;
			}
			if ((c->prefix || (c->insert && c->indirect)) &&
			    cookie_rewrite_field(st, f, pair, changed))
				STREAM_COUNT(st, failed_rewrites, 1);
			return;
		}
	}
}

/* --- response --------------------------------------------------------------------------------------------- */

static int cookie_insert(struct stream *st, struct str value)
{
	const struct conf_cookie *c = &st->be->cookie;
	struct str dated = cookie_value(st, value);
	struct str line = arena_printf(&st->arena, "%s=" STR_FMT "; path=/%s%s%s%s%s", c->name,
				       STR_ARG(dated), c->domain ? "; domain=" : "",
				       c->domain ? c->domain : "", c->httponly ? "; HttpOnly" : "",
				       c->secure ? "; Secure" : "", c->attr ? c->attr : "");

	if (!dated.p)
		return -ENOMEM;
	return line.p ? http_msg_add(&st->rsp, STR("set-cookie"), line) : -ENOMEM;
}

/* Set-Cookie of the application with our cookie's name: prefix or rewrite its value. */
static int cookie_change_set_cookie(struct stream *st, struct str id, bool *ret_found)
{
	const struct conf_cookie *c = &st->be->cookie;
	struct str want = str_from_cstr(c->name);

	*ret_found = false;
	for (unsigned i = 0; i < st->rsp.n_fields; i++) {
		struct http_field *f = &st->rsp.fields[i];
		struct str rest = f->value, pair, value, name;

		if (f->id != HTTP_FIELD_SET_COOKIE || f->is_removed)
			continue;
		pair = str_cut(&rest, ';');
		value = pair;
		name = str_trim(str_cut(&value, '='));
		if (!str_is_eq(name, want))
			continue;
		*ret_found = true;
		if (c->insert) {
			/* `preserve`: the application's own choice stays. */
			if (!c->preserve)
				http_msg_del_field(&st->rsp, f);
			continue;
		}
		value = c->prefix
				? arena_printf(&st->arena,
					       STR_FMT "=" STR_FMT "~" STR_FMT "%s" STR_FMT,
					       STR_ARG(name), STR_ARG(id),
					       STR_ARG(value.p ? str_trim(value) : STR("")),
					       rest.p ? ";" : "", STR_ARG(rest.p ? rest : STR("")))
				: arena_printf(&st->arena, STR_FMT "=" STR_FMT "%s" STR_FMT,
					       STR_ARG(name), STR_ARG(id), rest.p ? ";" : "",
					       STR_ARG(rest.p ? rest : STR("")));
		if (!value.p)
			return -ENOMEM;
		f->value = value;
	}
	return 0;
}

/* What stands for the stream's server in the cookie; p NULL: nothing does. */
static struct str server_id(struct stream *st)
{
	uint64_t v;

	if (st->srv_conf && st->srv_conf->cookie)
		return str_from_cstr(st->srv_conf->cookie);
	if (!st->srv_conf)
		return STR_NULL;
	v = atomic_load_explicit(&st->srv->dynamic_cookie, memory_order_relaxed);
	return v ? arena_printf(&st->arena, "%016llx", (unsigned long long)v) : STR_NULL;
}

int cookie_edit_response(struct stream *st)
{
	const struct conf_cookie *c = &st->be->cookie;
	struct str id = server_id(st);
	bool found;
	int r;

	if (!id.p)
		return 0;
	r = cookie_change_set_cookie(st, id, &found);
	if (r)
		return r;
	if (found)
		st->term[3] = c->insert ? (c->preserve ? 'P' : 'D') : 'R';
	if (!c->insert || (found && c->preserve) || st->flags & STREAM_IGNORE_PERSIST)
		return 0;
	/* The client has it already and is where it says. */
	if (st->flags & STREAM_COOKIE_SEEN && str_is_eq(st->srv_cookie, id) && !cookie_is_stale(st))
		return 0;
	if (c->postonly && st->req.method != HTTP_METHOD_POST)
		return 0;
	st->term[3] = st->flags & STREAM_COOKIE_SEEN && st->term[2] == 'V' ? 'U' : 'I';
	r = cookie_insert(st, id);
	/* What no cache keeps needs no word about it. */
	if (!r && c->nocache && rsp_may_be_kept(st))
		r = http_msg_add(&st->rsp, STR("cache-control"), STR("private"));
	return r;
}
