/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checks that speak a protocol of their own: TLS hello, SMTP, MySQL, PostgreSQL, Redis, LDAP. Each is a few steps
 * of a program, whose answers are judged by a function here. Every byte judged is the peer's: a packet
 * that announces more than the run's buffer holds is an invalid answer, not something to wait for. Control thread.
 */
#include <errno.h>

#include "ctl/health_priv.h"

/* --- judging -------------------------------------------------------------------------------------- */

static enum check_verdict refuse(struct check_result *res, enum check_status status,
				 struct str text)
{
	check_desc(res, status, STR_FMT, STR_ARG(text));
	return CHECK_MISMATCH;
}

/* Absence of enough bytes: more may come, or it was all. */
static enum check_verdict too_short(bool is_last, struct check_result *res)
{
	return is_last ? refuse(res, CHECK_STATUS_L7RSP, STR("")) : CHECK_MORE;
}

static struct str first_line(struct str s)
{
	for (size_t i = 0; i < s.len; i++)
		if (s.p[i] == '\r' || s.p[i] == '\n')
			return str_sub(s, 0, i);
	return s;
}

static struct str without_blanks(struct str s)
{
	while (s.len && *s.p == ' ')
		s = str_from(s, 1);
	return s;
}

/* Any server answers the oldest hello with a handshake record, or with an alert that it does not like it. */
static enum check_verdict judge_hello(struct str in, bool is_last, struct check_result *res)
{
	if (in.len < 5)
		return is_last ? refuse(res, CHECK_STATUS_L6RSP, STR("")) : CHECK_MORE;
	if (in.p[0] != 0x15 && in.p[0] != 0x16)
		return refuse(res, CHECK_STATUS_L6RSP, STR(""));
	check_desc(res, CHECK_STATUS_L6OK, "%s", "");
	return CHECK_MATCH;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* The last line of a reply (RFC 5321 4.2): "250 text", after any number of "250-text". */
static enum check_verdict judge_smtp(struct str in, bool is_last, struct check_result *res)
{
	while (in.len >= 4) {
		struct str line = first_line(in);
		unsigned code;

		if (!is_digit(in.p[0]) || !is_digit(in.p[1]) || !is_digit(in.p[2]) ||
		    !strchr(" -\r\n", in.p[3]))
			return refuse(res, CHECK_STATUS_L7RSP, line);
		/* Cut in the middle of a line: the end of its text is still to come. */
		if (line.len == in.len && !is_last)
			return CHECK_MORE;
		code = (unsigned)(in.p[0] - '0') * 100 + (unsigned)(in.p[1] - '0') * 10 +
		       (unsigned)(in.p[2] - '0');
		res->code = (uint16_t)code;
		if (code / 100 != 2)
			return refuse(res, CHECK_STATUS_L7STS, without_blanks(str_from(line, 4)));
		if (in.p[3] != '-') {
			check_desc(res, CHECK_STATUS_L7OK, STR_FMT,
				   STR_ARG(without_blanks(str_from(line, 4))));
			return CHECK_MATCH;
		}
		in = str_from(in, line.len);
		while (in.len && (*in.p == '\r' || *in.p == '\n'))
			in = str_from(in, 1);
	}
	return too_short(is_last, res);
}

static enum check_verdict judge_redis(struct str in, bool is_last, struct check_result *res)
{
	const struct str pong = STR("+PONG\r\n");

	if (str_find(in, pong) != SIZE_MAX) {
		check_desc(res, CHECK_STATUS_L7OK, "Redis server is ok");
		return CHECK_MATCH;
	}
	if (!is_last && (in.len < pong.len || in.p[in.len - 1] != '\n'))
		return CHECK_MORE;
	return refuse(res, CHECK_STATUS_L7STS, first_line(in));
}

#define MYSQL_HEADER 4 /* length, 3 bytes, and sequence number */
#define MYSQL_OK     0x00
#define MYSQL_EOF    0xfe
#define MYSQL_ERROR  0xff

/* The packet at the start of `in`, without its header; len 0: not there. */
static enum check_verdict mysql_packet(struct str in, bool is_last, struct str *ret_body,
				       struct check_result *res)
{
	const unsigned char *p = (const unsigned char *)in.p;
	size_t len;

