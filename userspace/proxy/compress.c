/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compression of messages on their way: whether (per request, per response, within the limits of the
 * process), and a pump of its own between the two sides. A stream that compresses holds an encoder and
 * one buffer; both are given back when it ends. Streams without `compression` never come here. Belongs to
 * the stream's worker; only the limits are shared.
 */
#include <errno.h>

#include "proxy/worker_priv.h"

#define IDLE_ENCODERS 16 /* kept per worker and coding */
#define CPU_SAMPLE_NS 200000000ull
#define PUMP_TURNS    16
#define MS	      1000000ull

/* Of one message; in the stream's arena. */
struct compress {
	bool is_req;
	uint8_t framing; /* of a request, as the client sent it */
	uint64_t content_length; /* the same */
	struct http_encoder *enc; /* NULL: identity, or a limit was reached */
	char *mem; /* of the worker's head buffers */
	struct str out; /* in `mem`, not yet taken by the receiver's side */
	enum http_encode how; /* what the encoder is being asked for */
	bool is_idle; /* nothing in the encoder that the receiver has not */
	bool is_done; /* its last byte is in `out`, or written */
	bool is_bypass; /* bytes are counted as such */
};

/* --- limits --------------------------------------------------------------------------------------- */

/* Bytes given to compression by all workers: those of this second, and which second that is. */
#define RATE_BITS 40
#define RATE_MASK ((1ull << RATE_BITS) - 1)

static void rate_add(struct stream *st, uint64_t n)
{
	struct worker *w = st->w;
	uint64_t second = loop_now(w->loop) / 1000000000u << RATE_BITS;
	uint64_t old = atomic_load_explicit(&w->o.shared->comp_rate, memory_order_relaxed), now;

	if (!atomic_load_explicit(&w->o.shared->comp_limit, memory_order_relaxed))
		return;
	do {
		now = (old & ~RATE_MASK) == second ? old + n : second + n;
	} while (!atomic_compare_exchange_weak_explicit(
		&w->o.shared->comp_rate, &old, now, memory_order_relaxed, memory_order_relaxed));
}

static bool rate_is_exceeded(const struct stream *st)
{
	uint64_t limit = (uint64_t)atomic_load_explicit(&st->w->o.shared->comp_limit,
							memory_order_relaxed) *
			 1024;
	uint64_t second = loop_now(st->w->loop) / 1000000000u << RATE_BITS;
	uint64_t now = atomic_load_explicit(&st->w->o.shared->comp_rate, memory_order_relaxed);

	return limit && (now & ~RATE_MASK) == second && (now & RATE_MASK) > limit;
}

/* The worker's share of time awake, over the last fifth of a second. */
static bool cpu_is_exceeded(const struct stream *st)
{
	struct worker_compress *wc = &st->w->compress;
	const struct loop_stats *s = worker_loop_stats(st->w);
	uint64_t now = loop_now(st->w->loop);

	if (!st->snap->conf->global.maxcompcpuusage)
		return false;
	if (now - wc->sampled_ns >= CPU_SAMPLE_NS) {
		uint64_t busy = s->busy_ns - wc->busy_ns, idle = s->idle_ns - wc->idle_ns;

		wc->busy_percent = busy + idle ? (unsigned)(busy * 100 / (busy + idle)) : 0;
		wc->busy_ns = s->busy_ns;
		wc->idle_ns = s->idle_ns;
		wc->sampled_ns = now;
	}
	return wc->busy_percent > st->snap->conf->global.maxcompcpuusage;
}

/* --- encoders --------------------------------------------------------------------------------------- */

static struct http_encoder *encoder_get(struct stream *st, enum http_coding coding)
{
	struct worker *w = st->w;
	struct http_encoder *e = w->compress.idle[coding];
	const struct conf_global *g = &st->snap->conf->global;
	uint64_t limit = (uint64_t)g->maxzlibmem << 20;
	_Atomic uint64_t *used = &w->o.shared->zlib_bytes;

	if (e) {
		w->compress.idle[coding] = e->next;
		w->compress.n_idle[coding]--;
		http_encoder_reset(e);
		return e;
	}
	if (atomic_fetch_add_explicit(used, HTTP_ENCODER_BYTES, memory_order_relaxed) +
			    HTTP_ENCODER_BYTES >
		    limit &&
	    limit) {
		atomic_fetch_sub_explicit(used, HTTP_ENCODER_BYTES, memory_order_relaxed);
		return NULL;
	}
	if (!http_encoder_new(coding, g->comp_maxlevel ? g->comp_maxlevel : 1, &e))
		return e;
	atomic_fetch_sub_explicit(used, HTTP_ENCODER_BYTES, memory_order_relaxed);
	ctr_add(&w->ctr->alloc_failures, 1);
	return NULL;
}

