/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The %tags of log formats. Numbers are never quoted; dates are formatted once per second and thread.
 * Workers, on the request path: no allocation.
 */
#include "expr/logfmt_priv.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* --- addresses, names --- */

enum tag_addr {
	TAG_CLIENT,
	TAG_FRONT,
	TAG_BACK,
	TAG_SERVER
};

static const struct addr *tag_address(const struct subject *s, enum tag_addr which)
{
	switch (which) {
	case TAG_CLIENT:
		return s->src ? s->src : s->front.src;
	case TAG_FRONT:
		return s->dst ? s->dst : s->front.dst;
	case TAG_BACK:
		return s->log ? &s->log->bind_src : s->back.src;
	case TAG_SERVER:
		return s->log ? &s->log->server_addr : s->back.dst;
	}
	return NULL;
}

static void tag_ip(struct lw *w, const struct subject *s, unsigned flags, unsigned arg)
{
	lw_addr(w, tag_address(s, (enum tag_addr)arg), flags);
}

static void put_hex(struct lw *w, uint64_t v, unsigned digits)
{
	char tmp[17];

	lw_mem(w, tmp, (size_t)snprintf(tmp, sizeof(tmp), "%0*lX", (int)digits, (unsigned long)v));
	w->is_blank = false;
}

static void put_num(struct lw *w, int64_t v)
{
	lw_int(w, v);
	w->is_blank = false;
}

static void tag_port(struct lw *w, const struct subject *s, unsigned flags, unsigned arg)
{
	const struct addr *a = tag_address(s, (enum tag_addr)arg);

	if (!a || a->sa.sa_family == AF_UNSPEC)
		lw_value(w, STR(""), ENC_CTL, flags);
	else if (a->sa.sa_family == AF_UNIX)
		put_num(w, s->listener_id); /* "unix:<listening socket>" */
	else if (flags & LF_HEX)
		put_hex(w, addr_port(a), 4);
	else
		put_num(w, addr_port(a));
}

enum tag_text {
	TXT_FRONTEND,
	TXT_FRONTEND_TLS,
	TXT_BACKEND,
	TXT_SERVER,
	TXT_CC,
	TXT_CS,
	TXT_ID,
	TXT_HOST,
	TXT_CIPHER,
	TXT_TLS_VERSION,
};

static struct str tls_text(const struct subject *s, enum subject_tls_field f)
{
	struct sample v;

	if (!s->front.is_tls || !s->ops || !s->ops->tls || s->ops->tls(s, false, f, &v) ||
	    v.type < SAMPLE_STR)
		return STR("");
	return v.str;
}

static struct str host_name(void)
{
	static _Thread_local char name[256];

	if (!name[0] && gethostname(name, sizeof(name) - 1))
		name[0] = '\0';
	return str_from_cstr(name);
}

static struct str log_or(const struct subject *s, struct str from_log, struct str otherwise)
{
	return s->log && from_log.p ? from_log : otherwise;
}

static void tag_text(struct lw *w, const struct subject *s, unsigned flags, unsigned arg)
{
	const struct subject_log *l = s->log;
	struct str v = STR("");

	switch ((enum tag_text)arg) {
	case TXT_FRONTEND:
	case TXT_FRONTEND_TLS:
		v = log_or(s, l ? l->frontend : v, s->frontend_name);
		break;
	case TXT_BACKEND:
		v = log_or(s, l ? l->backend : v, s->backend_name);
		break;
	case TXT_SERVER:
		v = log_or(s, l ? l->server : v, s->server_name);
		v = v.len ? v : STR("<NOSRV>");
		break;
	case TXT_CC:
		v = l->client_cookie;
		break;
	case TXT_CS:
		v = l->server_cookie;
		break;
	case TXT_ID:
		v = l->unique_id;
		break;
	case TXT_HOST:
		v = host_name();
		break;
	case TXT_CIPHER:
		v = tls_text(s, TLS_CIPHER);
		break;
	case TXT_TLS_VERSION:
		v = tls_text(s, TLS_VERSION);
		break;
	}
	if (arg != TXT_FRONTEND_TLS || !(l ? l->is_tls : s->front.is_tls)) {
		lw_value(w, v, ENC_CTL, flags);
		return;
	}
	if (flags & LF_QUOTE)
		lw_char(w, '"');
	lw_encoded(w, v, ENC_CTL, flags);
	lw_char(w, '~');
	if (flags & LF_QUOTE)
		lw_char(w, '"');
	w->is_blank = false;
}

