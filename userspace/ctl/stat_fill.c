/* SPDX-License-Identifier: BSD-2-Clause */
/* Fills rows of `show stat` from counters, server states and configuration. Control thread. */
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "ctl/metrics.h"
#include "ctl/stat_cols.h"

static void set_u64(struct stat_row *r, enum stat_col c, uint64_t v)
{
	r->v[c] = (struct stat_value){ .kind = STAT_U64, .num = v };
}

static void set_u32(struct stat_row *r, enum stat_col c, uint64_t v)
{
	r->v[c] = (struct stat_value){ .kind = STAT_U32, .num = (uint32_t)v };
}

/* Limits: 0 means none and is shown as an empty field. */
static void set_limit(struct stat_row *r, enum stat_col c, uint64_t v)
{
	if (v)
		set_u32(r, c, v);
}

static void set_str(struct stat_row *r, enum stat_col c, const char *s)
{
	if (s)
		r->v[c] = (struct stat_value){ .kind = STAT_STR, .str = s };
}

static void HG_PRINTF(3, 4) set_fmt(struct stat_row *r, enum stat_col c, const char *fmt, ...)
{
	char *at = r->scratch + r->scratch_len;
	size_t room = sizeof(r->scratch) - r->scratch_len;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(at, room, fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= room)
		return;
	r->scratch_len += (size_t)n + 1;
	set_str(r, c, at);
}

/* Of a text that does not live as long as the row. */
static void set_copy(struct stat_row *r, enum stat_col c, const char *text, size_t len)
{
	char *at = r->scratch + r->scratch_len;

	if (len >= sizeof(r->scratch) - r->scratch_len)
		return;
	memcpy(at, text, len);
	at[len] = '\0';
	r->scratch_len += len + 1;
	set_str(r, c, at);
}

static const char *mode_name(const struct conf_proxy *px)
{
	static const char *const names[] = { "tcp", "http", "l4" };

	return names[px->mode];
}

static const char *algo_name(const struct conf_proxy *px)
{
	static const char *const names[] = { "roundrobin", "static-rr", "leastconn", "first",
					     "source",	   "uri",	"url_param", "hdr",
					     "random",	   "hash",	"maglev",    "peak-ewma",
					     "rdp-cookie" };

	return names[px->balance.algo];
}

static void row_begin(struct stat_row *r, enum stat_type type, const struct conf_proxy *px,
		      const char *name, uint32_t sid)
{
	/* Not the scratch. */
	r->type = type;
	r->iid = px->id;
	r->sid = sid;
	memset(r->v, 0, sizeof(r->v));
	r->scratch_len = 0;
	set_str(r, STAT_PXNAME, px->name);
	set_str(r, STAT_SVNAME, name);
	set_u32(r, STAT_PID, 1);
	set_u32(r, STAT_IID, px->id);
	set_u32(r, STAT_SID, sid);
	set_u32(r, STAT_TYPE, type);
	set_str(r, STAT_MODE, mode_name(px));
}

/* What all kinds of row have. */
static void fill_traffic(struct stat_row *r, const struct hg_l7_counters *c)
{
	set_u32(r, STAT_SCUR, c->cur_sessions > 0 ? (uint64_t)c->cur_sessions : 0);
	set_u32(r, STAT_SMAX, c->max_sessions);
	set_u64(r, STAT_STOT, c->sessions);
	set_u64(r, STAT_BIN, c->bytes_in);
	set_u64(r, STAT_BOUT, c->bytes_out);
	set_u64(r, STAT_DRESP, c->rsp_denied);
	set_u64(r, STAT_WREW, c->failed_rewrites);
	set_u64(r, STAT_EINT, c->internal_errors);
	set_u64(r, STAT_REQBIN, c->bytes_in);
	set_u64(r, STAT_RESBOUT, c->bytes_out);
}

static void fill_responses(struct stat_row *r, const struct hg_l7_counters *c)
{
	set_u64(r, STAT_HRSP_1XX, c->hrsp_1xx);
	set_u64(r, STAT_HRSP_2XX, c->hrsp_2xx);
	set_u64(r, STAT_HRSP_3XX, c->hrsp_3xx);
	set_u64(r, STAT_HRSP_4XX, c->hrsp_4xx);
	set_u64(r, STAT_HRSP_5XX, c->hrsp_5xx);
	set_u64(r, STAT_HRSP_OTHER, c->hrsp_other);
	set_u64(r, STAT_REQ_TOT, c->requests);
}

