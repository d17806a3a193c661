/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the health checks share. Three layers: a plan says what to send and to expect
 * (check_plan.c, one program per backend), a run does it once (check_proto.c, check_expect.c), a watch
 * decides when, and what the results mean for its server (health*.c). Control thread only.
 *
 * A watch exists for every server of the newest configuration, checked or not. Everything that points into a
 * configuration is replaced, or ended, by health_configure().
 */
#ifndef CTL_HEALTH_PRIV_H
#define CTL_HEALTH_PRIV_H

#include "ctl/ctl_priv.h"
#include "expr/expr.h"
#include "http/http.h"
#include "net/net.h"

/* --- plans ------------------------------------------------------------------------------------- */

enum check_op {
	CHECK_OP_CONNECT,
	CHECK_OP_SEND,
	CHECK_OP_EXPECT,
	CHECK_OP_VAR,
};

struct check_result;
enum check_verdict {
	CHECK_MORE, /* what is there does not decide */
	CHECK_MATCH,
	CHECK_MISMATCH, /* *res says what */
	CHECK_DECIDED, /* the whole run is over with *res, the steps behind do not count */
};
/* Of what came since the last send; `is_last`: nothing more will come. MATCH fills *res too. */
typedef enum check_verdict check_judge_fn(struct str in, bool is_last, struct check_result *res);

struct check_step {
	uint8_t op; /* enum check_op */
	check_judge_fn *judge; /* instead of `expect` */
	unsigned number; /* as written, from 1; 0: not written, but implied */
	const struct conf_check_step *conf; /* NULL: implied */
	const struct conf_expect *expect;
	const struct regex *re; /* RSTATUS, RSTRING, RBINARY; HDR, FHDR: of the name */
	const struct regex *re_value; /* HDR, FHDR */
	struct str bytes; /* SEND; of an HTTP request what is in front of the server's state */
	struct str tail; /* its end, and its body */
	const struct conf_check_request *request; /* made for each run, because there are expressions in it; else NULL */
	uint8_t method; /* enum http_method of it */
};

enum check_kind {
	CHECK_KIND_TCP,
	CHECK_KIND_HTTP,
	CHECK_KIND_SCRIPT,
	CHECK_KIND_PRESET, /* check_kinds.c */
};

struct check_prog {
	uint8_t kind; /* enum check_kind */
	uint8_t tout_status; /* enum check_status when an answer does not come; 0: L7TOUT */
	bool sends_state; /* X-Haproxy-Server-State between the SEND step's bytes and `tail` */
	struct check_step *steps;
	unsigned n_steps, cap_steps;
};

/* The programs of one configuration; they point into it. */
struct check_plans {
	struct arena arena;
	struct expr_owned *owned; /* regular expressions */
	struct check_prog **progs; /* by conf_proxy.index; NULL: nothing to check */
};
/* 0, -ENOMEM, or -EINVAL (a regular expression; `err` says which). Empty on failure. */
/* The program of one more section, when it has none: 0 or -ENOMEM. */
HG_WUR int check_plans_add(struct check_plans *p, const struct conf_proxy *px, struct err *err);
HG_WUR int check_plans_build(struct check_plans *p, const struct conf *conf, struct err *err);
void check_plans_free(struct check_plans *p);
/* The array has room for what a kind needs: CHECK_KIND_STEPS. */
struct check_step *check_add_step(struct check_prog *p, enum check_op op);
#define CHECK_KIND_STEPS 6
/* 0 or -ENOMEM; texts in the arena. */
HG_WUR int check_plan_kind(struct arena *a, struct check_prog *p, const struct conf_check *c);

/* --- runs -------------------------------------------------------------------------------------- */

#define CHECK_BUF_SIZE 16384 /* answer, as far as it is looked at */

struct check_result {
	enum check_status status;
	uint16_t code; /* HTTP status, else 0 */
	char desc[sizeof(((struct server_health *)0)->desc)];
};

/* Whom to talk to; what it points to outlives the run. */
struct check_target {
	struct addr to; /* port 0: none known */
	char unix_path[112]; /* instead of `to`; empty: none */
	const struct addr *from;
	const char *interface;
	const struct conf_socket *sock;
	const int *netns; /* NULL: the process's */
	uint32_t mark; /* via tunnel, from dp_check_mark(); 0: directly */
	const struct conf_server *conf; /* for expressions; NULL: there are none */
	struct tls_client *tls; /* NULL: none there */
	const char *sni;
	struct str alpn; /* empty: as `tls` says */
	bool is_tls; /* also where the script does not say `ssl` */
	bool has_h2; /* the traffic's ALPN offers HTTP/2 */
	uint8_t proto; /* SERVER_PROTO_*: what is spoken without negotiation */
	struct str send; /* for a SEND step without bytes of its own */
	bool is_404_stopping; /* http-check disable-on-404 applies */
	bool never_says_local; /* pp2-never-send-local */
	uint8_t proxy_version; /* of the PROXY header, 0: none unless the script says so */
	char state[256]; /* value of X-Haproxy-Server-State */
};
void check_target_from(struct check_target *t, const struct conf_outgoing *src); /* health_place.c */

