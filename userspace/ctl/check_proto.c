/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One health check, once: connect, send, expect, as a walk through the steps of a program. Never blocks;
 * driven by the connection's events. The owner (health.c) keeps the time limit and the memory. Control
 * thread.
 *
 * Which layer is blamed: before the TCP connection stands it is layer 4, in the TLS handshake layer 6, behind
 * it layer 7; an I/O error of an open connection is a socket error, as HAProxy reports it.
 */
#include <errno.h>

#include "ctl/health_priv.h"

/* Fits every path with an outer header: IPv6's least MTU without 52 bytes of tunnel and 80 of IPv6 and TCP. */
#define CHECK_TUNNEL_MSS (1280 - 52 - 80)

enum step_result {
	STEP_WAIT, /* an event goes on */
	STEP_DONE, /* next step */
	STEP_OVER, /* done() was called: `r` is gone */
};

static void run_close(struct check_run *r)
{
	bool linger = (r->connect && r->connect->linger) || r->prog->kind == CHECK_KIND_PRESET;

	check_h2_close(r);
	/* A bare connect is ended by RST: thousands of them a minute would fill the table of TIME_WAIT. */
	if (r->conn)
		conn_close(r->conn, r->prog->kind != CHECK_KIND_HTTP && !linger);
	r->conn = NULL;
	arena_free(&r->arena);
	r->msg.arena = NULL;
}

static enum step_result run_over(struct check_run *r, const struct check_result *res)
{
	run_close(r);
	r->done(r, res);
	return STEP_OVER;
}

static enum step_result run_fail(struct check_run *r, enum check_status status, const char *why)
{
	struct check_result res = { .code = 0 };
	char where[128];

	check_where(r, where, sizeof(where));
	check_desc(&res, status, "%s%s", why, where);
	return run_over(r, &res);
}

static enum step_result run_fail_conn(struct check_run *r, int rc)
{
	const struct conn *c = r->conn;
	char text[96];

	if (c->state == CONN_CONNECTING || (c->state == CONN_HANDSHAKE && !conn_is_tls(c)))
		return run_fail(r, CHECK_STATUS_L4CON, strerror(-rc));
	if (c->state == CONN_OPEN)
		return run_fail(r, CHECK_STATUS_SOCKERR, strerror(-rc));
	if (c->error == CONN_ERR_TLS_VERIFY)
		snprintf(text, sizeof(text), "SSL handshake failure (certificate refused)");
	else
		snprintf(text, sizeof(text), "SSL handshake failure");
	return run_fail(r, CHECK_STATUS_L6RSP, text);
}

/* What the last `expect` was told to say instead. */
static void say_success(struct check_run *r, const struct check_step *last,
			struct check_result *res)
{
	const struct conf_expect *e = last->expect;
	struct str text = STR_NULL;

	if (!e)
		return;
	if (e->ok_says)
		res->status = check_says(e->ok_says);
	check_code(r, e, res);
	if (e->on_success)
		text = check_format(r, e->on_success);
	if (text.p)
		check_desc(res, res->status, STR_FMT, STR_ARG(text));
}

/* That says something about the server. */
static const struct check_step *last_step(const struct check_prog *p)
{
	unsigned i = p->n_steps - 1;

	while (i && p->steps[i].op == CHECK_OP_VAR)
		i--;
	return &p->steps[i];
}

static enum step_result run_pass(struct check_run *r)
{
	const struct check_step *last = last_step(r->prog);
	struct check_result res = { .code = 0 };

	if (r->passed.status)
		return run_over(r, &r->passed);
	if (last->op == CHECK_OP_CONNECT)
		check_desc(&res, conn_is_tls(r->conn) ? CHECK_STATUS_L6OK : CHECK_STATUS_L4OK, "%s",
			   "");
	else if (r->prog->kind == CHECK_KIND_SCRIPT)
		check_desc(&res, CHECK_STATUS_L7OK, "(tcp-check)");
	else
		check_desc(&res, CHECK_STATUS_L7OK, "%s", "");
	if (r->prog->kind == CHECK_KIND_HTTP)
		res.code = r->msg.status;
	if (last->op == CHECK_OP_EXPECT)
		say_success(r, last, &res);
	return run_over(r, &res);
}