static void fill_compression(struct stat_row *r, const struct hg_l7_counters *c)
{
	set_u64(r, STAT_COMP_IN, c->comp_in);
	set_u64(r, STAT_COMP_OUT, c->comp_out);
	set_u64(r, STAT_COMP_BYP, c->comp_bypassed);
	set_u64(r, STAT_COMP_RSP, c->comp_responses);
	set_u64(r, STAT_CACHE_LOOKUPS, 0);
	set_u64(r, STAT_CACHE_HITS, 0);
}

static void fill_rates(struct stat_row *r, const struct row_rates *rates)
{
	set_u32(r, STAT_RATE, rates->sessions.now);
	set_u32(r, STAT_RATE_MAX, rates->sessions.max);
}

/* Towards servers: backend and server rows. */
static void fill_back(struct stat_row *r, const struct hg_l7_counters *c,
		      const struct row_rates *rates)
{
	set_u32(r, STAT_QCUR, c->cur_queue > 0 ? (uint64_t)c->cur_queue : 0);
	set_u32(r, STAT_QMAX, c->max_queue);
	set_u64(r, STAT_ECON, c->conn_errors);
	set_u64(r, STAT_ERESP, c->rsp_errors);
	set_u64(r, STAT_WRETR, c->retries);
	set_u64(r, STAT_WREDIS, c->redispatches);
	set_u64(r, STAT_LBTOT, c->picked);
	set_u64(r, STAT_CLI_ABRT, c->cli_aborts);
	set_u64(r, STAT_SRV_ABRT, c->srv_aborts);
	if (c->last_session_s)
		r->v[STAT_LASTSESS] = (struct stat_value){
			.kind = STAT_S32, .num = (uint64_t)time(NULL) - c->last_session_s
		};
	else
		r->v[STAT_LASTSESS] = (struct stat_value){ .kind = STAT_S32, .num = (uint64_t)-1 };
	set_u32(r, STAT_QTIME, (uint64_t)rates->times[ROW_TIME_QUEUE].ms);
	set_u32(r, STAT_CTIME, (uint64_t)rates->times[ROW_TIME_CONNECT].ms);
	set_u32(r, STAT_RTIME, (uint64_t)rates->times[ROW_TIME_RESPONSE].ms);
	set_u32(r, STAT_TTIME, (uint64_t)rates->times[ROW_TIME_TOTAL].ms);
	set_u32(r, STAT_QTIME_MAX, c->max_qtime_ms);
	set_u32(r, STAT_CTIME_MAX, c->max_ctime_ms);
	set_u32(r, STAT_RTIME_MAX, c->max_rtime_ms);
	set_u32(r, STAT_TTIME_MAX, c->max_ttime_ms);
	set_u64(r, STAT_CONNECT, c->connects);
	set_u64(r, STAT_REUSE, c->reuses);
	set_u32(r, STAT_USED_CONN_CUR, c->used_conns > 0 ? (uint64_t)c->used_conns : 0);
}

static void fill_frontend(struct ctl *ctl, const struct conf_proxy *px, const struct lb_backend *be,
			  struct stat_row *r)
{
	const struct row_rates *rates = metrics_service_rates(ctl->metrics, be->fe_stats.id);
	struct hg_l7_counters c;

