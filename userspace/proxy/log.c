/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Traffic lines: one per stream, written when it ends, with the format of the frontend. As in
 * HAProxy the counts of backend and server are those of the others: this stream has left.
 */
#include <stdio.h>
#include <time.h>

#include "proxy/facts.h"
#include "proxy/worker_priv.h"

static int64_t span(uint64_t from, uint64_t to)
{
	return from && to ? (int64_t)(to - from) : -1;
}

static void log_times(const struct stream *st, struct subject_log *l)
{
	const struct client *cl = st->cl;
	uint64_t end = st->data_ns;

	l->accept_wall_ns = st->start_wall;
	l->t_handshake = cl->n_requests == 0 ? (int64_t)cl->handshake_ns : 0;
	l->t_idle = 0;
	if (!(st->flags & STREAM_IS_TCP) && st->start_ns >= cl->idle_ns)
		l->t_idle = (int64_t)(st->start_ns - cl->idle_ns);
	l->t_request = span(st->start_ns, st->req_ns);
	l->t_queue = span(st->req_ns, st->queue_ns);
	l->t_connect = span(st->queue_ns, st->conn_ns);
	l->t_response = span(st->conn_ns, st->rsp_ns);
	l->t_data = span(st->rsp_ns, end);
	l->t_active = span(st->start_ns, end);
	l->t_total = l->t_active + l->t_idle + l->t_handshake;
	if (st->flags & STREAM_IS_TCP) {
		l->t_queue = span(st->start_ns, st->queue_ns);
		l->t_total = span(st->start_ns, end);
	}
}

static void log_counts(const struct stream *st, struct subject_log *l)
{
	l->actconn = atomic_load_explicit(&st->w->o.shared->cur_conns, memory_order_relaxed);
	l->feconn = atomic_load_explicit(&st->fe_rt->fe_cur, memory_order_relaxed);
	l->retries = st->n_retries;
	l->is_redispatched = st->flags & STREAM_REDISPATCHED;
	if (st->be_rt) {
		l->beconn = atomic_load_explicit(&st->be_rt->cur, memory_order_relaxed) -
			    !!(st->flags & STREAM_IN_BACKEND);
		l->backend_queue = atomic_load_explicit(&st->be_rt->n_waiting,
							memory_order_relaxed);
	}
	if (st->srv) {
		l->srv_conn = atomic_load_explicit(&st->srv->cur, memory_order_relaxed) -
			      !!(st->flags & STREAM_HAS_SLOT);
		l->srv_queue = atomic_load_explicit(&st->srv->n_waiting, memory_order_relaxed);
	}
}

static struct str captured_cookie(struct stream *st)
{
	struct str want = str_from_cstr(st->fe->capture_cookie);

	for (unsigned i = 0; i < st->req.n_fields; i++) {
		const struct http_field *f = &st->req.fields[i];
		struct str rest = f->value;

		while (f->id == HTTP_FIELD_COOKIE && rest.p) {
			struct str pair = str_trim(str_cut(&rest, ';'));

			if (str_is_prefix(pair, want))
				return str_sub(pair, 0, st->fe->capture_cookie_len);
		}
	}
	return STR_NULL;
}

static void log_names(struct stream *st, struct subject_log *l)
{
	l->frontend = str_from_cstr(st->fe->name);
	l->is_tls = conn_is_tls(st->front.conn);
	l->backend = st->be ? str_from_cstr(st->be->name) : l->frontend;
	l->server = st->srv			 ? str_from_cstr(st->srv->name)
		    : st->flags & STREAM_SERVICE ? STR("<STATS>")
						 : STR("<NOSRV>");
	l->start_line = st->flags & STREAM_REQ_PARSED ? st->req.start_line : STR_NULL;
	if (unlikely(st->snap->conf->global.log_uri_len))
		l->start_line = str_sub(l->start_line, 0, st->snap->conf->global.log_uri_len);
	l->unique_id = st->unique_id;
	l->req_captures = st->req_captures;
	l->rsp_captures = st->rsp_captures;
	l->n_req_captures = st->req_captures ? st->fe->n_req_captures : 0;
	l->n_rsp_captures = st->rsp_captures ? st->fe->n_rsp_captures : 0;
	if (st->fe->capture_cookie && st->flags & STREAM_REQ_PARSED)
		l->client_cookie = captured_cookie(st);
	if (st->srv)
		server_get_addr(st->srv, &l->server_addr);
	if (st->back.conn)
		l->bind_src = *conn_local_addr(st->back.conn);
}

static enum log_level line_level(const struct stream *st)
{
	bool is_error = st->term[0] != '-' && st->term[0] != 'L';