	if (in.len < MYSQL_HEADER)
		return too_short(is_last, res);
	len = p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16;
	if (!len || len > CHECK_BUF_SIZE - MYSQL_HEADER)
		return refuse(res, CHECK_STATUS_L7RSP, STR("MySQL packet of invalid length"));
	if (in.len < MYSQL_HEADER + len)
		return too_short(is_last, res);
	*ret_body = str_sub(str_from(in, MYSQL_HEADER), 0, len);
	if ((unsigned char)ret_body->p[0] != MYSQL_ERROR)
		return CHECK_MATCH;
	if (ret_body->len >= 3)
		res->code = (uint16_t)((unsigned char)ret_body->p[1] | (unsigned char)ret_body->p[2]
									       << 8);
	return refuse(res, CHECK_STATUS_L7STS, str_from(*ret_body, 3));
}

/* The server's greeting: a protocol number, then its version as text. */
static enum check_verdict judge_mysql_greeting(struct str in, bool is_last,
					       struct check_result *res)
{
	struct str body;
	enum check_verdict v = mysql_packet(in, is_last, &body, res);

	if (v != CHECK_MATCH)
		return v;
	body = str_from(body, 1);
	check_desc(res, CHECK_STATUS_L7OK, STR_FMT,
		   STR_ARG(str_sub(body, 0, strnlen(body.p, body.len))));
	return CHECK_MATCH;
}

static enum check_verdict judge_mysql_login(struct str in, bool is_last, struct check_result *res)
{
	struct str body;
	enum check_verdict v = mysql_packet(in, is_last, &body, res);

	if (v != CHECK_MATCH)
		return v;
	switch ((unsigned char)body.p[0]) {
	case MYSQL_OK:
	case MYSQL_EOF: /* it asks for another way to log in: alive, and it knows the user */
		check_desc(res, CHECK_STATUS_L7OK, "MySQL server is ok");
		return CHECK_MATCH;
	default:
		return refuse(res, CHECK_STATUS_L7RSP, STR("MySQL answer of unknown kind"));
	}
}

/*
 * 'E' is an error; 'R' an authentication request, whatever its kind: the server lives and asks the user for
 * a password, or lets it in.
 */
static enum check_verdict judge_pgsql(struct str in, bool is_last, struct check_result *res)
{
	if (in.len && in.p[0] == 'E') {
		if (in.len < 7 && !is_last)
			return CHECK_MORE;
		return refuse(res, CHECK_STATUS_L7RSP, first_line(str_from(in, 6)));
	}
	if (in.len < 9)
		return too_short(is_last, res);
	if (in.p[0] != 'R' || in.p[1] || in.p[2] || in.p[3] || in.p[5] || in.p[6] || in.p[7] ||
	    (unsigned char)in.p[8] > 12)
		return refuse(res, CHECK_STATUS_L7STS, STR("PostgreSQL unknown error"));
	check_desc(res, CHECK_STATUS_L7OK, "PostgreSQL server is ok");
	return CHECK_MATCH;
}

/* Tag and length at the start of `*in`, which moves on to the contents (X.690 8.1); their length. */
static enum check_verdict ber_header(struct str *in, unsigned char tag, size_t *ret_len,
				     bool is_last, struct check_result *res)
{
	const unsigned char *p = (const unsigned char *)in->p;
	size_t len, n;

	if (in->len && p[0] != tag)
		return refuse(res, CHECK_STATUS_L7RSP, STR("Not LDAPv3 protocol"));
	if (in->len < 2)
		return too_short(is_last, res);
	len = p[1];
	n = len & 0x80 ? len & 0x7f : 0; /* the long form: so many bytes of length follow */
	if (len == 0x80 || n > 4)
		return refuse(res, CHECK_STATUS_L7RSP, STR("Not LDAPv3 protocol"));
	if (in->len < 2 + n)
		return too_short(is_last, res);
	if (n)
		len = 0;
	for (size_t i = 0; i < n; i++)
		len = len << 8 | p[2 + i];
	*ret_len = len;
	*in = str_from(*in, 2 + n);
	return CHECK_MATCH;
}

/* A number of one byte. */
static enum check_verdict ber_byte(struct str *in, unsigned char tag, unsigned *ret, bool is_last,
				   struct check_result *res)
{
	size_t len;
	enum check_verdict v = ber_header(in, tag, &len, is_last, res);

