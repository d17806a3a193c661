/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stream is one exchange: an HTTP request and its response, or one TCP session. It lives on the
 * worker that accepted its client, from the first byte (mode tcp: from the accept) to the log line. What
 * lies between two requests of a connection is a `struct client` and nothing more.
 */
#ifndef PROXY_STREAM_H
#define PROXY_STREAM_H

#include "base/list.h"
#include "expr/expr.h"
#include "lb/lb.h"
#include "net/net.h"
#include "proxy/proxy.h"
#include "proxy/side.h"

struct worker;
struct stream;

/* --- client connections -------------------------------------------------------------------------- */

enum client_state {
	CLIENT_HANDSHAKE, /* TLS or PROXY header */
	CLIENT_IDLE, /* between requests */
	CLIENT_HEAD, /* waits for the rest of a head, without a stream: `part` */
	CLIENT_BUSY, /* has a stream */
	CLIENT_MUX, /* HTTP/2: any number of streams, each with a client of its own */
	CLIENT_LINGER, /* answered and half-closed: reads on so that the answer is not lost to a reset */
};

/* The beginning of a request's head, and what its stream knew: head_part.c. */
struct head_part {
	uint64_t id, n_runs;
	uint64_t start_ns, start_wall, active_ns; /* loop clocks */
	struct h1_head head;
	uint32_t len;
	char bytes[];
};

/* All that an idle connection holds, together with its struct conn at most 512 bytes. */
struct client {
	struct conn *conn;
	struct worker *w;
	struct list link; /* worker->clients */
	struct proxy_snapshot *snap; /* pinned; moved on while idle */
	const struct proxy_bind *pb;
	const struct conf_proxy *fe;
	struct lb_backend *fe_rt;
	struct hg_l7_counters *ctr; /* of the frontend */
	struct stream *stream;
	struct head_part *part; /* CLIENT_HEAD */
	struct h2_conn *mux; /* CLIENT_MUX */
	struct client *parent; /* of an HTTP/2 stream's client: the real one */
	struct timer timer; /* handshake, idle, linger */
	struct conn *own; /* http-reuse never: this client's server connection, and whose it is */
	struct server *own_srv;
	const struct proxy_snapshot *last_snap; /* option prefer-last-server: who served, and of which snapshot */
	struct server *last_srv;
	struct vars *vars; /* sess.* */
	struct track *track; /* of connection and session rules; NULL: nothing */
	struct arena arena; /* of vars; empty until used */
	uint64_t accept_ns, accept_wall; /* loop clocks */
	uint64_t idle_ns; /* since when it waits */
	uint64_t handshake_ns; /* duration */
	uint32_t n_requests;
	uint32_t linger_left; /* bytes still read and thrown away */
	uint8_t state; /* enum client_state */
	bool must_close; /* drain: no further request */
};
_Static_assert(sizeof(struct client) + sizeof(struct conn) <= 512, "memory of an idle connection");

/* Whose session variables these are. */
static inline struct client *client_session(struct client *cl)
{
	return cl->parent ? cl->parent : cl;
}

/* client.c */
uint64_t client_idle_timeout(const struct client *cl);
void client_accepted(struct worker *w, const struct proxy_bind *pb, struct conn *c);
void client_close(struct client *cl, bool reset);
/* Closes after the peer had a chance to read the answer. */
void client_linger(struct client *cl);
/* A stream to go on with: bytes are there, or may be. NULL: idle or closed. */
struct stream *client_next_stream(struct client *cl);
/*
 * A new snapshot was adopted: the client goes on with that; its stream keeps a pin of its own. False: nothing
 * changed, its address is no longer listened on or serves something else.
 */
bool client_follow(struct client *cl);
/* Without a stream, and a new snapshot was adopted: goes on with that. False: closed, its address is gone. */
bool client_rebind(struct client *cl);
void client_set_idle(struct client *cl);
/* Its stream has left the beginning of a head behind: waits for the rest. */
void client_await_head(struct client *cl);
/* Idle, and the worker drains: closes it, now or after one more answer. */
void client_drain(struct client *cl);