static void encoder_free(struct worker *w, struct http_encoder *e)
{
	http_encoder_free(e);
	atomic_fetch_sub_explicit(&w->o.shared->zlib_bytes, HTTP_ENCODER_BYTES,
				  memory_order_relaxed);
}

static void encoder_put(struct worker *w, struct http_encoder *e)
{
	struct worker_compress *wc = &w->compress;

	if (wc->n_idle[e->coding] >= IDLE_ENCODERS) {
		encoder_free(w, e);
		return;
	}
	e->next = wc->idle[e->coding];
	wc->idle[e->coding] = e;
	wc->n_idle[e->coding]++;
}

void compress_worker_end(struct worker *w)
{
	for (unsigned i = 0; i < HTTP_CODING_COUNT; i++) {
		while (w->compress.idle[i]) {
			struct http_encoder *e = w->compress.idle[i];

			w->compress.idle[i] = e->next;
			encoder_free(w, e);
		}
		w->compress.n_idle[i] = 0;
	}
}

/* --- whether ---------------------------------------------------------------------------------------- */

/* The backend's word counts first, for each setting by itself. */
#define EITHER(st, field) \
	((st)->be->compression.field ? &(st)->be->compression : &(st)->fe->compression)

static bool has_direction(const struct stream *st, enum conf_compress_direction d)
{
	unsigned said = st->be->compression.direction ? st->be->compression.direction
						      : st->fe->compression.direction;

	return (said ? said : COMPRESS_RESPONSE) & d;
}

void compress_request(struct stream *st)
{
	const struct conf_compression *c = EITHER(st, n_algos);
	enum http_coding coding;

	if (!c->n_algos || !has_direction(st, COMPRESS_RESPONSE))
		return;
	coding = http_choose_coding(&st->req, c->algos, c->n_algos);
	st->coding = (uint8_t)coding;
	if (coding != HTTP_CODING_NONE &&
	    (st->be->compression.is_offload || st->fe->compression.is_offload))
		http_msg_del(&st->req, STR("accept-encoding"));
}

/* With an encoder and its buffer, unless a limit was reached; NULL then. */
static struct compress *compress_new(struct stream *st, enum http_coding coding)
{
	struct compress *c = arena_zalloc(&st->arena, sizeof(*c));

	if (!c)
		return NULL;
	c->is_idle = true;
	c->is_bypass = coding == HTTP_CODING_IDENTITY;
	if (c->is_bypass)
		return c;
	if (rate_is_exceeded(st) || cpu_is_exceeded(st))
		return NULL;
	c->mem = pool_get(&st->w->head_pool);
	c->enc = c->mem ? encoder_get(st, coding) : NULL;
	if (c->enc)
		return c;
	pool_put(&st->w->head_pool, c->mem);
	return NULL;
}

static void compress_free(struct stream *st, struct compress *c)
{
	if (c->enc)
		encoder_put(st->w, c->enc);
	pool_put(&st->w->head_pool, c->mem);
}

void compress_response(struct stream *st)
{
	const struct conf_compression *types = EITHER(st, n_types), *min = EITHER(st, min_size);
	const struct http_coding_rules rules = { .types = types->types,
						 .n_types = types->n_types,
						 .min_size = min->min_size };
	struct compress *c;

	if (!http_may_encode(&st->req, &st->rsp, (enum http_framing)st->back.body.framing, &rules))
		return;
	c = compress_new(st, (enum http_coding)st->coding);
	if (!c)
		return;
	/* Nothing of the message may say that it is coded when it is not. */
	if (http_set_coding(&st->rsp, (enum http_coding)st->coding)) {
		compress_free(st, c);
		return;
	}
	st->compress = c;
}

/* The client's bytes are going to be read again, as they are. */
void compress_rewind(struct stream *st)
{
	struct compress *c = st->compress_req;

	if (!c)
		return;
	st->req.framing = c->framing;
	st->req.content_length = c->content_length;
}

/* The head says already that the body is coded: it has to be again. */
static void compress_again(struct stream *st, struct compress *c)
{
	st->req.framing = HTTP_BODY_CHUNKED;
	st->req.content_length = 0;
	http_encoder_reset(c->enc);
	c->out = STR_NULL;
	c->how = HTTP_ENCODE_MORE;
	c->is_idle = true;
	c->is_done = false;
}

void compress_outgoing(struct stream *st)
{
	const struct conf_compression *algo = EITHER(st, req_algo);
	const struct conf_compression *types = EITHER(st, n_req_types);
	const struct conf_compression *min = EITHER(st, req_min_size);
	const struct http_coding_rules rules = { .types = types->req_types,
						 .n_types = types->n_req_types,
						 .min_size = min->req_min_size };
	struct compress *c = st->compress_req;

	if (c) {
		compress_again(st, c);
		return;
	}
	if (algo->req_algo == HTTP_CODING_NONE || algo->req_algo == HTTP_CODING_IDENTITY ||
	    !has_direction(st, COMPRESS_REQUEST) || st->flags & STREAM_UPGRADE ||
	    !http_may_encode_request(&st->req, &rules))
		return;
	c = compress_new(st, (enum http_coding)algo->req_algo);
	if (!c)
		return;
	c->is_req = true;
	c->framing = st->req.framing;
	c->content_length = st->req.content_length;
	if (http_set_request_coding(&st->req, (enum http_coding)algo->req_algo))
		compress_free(st, c);
	else
		st->compress_req = c;
}