/* --- connect -------------------------------------------------------------------------------------- */

static void run_on_event(struct conn *c);

/* `connect port <expression>`; 0: it gives none. */
static uint16_t port_of(struct check_run *r, const struct expr *e)
{
	struct sample v;

	if (expr_eval(e, check_subject(r), &v) || sample_cast(&v, SAMPLE_SINT, &r->arena) ||
	    v.sint < 1 || v.sint > UINT16_MAX)
		return 0;
	return (uint16_t)v.sint;
}

/* What came is over: an answer on another connection, or to another request, comes next. */
static void run_forget(struct check_run *r)
{
	r->in_len = r->body_at = r->body_len = r->raw_at = 0;
	r->is_head_read = r->is_body_complete = false;
	memset(&r->msg, 0, sizeof(r->msg));
	memset(&r->head, 0, sizeof(r->head));
	r->head.max_bytes = CHECK_BUF_SIZE;
}

/* Version 2 of the PROXY protocol: byte 12 is version and command (2.2). */
#define V2_COMMAND 12
#define V2_PROXY   0x21

/* The connection is ours, not a client's: LOCAL, or UNKNOWN in version 1. Into `out` of 128 bytes. */
static size_t own_proxy_header(const struct check_target *t, unsigned version, char *out)
{
	const struct addr none = { .sa.sa_family = AF_UNSPEC };
	const struct proxy_extra x = { .has_crc32c = t->conf && t->conf->pp_options & PP_CRC32C,
				       .has_ssl = t->conf && t->conf->pp_options & PP_SSL,
				       .ssl_verify = 1 };
	int n;

	if (version != 2)
		return proxy_header_write(version, &none, &none, out);
	n = proxy_header_write_more(&none, &none, &x, out);
	BUG_ON(n < 0); /* 31 bytes */
	return (size_t)n;
}

/* 0, or -errno of what the kernel said. */
static int run_dial(struct check_run *r, const struct check_step *s)
{
	const struct check_target *t = &r->target;
	struct addr to = t->to;
	char header[128];
	struct dial_opts o = {
		.to = &to,
		.from = t->from,
		.interface = t->interface,
		.sock = t->sock,
		.netns = t->netns,
		.mark = t->mark,
		.mss = t->mark ? CHECK_TUNNEL_MSS : 0,
		.nodelay = true,
		.sni = str_from_cstr(s->conf && s->conf->sni ? s->conf->sni : t->sni),
		.alpn = s->conf && s->conf->alpn.len ? s->conf->alpn : t->alpn,
	};
	unsigned version = s->conf && s->conf->send_proxy && !t->proxy_version ? 1
									       : t->proxy_version;
	int rc;

	if (s->conf && s->conf->addr.sa.sa_family != AF_UNSPEC) {
		to = s->conf->addr;
		addr_set_port(&to, addr_port(&t->to));
	}
	if (s->conf && s->conf->port)
		addr_set_port(&to, s->conf->port);
	if (s->conf && s->conf->port_expr)
		addr_set_port(&to, port_of(r, s->conf->port_expr));
	if (t->unix_path[0] && to.sa.sa_family == AF_UNSPEC)
		o.unix_path = t->unix_path;
	else if (to.sa.sa_family == AF_UNSPEC || !addr_port(&to))
		return -EDESTADDRREQ;
	if (t->is_tls || (s->conf && s->conf->ssl))
		o.tls = t->tls;
	/* Scripts bring their own bytes: a server must not choose what only the traffic speaks. */
	if (o.tls && t->has_h2 && !o.alpn.len &&
	    (r->prog->kind != CHECK_KIND_HTTP || t->proto == SERVER_PROTO_H1))
		o.alpn = STR("\x08http/1.1");
	if (version)
		o.proxy_header = str_make(header, own_proxy_header(t, version, header));
	if (version == 2 && t->never_says_local)
		header[V2_COMMAND] = V2_PROXY; /* still without addresses */
	rc = conn_dial(r->nw, &o, &r->conn);
	if (rc) {
		r->conn = NULL;
		return rc;
	}
	r->conn->owner = r;
	r->conn->on_event = run_on_event;
	r->conn->doing = "health check";
	r->connect = s->conf;
	r->is_dialled = true;
	r->is_eof = false;
	run_forget(r);
	return 0;
}