/* head_part.c */
/* Only a part of the head is here: the client keeps that, the stream is gone. False: the stream has to wait itself. */
bool head_part_keep(struct stream *st);
HG_WUR int head_part_restore(struct stream *st); /* into a stream that begins; 0 or -ENOMEM */
void head_part_drop(struct client *cl); /* if there is one */

/* --- phases --------------------------------------------------------------------------------------- */

/* In the order of a request's life. Second: second termination character; third: for people. */
#define STREAM_PHASES(X)                                      \
	X(TCP_CONTENT, 'R', "inspecting content")             \
	X(REQ_HEAD, 'R', "reading the request")               \
	X(FE_RULES, 'R', "frontend rules")                    \
	X(ROUTE, 'R', "choosing a backend")                   \
	X(BE_RULES, 'R', "backend rules")                     \
	X(BE_CONTENT, 'R', "inspecting content")              \
	X(TARPIT, 'T', "held in the tarpit")                  \
	X(WAIT_BODY, 'R', "waiting for the body")             \
	X(PICK, 'C', "choosing a server")                     \
	X(QUEUE, 'Q', "waiting for a server slot")            \
	X(RETRY_WAIT, 'C', "waiting before the next attempt") \
	X(CONNECT, 'C', "connecting to the server")           \
	X(SEND, 'H', "sending the request")                   \
	X(RSP_HEAD, 'H', "waiting for the response")          \
	X(RSP_RULES, 'H', "response rules")                   \
	X(PUMP, 'D', "transferring the body")                 \
	X(TUNNEL, 'D', "tunnelling")                          \
	X(SERVICE, 'L', "asking the control thread")           \
	X(SERVICE_SEND, 'L', "sending its answer")            \
	X(LOCAL, 'L', "sending an answer of our own")         \
	X(END, '-', "ending")

enum stream_phase {
#define X(name, code, text) PHASE_##name,
	STREAM_PHASES(X)
#undef X
	PHASE_COUNT
};
const char *stream_phase_name(enum stream_phase p); /* "REQ_HEAD" */
const char *stream_phase_text(enum stream_phase p);
char stream_phase_code(enum stream_phase p);

/* What a phase says to the driver. */
enum step {
	STEP_GO, /* st->phase was set: go on */
	STEP_WAIT, /* for an event, the timer, or a turn in the queue */
	STEP_GONE, /* the stream is no more; st->next or nothing */
};

enum stream_flags {
	STREAM_CLIENT_KEEP = 1 << 0, /* the client's connection may be used again */
	STREAM_SERVER_KEEP = 1 << 1,
	STREAM_REQ_PARSED = 1 << 2,
	STREAM_RSP_PARSED = 1 << 3,
	STREAM_RSP_STARTED = 1 << 4, /* something of a final response went to the client */
	STREAM_SRV_REUSED = 1 << 5, /* the server connection has carried other requests */
	STREAM_HAS_SLOT = 1 << 6, /* a slot of st->srv is ours */
	STREAM_ASSIGNED = 1 << 7, /* persistence: this server was asked for, not picked */
	STREAM_REDISPATCHED = 1 << 8,
	STREAM_IS_TCP = 1 << 9,
	STREAM_NO_LOG = 1 << 10, /* monitor */
	STREAM_LOGGED = 1 << 11,
	STREAM_INTERCEPTED = 1 << 12,
	STREAM_UPGRADE = 1 << 13, /* the request asks for it */
	STREAM_RESENT = 1 << 14, /* went out again after a reused connection had died */
	STREAM_COOKIE_SEEN = 1 << 15,
	STREAM_KILLED = 1 << 16,
	STREAM_IN_BACKEND = 1 << 17, /* counted in be_rt->cur */
	STREAM_PAYLOAD_FINAL = 1 << 18, /* inspection time is over */
	STREAM_ALLOW_FINAL = 1 << 19, /* a rule said accept: the rest of its list is skipped */
	STREAM_HAS_SUBJECT = 1 << 20, /* st->subject is filled */
	STREAM_STICK_DONE = 1 << 21, /* `stick` rules have run */
	STREAM_ANSWERS = 1 << 22, /* local.msg is what http-after-response rules see */
	STREAM_INSPECTS_RSP = 1 << 23, /* mode tcp: the server's first bytes are held back for rules */
	STREAM_RSP_FINAL = 1 << 24, /* of those: the time is over, or no more will come */
	STREAM_NO_L7_RETRY = 1 << 25, /* http-request disable-l7-retry */
	STREAM_BE_INSPECTS = 1 << 26, /* the backend's content rules have begun */
	STREAM_LOG_SENT = 1 << 27, /* option logasap */
	STREAM_FORCE_PERSIST = 1 << 28, /* the server that is asked for, up or not */
	STREAM_IGNORE_PERSIST = 1 << 29, /* no cookie is looked at */
	STREAM_SERVICE = 1 << 30, /* control answers: no server, and the log says so */
};