	if (v != CHECK_MATCH)
		return v;
	if (len != 1)
		return refuse(res, CHECK_STATUS_L7RSP, STR("Not LDAPv3 protocol"));
	if (!in->len)
		return too_short(is_last, res);
	*ret = (unsigned char)in->p[0];
	*in = str_from(*in, 1);
	return CHECK_MATCH;
}

#define BER_INTEGER	   0x02
#define BER_ENUMERATED	   0x0a
#define BER_SEQUENCE	   0x30
#define LDAP_BIND_RESPONSE 0x61

/* The response to message 1, with its result (RFC 4511 4.1.1, 4.1.9); what follows the result is not looked at. */
static enum check_verdict judge_ldap(struct str in, bool is_last, struct check_result *res)
{
	unsigned id, code;
	size_t len;
	enum check_verdict v = ber_header(&in, BER_SEQUENCE, &len, is_last, res);

	if (v == CHECK_MATCH)
		v = ber_byte(&in, BER_INTEGER, &id, is_last, res);
	if (v == CHECK_MATCH && id != 1)
		return refuse(res, CHECK_STATUS_L7RSP, STR("Not LDAPv3 protocol"));
	if (v == CHECK_MATCH)
		v = ber_header(&in, LDAP_BIND_RESPONSE, &len, is_last, res);
	if (v == CHECK_MATCH)
		v = ber_byte(&in, BER_ENUMERATED, &code, is_last, res);
	if (v != CHECK_MATCH)
		return v;
	res->code = (uint16_t)code;
	check_desc(res, code ? CHECK_STATUS_L7STS : CHECK_STATUS_L7OK,
		   code ? "LDAP result is not success" : "Success");
	return code ? CHECK_MISMATCH : CHECK_MATCH;
}

/* --- what is sent ------------------------------------------------------------------------------------ */

/* SSLv3 hello with 34 cipher suites, 28 bytes of random that say where it comes from. */
static const char hello[] = "\x16\x03\x00\x00\x79"
			    "\x01\x00\x00\x75\x03\x00HGTEHEADGATE-HEALTH-CHECK-HELLO+\x00"
			    "\x00\x4e"
			    "\x00\x01\x00\x02\x00\x03\x00\x04\x00\x05\x00\x06\x00\x07\x00\x08\x00"
			    "\x09\x00\x0a\x00\x0b\x00\x0c\x00\x0d"
			    "\x00\x0e\x00\x0f\x00\x10\x00\x11\x00\x12\x00\x13\x00\x14\x00\x15\x00"
			    "\x16\x00\x17\x00\x18\x00\x19\x00\x1a"
			    "\x00\x1b\x00\x2f\x00\x30\x00\x31\x00\x32\x00\x33\x00\x34\x00\x35\x00"
			    "\x36\x00\x37\x00\x38\x00\x39\x00\x3a"
			    "\x01\x00";
_Static_assert(sizeof(hello) - 1 == 5 + 0x79, "record and handshake say how long they are");

/* Message 1: a bind of version 3, without name and password (RFC 4511 4.2). */
static const char ldap_bind[] = "\x30\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80";
_Static_assert(sizeof(ldap_bind) == 2 + 0x0c,
	       "the last byte, a length of 0, is the text's own end");

static struct str pgsql_startup(struct arena *a, const char *user)
{
	size_t n = strlen(user), len = 4 + 4 + sizeof("user") + n + 1 + 1;
	char *p = arena_zalloc(a, len);