struct check_run {
	const struct check_prog *prog;
	struct check_target target;
	struct net_worker *nw;
	void *owner;
	/* Both may be called from within check_run_start(). After `done` the run is over and the owner's to free. */
	void (*on_connected)(struct check_run *r);
	void (*done)(struct check_run *r, const struct check_result *res);
	uint64_t began_ns;
	/* private */
	struct conn *conn;
	struct check_result passed; /* what the last judge said; status 0: nothing */
	unsigned step;
	const struct conf_check_step *connect; /* by which the connection was opened; NULL: implied */
	uint8_t method; /* enum http_method of the last request */
	struct subject subject; /* what expressions see; variables live here */
	size_t sent; /* of the SEND step */
	struct str send, tail; /* what it sends */
	struct check_h2 *h2; /* HTTP/2 is spoken; NULL: not, or not yet */
	bool is_h2; /* HTTP checks: what the connection speaks */
	bool is_dialled; /* the CONNECT step has its socket */
	bool is_eof, is_head_read, is_body_complete;
	uint32_t in_len; /* bytes in `in` */
	uint32_t body_at, body_len; /* HTTP: decoded body in `in` */
	uint32_t raw_at; /* HTTP: where the bytes not decoded yet begin */
	struct arena arena;
	struct http_msg msg;
	struct h1_head head;
	struct h1_body body;
	char in[CHECK_BUF_SIZE];
};
/*
 * The caller sets the members above `private`; the rest is initialised here. 0: under way, or over already;
 * -ENOMEM, -EMFILE, … : this host is short of something, which says nothing about the server, and
 * `done` is not called.
 */
HG_WUR int check_run_start(struct check_run *r);
void check_run_timeout(struct check_run *r); /* calls done() */
void check_run_cancel(struct check_run *r); /* does not call done() */

/* check_text.c */
/* As it is now. */
const struct subject *check_subject(struct check_run *r);
/* Evaluated into the run's arena; p NULL: out of memory. */
struct str check_format(struct check_run *r, const struct logfmt *fmt);
/* `fmt`, or `text` when there is none. */
struct str check_text(struct check_run *r, const struct logfmt *fmt, struct str text);
/* What a pattern of `string` and `binary` is in this run; p NULL: out of memory, or no hexadecimal digits. */
struct str check_pattern(struct check_run *r, const struct conf_expect *e);
bool check_has_formats(const struct conf_check_request *rq);
/* The request up to the server's state, and what is behind. `r` NULL: nothing in it is evaluated. 0 or -ENOMEM. */
HG_WUR int check_request(struct check_run *r, struct arena *a, const struct conf_check_request *rq,
			 struct str uri, struct str body, struct str *ret_head,
			 struct str *ret_tail);
HG_WUR int check_set_var(struct check_run *r, const struct conf_check_step *s);
HG_WUR int check_prepare_send(struct check_run *r,
			      const struct check_step *s); /* -EINVAL: a format gave no target */
bool check_has_field(struct check_run *r, const struct check_step *s);

/* check_h2.c: HTTP checks over HTTP/2. */
/* A request as HTTP/1 would send it, in parts; r->sent is 0 before the first call. 0, -EAGAIN, -errno. */
HG_WUR int check_h2_send(struct check_run *r, const struct str *parts, unsigned n);
/* What came, as HTTP/1 would have brought it, in r->in; r->is_eof at its end. 0, -errno. */
HG_WUR int check_h2_receive(struct check_run *r);
void check_h2_close(struct check_run *r); /* before the connection is; nothing when HTTP/2 was not spoken */

/* check_expect.c: looks at what was received. */
enum check_verdict check_expect(struct check_run *r, const struct check_step *s,
				struct check_result *res);
/* As far as it is here, decoded; p NULL: there is no answer, or it is broken. */
struct str check_body(struct check_run *r);
void check_code(struct check_run *r, const struct conf_expect *e, struct check_result *res);
enum check_status check_says(unsigned says); /* enum conf_check_says, but not USUAL */
/* " at step 2 of tcp-check (expect string 'x')"; empty when it is not a script. */
void check_where(struct check_run *r, char *out, size_t size);
void check_desc(struct check_result *res, enum check_status status, const char *fmt, ...)
	HG_PRINTF(3, 4);

/* --- watches ----------------------------------------------------------------------------------- */

enum health_cause {
	CAUSE_CHECK,
	CAUSE_CLI,
	CAUSE_TRACK,
	CAUSE_AGENT,
};

struct health_backend;