	metrics_service_sum(ctl, &be->fe_stats, &c);
	row_begin(r, STAT_TYPE_FRONTEND, px, "FRONTEND", 0);
	fill_traffic(r, &c);
	set_limit(r, STAT_SLIM,
		  atomic_load(&be->fe_maxconn) ? atomic_load(&be->fe_maxconn)
					       : atomic_load(&ctl->shared.maxconn));
	set_u64(r, STAT_DREQ, c.req_denied);
	set_u64(r, STAT_EREQ, c.req_errors);
	set_str(r, STAT_STATUS,
		px->is_disabled || be->is_fe_shut || ctl->phase != CTL_RUNNING ? "STOP"
		: be->is_fe_paused					       ? "PAUSED"
									       : "OPEN");
	fill_rates(r, rates);
	set_u32(r, STAT_RATE_LIM, atomic_load(&be->fe_sess_gate.limit));
	set_u32(r, STAT_REQ_RATE, rates->requests.now);
	set_u32(r, STAT_REQ_RATE_MAX, rates->requests.max);
	if (px->mode == CONF_MODE_HTTP) {
		fill_responses(r, &c);
		set_u64(r, STAT_INTERCEPTED, c.intercepted);
		fill_compression(r, &c);
	}
	set_u32(r, STAT_CONN_RATE, rates->sessions.now);
	set_u32(r, STAT_CONN_RATE_MAX, rates->sessions.max);
	set_u64(r, STAT_CONN_TOT, c.sessions);
	set_u64(r, STAT_DCON, c.conn_denied);
	set_u64(r, STAT_DSES, c.sess_denied);
	set_u64(r, STAT_SESS_OTHER, px->mode == CONF_MODE_HTTP ? 0 : c.sessions);
	set_u64(r, STAT_H1SESS, px->mode == CONF_MODE_HTTP ? c.sessions - c.h2_sessions : 0);
	set_u64(r, STAT_H2SESS, c.h2_sessions);
	set_u64(r, STAT_H3SESS, 0);
	set_u64(r, STAT_REQ_OTHER, 0);
	set_u64(r, STAT_H1REQ, c.requests - c.h2_requests);
	set_u64(r, STAT_H2REQ, c.h2_requests);
	set_u64(r, STAT_H3REQ, 0);
}

static void fill_listener(struct ctl *ctl, const struct conf_proxy *px, const struct proxy_bind *pb,
			  struct stat_row *r)
{
	uint32_t max = pb->conf->maxconn, n = atomic_load(&pb->socket->n_conns);
	struct hg_l7_counters c;
	char text[ADDR_TEXT_MAX];
	size_t len;

	metrics_service_sum(ctl, &pb->stats, &c);
	row_begin(r, STAT_TYPE_LISTENER, px, pb->conf->name, pb->conf->id);
	fill_traffic(r, &c);
	set_u32(r, STAT_SLIM, max);
	set_u64(r, STAT_DREQ, c.req_denied);
	set_u64(r, STAT_EREQ, c.req_errors);
	set_str(r, STAT_STATUS,
		ctl->current->backends[px->index]->is_fe_paused ? "WAITING"
		: max && n >= max				? "FULL"
								: "OPEN");
	if (pb->conf->ep.kind == ENDPOINT_IP &&
	    (len = addr_format(&pb->conf->ep.addr, text, sizeof(text))))
		set_copy(r, STAT_ADDR, text, len);
	set_u64(r, STAT_CONN_TOT, c.sessions);
	set_u64(r, STAT_DCON, c.conn_denied);
	set_u64(r, STAT_DSES, c.sess_denied);
}

/* Running, and how the last one ended. */
static void set_status(struct stat_row *r, enum stat_col c, bool is_running, unsigned status)
{
	const char *code = check_status_code((enum check_status)status);

	if (is_running)
		set_fmt(r, c, "* %s", code);
	else
		set_str(r, c, code);
}

static void fill_check(struct stat_row *r, const struct server *s, const struct conf_server *cs)
{
	if (!cs->has_check)
		return;
	set_u64(r, STAT_CHKFAIL, s->check.n_failed);
	set_u64(r, STAT_CHKDOWN, s->check.n_down);
	set_status(r, STAT_CHECK_STATUS, s->check.is_running, s->check.status);
	if (s->check.status >= CHECK_STATUS_L7OK)
		set_u32(r, STAT_CHECK_CODE, s->check.code);
	set_u32(r, STAT_CHECK_DURATION, s->check.duration_ms);
	set_str(r, STAT_LAST_CHK, s->check.desc);
	set_str(r, STAT_CHECK_DESC, check_status_text((enum check_status)s->check.status));
	set_u32(r, STAT_CHECK_RISE, cs->rise);
	set_u32(r, STAT_CHECK_FALL, cs->fall);
	set_u32(r, STAT_CHECK_HEALTH, s->check.health);
}

static void fill_agent(struct stat_row *r, const struct server *s, const struct conf_server *cs)
{
	if (!cs->has_agent)
		return;
	set_status(r, STAT_AGENT_STATUS, s->agent.is_running, s->agent.status);
	if (s->agent.status >= CHECK_STATUS_L7OK)
		set_u32(r, STAT_AGENT_CODE, s->agent.code);
	set_u32(r, STAT_AGENT_DURATION, s->agent.duration_ms);
	set_str(r, STAT_LAST_AGT, s->agent.desc);
	set_str(r, STAT_AGENT_DESC, check_status_text((enum check_status)s->agent.status));
	set_u32(r, STAT_AGENT_RISE, 1);
	set_u32(r, STAT_AGENT_FALL, 1);
	set_u32(r, STAT_AGENT_HEALTH, s->agent.health);
}

