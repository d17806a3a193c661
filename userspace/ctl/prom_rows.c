/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Metrics of frontends, listeners, backends and servers: one table, filled from the rows of `show stat`.
 * What a row leaves empty is NaN, but for checks that are not configured and HTTP counters of sections
 * that do not speak HTTP: those have no series.
 */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "ctl/prometheus.h"

#define F (1u << PROM_FRONTEND)
#define L (1u << PROM_LISTENER)
#define B (1u << PROM_BACKEND)
#define S (1u << PROM_SERVER)

enum prom_form {
	FORM_NUMBER,
	FORM_MS, /* milliseconds, shown in seconds */
	FORM_IF_SET, /* a number; empty: no series */
	FORM_MS_IF_SET,
	FORM_STATUS, /* one series per state, 0 or 1 */
	FORM_CHECK, /* one per result of a check */
	FORM_CODES, /* six columns, one series each */
	FORM_AGG_STATUS, /* servers by state */
	FORM_AGG_CHECK, /* servers by result of their check */
};

static const struct prom_row {
	const char *name, *help;
	uint8_t column; /* enum stat_col */
	uint8_t form; /* enum prom_form */
	uint8_t type; /* enum prom_type */
	uint16_t scopes;
} rows[] = {
#define G(name, col, form, scopes, help) { name, help, STAT_##col, FORM_##form, PROM_GAUGE, scopes }
#define C(name, col, form, scopes, help) \
	{ name, help, STAT_##col, FORM_##form, PROM_COUNTER, scopes }
	G("current_queue", QCUR, NUMBER, B | S, "Requests waiting in the queue now."),
	G("max_queue", QMAX, NUMBER, B | S, "Most requests that waited in the queue at once."),
	G("current_sessions", SCUR, NUMBER, F | L | B | S, "Sessions now."),
	G("max_sessions", SMAX, NUMBER, F | L | B | S, "Most sessions at once."),
	G("limit_sessions", SLIM, NUMBER, F | L | B | S, "Configured limit of sessions."),
	C("sessions_total", STOT, NUMBER, F | L | B | S, "Sessions since the start."),
	C("bytes_in_total", BIN, NUMBER, F | L | B | S, "Bytes from clients."),
	C("bytes_out_total", BOUT, NUMBER, F | L | B | S, "Bytes to clients."),
	C("requests_denied_total", DREQ, NUMBER, F | L | B, "Requests denied by a rule."),
	C("responses_denied_total", DRESP, NUMBER, F | L | B | S, "Responses denied by a rule."),
	C("request_errors_total", EREQ, NUMBER, F | L, "Invalid or unfinished requests."),
	C("connection_errors_total", ECON, NUMBER, B | S,
	  "Connections to servers that could not be made."),
	C("response_errors_total", ERESP, NUMBER, B | S, "Invalid or unfinished responses."),
	C("retry_warnings_total", WRETR, NUMBER, B | S, "Connection attempts that were repeated."),
	C("redispatch_warnings_total", WREDIS, NUMBER, B | S,
	  "Requests that were given to another server."),
	G("status", STATUS, STATUS, F | L | B | S, "State: 1 for the one it is in."),
	G("weight", WEIGHT, NUMBER, B | S, "Weight that counts now."),
	G("uweight", UWEIGHT, NUMBER, B | S, "Weight as configured or set by an operator."),
	G("active_servers", ACT, NUMBER, B, "Active servers that are up."),
	G("backup_servers", BCK, NUMBER, B, "Backup servers that are up."),
	G("active", ACT, NUMBER, S, "1 for an active server."),
	G("backup", BCK, NUMBER, S, "1 for a backup server."),
	C("check_failures_total", CHKFAIL, IF_SET, S, "Health checks that failed."),
	C("check_up_down_total", CHKDOWN, IF_SET, B | S, "Changes from up to down."),
	G("check_last_change_seconds", LASTCHG, IF_SET, B | S, "Time since the last change."),
	C("downtime_seconds_total", DOWNTIME, IF_SET, B | S, "Time spent down."),
	G("queue_limit", QLIMIT, NUMBER, S, "Configured limit of the queue."),
	G("current_throttle", THROTTLE, NUMBER, S, "Percentage of the weight in slow start."),
	C("loadbalanced_total", LBTOT, NUMBER, B | S, "Choices by the balancing algorithm."),
	G("current_session_rate", RATE, NUMBER, F | B | S, "Sessions in the last second."),
	G("limit_session_rate", RATE_LIM, NUMBER, F, "Configured limit of sessions per second."),
	G("max_session_rate", RATE_MAX, NUMBER, F | B | S, "Most sessions in a second."),
	G("check_status", CHECK_STATUS, CHECK, S, "Last health check: 1 for its result."),
	G("check_code", CHECK_CODE, IF_SET, S, "Code of the last health check."),
	G("check_duration_seconds", CHECK_DURATION, MS_IF_SET, S,
	  "Duration of the last health check."),
	C("http_responses_total", HRSP_1XX, CODES, F | B | S, "HTTP responses by class."),
	G("http_requests_rate_max", REQ_RATE_MAX, NUMBER, F, "Most HTTP requests in a second."),
	C("http_requests_total", REQ_TOT, IF_SET, F | B | S, "HTTP requests."),
	C("client_aborts_total", CLI_ABRT, NUMBER, B | S, "Transfers ended by the client."),
	C("server_aborts_total", SRV_ABRT, NUMBER, B | S, "Transfers ended by the server."),
	C("http_comp_bytes_in_total", COMP_IN, IF_SET, F | B, "Bytes given to compression."),
	C("http_comp_bytes_out_total", COMP_OUT, IF_SET, F | B, "Bytes that compression gave."),
	C("http_comp_bytes_bypassed_total", COMP_BYP, IF_SET, F | B,
	  "Bytes that went round compression."),
	C("http_comp_responses_total", COMP_RSP, IF_SET, F | B, "Responses compressed."),
	G("last_session_seconds", LASTSESS, NUMBER, B | S, "Time since the last session, or -1."),
	G("queue_time_average_seconds", QTIME, MS, B | S,
	  "Time in queue, average of the last 1024 requests."),
	G("connect_time_average_seconds", CTIME, MS, B | S,
	  "Time to connect, average of the last 1024 requests."),
	G("response_time_average_seconds", RTIME, MS, B | S,
	  "Time to the response, average of the last 1024 requests."),
	G("total_time_average_seconds", TTIME, MS, B | S,
	  "Total time, average of the last 1024 requests."),
	G("agent_status", AGENT_STATUS, CHECK, S, "Last agent check: 1 for its result."),
	G("agent_code", AGENT_CODE, IF_SET, S, "Code of the last agent check."),
	G("agent_duration_seconds", AGENT_DURATION, MS_IF_SET, S,
	  "Duration of the last agent check."),
	G("connections_rate_max", CONN_RATE_MAX, NUMBER, F, "Most connections in a second."),
	C("connections_total", CONN_TOT, NUMBER, F | L, "Connections accepted."),
	C("intercepted_requests_total", INTERCEPTED, IF_SET, F, "Requests answered here."),
	C("denied_connections_total", DCON, NUMBER, F | L, "Connections denied by a rule."),
	C("denied_sessions_total", DSES, NUMBER, F | L, "Sessions denied by a rule."),
	C("failed_header_rewriting_total", WREW, NUMBER, F | L | B | S,
	  "Rewrites that did not fit."),
	C("internal_errors_total", EINT, NUMBER, F | L | B | S, "Internal errors."),
	C("connection_attempts_total", CONNECT, NUMBER, B | S, "Connections begun to servers."),
	C("connection_reuses_total", REUSE, NUMBER, B | S, "Requests on connections used before."),
	C("http_cache_lookups_total", CACHE_LOOKUPS, IF_SET, F | B, "Look-ups in the cache."),
	C("http_cache_hits_total", CACHE_HITS, IF_SET, F | B, "Answers from the cache."),
	G("idle_connections_current", SRV_ICUR, NUMBER, S, "Idle connections kept for reuse."),
	G("idle_connections_limit", SRC_ILIM, NUMBER, S, "Configured limit of those."),
	G("unsafe_idle_connections_current", IDLE_CONN_CUR, NUMBER, S,
	  "Of those, not known to be reusable."),
	G("safe_idle_connections_current", SAFE_CONN_CUR, NUMBER, S, "Of those, safe to reuse."),
	G("used_connections_current", USED_CONN_CUR, NUMBER, S, "Connections in use."),
	G("need_connections_current", NEED_CONN_EST, NUMBER, S,
	  "Connections needed, as estimated."),
	G("max_queue_time_seconds", QTIME_MAX, MS, B | S, "Longest time in queue."),
	G("max_connect_time_seconds", CTIME_MAX, MS, B | S, "Longest time to connect."),
	G("max_response_time_seconds", RTIME_MAX, MS, B | S, "Longest time to the response."),
	G("max_total_time_seconds", TTIME_MAX, MS, B | S, "Longest total time."),
	G("agg_server_status", AGG_SERVER_STATUS, AGG_STATUS, B, "Servers by state."),
	G("agg_server_check_status", AGG_SERVER_CHECK_STATUS, AGG_STATUS, B,
	  "Servers by state (old name)."),
	G("agg_check_status", AGG_CHECK_STATUS, AGG_CHECK, B, "Servers by result of their check."),
#undef G
#undef C
};
#define N_ROWS ARRAY_SIZE(rows)

/* --- states ---------------------------------------------------------------------------------------- */

/* A state as it begins a text, and as a label. */
struct state {
	struct str text, label;
};
#define STATE(name) { STR(name), STR(",state=\"" name "\"") }

static const struct state states_px[] = { STATE("DOWN"), STATE("UP") };
static const struct state states_li[] = { STATE("WAITING"), STATE("OPEN"), STATE("FULL") };
static const struct state states_srv[] = { STATE("DOWN"), STATE("UP"), STATE("MAINT"),
					   STATE("DRAIN"), STATE("NOLB") };
static const struct state states_check[] = {
	STATE("HANA"),	 STATE("SOCKERR"), STATE("L4OK"),     STATE("L4TOUT"),
	STATE("L4CON"),	 STATE("L6OK"),	   STATE("L6TOUT"),   STATE("L6RSP"),
	STATE("L7TOUT"), STATE("L7RSP"),   STATE("L7OK"),     STATE("L7OKC"),
	STATE("L7STS"),	 STATE("PROCERR"), STATE("PROCTOUT"), STATE("PROCOK"),
};

#define N_SRV	ARRAY_SIZE(states_srv)
#define N_CHECK ARRAY_SIZE(states_check)

/* Position in the list of the state that `text` begins with; n when it is none. */
static unsigned state_find(const struct state *list, unsigned n, const char *text)
{
	size_t len = strcspn(text, " ");

	for (unsigned i = 0; i < n; i++)
		if (list[i].text.len == len && memcmp(text, list[i].text.p, len) == 0)
			return i;
	return n;
}

/* Frontends are OPEN, servers may have no check: HAProxy calls both UP here. */
static unsigned status_find(enum prom_scope scope, const char *text)
{
	if (scope == PROM_LISTENER)
		return state_find(states_li, ARRAY_SIZE(states_li), text);
	if (scope == PROM_SERVER) {
		unsigned i = state_find(states_srv, N_SRV, text);

		return i < N_SRV ? i : 1;
	}
	return strcmp(text, "OPEN") == 0 || strcmp(text, "UP") == 0;
}

/* --- the walk -------------------------------------------------------------------------------------- */

struct prom_walk {
	struct ctl *ctl;
	const struct prom_query *q;
	struct prom_metric *metrics; /* [PROM_SCOPES][N_ROWS] */
	struct buf labels;
	char labels_mem[8192];
	/* Servers of the backend whose rows are passing by. */
	uint32_t agg_iid;
	uint32_t agg_status[N_SRV], agg_check[N_CHECK];
};

static struct prom_metric *metric_of(struct prom_walk *w, unsigned scope, unsigned row)
{
	return &w->metrics[scope * N_ROWS + row];
}

static void put_states(struct prom_metric *m, struct str labels, const struct state *list,
		       unsigned n, const uint32_t *values)
{
	for (unsigned i = 0; i < n; i++)
		prom_put_u64(m, labels, list[i].label, values[i]);
}

static void put_one_of(struct prom_metric *m, struct str labels, const struct state *list,
		       unsigned n, unsigned which)
{
	for (unsigned i = 0; i < n; i++)
		prom_put_u64(m, labels, list[i].label, i == which);
}

static void put_status(struct prom_metric *m, struct str labels, enum prom_scope scope,
		       const char *text)
{
	unsigned which = status_find(scope, text);

	if (scope == PROM_SERVER)
		put_one_of(m, labels, states_srv, N_SRV, which);
	else if (scope == PROM_LISTENER)
		put_one_of(m, labels, states_li, ARRAY_SIZE(states_li), which);
	else
		put_one_of(m, labels, states_px, ARRAY_SIZE(states_px), which);
}

/* "* L4OK": a check is running, that was the last one. */
static const char *check_text(const struct stat_value *v)
{
	return v->kind != STAT_STR ? NULL : strncmp(v->str, "* ", 2) == 0 ? v->str + 2 : v->str;
}

static void put_number(struct prom_metric *m, struct str labels, const struct stat_value *v,
		       bool is_ms)
{
	char text[28];

	if (v->kind == STAT_EMPTY || v->kind == STAT_STR) {
		prom_put_value(m, labels, STR_NULL, STR("NaN"));
	} else if (v->kind == STAT_S32 && (int32_t)v->num < 0) {
		text[0] = '-';
		prom_put_value(m, labels, STR_NULL,
			       str_make(text, 1 + out_digits(text + 1,
							     (uint64_t)-(int64_t)(int32_t)v->num)));
	} else if (is_ms) {
		prom_put_value(m, labels, STR_NULL, prom_ms(text, v->num));
	} else {
		prom_put_u64(m, labels, STR_NULL, v->num);
	}
}

static void put_codes(struct prom_metric *m, struct str labels, const struct stat_row *row)
{
	static const struct str more[] = { STR(",code=\"1xx\""), STR(",code=\"2xx\""),
					   STR(",code=\"3xx\""), STR(",code=\"4xx\""),
					   STR(",code=\"5xx\""), STR(",code=\"other\"") };

	for (unsigned i = 0; i < ARRAY_SIZE(more); i++)
		if (row->v[STAT_HRSP_1XX + i].kind != STAT_EMPTY)
			prom_put_u64(m, labels, more[i], row->v[STAT_HRSP_1XX + i].num);
}

static void put_row(struct prom_walk *w, const struct prom_row *r, struct prom_metric *m,
		    enum prom_scope scope, const struct stat_row *row)
{
	struct str labels = buf_str(&w->labels);
	const struct stat_value *v = &row->v[r->column];
	const char *check;

	switch ((enum prom_form)r->form) {
	case FORM_IF_SET:
	case FORM_MS_IF_SET:
		if (v->kind == STAT_EMPTY)
			break;
		/* fall through */
	case FORM_NUMBER:
	case FORM_MS:
		put_number(m, labels, v, r->form == FORM_MS || r->form == FORM_MS_IF_SET);
		break;
	case FORM_STATUS:
		if (v->kind == STAT_STR)
			put_status(m, labels, scope, v->str);
		break;
	case FORM_CHECK:
		check = check_text(v);
		if (check)
			put_one_of(m, labels, states_check, N_CHECK,
				   state_find(states_check, N_CHECK, check));
		break;
	case FORM_CODES:
		put_codes(m, labels, row);
		break;
	case FORM_AGG_STATUS:
		put_states(m, labels, states_srv, N_SRV, w->agg_status);
		break;
	case FORM_AGG_CHECK:
		put_states(m, labels, states_check, N_CHECK, w->agg_check);
		break;
	}
}

/* Server rows come before the row of their backend. */
static void aggregate(struct prom_walk *w, const struct stat_row *row)
{
	const char *check = check_text(&row->v[STAT_CHECK_STATUS]);
	unsigned i;

	if (w->agg_iid != row->iid) {
		w->agg_iid = row->iid;
		memset(w->agg_status, 0, sizeof(w->agg_status));
		memset(w->agg_check, 0, sizeof(w->agg_check));
	}
	if (row->type != STAT_TYPE_SERVER || row->v[STAT_STATUS].kind != STAT_STR)
		return;
	w->agg_status[status_find(PROM_SERVER, row->v[STAT_STATUS].str)]++;
	i = check ? state_find(states_check, N_CHECK, check) : N_CHECK;
	if (i < N_CHECK)
		w->agg_check[i]++;
}

static bool walk_labels(struct prom_walk *w, const struct stat_row *row)
{
	struct str proxy = str_from_cstr(row->v[STAT_PXNAME].str);
	const struct conf_proxy *px;

	buf_clear(&w->labels);
	if (!prom_label(&w->labels, "proxy", proxy))
		return false;
	if (row->type == STAT_TYPE_SERVER || row->type == STAT_TYPE_LISTENER)
		return prom_label(&w->labels, row->type == STAT_TYPE_SERVER ? "server" : "listener",
				  str_from_cstr(row->v[STAT_SVNAME].str));
	if (!w->q->desc_labels)
		return true;
	px = conf_find_proxy(w->ctl->current->conf, proxy,
			     row->type == STAT_TYPE_FRONTEND ? CONF_CAP_FRONTEND
							     : CONF_CAP_BACKEND);
	return !px || !px->description ||
	       prom_label(&w->labels, "desc", str_from_cstr(px->description));
}

static int walk_row(void *ctx, const struct stat_row *row)
{
	static const uint8_t scope_of[] = {
		[STAT_TYPE_FRONTEND] = PROM_FRONTEND,
		[STAT_TYPE_BACKEND] = PROM_BACKEND,
		[STAT_TYPE_SERVER] = PROM_SERVER,
		[STAT_TYPE_LISTENER] = PROM_LISTENER,
	};
	struct prom_walk *w = ctx;
	enum prom_scope scope = scope_of[row->type];
	const struct stat_value *status = &row->v[STAT_STATUS];

	aggregate(w, row);
	if (!(w->q->scopes & 1u << scope))
		return 0;
	if (w->q->no_maint && scope == PROM_SERVER && status->kind == STAT_STR &&
	    strncmp(status->str, "MAINT", 5) == 0)
		return 0;
	if (!walk_labels(w, row))
		return 0;
	for (unsigned i = 0; i < N_ROWS; i++)
		if (rows[i].scopes & 1u << scope)
			put_row(w, &rows[i], metric_of(w, scope, i), scope, row);
	return 0;
}

/* Bits of stat_filter.types that these scopes need. */
static unsigned walk_types(unsigned scopes)
{
	unsigned types = 0;

	types |= scopes & F ? 1 : 0;
	types |= scopes & B ? 2 | 4 : 0; /* counts of servers by state */
	types |= scopes & S ? 4 : 0;
	types |= scopes & L ? 8 : 0;
	return types;
}

void prom_rows(struct ctl *ctl, const struct prom_query *q, struct service_text *out)
{
	static const char *const prefixes[PROM_SCOPES] = {
		[PROM_FRONTEND] = "haproxy_frontend_",
		[PROM_LISTENER] = "haproxy_listener_",
		[PROM_BACKEND] = "haproxy_backend_",
		[PROM_SERVER] = "haproxy_server_",
	};
	struct stat_filter f = { .iid = -1, .sid = -1, .types = walk_types(q->scopes) };
	struct prom_walk *w;

	if (!f.types)
		return;
	w = mem_zalloc(sizeof(*w));
	if (w)
		w->metrics = mem_zalloc(PROM_SCOPES * N_ROWS * sizeof(*w->metrics));
	if (!w || !w->metrics) {
		out->is_failed = true;
		mem_free(w);
		return;
	}
	w->ctl = ctl;
	w->q = q;
	buf_init(&w->labels, w->labels_mem, sizeof(w->labels_mem));
	for (unsigned s = PROM_FRONTEND; s <= PROM_SERVER; s++)
		for (unsigned i = 0; i < N_ROWS; i++)
			prom_metric_init(metric_of(w, s, i), q, prefixes[s], rows[i].name,
					 rows[i].help, (enum prom_type)rows[i].type);
	(void)stat_each_row(ctl, &f, walk_row, w);
	for (unsigned s = PROM_FRONTEND; s <= PROM_SERVER; s++)
		for (unsigned i = 0; i < N_ROWS; i++)
			service_text_join(out, &metric_of(w, s, i)->text);
	mem_free(w->metrics);
	mem_free(w);
}
