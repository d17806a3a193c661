/* SPDX-License-Identifier: BSD-2-Clause */
/* Listeners after parsing: numbers, names, TLS settings, addresses that are there twice; log formats. */
#include <errno.h>

#include "conf/conf_priv.h"

/* --- binds ------------------------------------------------------------------------------------- */

static int default_alpn(struct conf_bind *b)
{
	static const char h2[] = "\x02h2\x08http/1.1", h1[] = "\x08http/1.1";

	if (b->tls.has_alpn || b->proxy->mode != CONF_MODE_HTTP)
		return 0;
	b->tls.alpn = (char *)(CONF_HAS_H2 && b->proto != BIND_PROTO_H1 ? h2 : h1);
	b->tls.alpn_len = strlen(b->tls.alpn);
	return 0;
}

static int finalize_tls(struct parser *ps, struct conf_bind *b)
{
	const struct conf_global *g = &ps->conf->global;
	int r = merge_tls(ps, &b->tls, &g->bind_tls);

	if (r)
		return r;
	/* Binds of one line share their list of names: a new one is made, so that it is done once each. */
	if (b->n_crts) {
		char **crts = arena_alloc(&ps->conf->arena, b->n_crts * sizeof(*crts));

		if (!crts)
			return -ENOMEM;
		for (unsigned i = 0; i < b->n_crts; i++) {
			crts[i] = under_base(ps, g->crt_base, b->crts[i]);
			if (!crts[i])
				return -ENOMEM;
			r = check_crt_name(ps, &b->pos, crts[i]);
			if (r)
				return r;
		}
		b->crts = crts;
	}
	if (b->default_crt && !(b->default_crt = under_base(ps, g->crt_base, b->default_crt)))
		return -ENOMEM;
	r = check_crt_name(ps, &b->pos, b->default_crt);
	if (r)
		return r;
	if (b->tls.max_version && b->tls.min_version > b->tls.max_version)
		return conf_fail_pos(ps, &b->pos,
				     "no TLS version is left between 'ssl-min-ver' and "
				     "'ssl-max-ver'");
	if (b->tls.verify > CONF_VERIFY_NONE && !b->tls.ca_file)
		return conf_fail_pos(ps, &b->pos,
				     "'verify' needs 'ca-file': which authorities may clients' "
				     "certificates come from?");
	return default_alpn(b);
}

static int finalize_bind(struct parser *ps, struct conf_bind *b)
{
	int r = 0;

	if (!b->name) {
		b->name = (char *)arena_printf(&ps->conf->arena, "sock-%u", b->id).p;
		if (!b->name)
			return -ENOMEM;
	}
	if (b->ep.is_dgram && b->proxy->mode != CONF_MODE_L4)
		r = conf_fail_pos(ps, &b->pos, "'%.64s' is UDP: that needs 'mode l4'", b->text);
	if (r == 0 && b->is_ssl)
		r = finalize_tls(ps, b);
	return r;
}

int finalize_binds(struct parser *ps, struct proxy_build *b)
{
	struct conf_names *taken = names_new(&ps->arena);
	unsigned next = 1;
	struct list *p;
	int r = taken ? 0 : -ENOMEM;

	list_for_each(p, &b->px.binds) {
		struct conf_bind *n = list_entry(p, struct conf_bind, link);

		if (r != -ENOMEM)
			r = claim_id(ps, taken, &n->id, &n->pos, "listener");
	}
	list_for_each(p, &b->px.binds) {
		struct conf_bind *n = list_entry(p, struct conf_bind, link);

		ps->conf->has_listener = true;
		if (r != -ENOMEM && !n->id)
			r = assign_id(ps, taken, &n->id, &next);
		if (r != -ENOMEM)
			r = finalize_bind(ps, n);
		if (r == 0)
			r = finalize_unix_bind(ps, n);
	}
	if (r == 0 && list_is_empty(&b->px.binds) && b->section == SEC_FRONTEND)
		r = conf_warn(ps, b->line, 0,
			      "frontend '%s' has no 'bind' line: nothing can reach it", b->px.name);
	return r == -ENOMEM ? r : 0;
}

/* --- addresses that are there twice ------------------------------------------------------------ */

static struct str endpoint_key(struct parser *ps, const struct conf_bind *b)
{
	char text[ADDR_TEXT_MAX];

