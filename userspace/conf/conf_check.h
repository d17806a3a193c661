/* SPDX-License-Identifier: BSD-2-Clause */
/* Health checks as they are written; a part of conf/conf.h, which includes this. Immutable after loading. */
#ifndef CONF_CONF_CHECK_H
#define CONF_CONF_CHECK_H

enum conf_check_type { CHECK_TCP, CHECK_HTTP, CHECK_SSL_HELLO, CHECK_SMTP, CHECK_MYSQL, CHECK_PGSQL, CHECK_REDIS,
		       CHECK_LDAP, CHECK_TCP_SCRIPT };

enum conf_expect_what { EXPECT_STATUS, EXPECT_RSTATUS, EXPECT_STRING, EXPECT_RSTRING, EXPECT_BINARY, EXPECT_RBINARY,
			EXPECT_HDR, EXPECT_FHDR };
enum conf_check_match { CHECK_MATCH_STR, CHECK_MATCH_BEG, CHECK_MATCH_END, CHECK_MATCH_SUB, CHECK_MATCH_REG };
struct conf_check_text {
	uint8_t how; /* enum conf_check_match */
	struct str text;
	struct logfmt *fmt; /* instead of `text` */
};
/* Results by the codes they are known by; 0: as usual. */
enum conf_check_says { CHECK_SAYS_USUAL, CHECK_SAYS_L4OK, CHECK_SAYS_L6OK, CHECK_SAYS_L7OK, CHECK_SAYS_L7OKC,
		       CHECK_SAYS_L4CON, CHECK_SAYS_L6RSP, CHECK_SAYS_L7RSP, CHECK_SAYS_L7STS,
		       CHECK_SAYS_L4TOUT, CHECK_SAYS_L6TOUT, CHECK_SAYS_L7TOUT, CHECK_SAYS_COUNT };
struct conf_expect {
	uint8_t what; /* enum conf_expect_what */
	bool negate;
	char *text; /* string or regular expression */
	size_t text_len;
	struct logfmt *fmt; /* instead of `text`: string-lf; binary-lf gives its hexadecimal digits */
	struct { uint16_t lo, hi; } *status; /* EXPECT_STATUS */
	unsigned n_status;
	int32_t min_recv; /* -1: none */
	struct conf_check_text name, value; /* EXPECT_HDR: one of the comma-separated values; EXPECT_FHDR: the whole */
	bool has_value;
	uint8_t ok_says, error_says, tout_says; /* enum conf_check_says */
	struct logfmt *on_success, *on_error; /* the description; NULL: the usual one */
	struct expr *status_code; /* of the result; NULL: the answer's */
};
struct conf_check_header {
	struct conf_check_header *next;
	struct str name, value;
	struct logfmt *fmt; /* instead of `value` */
};
struct conf_check_request { /* of an HTTP check */
	char *method, *uri, *version, *host;
	struct str headers; /* behind the version of option httpchk: "Name: value\r\n"… */
	struct conf_check_header *fields; /* http-check send hdr */
	struct str body;
	struct logfmt *uri_fmt, *body_fmt; /* instead of `uri`, `body` */
};
struct conf_check_step { /* one line of a check script, in order */
	struct list link;
	struct conf_pos pos;
	enum { STEP_CONNECT, STEP_SEND, STEP_EXPECT, STEP_COMMENT, STEP_SET_VAR, STEP_UNSET_VAR } kind;
	struct conf_expect expect;
	struct str send; /* bytes to send */
	struct logfmt *send_fmt; /* instead of `send` */
	bool is_send_hex; /* `send_fmt` gives hexadecimal digits */
	struct conf_check_request *request; /* of an HTTP check: a further one; NULL: `send` */
	struct expr *port_expr; /* connect: instead of `port` */
	struct expr *value; /* set-var */
	struct logfmt *value_fmt; /* set-var-fmt */
	uint8_t var_scope, var_conds; /* see var_cond_parse() */
	uint32_t var_id;
	uint16_t port; /* connect: 0 = the server's check port */
	struct addr addr; /* connect: family 0 = the server's */
	bool ssl, send_proxy, linger;
	uint8_t proto; /* connect: SERVER_PROTO_*; AUTO: the check's */
	char *sni, *comment;
	struct str alpn; /* length-prefixed names; empty: the server's */
};
struct conf_check { /* of a proxy */
	uint8_t type; /* enum conf_check_type */
	struct conf_check_request request; /* option httpchk, and the first http-check send */
	struct list steps; /* conf_check_step; CHECK_HTTP: `request` is sent before the first thing that is expected */
	bool disable_on_404, send_state;
	char *user; /* mysql-check, pgsql-check; smtpchk: "HELO name" */
	bool is_pre_41; /* mysql-check: the login of servers before 4.1 */
};

#endif
