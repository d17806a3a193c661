/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What connections and streams hold in stick tables, and when it is counted. A stream's part lives in its
 * arena, a connection's comes from a pool of the worker; in steady state nothing is allocated. Each
 * entry costs two short locks per stream: one when it is found, one when it is let go.
 */
#include "proxy/track.h"

#include <errno.h>

#include "lb/stick.h"
#include "proxy/worker_priv.h"

struct track {
	uint32_t n;
	struct stick_ref sc[]; /* t NULL: nothing tracked */
};

size_t track_size(unsigned n_counters)
{
	return sizeof(struct track) + n_counters * sizeof(struct stick_ref);
}

static uint64_t now_ms(const struct worker *w)
{
	return loop_now(w->loop) / 1000000;
}

/* --- keys ----------------------------------------------------------------------------------------------- */

static int key_of_addr(const struct stick_table *t, const struct addr *a, char *out,
		       struct str *ret)
{
	uint8_t v6[16];

	if (a->sa.sa_family != AF_INET && a->sa.sa_family != AF_INET6)
		return -EINVAL;
	addr_to_v6_mapped(a, v6);
	if (stick_type(t) == STICK_IPV6) {
		memcpy(out, v6, 16);
		*ret = str_make(out, 16);
		return 0;
	}
	if (a->sa.sa_family == AF_INET6 && !IN6_IS_ADDR_V4MAPPED(&a->in6.sin6_addr))
		return -EINVAL;
	memcpy(out, v6 + 12, 4);
	*ret = str_make(out, 4);
	return 0;
}

/* A sample in the form of the table's keys. `out`: room for it. -EINVAL: it has none. */
static int key_of(const struct stick_table *t, struct sample *s, struct arena *arena,
		  char out[CONF_STICK_KEY_MAX], struct str *ret)
{
	static const enum sample_type wanted[] = { [STICK_IP] = SAMPLE_ADDR,
						   [STICK_IPV6] = SAMPLE_ADDR,
						   [STICK_INTEGER] = SAMPLE_SINT,
						   [STICK_STRING] = SAMPLE_STR,
						   [STICK_BINARY] = SAMPLE_BIN };
	uint32_t len = stick_key_len(t), n;

	if (sample_cast(s, wanted[stick_type(t)], arena))
		return -EINVAL;
	switch (stick_type(t)) {
	case STICK_IP:
	case STICK_IPV6:
		return key_of_addr(t, &s->addr, out, ret);
	case STICK_INTEGER:
		n = (uint32_t)s->sint;
		memcpy(out, &n, sizeof(n));
		*ret = str_make(out, sizeof(n));
		return 0;
	case STICK_STRING:
		*ret = str_sub(s->str, 0, len);
		return 0;
	case STICK_BINARY:
		break;
	}
	if (s->str.len >= len) {
		*ret = str_sub(s->str, 0, len);
		return 0;
	}
	memcpy(out, s->str.p, s->str.len);
	memset(out + s->str.len, 0, len - s->str.len);
	*ret = str_make(out, len);
	return 0;
}

int track_key_by_expr(const struct expr *e, const struct subject *s, const struct stick_table *t,
		      char out[CONF_STICK_KEY_MAX], struct str *ret)
{
	struct sample v;

	return expr_eval(e, s, &v) ? -ENOENT : key_of(t, &v, s->arena, out, ret);
}

/* --- track-sc --------------------------------------------------------------------------------------------- */

static struct stick_delta delta_of_status(const struct stream *st, unsigned status)
{
	const struct conf_global *g = &st->snap->conf->global;

	return (struct stick_delta){
		.n = { [STICK_HTTP_ERR] = conf_statuses_have(&g->http_err, status),
		       [STICK_HTTP_FAIL] = conf_statuses_have(&g->http_fail, status) }
	};
}

static void track_key(struct track *tr, const struct conf_rule *r, const struct subject *s,
		      struct stick_delta d, uint64_t now)
{
	struct stick_table *t = r->table->rt;
	char mem[CONF_STICK_KEY_MAX];
	struct str key;