	if (st->log_level <= LOG_LVL_DEBUG)
		return (enum log_level)st->log_level;
	if (is_error && st->fe->options & CONF_OPT(LOG_SEPARATE_ERRORS))
		return LOG_LVL_ERR;
	return LOG_LVL_INFO;
}

/* Where nothing was sent: the answer that an aborted request would have had, or -1 (as HAProxy). */
static int32_t line_status(const struct stream *st)
{
	if (st->status || st->flags & STREAM_IS_TCP)
		return st->status;
	return st->term[0] == 'C' && (st->term[1] == 'R' || st->term[1] == 'H') ? 400 : -1;
}

void stream_log(struct stream *st)
{
	const struct conf_proxy *fe = st->fe;
	const struct subject *s;
	struct subject_log log = { 0 };
	const struct logfmt *f = fe->log_format;
	struct str sd = STR_NULL;
	size_t n;

	if (st->log_level == 0xfe || !f || !fe->logs.n)
		return;
	if (fe->options & CONF_OPT(DONTLOG_NORMAL) && stream_is_normal(st))
		return;
	if (fe->error_log_format && st->term[0] != '-' && st->term[0] != 'L')
		f = fe->error_log_format;
	s = stream_subject(st);
	log_times(st, &log);
	log_counts(st, &log);
	log_names(st, &log);
	memcpy(log.term, st->term, sizeof(log.term));
	log.status = line_status(st);
	log.is_asap = st->fe->options & CONF_OPT(LOGASAP);
	log.bytes_from_client = st->bytes_in;
	log.bytes_to_client = st->bytes_out;
	log.request_counter = (uint32_t)st->id;
	st->subject.log = &log;
	n = logfmt_eval(f, s, st->w->log_line, WORKER_LOG_LINE);
	if (fe->log_format_sd)
		sd = logfmt_eval_str(fe->log_format_sd, s);
	st->subject.log = NULL;
	log_emit(fe->logs.targets, fe->logs.n, line_level(st), str_from_cstr(fe->log_tag), sd,
		 str_make(st->w->log_line, n));
}

/* What is known when the answer begins; the times and bytes are marked as not final. */
void stream_log_asap(struct stream *st)
{
	if (!st->fe->has_log || st->flags & (STREAM_NO_LOG | STREAM_LOG_SENT))
		return;
	st->data_ns = loop_now(st->w->loop);
	st->bytes_in = st->front.rx;
	st->bytes_out = st->front.ops == &side_h1 ? st->front.prefix.len : 0;
	st->flags |= STREAM_LOG_SENT;
	stream_log(st);
}

/* Without any format there is a line per connection, at accept. */
void client_log_connect(struct client *cl)
{
	char src[ADDR_TEXT_MAX], dst[ADDR_TEXT_MAX];
	int n;

	addr_format(&cl->conn->peer, src, sizeof(src));
	addr_format(&cl->conn->local, dst, sizeof(dst));
	n = snprintf(cl->w->log_line, WORKER_LOG_LINE, "Connect from %s to %s (%s/%s)", src, dst,
		     cl->fe->name, cl->fe->mode == CONF_MODE_TCP ? "TCP" : "HTTP");
	if (n > 0)
		log_emit(cl->fe->logs.targets, cl->fe->logs.n, LOG_LVL_INFO,
			 str_from_cstr(cl->fe->log_tag), STR_NULL,
			 str_make(cl->w->log_line, (size_t)n));
}

/* A connection that ended before it could carry anything: "<src> [date] fe/listener: reason". */
void client_log_error(struct client *cl, const char *what)
{
	char src[ADDR_TEXT_MAX], date[32] = "";
	time_t second = (time_t)(cl->accept_wall / 1000000000u);
	struct tm tm;
	int n;

	if (!cl->fe->has_log || !cl->fe->logs.n || cl->fe->options & CONF_OPT(DONTLOGNULL))
		return;
	addr_format(&cl->conn->peer, src, sizeof(src));
	if (localtime_r(&second, &tm))
		strftime(date, sizeof(date), "%d/%b/%Y:%H:%M:%S", &tm);
	n = snprintf(cl->w->log_line, WORKER_LOG_LINE, "%s [%s.%03u] %s/%s: %s", src, date,
		     (unsigned)(cl->accept_wall / 1000000u % 1000), cl->fe->name,
		     cl->pb->conf->name ? cl->pb->conf->name : "?", what);
	if (n > 0)
		log_emit(cl->fe->logs.targets, cl->fe->logs.n,
			 cl->fe->options & CONF_OPT(LOG_SEPARATE_ERRORS) ? LOG_LVL_ERR
									 : LOG_LVL_INFO,
			 str_from_cstr(cl->fe->log_tag), STR_NULL,
			 str_make(cl->w->log_line, (size_t)n));
}