/* --- numbers --- */

enum tag_num {
	NUM_STATUS,
	NUM_BYTES_OUT,
	NUM_BYTES_IN,
	NUM_ACTCONN,
	NUM_FECONN,
	NUM_BECONN,
	NUM_SRVCONN,
	NUM_RETRIES,
	NUM_SRVQUEUE,
	NUM_BEQUEUE,
	NUM_PID,
	NUM_REQUEST,
	NUM_LOG,
};

static pid_t own_pid(void)
{
	static _Thread_local pid_t pid;

	if (!pid)
		pid = getpid();
	return pid;
}

static void tag_num(struct lw *w, const struct subject *s, unsigned flags, unsigned arg)
{
	const struct subject_log *l = s->log;

	switch ((enum tag_num)arg) {
	case NUM_STATUS:
		put_num(w, l->status);
		break;
	case NUM_BYTES_OUT:
		if (l->is_asap)
			lw_char(w, '+');
		put_num(w, (int64_t)l->bytes_to_client);
		break;
	case NUM_BYTES_IN:
		put_num(w, (int64_t)l->bytes_from_client);
		break;
	case NUM_ACTCONN:
		put_num(w, l->actconn);
		break;
	case NUM_FECONN:
		put_num(w, l->feconn);
		break;
	case NUM_BECONN:
		put_num(w, l->beconn);
		break;
	case NUM_SRVCONN:
		put_num(w, l->srv_conn);
		break;
	case NUM_RETRIES:
		if (l->is_redispatched)
			lw_char(w, '+');
		put_num(w, l->retries);
		break;
	case NUM_SRVQUEUE:
		put_num(w, l->srv_queue);
		break;
	case NUM_BEQUEUE:
		put_num(w, l->backend_queue);
		break;
	case NUM_PID:
	case NUM_REQUEST:
	case NUM_LOG:
		if (flags & LF_HEX)
			put_hex(w, arg == NUM_PID ? (uint64_t)own_pid() : l->request_counter, 4);
		else
			put_num(w, arg == NUM_PID ? own_pid() : (int64_t)l->request_counter);
		break;
	}
}

enum tag_time {
	TIME_REQUEST,
	TIME_QUEUE,
	TIME_CONNECT,
	TIME_RESPONSE,
	TIME_ACTIVE,
	TIME_TOTAL,
	TIME_TQ,
	TIME_HANDSHAKE,
	TIME_IDLE,
	TIME_DATA,
	TIME_USER,
};

static int64_t reached(int64_t ns)
{
	return ns > 0 ? ns : 0;
}

static int64_t time_ns(const struct subject_log *l, enum tag_time which)
{
	switch (which) {
	case TIME_REQUEST:
		return l->t_request;
	case TIME_QUEUE:
		return l->t_queue;
	case TIME_CONNECT:
		return l->t_connect;
	case TIME_RESPONSE:
		return l->t_response;
	case TIME_ACTIVE:
		return l->t_active;
	case TIME_TOTAL:
		return l->t_total;
	case TIME_HANDSHAKE:
		return l->t_handshake;
	case TIME_IDLE:
		return l->t_idle;
	case TIME_DATA:
		return l->t_data;
	case TIME_TQ:
		if (l->t_request < 0)
			return -1;
		return reached(l->t_handshake) + reached(l->t_idle) + l->t_request;
	case TIME_USER:
		return l->t_total < 0 ? -1 : l->t_total - reached(l->t_idle);
	}
	return -1;
}

/* Milliseconds; -1 when the phase was not reached. */
static void tag_time(struct lw *w, const struct subject *s, unsigned flags, unsigned arg)
{
	int64_t ns = time_ns(s->log, (enum tag_time)arg);

	if (s->log->is_asap && (arg == TIME_ACTIVE || arg == TIME_TOTAL || arg == TIME_USER))
		lw_char(w, '+');
	put_num(w, ns < 0 ? -1 : ns / 1000000);
}

