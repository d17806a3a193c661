/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the server is told about the client's connection: X-Forwarded-For, X-Original-To, Forwarded (RFC
 * 7239). Added behind all rules, when the request's head is finished.
 */
#include <errno.h>

#include "proxy/worker_priv.h"

static bool is_ip(const struct addr *a)
{
	return a->sa.sa_family == AF_INET || a->sa.sa_family == AF_INET6;
}

static const struct addr *source(const struct stream *st)
{
	return st->src.sa.sa_family ? &st->src : &st->front.conn->peer;
}

static const struct addr *destination(const struct stream *st)
{
	return st->dst.sa.sa_family ? &st->dst : conn_local_addr(st->front.conn);
}

static int add_addr(struct stream *st, const struct conf_addr_header *h, const struct addr *a)
{
	char text[ADDR_TEXT_MAX];
	struct str name = str_from_cstr(h->name);

	if (!is_ip(a) || (h->has_except && addr_prefix_has(&h->except, a)))
		return 0;
	if (h->if_none && http_msg_find_name(&st->req, name, 0))
		return 0;
	return http_msg_add(&st->req, name, str_make(text, addr_format_ip(a, text, sizeof(text))));
}

/* --- Forwarded -------------------------------------------------------------------------------------- */

static bool is_node_text(struct str s)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = str_lower_char(s.p[i]);

		if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
		      c == '-'))
			return false;
	}
	return s.len > 0;
}

/* RFC 7239 6: an address, "unknown", or an identifier that begins with '_'. */
static struct str node_name(struct stream *st, const struct expr *e, const struct addr *own)
{
	char text[ADDR_TEXT_MAX];
	struct addr a = *own;
	struct sample s;

	if (e) {
		if (expr_eval(e, stream_subject(st), &s))
			return STR("unknown");
		if (s.type == SAMPLE_STR && s.str.len && s.str.p[0] == '_' && is_node_text(s.str))
			return arena_str(&st->arena, s.str);
		if (sample_cast(&s, SAMPLE_ADDR, &st->arena))
			return STR("unknown");
		a = s.addr;
	}
	if (!is_ip(&a))
		return STR("unknown");
	addr_format_ip(&a, text, sizeof(text));
	return arena_printf(&st->arena, a.sa.sa_family == AF_INET6 ? "[%s]" : "%s", text);
}

/* Empty: there is none. */
static struct str node_port(struct stream *st, const struct expr *e, const struct addr *own)
{
	struct sample s;

	if (!e)
		return is_ip(own) ? arena_printf(&st->arena, ":%u", addr_port(own)) : STR("");
	if (expr_eval(e, stream_subject(st), &s) || sample_cast(&s, SAMPLE_STR, &st->arena) ||
	    !is_node_text(s.str))
		return STR("");
	return arena_printf(&st->arena, ":" STR_FMT, STR_ARG(s.str));
}

static struct str put_node(struct stream *st, struct str line, const char *what,
			   enum conf_forwarded_part part, const struct addr *own)
{
	const struct conf_forwarded *f = &st->be->forwarded;
	struct str name, port = STR("");
	const char *quote;

	if (!f->has[part])
		return line;
	name = node_name(st, f->expr[part], own);
	if (f->has[part + 1])
		port = node_port(st, f->expr[part + 1], own);
	if (!line.p || !name.p || !port.p)
		return STR_NULL;
	quote = port.len || name.p[0] == '[' ? "\"" : "";
	return arena_printf(&st->arena, STR_FMT "%s%s=%s" STR_FMT STR_FMT "%s", STR_ARG(line),
			    line.len ? ";" : "", what, quote, STR_ARG(name), STR_ARG(port), quote);
}

static struct str put_host(struct stream *st, struct str line)
{
	const struct conf_forwarded *f = &st->be->forwarded;
	struct str host;

	if (!f->has[FORWARDED_HOST])
		return line;
	host = f->expr[FORWARDED_HOST] ? expr_eval_str(f->expr[FORWARDED_HOST], stream_subject(st))
				       : http_msg_host(&st->req);
	/* What would end the quoted string is nobody's name. */
	if (!host.p || str_find_char(host, '"') != SIZE_MAX ||
	    str_find_char(host, '\\') != SIZE_MAX)
		host = STR("");
	return arena_printf(&st->arena, STR_FMT "%shost=\"" STR_FMT "\"", STR_ARG(line),
			    line.len ? ";" : "", STR_ARG(host));
}

static int add_forwarded(struct stream *st)
{
	struct str line = STR("");

	if (st->be->forwarded.has[FORWARDED_PROTO])
		line = conn_is_tls(st->front.conn) ? STR("proto=https") : STR("proto=http");
	line = put_host(st, line);
	line = put_node(st, line, "by", FORWARDED_BY, destination(st));
	line = put_node(st, line, "for", FORWARDED_FOR, source(st));
	return line.p ? http_msg_add(&st->req, STR("Forwarded"), line) : -ENOMEM;
}

int forward_headers(struct stream *st)
{
	uint64_t opts = st->fe->options | st->be->options;
	const struct conf_proxy *px;
	int r = 0;

	if (opts & CONF_OPT(FORWARDFOR)) {
		px = st->be->options & CONF_OPT(FORWARDFOR) ? st->be : st->fe;
		r = add_addr(st, &px->forwardfor, source(st));
	}
	if (!r && opts & CONF_OPT(ORIGINALTO)) {
		px = st->be->options & CONF_OPT(ORIGINALTO) ? st->be : st->fe;
		r = add_addr(st, &px->originalto, destination(st));
	}
	if (!r && st->be->options & CONF_OPT(FORWARDED))
		r = add_forwarded(st);
	return r;
}