/* An answer of our own that is on its way or planned. */
struct local_answer {
	struct http_msg *msg; /* stream arena; NULL: none, or out of memory */
	struct str body; /* what is not yet written: stream arena, configuration or constant */
	bool is_silent; /* an empty errorfile: the connection ends without an answer */
};

/* Time and bytes while the stream waited for its client; pace.c. */
struct pace {
	uint64_t waited_ns, since_ns; /* in this window; since when it waits now, 0: it does not */
	uint64_t bytes; /* moved when the window began */
	uint64_t acked; /* TCP: the same, as the peer's kernel said */
	bool is_acked_known;
};

struct stream {
	/* --- kept from one use of the struct to the next ------------------------------------------ */
	struct list link; /* worker->streams, or its free list */
	struct worker *w;
	struct arena arena;
	struct timer timer; /* may stay armed on the free list: moving it on is one store */
	struct deferred resume; /* runs the stream from the top of the next iteration */
	bool is_free;
	/* --- zeroed for every stream, from here to `zero_end` --------------------------------------- */
	char zero_begin[0];
	struct client *cl;
	struct proxy_snapshot *snap; /* pinned */
	const struct conf_proxy *fe, *be;
	struct lb_backend *fe_rt, *be_rt;
	struct hg_l7_counters *fe_ctr, *be_ctr, *srv_ctr;
	struct server *srv;
	const struct conf_server *srv_conf;
	struct server *avoid, *force; /* redispatch, persistence */
	struct list srv_link; /* srv->w[].streams */
	struct list queue_link; /* worker->queued */
	struct queue_entry q;
	uint32_t flags; /* enum stream_flags */
	uint8_t phase; /* enum stream_phase */
	uint8_t rule_set; /* enum conf_ruleset of `rule` */
	uint8_t after_body; /* PHASE_WAIT_BODY: the next one */
	uint16_t status; /* sent to the client, for the log; 0: none */
	char term[4]; /* '-' until something goes wrong */
	uint32_t n_retries, retries_left, retries; /* done; still allowed; allowed in all */
	bool has_retries; /* set-retries has said how many */
	uint64_t id;
	uint64_t n_runs;
	uint64_t start_ns, start_wall; /* first byte of the request (tcp: accept) */
	uint64_t req_ns, queue_ns, conn_ns, rsp_ns, data_ns; /* when each was reached; 0: not */
	uint64_t deadline_ns; /* of the phase where it is not a matter of flows */
	uint64_t timeout_server_ns, timeout_tunnel_ns,
		timeout_client_ns; /* as configured or set by a rule */
	uint64_t bytes_in, bytes_out;
	struct pace pace_in, pace_out;
	struct vars *vars_txn, *vars_req, *vars_res;
	struct str *req_captures, *rsp_captures; /* fe->n_*_captures, or NULL */
	struct str client_cookie, server_cookie; /* captured */
	int64_t cookie_last, cookie_first; /* its dates, seconds; 0: none */
	struct str srv_cookie; /* persistence cookie sent by the client, value */
	struct str unique_id;
	const struct conf_rule *rule; /* where evaluation stopped to wait, or what the tarpit answers with */
	uint64_t wait_until_ns; /* of a rule that waits; 0: none does */
	const struct conf_rule *last_rule; /* the last one that ended its list; NULL: none */
	struct local_answer local;
	struct service_call *call; /* what control is asked, and its answer */
	size_t service_at; /* sent of the first chunk of that */
	struct track *track; /* track-sc of content and HTTP rules; track.h */
	struct stick_store *stores;
	struct bwlim *bwlim_in, *bwlim_out; /* limits of bodies; bwlim.h */
	struct subject_log *log;
	struct addr src, dst; /* set-src, set-dst; family 0: the connection's */
	uint8_t coding; /* enum http_coding that the client is offered */
	struct compress *compress, *compress_req; /* the response, the request is being encoded */
	uint8_t log_level; /* 0xff: not set by a rule; 0xfe: silent */
	bool is_strict; /* of the list of rules that runs: a rewrite that fails is an error */
	bool has_failed_rewrite; /* such an error is being answered */
	struct http_msg *hints; /* early hints that are being gathered; early_hint.c */
	char zero_end[0];
	/* --- initialised by their own functions ------------------------------------------------------ */
	struct side front, back;
	struct flow req_flow, rsp_flow;
	struct http_msg req, rsp;
	struct subject subject;
};

