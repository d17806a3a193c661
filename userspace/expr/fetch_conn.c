/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Fetches about the connections, the sections and servers that handle the stream, counters and
 * timers. Workers; values come from the subject or from its ops.
 */
#include "expr/expr_priv.h"

#include <netinet/in.h>

enum conn_addr {
	FRONT_SRC,
	FRONT_DST,
	RAW_SRC,
	RAW_DST,
	BACK_SRC,
	BACK_DST
};

static const struct addr *pick_addr(const struct subject *s, unsigned which)
{
	const struct addr *a = NULL;

	switch ((enum conn_addr)which) {
	case FRONT_SRC:
		a = s->src ? s->src : s->front.src;
		break;
	case FRONT_DST:
		a = s->dst ? s->dst : s->front.dst;
		break;
	case RAW_SRC:
		a = s->front.src;
		break;
	case RAW_DST:
		a = s->front.dst;
		break;
	case BACK_SRC:
		a = s->back.src;
		break;
	case BACK_DST:
		a = s->back.dst;
		break;
	}
	return a;
}

static int fetch_addr(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	const struct addr *a = pick_addr(ev->s, kw);

	if (!a || (a->sa.sa_family != AF_INET && a->sa.sa_family != AF_INET6))
		return -ENOENT;
	ret->type = SAMPLE_ADDR;
	ret->is_const = false;
	ret->addr = *a;
	return 0;
}

static int fetch_port(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	int r = fetch_addr(ev, args, kw, ret);

	if (r)
		return r;
	sample_set_int(ret, addr_port(&ret->addr));
	return 0;
}

/*
 * Loopback, a Unix peer, or the very address that the connection arrived at. Asking the kernel for
 * all local addresses would need a system call per evaluation.
 */
static int fetch_is_local(struct eval *ev, const struct expr_arg *args, unsigned kw,
			  struct sample *ret)
{
	const struct addr *a = pick_addr(ev->s, kw);
	const struct addr *own = ev->s->front.dst;
	bool is_local = false;

	if (!a || a->sa.sa_family == AF_UNSPEC)
		return -ENOENT;
	if (a->sa.sa_family == AF_INET)
		is_local = (ntohl(a->in.sin_addr.s_addr) >> 24) == 127;
	else if (a->sa.sa_family == AF_INET6)
		is_local = IN6_IS_ADDR_LOOPBACK(&a->in6.sin6_addr);
	else
		is_local = true;
	if (!is_local && own)
		is_local = addr_is_ip_eq(a, own);
	sample_set_bool(ret, is_local);
	return 0;
}

enum conn_fact {
	RCVD_PROXY,
	FC_ERR,
	BC_ERR,
	FC_MAJOR,
	BC_MAJOR,
	FIRST_REQ,
	QUIC
};

static int fetch_fact(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	const struct subject *s = ev->s;

	switch ((enum conn_fact)kw) {
	case RCVD_PROXY:
		sample_set_bool(ret, s->front.has_proxy_header);
		break;
	case FC_ERR:
		sample_set_int(ret, s->front.err);
		break;
	case BC_ERR:
		sample_set_int(ret, s->back.err);
		break;
	case FC_MAJOR:
	case BC_MAJOR:
		sample_set_int(ret, kw == FC_MAJOR ? s->front.http_major : s->back.http_major);
		return ret->sint ? 0 : -ENOENT;
	case FIRST_REQ:
		sample_set_bool(ret, s->is_first_request);
		break;
	case QUIC:
		sample_set_bool(ret, false);
		break;
	}
	return 0;
}

enum section_name {
	SO_NAME,
	FE_NAME,
	BE_NAME,
	SRV_NAME
};

static int fetch_name(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	const struct subject *s = ev->s;
	struct str v = kw == SO_NAME   ? s->listener_name
		       : kw == FE_NAME ? s->frontend_name
		       : kw == BE_NAME ? s->backend_name
				       : s->server_name;

	if (v.len == 0)
		return -ENOENT;
	sample_set_str(ret, SAMPLE_STR, v);
	return 0;
}

static int fetch_id(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	const struct subject *s = ev->s;

	/* A server's id exists only once there is a server: ids start at 1. */
	sample_set_int(ret, kw == SO_NAME   ? s->listener_id
			    : kw == FE_NAME ? s->frontend_id
			    : kw == BE_NAME ? s->backend_id
					    : s->server_id);
	return ret->sint ? 0 : -ENOENT;
}