	d.n[STICK_CONN] = 1;
	d.conn_cur = 1;
	/* The first rule that applies wins. A table full of entries in use tracks nobody else. */
	if (!t || r->index >= tr->n || tr->sc[r->index].t ||
	    track_key_by_expr(r->expr, s, t, mem, &key))
		return;
	if (stick_open(t, key, &d, now, &tr->sc[r->index]))
		tr->sc[r->index].t = NULL;
}

static void change_counter(const struct stick_ref *ref, const struct conf_rule *r,
			   const struct subject *s, uint64_t now)
{
	uint64_t n = r->number, ignored;
	struct sample v;

	if (!ref)
		return;
	if (r->expr) {
		if (expr_eval(r->expr, s, &v) || sample_cast(&v, SAMPLE_SINT, s->arena) ||
		    v.sint < 0)
			return;
		n = (uint64_t)v.sint;
	}
	/* What the table does not store is not counted. */
	if (r->action == ACTION_SC_INC_GPC)
		(void)!stick_gpc_add(ref, r->counter, n, now, &ignored);
	else
		(void)!stick_write(ref, STICK_DATA_GPT, r->counter, n & UINT32_MAX, now, &ignored);
}

static const struct stick_ref *find_ref(const struct stream *st, const struct client *cl,
					unsigned sc)
{
	if (st && st->track && sc < st->track->n && st->track->sc[sc].t)
		return &st->track->sc[sc];
	if (cl->track && sc < cl->track->n && cl->track->sc[sc].t)
		return &cl->track->sc[sc];
	return NULL;
}

/* --- connections ------------------------------------------------------------------------------------------ */

static bool client_track_begin(struct client *cl)
{
	unsigned n = cl->snap->conf->global.stick_counters;
	struct worker *w = cl->w;

	if (cl->track || !n)
		return cl->track;
	cl->track = n <= TRACK_POOLED ? pool_get(&w->track_pool) : mem_alloc(track_size(n));
	if (!cl->track) {
		ctr_add(&w->ctr->alloc_failures, 1);
		return false;
	}
	memset(cl->track, 0, track_size(n));
	cl->track->n = n;
	return true;
}

void track_client_rule(struct client *cl, const struct conf_rule *r, struct subject *s)
{
	uint64_t now = now_ms(cl->w);

	if (r->action == ACTION_TRACK_SC) {
		if (client_track_begin(cl))
			track_key(cl->track, r, s, (struct stick_delta){ 0 }, now);
	} else if (r->action == ACTION_SC_INC_GPC || r->action == ACTION_SC_SET_GPT) {
		change_counter(find_ref(NULL, cl, r->index), r, s, now);
	}
}

void track_client_session(struct client *cl)
{
	static const struct stick_delta d = { .n = { [STICK_SESS] = 1 } };

	for (unsigned i = 0; cl->track && i < cl->track->n; i++)
		if (cl->track->sc[i].t)
			stick_change(&cl->track->sc[i], &d, now_ms(cl->w));
}

static void track_close(struct track *tr, uint64_t now)
{
	static const struct stick_delta d = { .conn_cur = -1 };

	for (unsigned i = 0; i < tr->n; i++)
		stick_close(&tr->sc[i], &d, now);
}

void track_client_end(struct client *cl)
{
	struct track *tr = cl->track;

	if (likely(!tr))
		return;
	cl->track = NULL;
	track_close(tr, now_ms(cl->w));
	if (tr->n <= TRACK_POOLED)
		pool_put(&cl->w->track_pool, tr);
	else
		mem_free(tr);
}

void track_ahead(const struct client *cl, struct stick_ahead *ret)
{
	const struct conf_stick_table *ct = cl->fe->tracks_src;
	char mem[CONF_STICK_KEY_MAX];
	struct str key;

	ret->t = NULL;
	if (unlikely(ct && ct->rt) && !key_of_addr(ct->rt, &cl->conn->peer, mem, &key))
		stick_ahead(ct->rt, key, ret);
}

/* --- streams ---------------------------------------------------------------------------------------------- */

