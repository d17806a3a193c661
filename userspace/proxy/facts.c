/* SPDX-License-Identifier: BSD-2-Clause */
/* What the proxy knows about streams and clients (overview: facts.h). */
#include "proxy/facts.h"

#include <errno.h>

#include "proxy/worker_priv.h"

/* --- captures --------------------------------------------------------------------------------------- */

static const struct conf_capture *capture_find(const struct conf_proxy *fe, bool is_rsp,
					       unsigned slot)
{
	struct list *pos;

	list_for_each(pos, &fe->captures) {
		const struct conf_capture *c = list_entry(pos, struct conf_capture, link);

		if (c->is_response == is_rsp && c->index == slot)
			return c;
	}
	return NULL;
}

int capture_put(struct stream *st, bool is_rsp, unsigned slot, struct str value, size_t max)
{
	struct str **all = is_rsp ? &st->rsp_captures : &st->req_captures;
	unsigned n = is_rsp ? st->fe->n_rsp_captures : st->fe->n_req_captures;
	const struct conf_capture *c = max ? NULL : capture_find(st->fe, is_rsp, slot);
	struct str copy;

	if (slot >= n || !value.len)
		return 0;
	if (c)
		max = c->len;
	if (!*all)
		*all = arena_zalloc(&st->arena, n * sizeof(struct str));
	copy = arena_str(&st->arena, str_sub(value, 0, max));
	if (!*all || !copy.p)
		return -ENOMEM;
	(*all)[slot] = copy;
	return 0;
}

int facts_capture(const struct subject *s, bool is_rsp, unsigned slot, struct str value)
{
	struct stream *st = s->owner;

	if (slot >= (is_rsp ? st->fe->n_rsp_captures : st->fe->n_req_captures))
		return -ENOENT;
	return capture_put(st, is_rsp, slot, value, 0);
}

/* --- facts ------------------------------------------------------------------------------------------ */

static int ret_int(struct sample *ret, int64_t v)
{
	ret->sint = v;
	return 0;
}

static int ret_bool(struct sample *ret, bool v)
{
	ret->type = SAMPLE_BOOL;
	ret->sint = v;
	return 0;
}

static int ret_text(struct sample *ret, const char *text)
{
	ret->type = SAMPLE_STR;
	ret->str = str_from_cstr(text);
	return text ? 0 : -ENOENT;
}

static int ret_ms(struct sample *ret, uint64_t ns)
{
	return ret_int(ret, (int64_t)(ns / 1000000));
}

static int fact_of_frontend(const struct client *cl, enum subject_fact f, struct sample *ret)
{
	switch (f) {
	case FACT_CUR_CLIENT_TIMEOUT:
	case FACT_FE_CLIENT_TIMEOUT:
		return ret_ms(ret, cl->fe->timeout.client);
	case FACT_FE_DEFAULT_BACKEND:
		return ret_text(ret,
				cl->fe->default_backend ? cl->fe->default_backend->name : NULL);
	case FACT_ACCEPT_WALL_US:
		return ret_int(ret, (int64_t)(cl->accept_wall / 1000));
	default:
		return -ENOENT;
	}
}

static int fact_of_backend(const struct stream *st, enum subject_fact f, struct sample *ret)
{
	const struct conf_timeouts *t = st->be ? &st->be->timeout : NULL;

	if (!t)
		return -ENOENT;
	switch (f) {
	case FACT_CUR_CONNECT_TIMEOUT:
	case FACT_BE_CONNECT_TIMEOUT:
		return ret_ms(ret, t->connect);
	case FACT_CUR_QUEUE_TIMEOUT:
	case FACT_BE_QUEUE_TIMEOUT:
		return ret_ms(ret, t->queue);
	case FACT_CUR_TARPIT_TIMEOUT:
	case FACT_BE_TARPIT_TIMEOUT:
		return ret_ms(ret, t->tarpit);
	case FACT_BE_SERVER_TIMEOUT:
		return ret_ms(ret, t->server);
	case FACT_BE_TUNNEL_TIMEOUT:
		return ret_ms(ret, t->tunnel);
	case FACT_CUR_SERVER_TIMEOUT:
		return ret_ms(ret, st->timeout_server_ns ? st->timeout_server_ns : t->server);
	case FACT_CUR_TUNNEL_TIMEOUT:
		return ret_ms(ret, st->timeout_tunnel_ns ? st->timeout_tunnel_ns : t->tunnel);
	default:
		return -ENOENT;
	}
}

bool stream_is_normal(const struct stream *st)
{
	return (st->term[0] == '-' || st->term[0] == 'L') && !st->n_retries &&
	       !(st->flags & STREAM_REDISPATCHED) && st->status < 500;
}

int facts_of_stream(const struct subject *s, enum subject_fact f, struct sample *ret)
{
	const struct stream *st = s->owner;

	switch (f) {
	case FACT_CUR_CLIENT_TIMEOUT:
		return ret_ms(ret, st->timeout_client_ns);
	case FACT_LAST_RULE_FILE:
		return ret_text(ret, st->last_rule ? st->last_rule->pos.file : NULL);
	case FACT_LAST_RULE_LINE:
		return st->last_rule ? ret_int(ret, st->last_rule->pos.line) : -ENOENT;
	case FACT_IS_ERROR:
		return ret_bool(ret, !stream_is_normal(st));
	case FACT_IS_FORWARDED:
		return ret_bool(ret, st->conn_ns != 0);
	case FACT_IS_SERVICE:
		return ret_bool(ret, st->flags & STREAM_SERVICE);
	case FACT_BC_REUSED:
		return st->conn_ns ? ret_bool(ret, st->flags & STREAM_SRV_REUSED) : -ENOENT;
	case FACT_IS_REDISPATCHED:
		return ret_bool(ret, st->flags & STREAM_REDISPATCHED);
	case FACT_REQUEST_WALL_US:
		return ret_int(ret, (int64_t)(st->start_wall / 1000));
	case FACT_FE_CLIENT_TIMEOUT:
	case FACT_FE_DEFAULT_BACKEND:
	case FACT_ACCEPT_WALL_US:
		return fact_of_frontend(st->cl, f, ret);
	default:
		return fact_of_backend(st, f, ret);
	}
}

int facts_of_client(const struct subject *s, enum subject_fact f, struct sample *ret)
{
	return fact_of_frontend(s->owner, f, ret);
}

/* --- the PROXY header ------------------------------------------------------------------------------------ */

int facts_stream_tlv(const struct subject *s, uint8_t type, struct str *ret)
{
	const struct stream *st = s->owner;

	return conn_proxy_tlv(client_session(st->cl)->conn, type, ret);
}

int facts_client_tlv(const struct subject *s, uint8_t type, struct str *ret)
{
	const struct client *cl = s->owner;

	return conn_proxy_tlv(cl->conn, type, ret);
}