static int fetch_count(struct eval *ev, const struct expr_arg *args, unsigned kw,
		       struct sample *ret)
{
	const struct subject *s = ev->s;
	struct str name = args[0].type == ARG_STR ? args[0].str : STR("");
	int64_t v;
	int r;

	if (!s->ops || !s->ops->count)
		return -ENOENT;
	r = s->ops->count(s, (enum subject_count)kw, name, &v);
	if (r)
		return r;
	if (kw == COUNT_SRV_IS_UP || kw == COUNT_STOPPING)
		sample_set_bool(ret, v != 0);
	else
		sample_set_int(ret, v);
	return 0;
}

/* What set-priority-class and -offset have said; 0 before. */
static int fetch_prio(struct eval *ev, const struct expr_arg *args, unsigned is_class,
		      struct sample *ret)
{
	sample_set_int(ret, is_class ? ev->s->prio_class : ev->s->prio_offset);
	return 0;
}

static int fetch_err_text(struct eval *ev, const struct expr_arg *args, unsigned kw,
			  struct sample *ret)
{
	const struct subject_conn *c = kw == FC_ERR ? &ev->s->front : &ev->s->back;

	if (!c->err_text)
		return -ENOENT;
	sample_set_str(ret, SAMPLE_STR, str_from_cstr(c->err_text));
	return 0;
}

/* --- the kernel's view of a connection --- */

#define TCP_BACK 0x100 /* in kw */

static int check_tcp_time(struct fn_check *c, struct err *err)
{
	struct expr_arg *a = &c->args[0];

	a->num = 1000;
	if (a->type == ARG_NONE || str_is_eq(a->str, STR("ms")))
		return 0;
	a->num = 1;
	return str_is_eq(a->str, STR("us"))
		       ? 0
		       : err_set(err, -EINVAL, "'" STR_FMT "' is not ms or us", STR_ARG(a->str));
}

static int fetch_tcp(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	enum subject_tcp_fact f = (enum subject_tcp_fact)(kw & 0xff);
	const struct subject *s = ev->s;
	int64_t v;
	int r;

	if (!s->ops || !s->ops->tcp)
		return -ENOENT;
	r = s->ops->tcp(s, kw & TCP_BACK, f, &v);
	if (r)
		return r;
	sample_set_int(ret, f == TCP_RTT || f == TCP_RTTVAR ? v / args[0].num : v);
	return 0;
}

/* --- what is known at the end --- */

enum log_fact {
	BYTES_IN,
	BYTES_OUT,
	TERM_STATE,
	UNIQUE_ID,
	T_HANDSHAKE,
	T_IDLE,
	T_REQUEST,
	T_QUEUE,
	T_CONNECT,
	T_RESPONSE,
	T_DATA,
	T_TOTAL,
	T_ACTIVE,
	T_USER,
	T_TQ,
	RETRIES,
	TXN_STATUS,
};

static int64_t log_time_ns(const struct subject_log *l, enum log_fact f)
{
	switch (f) {
	case T_HANDSHAKE:
		return l->t_handshake;
	case T_IDLE:
		return l->t_idle;
	case T_REQUEST:
		return l->t_request;
	case T_QUEUE:
		return l->t_queue;
	case T_CONNECT:
		return l->t_connect;
	case T_RESPONSE:
		return l->t_response;
	case T_DATA:
		return l->t_data;
	case T_TOTAL:
		return l->t_total;
	case T_ACTIVE:
		return l->t_active;
	case T_USER:
		return l->t_total - l->t_idle;
	case T_TQ:
		return l->t_request < 0 ? -1 : l->t_handshake + l->t_idle + l->t_request;
	default:
		BUG_ON(true);
	}
}

static int fetch_log_text(const struct subject_log *l, enum log_fact f, struct sample *ret)
{
	struct str v = f == UNIQUE_ID ? l->unique_id : str_make(l->term, 4);

	if (v.len == 0 || v.p[0] == '\0')
		return -ENOENT;
	sample_set_str(ret, SAMPLE_STR, v);
	return 0;
}

static int fetch_log(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *ret)
{
	const struct subject_log *l = ev->s->log;
	int64_t ns;

	if (!l)
		return -ENOENT;
	switch ((enum log_fact)kw) {
	case BYTES_IN:
		sample_set_int(ret, (int64_t)l->bytes_from_client);
		return 0;
	case BYTES_OUT:
		sample_set_int(ret, (int64_t)l->bytes_to_client);
		return 0;
	case RETRIES:
		sample_set_int(ret, l->retries);
		return 0;
	case TXN_STATUS:
		sample_set_int(ret, l->status);
		return 0;
	case TERM_STATE:
	case UNIQUE_ID:
		return fetch_log_text(l, (enum log_fact)kw, ret);
	default:
		ns = log_time_ns(l, (enum log_fact)kw);
		if (ns < 0)
			return -ENOENT;
		sample_set_int(ret, ns / 1000000);
		return 0;
	}
}