/* What a list of rules, or one of them, has decided. */
enum rule_verdict {
	RULE_NEXT, /* evaluation goes on */
	RULE_ACCEPT, /* the rest of the list is skipped */
	RULE_STEP, /* *ret_step says what happens now: answered, denied, ended */
	RULE_WAIT, /* more data may decide, or time: the same rule again on the next event */
};

/* stream.c */
struct stream *stream_new(struct client *cl); /* goes on with cl->part; NULL: out of memory */
void stream_run(struct stream *st);
void stream_resume_later(struct stream *st);
/* Frees it and what it holds; the client stays. */
void stream_free(struct stream *st);
void stream_pool_free(struct worker *w);
/* First error wins: what the log will say. `cause`: first termination character. */
void stream_blame(struct stream *st, char cause);
/*
 * Something went wrong: an answer with `status` when nothing was sent yet (0: none), else the
 * client's connection is cut. Returns what the phase returns.
 */
enum step stream_fail(struct stream *st, char cause, unsigned status);
void stream_kill(struct stream *st, char cause);
static inline enum step stream_go(struct stream *st, enum stream_phase p)
{
	st->phase = (uint8_t)p;
	return STEP_GO;
}
void stream_leave_backend(struct stream *st);
/* Is the client gone, so that work for it is in vain? */
bool stream_is_client_gone(const struct stream *st);

/* Phases, by file. */
enum step phase_tcp_content(struct stream *st); /* stream_tcp.c */
enum step phase_be_content(struct stream *st);
enum step phase_tunnel(struct stream *st);
void stream_enter_tunnel(struct stream *st);
enum step phase_req_head(struct stream *st); /* stream_req.c */
enum step phase_fe_rules(struct stream *st);
enum step phase_route(struct stream *st);
enum step phase_be_rules(struct stream *st);
enum step phase_tarpit(struct stream *st);
enum step stream_refuse_request(struct stream *st); /* front.head.error */
enum step phase_wait_body(struct stream *st); /* body.c */
enum step wait_body_timeout(struct stream *st);
enum step phase_pick(struct stream *st); /* stream_srv.c */
enum step phase_queue(struct stream *st);
enum step phase_retry_wait(struct stream *st); /* retry.c */
enum step phase_connect(struct stream *st);
enum step phase_send(struct stream *st);
enum step phase_rsp_head(struct stream *st); /* stream_rsp.c */
enum step phase_rsp_rules(struct stream *st);
enum step phase_pump(struct stream *st);
enum step phase_local(struct stream *st); /* errors.c */
enum step phase_service(struct stream *st); /* service.c */
enum step phase_service_send(struct stream *st);
enum step phase_end(struct stream *st); /* stream.c */