enum rule_verdict rule_track(struct stream *st, const struct conf_proxy *px,
			     const struct conf_rule *r, struct http_msg *m, enum step *ret_step)
{
	unsigned n = st->snap->conf->global.stick_counters;
	struct stick_delta d = { 0 };

	/* The request, and the error that it got, have come before anybody tracked it. */
	if (m && m->flags & HTTP_MSG_RESPONSE)
		d = delta_of_status(st, m->status);
	d.n[STICK_HTTP_REQ] = m != NULL;
	if (!st->track) {
		st->track = arena_zalloc(&st->arena, track_size(n));
		if (!st->track) {
			ctr_add(&st->w->ctr->alloc_failures, 1);
			return RULE_NEXT;
		}
		st->track->n = n;
	}
	track_key(st->track, r, stream_subject(st), d, now_ms(st->w));
	return RULE_NEXT;
}

enum rule_verdict rule_sc_inc(struct stream *st, const struct conf_proxy *px,
			      const struct conf_rule *r, struct http_msg *m, enum step *ret_step)
{
	change_counter(find_ref(st, st->cl, r->index), r, stream_subject(st), now_ms(st->w));
	return RULE_NEXT;
}

enum rule_verdict rule_sc_set(struct stream *st, const struct conf_proxy *px,
			      const struct conf_rule *r, struct http_msg *m, enum step *ret_step)
{
	return rule_sc_inc(st, px, r, m, ret_step);
}

/* Tables that store none of it are not locked. */
static bool is_interested(const struct stick_table *t, const struct stick_delta *d)
{
	static const uint8_t data[STICK_EVENT_COUNT][2] = {
		[STICK_CONN] = { STICK_DATA_CONN_CNT, STICK_DATA_CONN_RATE },
		[STICK_SESS] = { STICK_DATA_SESS_CNT, STICK_DATA_SESS_RATE },
		[STICK_HTTP_REQ] = { STICK_DATA_HTTP_REQ_CNT, STICK_DATA_HTTP_REQ_RATE },
		[STICK_HTTP_ERR] = { STICK_DATA_HTTP_ERR_CNT, STICK_DATA_HTTP_ERR_RATE },
		[STICK_HTTP_FAIL] = { STICK_DATA_HTTP_FAIL_CNT, STICK_DATA_HTTP_FAIL_RATE },
		[STICK_BYTES_IN] = { STICK_DATA_BYTES_IN_CNT, STICK_DATA_BYTES_IN_RATE },
		[STICK_BYTES_OUT] = { STICK_DATA_BYTES_OUT_CNT, STICK_DATA_BYTES_OUT_RATE },
	};

	for (unsigned i = 0; i < STICK_EVENT_COUNT; i++)
		if (d->n[i] && (stick_has(t, (enum conf_stick_data)data[i][0]) ||
				stick_has(t, (enum conf_stick_data)data[i][1])))
			return true;
	return false;
}

static void count(struct stream *st, const struct stick_delta *d)
{
	unsigned n = st->snap->conf->global.stick_counters;

	if (likely(!st->track && !st->cl->track))
		return;
	for (unsigned i = 0; i < n; i++) {
		const struct stick_ref *ref = find_ref(st, st->cl, i);

		if (ref && is_interested(ref->t, d))
			stick_change(ref, d, now_ms(st->w));
	}
}

void track_request(struct stream *st)
{
	static const struct stick_delta d = { .n = { [STICK_HTTP_REQ] = 1 } };

	count(st, &d);
}

void track_response(struct stream *st)
{
	struct stick_delta d;

	if (likely(!st->track && !st->cl->track))
		return;
	d = delta_of_status(st, st->rsp.status);
	if (unlikely(d.n[STICK_HTTP_ERR] | d.n[STICK_HTTP_FAIL]))
		count(st, &d);
}

/*
 * An answer of our own is the client's error when it was refused, or when its request was bad or too slow;
 * and a failure when no server could answer. Answers that rules give on purpose are neither.
 */
static struct stick_delta delta_of_answer(const struct stream *st)
{
	struct stick_delta d = { 0 };