/* By the handshake; without one by what is written in the script, for checks, for the server. */
static bool speaks_h2(const struct check_run *r, const struct check_step *s)
{
	struct str alpn = conn_alpn(r->conn);
	unsigned proto = s->conf && s->conf->proto ? s->conf->proto : r->target.proto;

	if (r->prog->kind != CHECK_KIND_HTTP)
		return false;
	return alpn.len ? str_is_eq(alpn, STR("h2")) : proto == SERVER_PROTO_H2;
}

static enum step_result step_connect(struct check_run *r, const struct check_step *s)
{
	int rc = 0;

	if (!r->is_dialled) {
		check_h2_close(r);
		if (r->conn)
			conn_close(r->conn, false);
		r->conn = NULL;
		rc = run_dial(r, s);
		if (rc)
			return run_fail(r, CHECK_STATUS_L4CON, strerror(-rc));
	}
	rc = conn_advance(r->conn);
	if (rc == -EAGAIN)
		return STEP_WAIT;
	if (rc)
		return run_fail_conn(r, rc);
	r->is_dialled = false;
	r->is_h2 = speaks_h2(r, s);
	r->on_connected(r);
	return STEP_DONE;
}

/* --- send, expect ----------------------------------------------------------------------------------- */

static unsigned send_parts(const struct check_run *r, struct str parts[5])
{
	unsigned n = 0;

	parts[n++] = r->send;
	if (r->prog->kind != CHECK_KIND_HTTP)
		return n;
	if (r->prog->sends_state) {
		parts[n++] = STR("X-Haproxy-Server-State: ");
		parts[n++] = str_from_cstr(r->target.state);
		parts[n++] = STR("\r\n");
	}
	parts[n++] = r->tail;
	return n;
}

static enum step_result send_h2(struct check_run *r, const struct str *parts, unsigned n)
{
	int rc = check_h2_send(r, parts, n);

	if (rc == -EAGAIN)
		return STEP_WAIT;
	if (rc == -EINVAL)
		return run_fail(r, CHECK_STATUS_SOCKERR, "this request cannot be sent over HTTP/2");
	if (rc)
		return run_fail_conn(r, rc);
	r->sent = 0;
	run_forget(r);
	return STEP_DONE;
}

static enum step_result step_send(struct check_run *r, const struct check_step *s)
{
	struct str parts[5];
	unsigned n;

	if (!r->sent) {
		int rc = check_prepare_send(r, s);

		if (rc)
			return run_fail(r, CHECK_STATUS_SOCKERR,
					rc == -EINVAL	? "the format gave no target for a request"
					: rc == -EILSEQ ? "the format gave no hexadecimal digits"
							: "out of memory");
	}
	n = send_parts(r, parts);
	if (r->is_h2)
		return send_h2(r, parts, n);
	for (;;) {
		struct iovec iov[ARRAY_SIZE(parts)];
		size_t skip = r->sent;
		int n_iov = 0;
		ssize_t rc;

		for (unsigned i = 0; i < n; i++) {
			struct str p = str_from(parts[i], skip);

			skip -= skip < parts[i].len ? skip : parts[i].len;
			if (p.len)
				iov[n_iov++] = (struct iovec){ (void *)(uintptr_t)p.p, p.len };
		}
		if (!n_iov)
			break;
		rc = conn_sendv(r->conn, iov, n_iov, false);
		if (rc == -EAGAIN || rc == 0)
			return STEP_WAIT;
		if (rc < 0)
			return run_fail_conn(r, (int)rc);
		r->sent += (size_t)rc;
	}
	/* What is expected next is the answer to this. */
	r->sent = 0;
	run_forget(r);
	return STEP_DONE;
}