static int fetch_kernel(struct eval *ev, const struct expr_arg *args, unsigned kw,
			struct sample *ret)
{
	int64_t n;
	int r = ev->s->ops && ev->s->ops->kernel
			? ev->s->ops->kernel(ev->s, (enum kernel_fact)kw, &n)
			: -ENOENT;

	if (r == 0)
		sample_set_int(ret, n);
	return r;
}

static int check_kernel(struct fn_check *c, struct err *err)
{
	return c->env->use_kernel ? c->env->use_kernel(c->env, c->name, (enum kernel_fact)c->kw)
				  : 0;
}

#define P PLACES_CONN
#define R (PLACE_CONTENT | PLACE_REQ | PLACE_RSP | PLACE_LOG | PLACE_CHECK)
#define B (PLACE_RSP | PLACE_LOG | PLACE_REQ)
static const struct fetch_def defs[] = {
	F("src", "", "", ADDR, P, FRONT_SRC, fetch_addr, NULL, "address of the client"),
	F("src_port", "", "", SINT, P, FRONT_SRC, fetch_port, NULL, "port of the client"),
	F("src_is_local", "", "", BOOL, P, FRONT_SRC, fetch_is_local, NULL,
	  "is the client on this host"),
	F("src_xdp_conn_cur", "", "", SINT, P, KERNEL_CONNS, fetch_kernel, check_kernel,
	  "connections of the client, as the kernel counts them"),
	F("src_xdp_syn_rate", "", "", SINT, P, KERNEL_SYN_RATE, fetch_kernel, check_kernel,
	  "SYNs per second that XDP has seen of the client"),
	F("src_xdp_dropped", "", "", SINT, P, KERNEL_DROPPED, fetch_kernel, check_kernel,
	  "packets of the client that the guard in XDP has dropped"),
	F("dst", "", "", ADDR, P, FRONT_DST, fetch_addr, NULL, "address the client connected to"),
	F("dst_port", "", "", SINT, P, FRONT_DST, fetch_port, NULL, "port the client connected to"),
	F("dst_is_local", "", "", BOOL, P, FRONT_DST, fetch_is_local, NULL,
	  "is the destination an address of this host"),
	F("fc_src", "", "", ADDR, P, RAW_SRC, fetch_addr, NULL, "src, whatever set-src says"),
	F("fc_src_port", "", "", SINT, P, RAW_SRC, fetch_port, NULL, "its port"),
	F("fc_src_is_local", "", "", BOOL, P, RAW_SRC, fetch_is_local, NULL, "is it on this host"),
	F("fc_dst", "", "", ADDR, P, RAW_DST, fetch_addr, NULL, "dst, whatever set-dst says"),
	F("fc_dst_port", "", "", SINT, P, RAW_DST, fetch_port, NULL, "its port"),
	F("fc_dst_is_local", "", "", BOOL, P, RAW_DST, fetch_is_local, NULL, "is it on this host"),
	F("bc_src", "", "", ADDR, B, BACK_SRC, fetch_addr, NULL, "our address towards the server"),
	F("bc_src_port", "", "", SINT, B, BACK_SRC, fetch_port, NULL,
	  "our port towards the server"),
	F("bc_dst", "", "", ADDR, B, BACK_DST, fetch_addr, NULL, "address of the server"),
	F("bc_dst_port", "", "", SINT, B, BACK_DST, fetch_port, NULL, "port of the server"),
	F("fc_rcvd_proxy", "", "", BOOL, P, RCVD_PROXY, fetch_fact, NULL,
	  "did the client's connection begin with a PROXY header"),
	F("fc_err", "", "", SINT, P, FC_ERR, fetch_fact, NULL,
	  "error of the client's connection, 0 for none"),
	F("bc_err", "", "", SINT, B, BC_ERR, fetch_fact, NULL,
	  "error of the server's connection, 0 for none"),
	F("fc_err_str", "", "", STR, P, FC_ERR, fetch_err_text, NULL, "the same in words"),
	F("bc_err_str", "", "", STR, B, BC_ERR, fetch_err_text, NULL, "the same in words"),
	F("fc_rtt", "[ms|us]", "[s", SINT, P, TCP_RTT, fetch_tcp, check_tcp_time,
	  "round trip time to the client"),
	F("fc_rttvar", "[ms|us]", "[s", SINT, P, TCP_RTTVAR, fetch_tcp, check_tcp_time,
	  "how much it varies"),
	F("fc_unacked", "", "", SINT, P, TCP_UNACKED, fetch_tcp, NULL,
	  "segments to the client that are not acknowledged"),
	F("fc_sacked", "", "", SINT, P, TCP_SACKED, fetch_tcp, NULL,
	  "segments acknowledged out of order"),
	F("fc_lost", "", "", SINT, P, TCP_LOST, fetch_tcp, NULL, "segments taken for lost"),
	F("fc_retrans", "", "", SINT, P, TCP_RETRANS, fetch_tcp, NULL,
	  "segments sent again that are on their way"),
	F("fc_reordering", "", "", SINT, P, TCP_REORDERING, fetch_tcp, NULL,
	  "how far segments overtake each other"),
	F("bc_rtt", "[ms|us]", "[s", SINT, B, TCP_RTT | TCP_BACK, fetch_tcp, check_tcp_time,
	  "round trip time to the server"),
	F("bc_rttvar", "[ms|us]", "[s", SINT, B, TCP_RTTVAR | TCP_BACK, fetch_tcp, check_tcp_time,
	  "how much it varies"),
	F("fc_http_major", "", "", SINT, P, FC_MAJOR, fetch_fact, NULL,
	  "1 or 2: HTTP to the client"),
	F("bc_http_major", "", "", SINT, B, BC_MAJOR, fetch_fact, NULL,
	  "1 or 2: HTTP to the server"),
	F("http_first_req", "", "", BOOL, R, FIRST_REQ, fetch_fact, NULL,
	  "is this the first request of its connection"),
	F("quic_enabled", "", "", BOOL, PLACES_ANY, QUIC, fetch_fact, NULL, "always false"),
	F("so_id", "", "", SINT, P, SO_NAME, fetch_id, NULL, "number of the listening socket"),
	F("so_name", "", "", STR, P, SO_NAME, fetch_name, NULL, "name of the listening socket"),
	F("fe_id", "", "", SINT, P, FE_NAME, fetch_id, NULL, "number of the frontend"),
	F("fe_name", "", "", STR, P, FE_NAME, fetch_name, NULL, "name of the frontend"),
	F("be_id", "", "", SINT, R, BE_NAME, fetch_id, NULL, "number of the backend"),
	F("be_name", "", "", STR, R, BE_NAME, fetch_name, NULL, "name of the backend"),
	F("srv_id", "", "", SINT, B | PLACE_CHECK, SRV_NAME, fetch_id, NULL,
	  "number of the server"),
	F("srv_name", "", "", STR, B | PLACE_CHECK, SRV_NAME, fetch_name, NULL,
	  "name of the server"),
	F("act_conn", "", "", SINT, P, COUNT_ACT_CONN, fetch_count, NULL,
	  "connections of the process"),
	F("dst_conn", "", "", SINT, P, COUNT_DST_CONN, fetch_count, NULL,
	  "connections of the listening socket"),
	F("fe_conn", "[frontend]", "[s", SINT, P, COUNT_FE_CONN, fetch_count, NULL,
	  "connections of a frontend"),
	F("fe_req_rate", "[frontend]", "[s", SINT, P, COUNT_FE_REQ_RATE, fetch_count, NULL,
	  "requests per second of a frontend"),
	F("fe_sess_rate", "[frontend]", "[s", SINT, P, COUNT_FE_SESS_RATE, fetch_count, NULL,
	  "new sessions per second of a frontend"),
	F("be_conn", "[backend]", "[s", SINT, P, COUNT_BE_CONN, fetch_count, NULL,
	  "connections of a backend"),
	F("be_conn_free", "[backend]", "[s", SINT, P, COUNT_BE_CONN_FREE, fetch_count, NULL,
	  "connections that a backend's servers still take"),
	F("be_sess_rate", "[backend]", "[s", SINT, P, COUNT_BE_SESS_RATE, fetch_count, NULL,
	  "new sessions per second of a backend"),
	F("nbsrv", "[backend]", "[s", SINT, P, COUNT_NBSRV, fetch_count, NULL,
	  "usable servers of a backend"),
	F("connslots", "[backend]", "[s", SINT, P, COUNT_CONNSLOTS, fetch_count, NULL,
	  "free connections and queue places of a backend; -1 without limits"),
	F("queue", "[backend]", "[s", SINT, P, COUNT_QUEUE, fetch_count, NULL,
	  "requests waiting in a backend's queues"),
	F("avg_queue", "[backend]", "[s", SINT, P, COUNT_AVG_QUEUE, fetch_count, NULL,
	  "waiting requests per usable server"),
	F("prio_class", "", "", SINT, PLACES_REQ, 1, fetch_prio, NULL,
	  "class in the queues, as set-priority-class said"),
	F("prio_offset", "", "", SINT, PLACES_REQ, 0, fetch_prio, NULL,
	  "ms that set-priority-offset added"),
	F("be_weight", "[backend]", "[s", SINT, P, COUNT_BE_WEIGHT, fetch_count, NULL,
	  "sum of the usable servers' weights"),
	F("srv_conn", "[backend/]server", "s", SINT, P, COUNT_SRV_CONN, fetch_count, NULL,
	  "connections of a server"),
	F("srv_is_up", "[backend/]server", "s", BOOL, P, COUNT_SRV_IS_UP, fetch_count, NULL,
	  "is a server up"),
	F("srv_queue", "[backend/]server", "s", SINT, P, COUNT_SRV_QUEUE, fetch_count, NULL,
	  "requests waiting for a server"),
	F("srv_sess_rate", "[backend/]server", "s", SINT, P, COUNT_SRV_SESS_RATE, fetch_count, NULL,
	  "new sessions per second of a server"),
	F("srv_conn_free", "[backend/]server", "s", SINT, P, COUNT_SRV_CONN_FREE, fetch_count, NULL,
	  "connections that a server still takes; -1 without a limit"),
	F("srv_iweight", "[backend/]server", "s", SINT, P, COUNT_SRV_IWEIGHT, fetch_count, NULL,
	  "weight of a server in the configuration"),
	F("srv_uweight", "[backend/]server", "s", SINT, P, COUNT_SRV_WEIGHT, fetch_count, NULL,
	  "weight of a server as set at run time"),
	F("srv_weight", "[backend/]server", "s", SINT, P, COUNT_SRV_WEIGHT, fetch_count, NULL,
	  "weight of a server"),
	F("unique-id", "", "", STR, R, UNIQUE_ID, fetch_log, NULL,
	  "the request's unique-id-format"),
	F("bytes_in", "", "", SINT, PLACE_LOG | PLACE_RSP, BYTES_IN, fetch_log, NULL,
	  "bytes received from the client"),
	F("bytes_out", "", "", SINT, PLACE_LOG | PLACE_RSP, BYTES_OUT, fetch_log, NULL,
	  "bytes sent to the client"),
	F("txn.conn_retries", "", "", SINT, PLACE_LOG | PLACE_RSP, RETRIES, fetch_log, NULL,
	  "connection attempts that were repeated"),
	F("txn.status", "", "", SINT, PLACE_LOG | PLACE_RSP, TXN_STATUS, fetch_log, NULL,
	  "status sent to the client"),
	F("txn.sess_term_state", "", "", STR, PLACE_LOG | PLACE_RSP, TERM_STATE, fetch_log, NULL,
	  "the log's termination code"),
	F("fc.timer.handshake", "", "", SINT, R, T_HANDSHAKE, fetch_log, NULL, "%Th in ms"),
	F("req.timer.idle", "", "", SINT, R, T_IDLE, fetch_log, NULL, "%Ti in ms"),
	F("req.timer.hdr", "", "", SINT, R, T_REQUEST, fetch_log, NULL, "%TR in ms"),
	F("req.timer.tq", "", "", SINT, R, T_TQ, fetch_log, NULL, "%Tq in ms"),
	F("req.timer.queue", "", "", SINT, R, T_QUEUE, fetch_log, NULL, "%Tw in ms"),
	F("bc.timer.connect", "", "", SINT, R, T_CONNECT, fetch_log, NULL, "%Tc in ms"),
	F("res.timer.hdr", "", "", SINT, R, T_RESPONSE, fetch_log, NULL, "%Tr in ms"),
	F("res.timer.data", "", "", SINT, PLACE_LOG, T_DATA, fetch_log, NULL, "%Td in ms"),
	F("txn.timer.total", "", "", SINT, PLACE_LOG, T_ACTIVE, fetch_log, NULL, "%Ta in ms"),
	F("txn.timer.user", "", "", SINT, PLACE_LOG, T_USER, fetch_log, NULL, "%Tu in ms"),
};

const struct fetch_table fetch_conn_table = { defs, ARRAY_SIZE(defs) };