/* stream_srv.c: the server side of a stream */
/* A line of the stream's configuration, or one that `add server` has made; NULL: neither, or gone. */
struct server *server_named(struct lb_backend *be, const struct conf_proxy *px, struct str name);
bool pick_needs_body(const struct stream *st); /* balance url_param … check_post: what it hashes is not in the URL */
void stream_drop_server_conn(struct stream *st, bool reset);
void stream_attach_conn(struct stream *st, struct conn *c);
void stream_detach_conn(struct stream *st); /* the connection is the caller's */
void stream_keep_server_conn(struct stream *st); /* to the pool, or closed */
void stream_release_server(struct stream *st); /* slot, lists, counters */
void stream_on_turn(struct queue_entry *q, struct server *srv);
void stream_leave_queue(struct stream *st); /* its wait failed */
void idle_conn_event(struct conn *c);

/* retry.c */
enum step stream_retry_connect(struct stream *st); /* connecting failed */
bool stream_may_resend(const struct stream *st);
enum step stream_resend(struct stream *st); /* a reused connection died before it said anything */
/* Before anything was sent: could a request that went with a SYN be sent once more? */
bool stream_is_repeatable(const struct stream *st);
bool stream_may_retry(const struct stream *st, uint32_t failure); /* enum conf_retry bit */
enum step stream_retry(struct stream *st); /* as `retry-on` said */

/* worker_mail.c: one more; the one that reaches the limit is told to control at once */
void stream_observed_error(struct stream *st);
/* What live traffic tells about a server, for `observe`: errors in a row. */
static inline void stream_observe(struct stream *st, unsigned layer, bool is_good)
{
	if (likely(!st->srv_conf || st->srv_conf->observe != layer))
		return;
	if (!is_good)
		stream_observed_error(st);
	else if (atomic_load_explicit(&st->srv->observed_errors, memory_order_relaxed))
		atomic_store_explicit(&st->srv->observed_errors, 0, memory_order_relaxed);
}

/* stream_rsp.c */
/* Backend's rules, then the frontend's, on the response or the answer of our own. */
enum rule_verdict rsp_rules(struct stream *st, enum conf_ruleset set, enum step *ret_step);
enum flow_result stream_pump_request(struct stream *st);

/* invalid.c: `s` has met bytes that break HTTP/1 (head.error, or body.error); they are kept for `show errors` */
void invalid_note(struct side *s);

/* pace.c: before a stream goes to sleep, and when its timer fires */
void pace_update(struct stream *st);
uint64_t pace_deadline(const struct stream *st); /* loop clock; 0: none; past: too slow */

/* timers.c */
void stream_arm(struct stream *st);
void stream_on_timer(struct timer *t);

/* errors.c */
enum step stream_answer_status(struct stream *st, unsigned status);
enum step stream_answer_reply(struct stream *st, const struct conf_reply *r,
			      unsigned default_status);
/*
 * An answer in steps: one of the first two puts it into st->local, fields may be added, then it is sent.
 * What fails on the way (memory) is remembered there: then the connection just ends.
 */
struct http_msg *answer_new(struct stream *st, unsigned status); /* empty; NULL: out of memory */
void answer_of_status(struct stream *st, unsigned status); /* as the sections say, or built in */
void answer_field(struct stream *st, const char *name, struct str value);
enum step answer_send(struct stream *st);

/* rules.c, rules_edit.c, rules_tcp.c */
enum rule_verdict rules_run_http(struct stream *st, const struct conf_proxy *px,
				 enum conf_ruleset set, enum step *ret_step);