/* Whatever is there; -errno when the connection broke. */
static int run_receive(struct check_run *r)
{
	while (!r->is_eof && r->in_len < CHECK_BUF_SIZE) {
		ssize_t n = conn_recv(r->conn, r->in + r->in_len, CHECK_BUF_SIZE - r->in_len);

		if (n == -EAGAIN)
			return 0;
		if (n < 0)
			return (int)n;
		if (n == 0)
			r->is_eof = true;
		r->in_len += (uint32_t)n;
	}
	return 0;
}

static enum step_result step_expect(struct check_run *r, const struct check_step *s)
{
	struct check_result res = { .code = 0 };
	int rc = r->h2 ? check_h2_receive(r) : run_receive(r);

	/* A reset after the answer is how some servers close: what came is judged first. */
	if (rc && !r->in_len)
		return run_fail_conn(r, rc);
	if (rc)
		r->is_eof = true;
	switch (check_expect(r, s, &res)) {
	case CHECK_MATCH:
		if (s->judge)
			r->passed = res;
		return STEP_DONE;
	case CHECK_MORE:
		return STEP_WAIT;
	default:
		return run_over(r, &res);
	}
}

static enum step_result step_var(struct check_run *r, const struct check_step *s)
{
	return check_set_var(r, s->conf) ? run_fail(r, CHECK_STATUS_SOCKERR, "out of memory")
					 : STEP_DONE;
}

/* --- the walk ---------------------------------------------------------------------------------------- */

static void run_walk(struct check_run *r)
{
	static enum step_result (*const ops[])(struct check_run *, const struct check_step *) = {
		[CHECK_OP_CONNECT] = step_connect,
		[CHECK_OP_SEND] = step_send,
		[CHECK_OP_EXPECT] = step_expect,
		[CHECK_OP_VAR] = step_var,
	};

	while (r->step < r->prog->n_steps) {
		const struct check_step *s = &r->prog->steps[r->step];

		if (ops[s->op](r, s) != STEP_DONE)
			return;
		r->step++;
	}
	run_pass(r);
}

static void run_on_event(struct conn *c)
{
	run_walk(c->owner);
}

int check_run_start(struct check_run *r)
{
	int rc;

	r->conn = NULL;
	r->step = 0;
	r->sent = 0;
	r->connect = NULL;
	r->h2 = NULL;
	r->is_dialled = r->is_eof = r->is_h2 = false;
	r->passed = (struct check_result){ .status = CHECK_STATUS_UNKNOWN };
	r->send = r->tail = STR_NULL;
	arena_init(&r->arena, 4096);
	memset(&r->subject, 0, sizeof(r->subject));
	run_forget(r);
	/* Only variables stand before the first connect; dialling tells here what this host is short of. */
	while (r->prog->steps[r->step].op == CHECK_OP_VAR) {
		if (step_var(r, &r->prog->steps[r->step]) == STEP_OVER)
			return 0;
		r->step++;
	}
	BUG_ON(r->prog->steps[r->step].op != CHECK_OP_CONNECT);
	rc = run_dial(r, &r->prog->steps[r->step]);
	if (rc == 0) {
		run_walk(r);
		return 0;
	}
	if (conn_error_from_errno(rc) == CONN_ERR_NO_PORTS) {
		run_close(r);
		return rc;
	}
	run_fail(r, CHECK_STATUS_L4CON, strerror(-rc));
	return 0;
}

void check_run_timeout(struct check_run *r)
{
	enum check_status status = r->prog->tout_status ? r->prog->tout_status
							: CHECK_STATUS_L7TOUT;

	if (r->step < r->prog->n_steps && r->prog->steps[r->step].expect &&
	    r->prog->steps[r->step].expect->tout_says)
		status = check_says(r->prog->steps[r->step].expect->tout_says);
	if (r->conn && r->conn->state == CONN_CONNECTING)
		status = CHECK_STATUS_L4TOUT;
	else if (r->conn && r->conn->state == CONN_HANDSHAKE)
		status = conn_is_tls(r->conn) ? CHECK_STATUS_L6TOUT : CHECK_STATUS_L4TOUT;
	run_fail(r, status, "");
}

void check_run_cancel(struct check_run *r)
{
	run_close(r);
}
