/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The worker's side of a request that control answers: who may ask, the question, waiting for it, and
 * sending what came back. Called by the stream's driver and by rules; the worker's thread, but for
 * service_answer() and deliver_question().
 */
#include <errno.h>

#include "proxy/service.h"

#include "proxy/worker_priv.h"

/* Control may be busy with a reload, never for that long. */
#define SERVICE_WAIT_NS 10000000000ull
/* Vectors written before other streams get their turn. */
#define SERVICE_TURNS 4

/* --- calls --------------------------------------------------------------------------------------- */

static void call_free(struct service_call *c)
{
	c->w->n_service_calls--;
	if (c->held)
		atomic_fetch_sub_explicit(&c->w->o.shared->service_bytes, c->held,
					  memory_order_relaxed);
	service_text_free(&c->body);
	arena_free(&c->arena);
	mem_free(c);
}

static void deliver_answer(struct mail *m)
{
	struct service_call *c = container_of(m, struct service_call, mail);

	c->is_away = false;
	c->is_answered = true;
	if (c->st)
		stream_resume_later(c->st);
	else
		call_free(c);
}

static void deliver_question(struct mail *m)
{
	struct service_call *c = container_of(m, struct service_call, mail);

	c->w->o.on_service(c);
}

void service_answer(struct service_call *c)
{
	c->held = c->body.len;
	atomic_fetch_add_explicit(&c->w->o.shared->service_bytes, c->held, memory_order_relaxed);
	c->mail.deliver = deliver_answer;
	mailbox_send(&c->w->mailbox, &c->mail);
}

static void call_ask(struct service_call *c)
{
	c->is_away = true;
	c->mail.deliver = deliver_question;
	mailbox_send(c->w->o.control, &c->mail);
}

void service_cancel(struct stream *st)
{
	struct service_call *c = st->call;

	st->call = NULL;
	if (!c)
		return;
	c->st = NULL;
	if (!c->is_away)
		call_free(c);
}

static struct str field_copy(struct service_call *c, const struct http_msg *m, struct str name)
{
	const struct http_field *f = http_msg_find_name(m, name, 0);

	return f ? arena_str(&c->arena, f->value) : STR_NULL;
}

static struct service_call *call_new(struct stream *st, enum service_kind kind)
{
	struct service_call *c = mem_zalloc(sizeof(*c));

	if (!c)
		return NULL;
	c->w = st->w;
	c->kind = (uint8_t)kind;
	c->method = st->req.method;
	list_init(&c->link);
	arena_init(&c->arena, 1024);
	c->w->n_service_calls++;
	c->path = arena_str(&c->arena, st->req.path);
	c->host = arena_str(&c->arena, http_msg_host(&st->req));
	c->origin = field_copy(c, &st->req, STR("origin"));
	if (!c->path.p) {
		call_free(c);
		return NULL;
	}
	c->st = st;
	st->call = c;
	return c;
}

/* From here on the request belongs to a service: counted, logged as `<STATS>` with LR. */
static enum step service_begin(struct stream *st, enum service_kind kind)
{
	ctr_add(&st->fe_ctr->intercepted, 1);
	stream_blame(st, 'L');
	st->flags |= STREAM_SERVICE;
	if (!st->w->o.on_service)
		return stream_answer_status(st, 501);
	if (st->w->n_service_calls >= SERVICE_MAX_PER_WORKER)
		return stream_answer_status(st, 503);
	if (!call_new(st, kind)) {
		ctr_add(&st->w->ctr->alloc_failures, 1);
		return stream_answer_status(st, 503);
	}
	st->deadline_ns = loop_now(st->w->loop) + SERVICE_WAIT_NS;
	return stream_go(st, PHASE_SERVICE);
}

enum step service_start_prometheus(struct stream *st)
{
	return service_begin(st, SERVICE_PROMETHEUS);
}

/* --- the statistics page ------------------------------------------------------------------------- */

bool service_is_stats(const struct stream *st, const struct conf_proxy *px)
{
	return px->stats.is_enabled && str_is_prefix(st->req.path, str_from_cstr(px->stats.uri));
}