enum rule_verdict rules_run_tcp(struct stream *st, const struct conf_proxy *px,
				enum conf_ruleset set, enum step *ret_step);
/* `stats http-request`. RULE_ACCEPT: allowed; RULE_NEXT: they say nothing. */
enum rule_verdict rules_run_stats(struct stream *st, const struct conf_proxy *px, enum step *ret_step);
/* Before there is a stream: connection and session rules. False: reject. */
bool rules_admit(struct client *cl, enum conf_ruleset set);
/* ban.c: the client's packets are denied in the kernel; it is told nothing. */
void ban_client(struct client *cl, const struct conf_ban *ban);
/* One edit of a header, path, variable …; rules.c's table. */
typedef enum rule_verdict rule_fn(struct stream *st, const struct conf_proxy *px,
				  const struct conf_rule *r, struct http_msg *m,
				  enum step *ret_step);
extern rule_fn rule_header_edit, rule_header_del, rule_replace_header, rule_uri_edit,
	rule_set_status, rule_pattern, rule_early_hint, rule_var, rule_capture, rule_addr,
	rule_mark, /* rules_conn.c */
	rule_wait_for_body, rule_pause; /* body.c: RULE_WAIT until st->wait_until_ns */

/* early_hint.c: sends what is in st->hints. False: the client is gone. */
bool early_hints_send(struct stream *st);

/* subject.c */
const struct subject *stream_subject(struct stream *st); /* refreshed */
void subject_of_client(struct client *cl, struct arena *arena, struct subject *ret_subject);

/* service.c: what control answers */
struct service_call;
enum step service_start_prometheus(struct stream *st);
/* Is the statistics page of `px` asked for? Then service_start_stats(). */
bool service_is_stats(const struct stream *st, const struct conf_proxy *px);
enum step service_start_stats(struct stream *st, const struct conf_proxy *px);
enum step service_timeout(struct stream *st);
void service_cancel(struct stream *st); /* nobody waits any more */

/* forward.c: X-Forwarded-For and its kin; 0 or what an edit returned */
#define FORWARD_OPTIONS (CONF_OPT(FORWARDFOR) | CONF_OPT(ORIGINALTO) | CONF_OPT(FORWARDED))
HG_WUR int forward_headers(struct stream *st);

/* checkcache.c */
bool rsp_leaks_cookie(const struct stream *st);
bool rsp_may_be_kept(const struct stream *st); /* by a cache */

/* compress.c: only where `compression` is configured */
static inline bool stream_compresses(const struct stream *st)
{
	return st->fe->compression.n_algos | st->be->compression.n_algos |
	       st->fe->compression.req_algo | st->be->compression.req_algo;
}
void compress_request(struct stream *st); /* chooses st->coding */
void compress_response(struct stream *st); /* before the head is written: sets st->compress, or not */
void compress_outgoing(struct stream *st); /* the same of the request: sets st->compress_req, or not */
void compress_rewind(struct stream *st); /* before the request's body is read again */
enum flow_result compress_pump(struct stream *st, struct compress *c, struct flow *f); /* in place of flow_pump() */
void compress_end(struct stream *st);
void compress_worker_end(struct worker *w); /* frees what the worker keeps */

/* cookie.c */
void persist_rules_run(struct stream *st); /* force-persist, ignore-persist */
/* Persistence goes to a server that is down, too. */
static inline bool stream_may_use_down(const struct stream *st)
{
	return st->flags & STREAM_FORCE_PERSIST || st->be->options & CONF_OPT(PERSIST);
}
void cookie_read_request(struct stream *st); /* finds the server asked for; edits the request */
HG_WUR int cookie_edit_response(struct stream *st);

/* log.c */
void stream_log(struct stream *st);
void stream_log_asap(struct stream *st); /* option logasap: when the answer begins */
void client_log_connect(struct client *cl);
void client_log_error(struct client *cl, const char *what);

#endif