	if (!p)
		return STR_NULL;
	p[2] = (char)(len >> 8);
	p[3] = (char)len;
	p[5] = 3; /* protocol 3.0 */
	memcpy(p + 8, "user", sizeof("user"));
	memcpy(p + 8 + sizeof("user"), user, n + 1);
	return str_make(p, len);
}

/* A login without password and database, then COM_QUIT, so that the server does not count it as an aborted one. */
static struct str mysql_login(struct arena *a, const char *user, bool is_pre_41)
{
	/* Capabilities and largest packet; 4.1 protocol and its login, character set utf8. */
	static const char old_head[] = { '\0', '\x80', '\0', '\0', '\x01' };
	static const char new_head[32] = { '\x00', '\x82', '\0', '\0',	'\0',
					   '\0',   '\x01', '\0', '\x21' };
	const char *head = is_pre_41 ? old_head : new_head;
	size_t n_head = is_pre_41 ? sizeof(old_head) : sizeof(new_head), n = strlen(user);
	size_t body = n_head + n + 2, len = MYSQL_HEADER + body + 5;
	char *p = arena_zalloc(a, len);

	if (!p)
		return STR_NULL;
	p[0] = (char)body;
	p[1] = (char)(body >> 8);
	p[3] = 1;
	memcpy(p + MYSQL_HEADER, head, n_head);
	memcpy(p + MYSQL_HEADER + n_head, user, n + 1);
	p[MYSQL_HEADER + body] = 1;
	p[MYSQL_HEADER + body + 4] = 1;
	return str_make(p, len);
}

/* --- programs ------------------------------------------------------------------------------------------ */

static int add_send(struct check_prog *p, struct str bytes)
{
	if (!bytes.p)
		return -ENOMEM;
	check_add_step(p, CHECK_OP_SEND)->bytes = bytes;
	return 0;
}

static void add_judge(struct check_prog *p, check_judge_fn *judge)
{
	check_add_step(p, CHECK_OP_EXPECT)->judge = judge;
}

int check_plan_kind(struct arena *a, struct check_prog *p, const struct conf_check *c)
{
	int r = 0;

	p->kind = CHECK_KIND_PRESET;
	check_add_step(p, CHECK_OP_CONNECT);
	switch ((enum conf_check_type)c->type) {
	case CHECK_SSL_HELLO:
		r = add_send(p, str_make(hello, sizeof(hello) - 1));
		add_judge(p, judge_hello);
		p->tout_status = CHECK_STATUS_L6TOUT;
		break;
	case CHECK_SMTP:
		add_judge(p, judge_smtp);
		r = add_send(p, arena_printf(a, "%s\r\n", c->user ? c->user : "HELO localhost"));
		add_judge(p, judge_smtp);
		if (r == 0)
			r = add_send(p, STR("QUIT\r\n"));
		break;
	case CHECK_MYSQL:
		add_judge(p, judge_mysql_greeting);
		if (!c->user)
			break;
		r = add_send(p, mysql_login(a, c->user, c->is_pre_41));
		add_judge(p, judge_mysql_login);
		break;
	case CHECK_PGSQL:
		r = add_send(p, pgsql_startup(a, c->user));
		add_judge(p, judge_pgsql);
		break;
	case CHECK_REDIS:
		r = add_send(p, STR("*1\r\n$4\r\nPING\r\n"));
		add_judge(p, judge_redis);
		break;
	case CHECK_LDAP:
		r = add_send(p, str_make(ldap_bind, sizeof(ldap_bind)));
		add_judge(p, judge_ldap);
		break;
	default:
		BUG_ON(true);
	}
	return r;
}