static void tag_term(struct lw *w, const struct subject *s, unsigned flags, unsigned arg)
{
	for (unsigned i = 0; i < arg; i++)
		lw_char(w, s->log->term[i] ? s->log->term[i] : '-');
	w->is_blank = false;
}

/* --- dates --- */

enum tag_date {
	DATE_ACCEPT_MS, /* local, milliseconds, no zone */
	DATE_REQUEST_MS,
	DATE_ACCEPT_GMT,
	DATE_ACCEPT_LOCAL,
	DATE_REQUEST_GMT,
	DATE_REQUEST_LOCAL,
	DATE_SECONDS,
	DATE_MS,
};

struct date_cache {
	uint64_t sec;
	bool is_set;
	char text[32]; /* "01/Mar/2026:08:15:30 +0100" */
};
#define DATE_LEN      20
#define DATE_ZONE_LEN 26

static const char *date_text(uint64_t sec, bool is_gmt)
{
	static _Thread_local struct date_cache caches[2];
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	struct date_cache *c = &caches[is_gmt];
	time_t t = (time_t)sec;
	char text[64];
	struct tm tm;
	long off;

	if (likely(c->is_set && c->sec == sec))
		return c->text;
	if (!(is_gmt ? gmtime_r(&t, &tm) : localtime_r(&t, &tm)) || tm.tm_year > 8099) {
		memset(&tm, 0, sizeof(tm)); /* a clock beyond the year 9999 */
		tm.tm_mday = 1;
	}
	off = is_gmt ? 0 : tm.tm_gmtoff / 60;
	snprintf(text, sizeof(text), "%02u/%.3s/%04u:%02u:%02u:%02u %c%02u%02u",
		 (unsigned)tm.tm_mday % 100, months + 3 * (tm.tm_mon % 12),
		 (unsigned)(tm.tm_year + 1900) % 10000, (unsigned)tm.tm_hour % 100,
		 (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100, off < 0 ? '-' : '+',
		 (unsigned)labs(off) / 60 % 100, (unsigned)labs(off) % 60);
	memcpy(c->text, text, sizeof(c->text));
	c->sec = sec;
	c->is_set = true;
	return c->text;
}

static void put_ms(struct lw *w, unsigned ms)
{
	lw_char(w, (char)('0' + ms / 100));
	lw_char(w, (char)('0' + ms / 10 % 10));
	lw_char(w, (char)('0' + ms % 10));
	w->is_blank = false;
}

static void tag_date(struct lw *w, const struct subject *s, unsigned flags, unsigned arg)
{
	const struct subject_log *l = s->log;
	uint64_t ns = l ? l->accept_wall_ns : s->wall_ns, sec;
	bool is_request = arg == DATE_REQUEST_MS || arg == DATE_REQUEST_GMT ||
			  arg == DATE_REQUEST_LOCAL;

	if (l && is_request)
		ns += (uint64_t)(reached(l->t_handshake) + reached(l->t_idle));
	sec = ns / 1000000000;
	switch ((enum tag_date)arg) {
	case DATE_ACCEPT_MS:
	case DATE_REQUEST_MS:
		lw_mem(w, date_text(sec, false), DATE_LEN);
		lw_char(w, '.');
		put_ms(w, (unsigned)(ns / 1000000 % 1000));
		break;
	case DATE_SECONDS:
		if (flags & LF_HEX)
			put_hex(w, sec, 4);
		else
			put_num(w, (int64_t)sec);
		break;
	case DATE_MS:
		if (flags & LF_HEX)
			put_hex(w, ns / 1000000 % 1000, 2);
		else
			put_ms(w, (unsigned)(ns / 1000000 % 1000));
		break;
	default:
		lw_mem(w, date_text(sec, arg == DATE_ACCEPT_GMT || arg == DATE_REQUEST_GMT),
		       DATE_ZONE_LEN);
		w->is_blank = false;
		break;
	}
}

/* --- captured fields: {a|b}, or one word each --- */

#define CAPTURE_RSP  1
#define CAPTURE_LIST 2

static void tag_captures(struct lw *w, const struct subject *s, unsigned flags, unsigned arg)
{
	bool is_rsp = arg & CAPTURE_RSP;
	const struct str *c = is_rsp ? s->log->rsp_captures : s->log->req_captures;
	unsigned n = is_rsp ? s->log->n_rsp_captures : s->log->n_req_captures;

	if (!c || n == 0)
		return;
	if (arg & CAPTURE_LIST) {
		for (unsigned i = 0; i < n; i++) {
			if (i)
				lw_char(w, ' ');
			lw_value(w, c[i], ENC_HDR, flags | LF_LOG);
		}
		return;
	}
	if (flags & LF_QUOTE)
		lw_char(w, '"');
	lw_char(w, '{');
	for (unsigned i = 0; i < n; i++) {
		if (i)
			lw_char(w, '|');
		if (c[i].len)
			lw_encoded(w, c[i], ENC_HDR, flags);
	}
	lw_char(w, '}');
	if (flags & LF_QUOTE)
		lw_char(w, '"');
	w->is_blank = false;
}

/* --- the request line --- */

enum tag_line {
	LINE_ALL,
	LINE_METHOD,
	LINE_PATH,
	LINE_PATH_ONLY,
	LINE_QUERY,
	LINE_URI,
	LINE_VERSION
};

static struct str uri_path_only(struct str uri)
{
	size_t scheme = str_find(uri, STR("://")), slash;

	if (scheme == SIZE_MAX || (uri.len && uri.p[0] == '/'))
		return uri;
	uri = str_from(uri, scheme + 3);
	slash = str_find_char(uri, '/');
	return slash == SIZE_MAX ? STR("") : str_from(uri, slash);
}

static struct str line_part(struct str line, enum tag_line part)
{
	struct str rest = line, method = str_cut(&rest, ' '), uri, version;
	size_t q;

	uri = rest.p ? str_cut(&rest, ' ') : STR("");
	version = rest.p ? rest : STR("");
	q = str_find_char(uri, '?');
	switch (part) {
	case LINE_METHOD:
		return method;
	case LINE_URI:
		return uri;
	case LINE_VERSION:
		return version;
	case LINE_QUERY:
		return q == SIZE_MAX ? STR("") : str_from(uri, q);
	case LINE_PATH:
		return str_sub(uri, 0, q);
	case LINE_PATH_ONLY:
		return uri_path_only(str_sub(uri, 0, q));
	default:
		return line;
	}
}

static void tag_line(struct lw *w, const struct subject *s, unsigned flags, unsigned arg)
{
	struct str line = s->log ? s->log->start_line : s->req ? s->req->start_line : STR_NULL;
	struct str v = line.p ? line_part(line, (enum tag_line)arg) : STR("<BADREQ>");

	lw_value(w, v, ENC_URI, arg == LINE_QUERY ? flags & ~(unsigned)LF_LOG : flags);
}

#define TIME(n, a, h)	 { n, tag_time, a, true, h }
#define NUM(n, a, h)	 { n, tag_num, a, true, h }
#define DATE(n, a, h)	 { n, tag_date, a, false, h }
#define LINE(n, a, h)	 { n, tag_line, a, false, h }
#define TEXT(n, a, l, h) { n, tag_text, a, l, h }
static const struct lf_tag tags[] = {
	{ "ci", tag_ip, TAG_CLIENT, false, "address of the client" },
	{ "cp", tag_port, TAG_CLIENT, false, "port of the client" },
	{ "fi", tag_ip, TAG_FRONT, false, "address the client connected to" },
	{ "fp", tag_port, TAG_FRONT, false, "port the client connected to" },
	{ "bi", tag_ip, TAG_BACK, false, "our address towards the server" },
	{ "bp", tag_port, TAG_BACK, false, "our port towards the server" },
	{ "si", tag_ip, TAG_SERVER, false, "address of the server" },
	{ "sp", tag_port, TAG_SERVER, false, "port of the server" },
	DATE("t", DATE_ACCEPT_MS, "date of the connection, local, milliseconds"),
	DATE("tr", DATE_REQUEST_MS, "date of the request's first byte, local, milliseconds"),
	DATE("trg", DATE_REQUEST_GMT, "date of the request's first byte, UTC"),
	DATE("trl", DATE_REQUEST_LOCAL, "date of the request's first byte, local"),
	DATE("T", DATE_ACCEPT_GMT, "date of the connection, UTC"),
	DATE("Tl", DATE_ACCEPT_LOCAL, "date of the connection, local"),
	DATE("Ts", DATE_SECONDS, "the same in seconds since 1970"),
	DATE("ms", DATE_MS, "its milliseconds"),
	TEXT("ft", TXT_FRONTEND_TLS, false, "frontend, with '~' when the client speaks TLS"),
	TEXT("f", TXT_FRONTEND, false, "frontend"),
	TEXT("b", TXT_BACKEND, false, "backend"),
	TEXT("s", TXT_SERVER, false, "server"),
	TEXT("CC", TXT_CC, true, "captured request cookie"),
	TEXT("CS", TXT_CS, true, "captured response cookie"),
	TEXT("ID", TXT_ID, true, "unique id"),
	TEXT("H", TXT_HOST, false, "name of this host"),
	TEXT("sslc", TXT_CIPHER, false, "TLS cipher"),
	TEXT("sslv", TXT_TLS_VERSION, false, "TLS version"),
	NUM("ST", NUM_STATUS, "status"),
	NUM("B", NUM_BYTES_OUT, "bytes to the client"),
	NUM("U", NUM_BYTES_IN, "bytes from the client"),
	{ "ts", tag_term, 2, true, "termination code" },
	{ "tsc", tag_term, 4, true, "termination code with cookies" },
	NUM("ac", NUM_ACTCONN, "connections of the process"),
	NUM("fc", NUM_FECONN, "connections of the frontend"),
	NUM("bc", NUM_BECONN, "connections of the backend"),
	NUM("sc", NUM_SRVCONN, "connections of the server"),
	NUM("rc", NUM_RETRIES, "retries, '+' after a redispatch"),
	NUM("sq", NUM_SRVQUEUE, "requests before us in the server's queue"),
	NUM("bq", NUM_BEQUEUE, "requests before us in the backend's queue"),
	NUM("rt", NUM_REQUEST, "number of the request"),
	NUM("lc", NUM_LOG, "number of the log line"),
	{ "pid", tag_num, NUM_PID, false, "number of the process" },
	{ "hr", tag_captures, 0, true, "captured request headers {a|b}" },
	{ "hs", tag_captures, CAPTURE_RSP, true, "captured response headers {a|b}" },
	{ "hrl", tag_captures, CAPTURE_LIST, true, "captured request headers, a word each" },
	{ "hsl", tag_captures, CAPTURE_LIST | CAPTURE_RSP, true,
	  "captured response headers, a word each" },
	LINE("r", LINE_ALL, "request line"),
	LINE("HM", LINE_METHOD, "method"),
	LINE("HP", LINE_PATH, "target without the query"),
	LINE("HPO", LINE_PATH_ONLY, "path without the query"),
	LINE("HQ", LINE_QUERY, "query with its '?'"),
	LINE("HU", LINE_URI, "target"),
	LINE("HV", LINE_VERSION, "version"),
	TIME("TR", TIME_REQUEST, "ms to receive the request's head"),
	TIME("Tw", TIME_QUEUE, "ms in queues"),
	TIME("Tc", TIME_CONNECT, "ms to connect to the server"),
	TIME("Tr", TIME_RESPONSE, "ms until the response's head"),
	TIME("Ta", TIME_ACTIVE, "ms from the request's first byte to the end"),
	TIME("Tt", TIME_TOTAL, "ms from the connection to the end"),
	TIME("Tq", TIME_TQ, "ms from the connection to the end of the request's head"),
	TIME("Th", TIME_HANDSHAKE, "ms of handshakes"),
	TIME("Ti", TIME_IDLE, "ms idle before the request"),
	TIME("Td", TIME_DATA, "ms to transfer the response"),
	TIME("Tu", TIME_USER, "ms as the user sees it: %Tt without %Ti"),
};

const struct lf_tag *lf_tag_find(struct str name)
{
	for (unsigned i = 0; i < ARRAY_SIZE(tags); i++) {
		if (str_is_eq(name, str_from_cstr(tags[i].name)))
			return &tags[i];
	}
	return NULL;
}

const struct lf_tag *lf_tag_at(unsigned i)
{
	return i < ARRAY_SIZE(tags) ? &tags[i] : NULL;
}