static uint64_t down_seconds(uint64_t sum, uint64_t since)
{
	return sum + (since ? (uint64_t)time(NULL) - since : 0);
}

static void fill_server(struct ctl *ctl, const struct conf_proxy *px, const struct conf_server *cs,
			const struct server *s, struct stat_row *r)
{
	const struct row_rates *rates = metrics_backend_rates(ctl->metrics, s->stats.id);
	struct hg_l7_counters c;
	char text[ADDR_TEXT_MAX];
	uint32_t maxconn = atomic_load(&s->maxconn);
	size_t len;

	metrics_backend_sum(ctl, &s->stats, &c);
	row_begin(r, STAT_TYPE_SERVER, px, s->name, s->id);
	fill_traffic(r, &c);
	fill_back(r, &c, rates);
	fill_rates(r, rates);
	set_limit(r, STAT_SLIM, maxconn);
	set_limit(r, STAT_QLIMIT, cs->maxqueue);
	if ((len = server_status_text(s, text, sizeof(text))))
		set_copy(r, STAT_STATUS, text, len);
	set_u32(r, STAT_WEIGHT, (atomic_load(&s->weight) + 15) / 16);
	set_u32(r, STAT_UWEIGHT, atomic_load(&s->uweight));
	set_u32(r, STAT_ACT, !s->is_backup);
	set_u32(r, STAT_BCK, s->is_backup);
	if (cs->has_check || s->check.last_change_s)
		set_u32(r, STAT_LASTCHG,
			s->check.last_change_s ? (uint64_t)time(NULL) - s->check.last_change_s : 0);
	if (cs->has_check)
		set_u32(r, STAT_DOWNTIME, down_seconds(s->check.downtime_s, s->check.down_since_s));
	if (cs->track_server)
		set_fmt(r, STAT_TRACKED, "%s/%s", cs->track_server->proxy->name,
			cs->track_server->name);
	fill_check(r, s, cs);
	fill_agent(r, s, cs);
	if (px->mode == CONF_MODE_HTTP)
		fill_responses(r, &c);
	if (s->addr.sa.sa_family && (len = addr_format(&s->addr, text, sizeof(text))))
		set_copy(r, STAT_ADDR, text, len);
	set_str(r, STAT_COOKIE, cs->cookie);
	if (atomic_load(&s->dynamic_cookie))
		set_fmt(r, STAT_COOKIE, "%016llx",
			(unsigned long long)atomic_load(&s->dynamic_cookie));
	set_u32(r, STAT_SRV_ICUR, c.idle_conns > 0 ? (uint64_t)c.idle_conns : 0);
	set_limit(r, STAT_SRC_ILIM, cs->pool_max_conn == UINT32_MAX ? 0 : cs->pool_max_conn);
	set_u32(r, STAT_IDLE_CONN_CUR, 0);
	set_u32(r, STAT_SAFE_CONN_CUR, c.idle_conns > 0 ? (uint64_t)c.idle_conns : 0);
	set_u32(r, STAT_NEED_CONN_EST, c.used_conns > 0 ? (uint64_t)c.used_conns : 0);
}

static void fill_backend(struct ctl *ctl, const struct conf_proxy *px, const struct lb_backend *be,
			 struct stat_row *r)
{
	const struct row_rates *rates = metrics_backend_rates(ctl->metrics, be->stats.id);
	uint32_t n_active = atomic_load(&be->n_active),
		 n_backup = atomic_load(&be->n_backup_active);
	uint64_t weight = 0, uweight = 0;
	struct hg_l7_counters c;