struct watch_place {
	struct check_place written, now; /* by the configuration applied last; in use */
	bool is_known; /* `written` is filled */
};

struct watch {
	struct list link; /* health.watches */
	struct health *h;
	struct server *srv;
	struct health_backend *hb;
	const struct check_prog *prog; /* NULL: no check */
	struct timer timer; /* idle: the next check; running: its time limit */
	struct check_run *run; /* NULL: idle */
	struct timer agent_timer; /* idle: the next question; running: its time limit */
	struct check_run *agent_run;
	bool has_agent; /* in the configuration applied last */
	struct watch_place check_at, agent_at;
	char *agent_text; /* instead of the configuration's, by the runtime API; mem_alloc() */
	uint64_t agent_text_written; /* hash of the configuration's */
	uint64_t inter, fastinter, downinter; /* as the timer knows them */
	bool is_fresh; /* its first check is to be placed by schedule_fresh() */
	uint8_t admin; /* as seen last */
	/* a change of state that waits for health_flush() */
	struct list pending;
	uint8_t want; /* enum server_op */
	uint8_t cause;
	/* track */
	struct watch *tracked;
	struct list trackers, track_link;
	struct list warming; /* health.warming: slow start */
	struct list observe_link; /* health.observers: `observe` */
	uint64_t warm_since_ns;
};

struct health_backend {
	struct lb_backend *be;
	const struct conf_proxy *px;
	bool is_watched; /* not disabled */
	/* while a batch of changes is applied */
	struct list touched;
	struct server *last_changed;
	uint32_t n_active, n_backup;
};

struct health {
	struct ctl *ctl;
	struct net_worker nw;
	struct pool runs;
	struct list watches, pending, warming, observers;
	struct deferred flush;
	const struct proxy_snapshot *snap;
	struct check_plans plans;
	struct arena arena; /* backends and their arrays */
	struct health_backend *backends; /* by conf_proxy.index */
	unsigned n_backends;
	uint64_t prng;
	uint64_t warned_ns; /* a shortage was said; loop clock */
	bool wants_configure; /* memory was short: health_tick() tries again */
};

static inline const struct conf_server *watch_conf(const struct watch *w)
{
	return w->srv->conf;
}
static inline uint32_t watch_rise(const struct watch *w)
{
	return w->srv->conf->rise ? w->srv->conf->rise : 2;
}
static inline uint32_t watch_fall(const struct watch *w)
{
	return w->srv->conf->fall ? w->srv->conf->fall : 3;
}
static inline bool watch_is_in_maint(const struct watch *w)
{
	return atomic_load(&w->srv->admin) & SERVER_MAINT_MASK;
}
struct watch *health_find(const struct health *h, const struct server *s); /* or NULL */

/* health.c */
void watch_start_now(struct watch *w); /* next check at once, if it may be checked */
void watch_hurry(struct watch *w, uint64_t delay_ns); /* not later than that */
void watch_stop(struct watch *w); /* no check runs, none is due */

/* health_state.c */
void health_take_result(struct watch *w, const struct check_result *res, uint64_t duration_ns);
void health_want(struct watch *w, enum server_op op, enum health_cause cause);
void health_flush(struct health *h);
void health_end_sessions(struct health *h, struct server *s, char code); /* on every worker */
void health_warm_up(struct watch *w); /* RUNNING, or the beginning of its slow start */

/* health_agent.c */
void health_agent_configure(struct watch *w);
void health_agent_stop(struct watch *w);
void health_agent_on_timer(struct timer *t);
void health_agent_resume(struct watch *w); /* asks at once, if it is enabled */
bool health_agent_holds(const struct watch *w); /* it said down: checks alone do not bring the server up */

/* health_place.c */
void health_place_configure(struct watch *w);
void health_place_forget(struct watch *w);
/* Address and port to ask; false: none is known (a name that was not resolved, a Unix socket). */
bool watch_place_addr(const struct watch *w, const struct check_place *p, struct addr *ret);

/* health_admin.c */
void health_follow_admin(struct watch *w); /* logs and spreads what changed since the last call */
void health_inherit(struct watch *w); /* a new tracker takes over the state it follows, silently */

/* health_log.c: the texts people and tools know */
void health_log_check(const struct watch *w, bool is_conditional, bool is_passed);
void health_log_agent(const struct watch *w);
void health_log_op(const struct watch *w, enum server_op was, enum health_cause cause);
void health_log_empty(const struct health_backend *hb);
enum health_admin_text {
	ADMIN_GOING_DOWN,
	ADMIN_WAS_DOWN,
	ADMIN_LEAVES_FORCED,
	ADMIN_LEAVES,
	ADMIN_REMAINS,
	ADMIN_DRAINS,
	ADMIN_LEAVES_FORCED_DRAIN,
	ADMIN_LEAVES_DRAIN,
};
void health_log_admin(const struct watch *w, enum health_admin_text what);

#endif