	if (st->flags & (STREAM_RSP_PARSED | STREAM_IS_TCP))
		return d;
	switch (st->term[0]) {
	case 'P':
		d.n[STICK_HTTP_ERR] = 1;
		break;
	case 'C':
	case 'c':
		d.n[STICK_HTTP_ERR] = st->status >= 400 && st->status < 500;
		break;
	case 'S':
	case 's':
		d.n[STICK_HTTP_FAIL] = delta_of_status(st, st->status).n[STICK_HTTP_FAIL];
		break;
	default:
		break;
	}
	return d;
}

void track_finish(struct stream *st)
{
	struct stick_delta d;

	if (likely(!st->track && !st->cl->track))
		return;
	d = delta_of_answer(st);
	d.n[STICK_BYTES_IN] = st->bytes_in;
	d.n[STICK_BYTES_OUT] = st->bytes_out;
	count(st, &d);
}

void track_stream_end(struct stream *st)
{
	if (likely(!st->track))
		return;
	track_close(st->track, now_ms(st->w));
	st->track = NULL; /* its memory is the arena's */
}

/* --- expressions ------------------------------------------------------------------------------------------ */

/* Who asks, and where. */
struct asker {
	const struct stream *st; /* NULL: the connection has none */
	const struct client *cl;
	const struct subject *s;
	const struct table_op *op;
	uint64_t now;
};

static int value_of(const struct table_op *op, const struct stick_ref *ref, struct stick_table *t,
		    struct str key, uint64_t now, uint64_t *ret)
{
	static const uint8_t what[] = {
		[TABLE_CONN_CNT] = STICK_DATA_CONN_CNT,
		[TABLE_CONN_CUR] = STICK_DATA_CONN_CUR,
		[TABLE_CONN_RATE] = STICK_DATA_CONN_RATE,
		[TABLE_SESS_CNT] = STICK_DATA_SESS_CNT,
		[TABLE_SESS_RATE] = STICK_DATA_SESS_RATE,
		[TABLE_HTTP_REQ_CNT] = STICK_DATA_HTTP_REQ_CNT,
		[TABLE_HTTP_REQ_RATE] = STICK_DATA_HTTP_REQ_RATE,
		[TABLE_HTTP_ERR_CNT] = STICK_DATA_HTTP_ERR_CNT,
		[TABLE_HTTP_ERR_RATE] = STICK_DATA_HTTP_ERR_RATE,
		[TABLE_HTTP_FAIL_CNT] = STICK_DATA_HTTP_FAIL_CNT,
		[TABLE_HTTP_FAIL_RATE] = STICK_DATA_HTTP_FAIL_RATE,
		[TABLE_KBYTES_IN] = STICK_DATA_BYTES_IN_CNT,
		[TABLE_KBYTES_OUT] = STICK_DATA_BYTES_OUT_CNT,
		[TABLE_BYTES_IN_RATE] = STICK_DATA_BYTES_IN_RATE,
		[TABLE_BYTES_OUT_RATE] = STICK_DATA_BYTES_OUT_RATE,
		[TABLE_GPC] = STICK_DATA_GPC,
		[TABLE_GPC_RATE] = STICK_DATA_GPC_RATE,
		[TABLE_GPT] = STICK_DATA_GPT,
		[TABLE_SERVER_ID] = STICK_DATA_SERVER_ID,
		[TABLE_IS_TRACKED] = STICK_FACT_REFS,
		[TABLE_TRACKERS] = STICK_FACT_REFS,
		[TABLE_EXPIRE] = STICK_FACT_EXPIRE_MS,
		[TABLE_IDLE] = STICK_FACT_IDLE_MS,
	};
	int r;

	if (op->counter >= ARRAY_SIZE(what))
		return -EINVAL;
	r = ref ? stick_read(ref, what[op->counter], op->index, now, ret)
		: stick_read_key(t, key, what[op->counter], op->index, now, ret);
	if (r == 0 && (op->counter == TABLE_KBYTES_IN || op->counter == TABLE_KBYTES_OUT))
		*ret >>= 10;
	return r;
}

static void set_value(const struct table_op *op, uint64_t v, bool has_entry, struct sample *ret)
{
	bool is_bool = op->counter == TABLE_IS_TRACKED;

	*ret = (struct sample){ .type = is_bool ? SAMPLE_BOOL : SAMPLE_SINT };
	ret->sint = is_bool ? has_entry : (int64_t)v;
}

