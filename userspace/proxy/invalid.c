/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The last message of each section and direction that broke HTTP/1, for `show errors`. Costs nothing until there is
 * one: then up to INVALID_BYTES are copied into memory that the section gets with its first. Written by workers,
 * read by control; who finds it busy goes away (workers) or looks again (control), nobody sleeps.
 */
#include <errno.h>
#include <sched.h>

#include "proxy/worker_priv.h"

static void copy_name(char *to, size_t size, const char *name)
{
	snprintf(to, size, "%s", name ? name : "");
}

/* Where the bytes begin that are worth keeping: the message, or what of its body is here; near the fault when that is far in. */
static uint32_t first_byte(const struct side *s, uint32_t fault)
{
	uint32_t from = s->in_body ? s->in.base : 0;

	return fault - from > INVALID_BYTES / 2 && s->in.tail - from > INVALID_BYTES
		       ? fault - INVALID_BYTES / 2
		       : from;
}

static void fill(struct invalid_msg *m, uint64_t id, const struct stream *st, const struct side *s)
{
	bool is_rsp = s == &st->back;
	const struct conf_proxy *other = is_rsp ? st->fe : st->be;
	uint32_t fault = s->in_body ? s->in.parsed : s->in.base + s->head.error_at;
	uint32_t from = first_byte(s, fault), len = s->in.tail - from;

	m->id = id;
	m->wall_ns = loop_wall(st->w->loop);
	m->error = s->in_body ? s->body.error : s->head.error;
	m->is_in_body = s->in_body;
	m->offset = s->rx > s->in.tail - from ? s->rx - (s->in.tail - from) : 0;
	m->chunk_left = s->in_body ? s->body.left : 0;
	m->body_len = s->in_body && s->msg ? s->msg->content_length : 0;
	m->stream_flags = st->flags;
	m->len = len < INVALID_BYTES ? len : INVALID_BYTES;
	m->room = s->in.cap;
	m->error_at = fault - from;
	m->src = st->src.sa.sa_family ? st->src : st->front.conn->peer;
	m->has_other = other != NULL;
	m->other_id = other ? other->id : 0;
	copy_name(m->other, sizeof(m->other), other ? other->name : NULL);
	m->server_id = st->srv_conf ? st->srv_conf->id : 0;
	copy_name(m->server, sizeof(m->server), st->srv_conf ? st->srv_conf->name : NULL);
	memcpy(m->bytes, s->in.mem + from, m->len);
}

void invalid_note(struct side *s)
{
	struct stream *st = s->st;
	unsigned which = s == &st->back ? INVALID_RESPONSE : INVALID_REQUEST;
	struct lb_backend *be = which == INVALID_RESPONSE ? st->be_rt : st->fe_rt;
	uint64_t id;

	/* HTTP/2 has its own counters, and no text that somebody could read. */
	if (s->ops != &side_h1 || !s->in.mem || !be || s->is_noted)
		return;
	s->is_noted = true;
	id = atomic_fetch_add(&st->w->o.shared->n_invalid, 1);
	if (atomic_exchange_explicit(&be->is_invalid_busy[which], true, memory_order_acquire))
		return;
	if (!be->invalid[which])
		be->invalid[which] = mem_alloc(sizeof(struct invalid_msg));
	if (be->invalid[which])
		fill(be->invalid[which], id, st, s);
	else
		ctr_add(&st->w->ctr->alloc_failures, 1);
	atomic_store_explicit(&be->is_invalid_busy[which], false, memory_order_release);
}

int invalid_get(struct lb_backend *be, unsigned which, struct invalid_msg **ret_copy)
{
	struct invalid_msg *copy = mem_alloc(sizeof(*copy));
	bool is_there;

	*ret_copy = NULL;
	if (!copy)
		return -ENOMEM;
	/* A worker is copying: some microseconds. */
	while (atomic_exchange_explicit(&be->is_invalid_busy[which], true, memory_order_acquire))
		sched_yield();
	is_there = be->invalid[which] != NULL;
	if (is_there)
		*copy = *be->invalid[which];
	atomic_store_explicit(&be->is_invalid_busy[which], false, memory_order_release);
	if (is_there)
		*ret_copy = copy;
	else
		mem_free(copy);
	return 0;
}
