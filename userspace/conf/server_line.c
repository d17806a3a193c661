/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One `server` line by itself, for `add server`: read as a line of a section that has nothing else, finished as one
 * of the section it is for. As HAProxy has it, no default-server line counts, and names are not looked up. Control thread.
 */
#include <errno.h>

#include "conf/conf_priv.h"

/* What the line takes from the global section, in memory of its own: it may outlive that configuration. */
static int copy_global(struct parser *ps, const struct conf_global *from)
{
	struct conf_global *to = &ps->conf->global;
	struct arena *a = &ps->conf->arena;
	const struct conf_tls *tls = &from->server_tls;
	char **const texts[] = {
		&to->ca_base,
		&to->crt_base,
		&to->server_tls.ciphers,
		&to->server_tls.ciphersuites,
		&to->server_tls.curves,
		&to->server_tls.sigalgs,
		&to->server_tls.client_sigalgs,
		&to->server_tls.ca_file,
		&to->server_tls.crl_file,
		&to->server_tls.ca_verify_file,
	};

	to->ca_base = from->ca_base;
	to->crt_base = from->crt_base;
	to->server_tls = *tls;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		if (!*texts[i])
			continue;
		*texts[i] = arena_strdup(a, str_from_cstr(*texts[i]));
		if (!*texts[i])
			return -ENOMEM;
	}
	if (tls->alpn_len) {
		struct str alpn = arena_str(a, str_make((const char *)tls->alpn, tls->alpn_len));

		if (!alpn.p)
			return -ENOMEM;
		to->server_tls.alpn = (void *)(uintptr_t)alpn.p;
	}
	return 0;
}

/* A section with the line, its words as they would be written in a file. */
static struct str section_text(struct arena *a, const char *const *words, unsigned n)
{
	static const char head[] =
		"backend added\n timeout connect 1s\n timeout server 1s\n server";
	size_t size = sizeof(head) + 1;
	char *text, *p;

	for (unsigned i = 0; i < n; i++)
		size += 1 + 2 * strlen(words[i]);
	text = arena_alloc(a, size);
	if (!text)
		return STR_NULL;
	p = stpcpy(text, head);
	for (unsigned i = 0; i < n; i++) {
		*p++ = ' ';
		for (const char *w = words[i]; *w; w++) {
			if (strchr(" \t\"'\\#", *w))
				*p++ = '\\';
			*p++ = *w;
		}
	}
	*p++ = '\n';
	return str_make(text, (size_t)(p - text));
}

static bool is_keyword_of(const struct keyword_table *t, const char *word)
{
	for (unsigned i = 0; i < t->n; i++)
		if (str_is_eq(t->rows[i].name, str_from_cstr(word)))
			return true;
	return false;
}

static int refuse(const struct conf_source *src, const char *name, const char *fmt, const char *arg)
{
	struct conf_pos pos = { .file = "add server" };
	char text[256], what[160];

	snprintf(what, sizeof(what), fmt, arg);
	snprintf(text, sizeof(text), "'server %.64s' : %s", name, what);
	src->report(src->report_ctx, CONF_ERROR, &pos, text);
	return -EINVAL;
}

/* Options that need more than a line: names that are looked up or taken, ids that the kernel's tables have room for. */
static bool needs_more(const char *word)
{
	return is_keyword_of(&conf_kw_server_resolve, word) || strcmp(word, "quic-id") == 0 ||
	       strcmp(word, "via") == 0 || strcmp(word, "namespace") == 0 ||
	       strcmp(word, "guid") == 0;
}

bool conf_is_option_of_added(const struct conf_keyword_doc *d)
{
	struct str sections = str_from_cstr(d->sections);

	while (d->grade == '1' && sections.p && sections.len)
		if (str_is_eq(str_trim(str_cut(&sections, ',')), STR("server")))
			return !needs_more(d->name);
	return false;
}

static int check_words(const struct conf_source *src, const char *const *words, unsigned n)
{
	for (unsigned i = 2; i < n; i++)
		if (needs_more(words[i]))
			return refuse(src, words[0],
				      "'%.64s' option is not accepted for dynamic server.",
				      words[i]);
	return 0;
}

/* Whom it follows is a server of a file, which leads to one with a check. */
static int find_tracked(const struct conf_source *src, const struct conf *of,
			const struct conf_proxy *px, struct conf_server *s, char *track)
{
	struct str name = str_from_cstr(track), first = str_cut(&name, '/');
	const struct conf_server *end;

	if (name.p)
		px = conf_find_proxy(of, first, CONF_CAP_BACKEND);
	else
		name = first;
	s->track = track;
	s->track_server = px ? conf_find_server(px, name) : NULL;
	if (!s->track_server)
		return refuse(src, s->name, "unable to find '%.64s', which it should track.",
			      track);
	if (s->has_check)
		return refuse(src, s->name, "has 'check' and 'track %.64s': leave one out.", track);
	for (end = s->track_server; end->track_server;)
		end = end->track_server;
	if (!end->has_check && !end->has_agent)
		return refuse(src, s->name, "tracks '%.64s', which has no health check.", track);
	return 0;
}

static int read_line(struct parser *ps, const struct conf *of, const struct conf_proxy *px,
		     const char *const *words, unsigned n, struct conf_server **ret_srv,
		     char **ret_track)
{
	struct str text = section_text(&ps->arena, words, n);
	struct conf_proxy *mine;
	int r = text.p ? copy_global(ps, &of->global) : -ENOMEM;

	ps->file = "add server";
	if (r == 0)
		r = parser_text(ps, text);
	if (list_is_empty(&ps->builds))
		return r;
	mine = &list_entry(ps->builds.next, struct proxy_build, link)->px;
	if (list_is_empty(&mine->servers))
		return r;
	*ret_srv = list_entry(mine->servers.next, struct conf_server, link);
	/* What is finished now asks the section for its binds, its mode, its checks. */
	(*ret_srv)->proxy = (struct conf_proxy *)(uintptr_t)px;
	*ret_track = (*ret_srv)->track;
	(*ret_srv)->track = NULL;
	return r;
}

int conf_load_server(const struct conf *of, const struct conf_proxy *px, const char *const *words,
		     unsigned n, const struct conf_source *src, struct conf **ret_conf,
		     struct conf_server **ret_srv)
{
	char *track = NULL;
	struct parser ps;
	int r;

	*ret_srv = NULL;
	r = check_words(src, words, n);
	if (r)
		return r;
	r = parser_init(&ps, src);
	if (r == 0)
		r = read_line(&ps, of, px, words, n, ret_srv, &track);
	r = parser_end(&ps, r, ret_conf);
	if (r)
		return r;
	if (!*ret_srv)
		r = refuse(src, words[0], "%.64s", "is not a server.");
	else if ((*ret_srv)->ep.kind == ENDPOINT_NAME)
		r = refuse(src, words[0],
			   "'%.64s' is a name: write an address, names are not looked up here.",
			   (*ret_srv)->text);
	else if (px->mode == CONF_MODE_L4 && (*ret_srv)->ep.kind != ENDPOINT_IP)
		r = refuse(src, words[0], "a server of 'mode l4' has an IP address, not '%.64s'.",
			   (*ret_srv)->text);
	else if (track)
		r = find_tracked(src, of, px, *ret_srv, track);
	if (r) {
		conf_free(*ret_conf);
		*ret_conf = NULL;
	}
	return r;
}