static size_t b64_put(char *out, struct str s)
{
	static const char abc[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t n = 0;

	for (size_t i = 0; i < s.len; i += 3) {
		size_t left = s.len - i;
		uint32_t v = (uint32_t)(uint8_t)s.p[i] << 16;

		v |= left > 1 ? (uint32_t)(uint8_t)s.p[i + 1] << 8 : 0;
		v |= left > 2 ? (uint8_t)s.p[i + 2] : 0;
		out[n++] = abc[v >> 18];
		out[n++] = abc[v >> 12 & 63];
		out[n++] = left > 1 ? abc[v >> 6 & 63] : '=';
		out[n++] = left > 2 ? abc[v & 63] : '=';
	}
	return n;
}

/* Takes the same time wherever the difference is. */
static bool is_same_secret(struct str a, struct str b)
{
	unsigned diff = a.len != b.len;

	for (size_t i = 0; i < a.len; i++)
		diff |= (unsigned)(uint8_t)a.p[i] ^ (b.len ? (uint8_t)b.p[i % b.len] : 1u);
	return !diff;
}

static bool stats_may_see(struct stream *st, const struct conf_stats_page *page)
{
	const struct http_field *f = http_msg_find(&st->req, HTTP_FIELD_AUTHORIZATION, 0);
	struct str given = f ? f->value : STR(""), scheme;
	bool ok = list_is_empty(&page->auths);
	struct list *pos;

	scheme = str_cut(&given, ' ');
	if (!str_is_case_eq(scheme, STR("basic")))
		return ok;
	given = str_trim(given);
	list_for_each(pos, &page->auths) {
		const struct conf_stats_auth *a = list_entry(pos, struct conf_stats_auth, link);
		struct str plain = arena_printf(&st->arena, "%s:%s", a->user, a->password);
		char *text = plain.p ? arena_alloc(&st->arena, plain.len / 3 * 4 + 8) : NULL;

		if (text)
			ok |= is_same_secret(given, str_make(text, b64_put(text, plain)));
	}
	return ok;
}

static enum step stats_refuse(struct stream *st, const struct conf_stats_page *page)
{
	struct str challenge = arena_printf(&st->arena, "Basic realm=\"%s\"",
					    page->realm ? page->realm : "HAProxy Statistics");

	STREAM_COUNT(st, req_denied, 1);
	st->flags |= STREAM_SERVICE;
	stream_blame(st, 'P');
	if (!challenge.p)
		return stream_fail(st, 'R', 500);
	answer_of_status(st, 401);
	answer_field(st, "www-authenticate", challenge);
	return answer_send(st);
}

static bool stats_is_admin(struct stream *st, const struct conf_stats_page *page)
{
	if (!page->has_admin)
		return false;
	return !page->admin_if || cond_eval(page->admin_if, stream_subject(st)) > 0;
}

/* The configuration is the worker's to read: the names are copied. False: out of memory. */
static bool stats_scopes(struct service_call *c, const struct conf_proxy *px)
{
	struct str all = STR("\n");
	struct list *pos;

	if (list_is_empty(&px->stats.scopes))
		return true;
	list_for_each(pos, &px->stats.scopes) {
		const char *name = list_entry(pos, struct conf_stats_scope, link)->name;

		all = arena_printf(&c->arena, STR_FMT "%s\n", STR_ARG(all),
				   strcmp(name, ".") == 0 ? px->name : name);
		if (!all.p)
			return false;
	}
	c->scopes = all;
	return true;
}

enum step service_start_stats(struct stream *st, const struct conf_proxy *px)
{
	const struct conf_stats_page *page = &px->stats;
	struct service_call *c;
	enum step s;

	switch (rules_run_stats(st, px, &s)) {
	case RULE_STEP:
		return s;
	case RULE_ACCEPT:
		break;
	default:
		if (!stats_may_see(st, page))
			return stats_refuse(st, page);
	}
	s = service_begin(st, SERVICE_STATS);
	c = st->call;
	if (!c || st->phase != PHASE_SERVICE)
		return s;
	c->uri = arena_str(&c->arena, str_from_cstr(page->uri));
	c->desc = arena_str(&c->arena, str_from_cstr(page->desc));
	c->node = arena_str(&c->arena, str_from_cstr(page->node));
	c->refresh_ns = page->refresh;
	c->hide_version = page->hide_version;
	c->show_legends = page->show_legends;
	c->show_node = page->show_node;
	c->show_desc = page->desc != NULL;
	c->is_admin = stats_is_admin(st, page);
	if (!stats_scopes(c, px) || !c->uri.p || (page->desc && !c->desc.p) ||
	    (page->node && !c->node.p))
		return stream_fail(st, 'R', 503);
	return s;
}

/* --- phases -------------------------------------------------------------------------------------- */

/* The form of a POST, whole. STEP_GO: it is there; else what the phase returns. */
static enum step service_read_form(struct stream *st)
{
	struct side *f = &st->front;
	struct service_call *c = st->call;

	for (;;) {
		struct str slices[SIDE_SLICES];
		unsigned n = 0;
		enum side_event ev = f->ops->read_body(f, slices, SIDE_SLICES, &n);

		for (unsigned i = 0; i < n; i++) {
			if (c->form.len + slices[i].len > SERVICE_FORM_MAX) {
				c->is_form_too_long = true;
				continue;
			}
			if (!c->form.p)
				c->form.p = arena_alloc(&c->arena, SERVICE_FORM_MAX);
			if (!c->form.p)
				return stream_fail(st, 'R', 503);
			memcpy((char *)(uintptr_t)c->form.p + c->form.len, slices[i].p,
			       slices[i].len);
			c->form.len += slices[i].len;
		}
		f->ops->release(f);
		switch (ev) {
		case SIDE_END:
			st->req_flow.is_done = true;
			return STEP_GO;
		case SIDE_MORE:
			return STEP_WAIT;
		case SIDE_DATA:
			/* Nobody sends megabytes of form by mistake. */
			if (c->is_form_too_long)
				return STEP_GO;
			continue;
		case SIDE_NOMEM:
			return stream_fail(st, 'R', 503);
		case SIDE_BAD:
		case SIDE_GONE:
			STREAM_COUNT(st, req_errors, 1);
			return stream_fail(st, 'C', 400);
		}
	}
}

/* The head, from what control said. */
static int service_write_head(struct stream *st)
{
	struct service_call *c = st->call;
	struct http_msg *m = &st->rsp;
	bool is_1_0 = st->req.major == 1 && st->req.minor == 0;
	bool is_read = st->req_flow.is_done || st->req.framing == HTTP_BODY_NONE;
	int r = 0;

	http_msg_reset(m);
	m->flags = HTTP_MSG_RESPONSE;
	m->major = 1;
	m->minor = 1;
	m->status = c->status;
	m->framing = HTTP_BODY_LENGTH;
	m->content_length = c->body.len;
	if (c->method == HTTP_METHOD_HEAD) {
		m->framing = HTTP_BODY_NONE;
		m->flags |= HTTP_MSG_LENGTH_ONLY;
		service_text_free(&c->body);
	}
	for (unsigned i = 0; i < c->n_fields && !r; i++)
		r = http_msg_add(m, str_from_cstr(c->fields[i].name), c->fields[i].value);
	if (r)
		return r;
	if (!is_read || st->cl->must_close || st->w->is_draining)
		st->flags &= ~(uint32_t)STREAM_CLIENT_KEEP;
	return st->front.ops->write_head(&st->front, m,
					 !(st->flags & STREAM_CLIENT_KEEP) ? H1_CONN_CLOSE
					 : is_1_0			   ? H1_CONN_KEEP_ALIVE
									   : H1_CONN_NONE);
}

enum step phase_service(struct stream *st)
{
	struct service_call *c = st->call;

	if (stream_is_client_gone(st))
		return stream_fail(st, 'C', 0);
	if (c->is_away)
		return STEP_WAIT;
	if (!c->is_answered) {
		enum step s = STEP_GO;

		if (c->method == HTTP_METHOD_POST && st->req.framing != HTTP_BODY_NONE)
			s = service_read_form(st);
		if (s != STEP_GO || st->phase != PHASE_SERVICE)
			return s;
		call_ask(c);
		return STEP_WAIT;
	}
	if (c->body.is_failed) {
		ctr_add(&st->w->ctr->alloc_failures, 1);
		return stream_fail(st, 'R', 503);
	}
	if (service_write_head(st))
		return stream_fail(st, 'R', 500);
	st->status = c->status;
	st->flags |= STREAM_INTERCEPTED | STREAM_RSP_STARTED;
	st->front.active_ns = loop_now(st->w->loop);
	return stream_go(st, PHASE_SERVICE_SEND);
}

/* What left is given back at once: a slow reader holds no more than the rest. */
static void body_consume(struct service_text *t, size_t n, size_t *at)
{
	t->len -= n;
	while (n) {
		struct service_chunk *c = t->first;
		size_t left = c->len - *at;

		if (n < left) {
			*at += n;
			return;
		}
		n -= left;
		*at = 0;
		t->first = c->next;
		if (!t->first)
			t->last = NULL;
		mem_free(c);
	}
}

enum step phase_service_send(struct stream *st)
{
	struct side *front = &st->front;
	struct service_text *t = &st->call->body;

	for (unsigned turn = 0; turn < SERVICE_TURNS; turn++) {
		struct str slices[SIDE_SLICES];
		unsigned n = 0;
		size_t offered = 0;
		ssize_t taken;

		for (struct service_chunk *c = t->first; c && n < SIDE_SLICES; c = c->next) {
			slices[n] = str_make(c->data, c->len);
			if (n == 0)
				slices[n] = str_from(slices[n], st->service_at);
			if (slices[n].len)
				offered += slices[n++].len;
		}
		taken = front->ops->write(front, slices, n, offered == t->len);
		if (taken < 0)
			return stream_fail(st, taken == -ENOMEM ? 'R' : 'C', 0);
		body_consume(t, (size_t)taken, &st->service_at);
		if ((size_t)taken < offered || !side_is_flushed(front))
			return STEP_WAIT;
		if (!t->len)
			return stream_go(st, PHASE_END);
	}
	stream_resume_later(st);
	return STEP_WAIT;
}

enum step service_timeout(struct stream *st)
{
	/* The form did not come, or control has not found the time. */
	if (!st->call->is_away) {
		STREAM_COUNT(st, req_errors, 1);
		return stream_fail(st, 'c', 408);
	}
	return stream_fail(st, 's', 503);
}