/* --- the pump --------------------------------------------------------------------------------------- */

static void count(struct stream *st, const struct compress *c, size_t in, size_t out)
{
	struct proxy_shared *shared = st->w->o.shared;

	atomic_fetch_add_explicit(&shared->comp_in, in, memory_order_relaxed);
	atomic_fetch_add_explicit(&shared->comp_out, out, memory_order_relaxed);
	rate_add(st, in);
	/* Statistics know compressed responses only. */
	if (c->is_req)
		return;
	ctr_add(&st->fe_ctr->comp_in, in);
	ctr_add(&st->fe_ctr->comp_out, out);
	ctr_add(&st->be_ctr->comp_in, in);
	ctr_add(&st->be_ctr->comp_out, out);
}

/* Slices through the encoder, until they are used up or the buffer is full. */
static void compress_fill(struct stream *st, struct compress *c, struct flow *f)
{
	size_t len = 0, cap = st->w->head_size;

	while (len < cap && !c->is_done) {
		struct str none = STR(""), *in = f->i < f->n ? &f->slices[f->i] : &none;
		size_t before = in->len, n;
		bool is_last = f->i + 1 >= f->n;
		enum http_encode how = !is_last ? HTTP_ENCODE_MORE : c->how;
		bool is_through = http_encode(c->enc, in, c->mem + len, cap - len, &n, how);

		len += n;
		f->bytes += before - in->len;
		count(st, c, before - in->len, n);
		if (!is_through)
			break;
		if (f->i < f->n)
			f->i++;
		if (f->i < f->n)
			continue;
		c->is_idle = how == HTTP_ENCODE_FLUSH;
		c->is_done = how == HTTP_ENCODE_END;
		break;
	}
	c->out = str_make(c->mem, len);
}

/* What is encoded goes on its way. FLOW_DONE: all of it was taken. */
static enum flow_result compress_write(struct compress *c, struct flow *f)
{
	ssize_t taken;

	taken = flow_write_some(f, &c->out, c->out.len ? 1 : 0, c->is_done);
	if (taken < 0)
		return taken == -ENOMEM ? FLOW_NOMEM : FLOW_DST_GONE;
	c->out = str_from(c->out, (size_t)taken);
	if (c->out.len || !side_is_flushed(f->dst)) {
		f->waits_for_dst = !f->paused_until_ns;
		return FLOW_WAIT;
	}
	f->waits_for_dst = false;
	f->is_done = c->is_done;
	return FLOW_DONE;
}

enum flow_result compress_pump(struct stream *st, struct compress *c, struct flow *f)
{
	enum flow_result r;

	if (!c->enc)
		return flow_pump(f);
	for (unsigned turn = 0; turn < PUMP_TURNS; turn++) {
		if (c->out.len || c->is_done || !side_is_flushed(f->dst)) {
			r = compress_write(c, f);
			if (r != FLOW_DONE)
				return r;
			if (f->is_done)
				return FLOW_DONE;
		}
		if (f->i == f->n && c->how == HTTP_ENCODE_MORE && !f->src_end) {
			r = flow_read(f);
			if (r != FLOW_DONE)
				return r;
			/* The source pauses: what it gave must not wait for what it will give. */
			if (!f->n && !f->src_end && c->is_idle)
				return FLOW_WAIT;
		}
		c->how = f->src_end ? HTTP_ENCODE_END : f->n ? HTTP_ENCODE_MORE : HTTP_ENCODE_FLUSH;
		c->is_idle = false;
		compress_fill(st, c, f);
		if (c->is_idle)
			c->how = HTTP_ENCODE_MORE;
	}
	stream_resume_later(st);
	return FLOW_WAIT;
}

void compress_end(struct stream *st)
{
	struct compress *c = st->compress;

	if (unlikely(st->compress_req)) {
		compress_free(st, st->compress_req);
		st->compress_req = NULL;
	}
	if (!c)
		return;
	st->compress = NULL;
	if (c->is_bypass) {
		ctr_add(&st->fe_ctr->comp_bypassed, st->rsp_flow.bytes);
		ctr_add(&st->be_ctr->comp_bypassed, st->rsp_flow.bytes);
	}
	if (st->rsp_flow.is_done) {
		ctr_add(&st->fe_ctr->comp_responses, 1);
		ctr_add(&st->be_ctr->comp_responses, 1);
	}
	compress_free(st, c);
}