	switch (b->ep.kind) {
	case ENDPOINT_IP:
		addr_format(&b->ep.addr, text, sizeof(text));
		return arena_printf(&ps->arena, "%s%s@%s", b->ep.is_dgram ? "udp " : "tcp ", text,
				    b->interface ? b->interface : "");
	case ENDPOINT_UNIX:
	case ENDPOINT_ABNS:
		return arena_printf(&ps->arena, "%c" STR_FMT,
				    b->ep.kind == ENDPOINT_ABNS ? '@' : '/', STR_ARG(b->ep.path));
	default:
		return STR_NULL; /* an inherited descriptor may be named several times */
	}
}

static int check_duplicate(struct parser *ps, struct conf_names *seen, struct conf_bind *b)
{
	const struct conf_bind *other;
	struct str key;
	int r;

	if (b->ep.kind == ENDPOINT_FD || b->ep.kind == ENDPOINT_NAME)
		return 0;
	key = endpoint_key(ps, b);
	if (!key.p)
		return -ENOMEM;
	other = names_find(seen, key);
	if (!other)
		return names_add(seen, key, b);
	r = conf_fail_pos(ps, &b->pos, "'%.64s' is already in use by '%s' (%s:%u)", b->text,
			  other->proxy->name, other->pos.file, other->pos.line);
	return r == -ENOMEM ? r : 0;
}

int finalize_duplicates(struct parser *ps)
{
	struct conf_names *seen = names_new(&ps->arena);
	struct list *p, *q;
	int r = seen ? 0 : -ENOMEM;

	list_for_each(p, &ps->builds) {
		struct proxy_build *b = list_entry(p, struct proxy_build, link);

		if (b->px.is_disabled)
			continue;
		list_for_each(q, &b->px.binds) {
			if (r == 0)
				r = check_duplicate(ps, seen,
						    list_entry(q, struct conf_bind, link));
		}
	}
	return r;
}

/* --- formats ----------------------------------------------------------------------------------- */

static int compile(struct parser *ps, struct proxy_build *b, const struct format_text *f,
		   unsigned place, struct logfmt **ret)
{
	if (!f->text)
		return 0;
	return compile_text(ps, b, f->line ? f->line : b->line, f->line ? f->word : 0,
			    str_from_cstr(f->text), place, ret);
}

static int choose_log_format(struct parser *ps, struct proxy_build *b, struct format_text *f)
{
	uint64_t o = b->px.options;
	int r = 0;

	*f = b->log_format;
	if (f->text)
		return 0;
	if ((o & (CONF_OPT(HTTPLOG) | CONF_OPT(HTTPSLOG))) && b->px.mode != CONF_MODE_HTTP) {
		if (b->px.mode == CONF_MODE_TCP)
			r = conf_warn(ps, b->line, 0,
				      "'option %s' of %s '%s' needs 'mode http': 'tcplog' is "
				      "used instead",
				      o & CONF_OPT(HTTPLOG) ? "httplog" : "httpslog", b->kind,
				      b->px.name);
		o = CONF_OPT(TCPLOG);
	}
	if (o & CONF_OPT(HTTPLOG))
		f->text = (char *)logfmt_httplog;
	else if (o & CONF_OPT(HTTPSLOG))
		f->text = (char *)logfmt_httpslog;
	else if (o & CONF_OPT(TCPLOG))
		f->text = (char *)logfmt_tcplog;
	return r;
}

int finalize_formats(struct parser *ps, struct proxy_build *b)
{
	unsigned place = PLACE_LOG | PLACE_REQ | PLACE_RSP | PLACE_CONN | PLACE_CONTENT;
	struct format_text f = { 0 };
	int r;

	if (!(b->px.caps & CONF_CAP_FRONTEND) || b->px.mode == CONF_MODE_L4)
		return 0;
	r = choose_log_format(ps, b, &f);
	if (r)
		return r;
	b->px.log_format_text = f.text;
	if (f.text && !b->px.has_log)
		r = conf_warn(ps, b->line, 0,
			      "%s '%s' has a log format, but no 'log' line says where to", b->kind,
			      b->px.name);
	if (r == 0)
		r = compile(ps, b, &f, place, &b->px.log_format);
	if (r != -ENOMEM)
		r = compile(ps, b, &b->error_log_format, place, &b->px.error_log_format);
	if (r != -ENOMEM)
		r = compile(ps, b, &b->log_format_sd, place, &b->px.log_format_sd);
	if (r != -ENOMEM)
		r = compile(ps, b, &b->unique_id, PLACE_REQ | PLACE_CONN, &b->px.unique_id_format);
	return r;
}