/* inc_gpc, clr_gpc */
static int change(const struct table_op *op, const struct stick_ref *ref, uint64_t now,
		  struct sample *ret)
{
	uint64_t v = 0;
	int r = op->access == TABLE_INC ? stick_gpc_add(ref, op->index, 1, now, &v)
					: stick_write(ref, STICK_DATA_GPC, op->index, 0, now, &v);

	set_value(op, v, true, ret);
	return r ? -ENOENT : 0;
}

static int ask_key(const struct asker *a, struct stick_table *t, struct str key, struct sample *ret)
{
	struct stick_ref ref;
	uint64_t v = 0;
	int r;

	if (a->op->access != TABLE_GET) {
		if (stick_open(t, key, NULL, a->now, &ref))
			return -ENOENT;
		r = change(a->op, &ref, a->now, ret);
		stick_close(&ref, NULL, a->now);
		return r;
	}
	r = value_of(a->op, NULL, t, key, a->now, &v);
	if (r && r != -ENOENT)
		return -ENOENT;
	/* Somebody never seen counts 0. */
	set_value(a->op, v, r == 0, ret);
	return 0;
}

static struct stick_table *table_of(const struct asker *a)
{
	const struct conf_stick_table *ct = a->op->ref;
	const struct conf_proxy *px = a->cl ? a->cl->fe : NULL;

	if (ct)
		return ct->rt;
	if (a->st)
		px = a->st->be ? a->st->be : a->st->fe;
	return px && px->stick_table ? px->stick_table->rt : NULL;
}

static int ask_tracked(const struct asker *a, struct sample *ret)
{
	const struct conf_stick_table *other = a->op->ref;
	const struct stick_ref *ref = find_ref(a->st, a->cl, a->op->sc);
	char mem[CONF_STICK_KEY_MAX];
	uint64_t v = 0;

	if (!ref) {
		set_value(a->op, 0, false, ret);
		return a->op->counter == TABLE_IS_TRACKED ? 0 : -ENOENT;
	}
	if (other && other->rt != ref->t) {
		size_t len = stick_ref_key(ref, mem);

		if (!other->rt || stick_type(other->rt) != stick_type(ref->t) ||
		    len > stick_key_len(other->rt))
			return -ENOENT;
		return ask_key(a, other->rt, str_make(mem, len), ret);
	}
	if (a->op->access != TABLE_GET)
		return change(a->op, ref, a->now, ret);
	if (value_of(a->op, ref, NULL, STR_NULL, a->now, &v))
		return -ENOENT;
	set_value(a->op, v, true, ret);
	return 0;
}

static int ask(const struct asker *a, const struct sample *key, struct sample *ret)
{
	char mem[CONF_STICK_KEY_MAX];
	struct stick_table *t;
	struct sample copy;
	struct str k;

	if (a->op->key == TABLE_KEY_TRACKED)
		return ask_tracked(a, ret);
	t = table_of(a);
	if (!t)
		return -ENOENT;
	if (a->op->key == TABLE_KEY_NONE) {
		uint32_t used = stick_used(t), size = stick_size(t);

		set_value(a->op,
			  a->op->counter == TABLE_SIZE_USED ? used
			  : size > used			    ? size - used
							    : 0,
			  true, ret);
		return 0;
	}
	copy = *key;
	if (key_of(t, &copy, a->s->arena, mem, &k))
		return -ENOENT;
	return ask_key(a, t, k, ret);
}

int track_ask_stream(const struct subject *s, const struct table_op *op, const struct sample *key,
		     struct sample *ret)
{
	const struct stream *st = s->owner;
	const struct asker a = { .st = st, .cl = st->cl, .s = s, .op = op, .now = now_ms(st->w) };

	return ask(&a, key, ret);
}

int track_ask_client(const struct subject *s, const struct table_op *op, const struct sample *key,
		     struct sample *ret)
{
	const struct client *cl = s->owner;
	const struct asker a = { .cl = cl, .s = s, .op = op, .now = now_ms(cl->w) };

	return ask(&a, key, ret);
}