	metrics_backend_sum(ctl, &be->stats, &c);
	row_begin(r, STAT_TYPE_BACKEND, px, "BACKEND", 0);
	fill_traffic(r, &c);
	fill_back(r, &c, rates);
	fill_rates(r, rates);
	for (unsigned i = 0; i < be->n_servers; i++) {
		if (!server_is_eligible(be->servers[i]) ||
		    be->servers[i]->is_backup != (n_active == 0))
			continue;
		weight += (atomic_load(&be->servers[i]->weight) + 15) / 16;
		uweight += atomic_load(&be->servers[i]->uweight);
	}
	set_u32(r, STAT_SLIM, px->fullconn);
	set_u64(r, STAT_DREQ, c.req_denied);
	set_str(r, STAT_STATUS, weight || be->n_servers == 0 ? "UP" : "DOWN");
	set_u32(r, STAT_WEIGHT, weight);
	set_u32(r, STAT_UWEIGHT, uweight);
	set_u32(r, STAT_ACT, n_active);
	set_u32(r, STAT_BCK, n_backup);
	set_u64(r, STAT_CHKDOWN, be->n_down_times);
	set_u32(r, STAT_LASTCHG, be->last_change_s ? (uint64_t)time(NULL) - be->last_change_s : 0);
	set_u32(r, STAT_DOWNTIME, down_seconds(be->downtime_s, be->down_since_s));
	set_str(r, STAT_ALGO, algo_name(px));
	set_str(r, STAT_COOKIE, px->cookie.name);
	if (px->mode == CONF_MODE_HTTP) {
		fill_responses(r, &c);
		fill_compression(r, &c);
	}
}

struct stat_walk {
	struct ctl *ctl;
	const struct stat_filter *f;
	int (*fn)(void *ctx, const struct stat_row *row);
	void *ctx;
	struct stat_row row;
};

static bool walk_wants_server(const struct stat_filter *f, const struct server *s)
{
	if (f->sid >= 0 && s->id != (uint32_t)f->sid)
		return false;
	if (f->no_maint && (atomic_load(&s->admin) & SERVER_MAINT_MASK))
		return false;
	return !f->up_only || server_is_usable(s);
}

static int walk_servers(struct stat_walk *w, const struct conf_proxy *px,
			const struct lb_backend *be)
{
	for (unsigned i = 0; i < be->n_servers; i++) {
		const struct server *s = be->servers[i];
		int rc;

		if (!walk_wants_server(w->f, s))
			continue;
		fill_server(w->ctl, px, s->conf, s, &w->row);
		if ((rc = w->fn(w->ctx, &w->row)) != 0)
			return rc;
	}
	return 0;
}

/* With option socket-stats. */
static int walk_listeners(struct stat_walk *w, const struct conf_proxy *px)
{
	const struct proxy_snapshot *snap = w->ctl->current;

	for (unsigned i = 0; i < snap->n_binds; i++) {
		const struct proxy_bind *pb = &snap->binds[i];
		int rc;

		if (pb->conf->proxy != px || !pb->stats.rows ||
		    (w->f->sid >= 0 && pb->conf->id != (uint32_t)w->f->sid))
			continue;
		fill_listener(w->ctl, px, pb, &w->row);
		if ((rc = w->fn(w->ctx, &w->row)) != 0)
			return rc;
	}
	return 0;
}

static int walk_proxy(struct stat_walk *w, const struct conf_proxy *px)
{
	const struct lb_backend *be = w->ctl->current->backends[px->index];
	int rc = 0;

	if ((px->caps & CONF_CAP_FRONTEND) && (w->f->types & 1)) {
		fill_frontend(w->ctl, px, be, &w->row);
		rc = w->fn(w->ctx, &w->row);
	}
	if (rc == 0 && (px->caps & CONF_CAP_FRONTEND) && (w->f->types & 8))
		rc = walk_listeners(w, px);
	if (rc == 0 && (px->caps & CONF_CAP_BACKEND) && (w->f->types & 4))
		rc = walk_servers(w, px, be);
	if (rc == 0 && (px->caps & CONF_CAP_BACKEND) && (w->f->types & 2)) {
		fill_backend(w->ctl, px, be, &w->row);
		rc = w->fn(w->ctx, &w->row);
	}
	return rc;
}

int stat_each_row(struct ctl *ctl, const struct stat_filter *f,
		  int (*fn)(void *ctx, const struct stat_row *row), void *ctx)
{
	struct stat_walk w = { .ctl = ctl, .f = f, .fn = fn, .ctx = ctx };
	struct list *l;

	list_for_each(l, &ctl->current->conf->proxies) {
		const struct conf_proxy *px = list_entry(l, struct conf_proxy, link);
		int rc;

		if (f->iid >= 0 && px->id != (unsigned)f->iid)
			continue;
		if (f->proxy && strcmp(f->proxy, px->name) != 0)
			continue;
		if ((rc = walk_proxy(&w, px)) != 0)
			return rc;
	}
	return 0;
}
