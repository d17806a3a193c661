/* SPDX-License-Identifier: BSD-2-Clause */
/* Options of bind and server lines about connections themselves: how they are made, and what they say first. Control thread. */
#include <errno.h>
#include <inttypes.h>

#include "conf/conf_priv.h"

#define AT(field) .offset = offsetof(struct conf_server, field)

/* --- sockets ------------------------------------------------------------------------------------- */

/* tcp-ut: the kernel counts milliseconds, in 31 bits (tcp(7)). */
static int parse_user_timeout(struct parser *ps, struct line *l, void *obj,
			      const struct keyword *kw)
{
	const uint64_t ms = 1000000;
	uint64_t ns;
	int r = arg_time(ps, l, ms, &ns);

	if (r)
		return r;
	if (ns / ms > INT32_MAX)
		return conf_fail(ps, l, l->at - 1, "'tcp-ut' is %d ms at most", INT32_MAX);
	((struct conf_socket *)((char *)obj + kw->offset))->user_timeout = ns;
	return 0;
}

/* cc: whether the kernel has it is seen at start. */
static int parse_congestion(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_socket *s = (struct conf_socket *)((char *)obj + kw->offset);
	int r = arg_string(ps, l, "the name of a congestion control such as 'bbr'", &s->congestion);

	if (r == 0 && strlen(s->congestion) >= CONF_CONGESTION_MAX)
		r = conf_fail(ps, l, l->at - 1,
			      "names of congestion controls have %d characters at most",
			      CONF_CONGESTION_MAX - 1);
	return r;
}

/* The number of a namespace that a server line names, in *ret. */
static int number_namespace(struct parser *ps, char *name, unsigned *ret)
{
	struct conf *c = ps->conf;
	char **more;

	for (*ret = 1; *ret <= c->n_namespaces; (*ret)++)
		if (strcmp(c->namespaces[*ret - 1], name) == 0)
			return 0;
	more = arena_alloc(&c->arena, *ret * sizeof(*more));
	if (!more)
		return -ENOMEM;
	if (c->n_namespaces)
		memcpy(more, c->namespaces, c->n_namespaces * sizeof(*more));
	more[c->n_namespaces++] = name;
	c->namespaces = more;
	return 0;
}

static int parse_namespace(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_socket *s = (struct conf_socket *)((char *)obj + kw->offset);
	int r = arg_string(ps, l, "the name of a network namespace, as 'ip netns' lists them",
			   &s->netns);

	if (r)
		return r;
	if (strcmp(s->netns, "*") == 0)
		return conf_fail(ps, l, l->at - 1,
				 "'namespace *', that of a PROXY header, is not supported: clients "
				 "would choose it");
	if (strchr(s->netns, '/') || s->netns[0] == '.' || strlen(s->netns) > CONF_NETNS_MAX)
		return conf_fail(ps, l, l->at - 1,
				 "'namespace' expects the name of a file below /run/netns");
	return kw->min ? number_namespace(ps, s->netns, &s->netns_number) : 0;
}

#define SOCKET_ROWS(sec, type, is_server, of)                                           \
	{ NAME("tcp-ut"),                                                               \
	  sec,                                                                          \
	  ARG_FUNC,                                                                     \
	  .offset = offsetof(struct type, sock),                                        \
	  .parse = parse_user_timeout,                                                  \
	  .grade = '2',                                                                 \
	  .args = "<time>",                                                             \
	  .help = of " end when sent data is not acknowledged for so long" },           \
		{ NAME("cc"),                                                           \
		  sec,                                                                  \
		  ARG_FUNC,                                                             \
		  .offset = offsetof(struct type, sock),                                \
		  .parse = parse_congestion,                                            \
		  .grade = '2',                                                         \
		  .args = "<name>",                                                     \
		  .help = "TCP congestion control of " of ", as the kernel has them" }, \
		{ NAME("namespace"),                                                    \
		  sec,                                                                  \
		  ARG_FUNC,                                                             \
		  .offset = offsetof(struct type, sock),                                \
		  .parse = parse_namespace,                                             \
		  .min = is_server,                                                     \
		  .grade = '2',                                                         \
		  .args = "<name>",                                                     \
		  .help = of " are made in this network namespace (`ip netns`); needs " \
			     "CAP_SYS_ADMIN" }

/* --- PROXY headers ------------------------------------------------------------------------------- */

static const struct keyword_value pp_options[] = { VALUE("ssl", PP_SSL),
						   VALUE("cert-cn", PP_CERT_CN),
						   VALUE("ssl-cipher", PP_SSL_CIPHER),
						   VALUE("cert-sig", PP_CERT_SIG),
						   VALUE("cert-key", PP_CERT_KEY),
						   VALUE("authority", PP_AUTHORITY),
						   VALUE("crc32c", PP_CRC32C),
						   VALUE("unique-id", PP_UNIQUE_ID),
						   VALUES_END };
#define PP_OF_SSL (PP_SSL | PP_CERT_CN | PP_SSL_CIPHER | PP_CERT_SIG | PP_CERT_KEY)

/* send-proxy and its kin; `min` is the version, `max` what version 2 says beyond addresses. */
static int parse_send_proxy(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_server *s = obj;

	/* With what a default-server line wants to be in it. */
	if (l->is_negated) {
		s->pp_options = 0;
		s->pp_tlvs = NULL;
	}
	s->send_proxy = l->is_negated ? 0 : (uint8_t)kw->min;
	s->pp_options |= l->is_negated ? 0 : (uint8_t)kw->max;
	return 0;
}

/* Those about certificates stand inside the field of TLS. */
static int parse_pp_options(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_server *s = obj;
	struct str all, rest;
	int r = line_want(ps, l, "options separated by commas", &all);

	for (rest = all; r == 0 && rest.p;) {
		struct str one = str_cut(&rest, ',');
		const struct keyword_value *v = pp_options;

		while (v->name.p && !str_is_eq(v->name, one))
			v++;
		if (!v->name.p)
			return conf_fail_off(ps, l, l->at - 1, (size_t)(one.p - all.p),
					     "'proxy-v2-options' expects ssl, cert-cn, ssl-cipher, "
					     "cert-sig, cert-key, authority, crc32c or unique-id "
					     "instead of '" STR_FMT "'",
					     STR_ARG(str_sub(one, 0, 64)));
		s->pp_options |= v->value;
		if (v->value & PP_OF_SSL)
			s->pp_options |= PP_SSL;
	}
	return r;
}

static int hex_digit(char c)
{
	c = str_lower_char(c);
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int want_tlv_type(struct parser *ps, struct line *l, struct str text, uint8_t *ret)
{
	uint64_t v = 0;
	bool is_hex = str_is_prefix(text, STR("0x"));
	struct str digits = is_hex ? str_from(text, 2) : text;
	bool is_bad = !digits.len;

	for (size_t i = 0; i < digits.len && !is_bad; i++) {
		int d = hex_digit(digits.p[i]);

		is_bad = d < 0 || (!is_hex && d > 9);
		v = v * (is_hex ? 16 : 10) + (uint64_t)(is_bad ? 0 : d);
		is_bad |= v > UINT8_MAX;
	}
	if (is_bad)
		return conf_fail(ps, l, l->at - 1,
				 "'set-proxy-v2-tlv-fmt(…)' expects the type of a field, 0 to 255 "
				 "or 0x00 to 0xff, instead of '" STR_FMT "'",
				 STR_ARG(str_sub(text, 0, 64)));
	/* PP2_TYPE_CRC32C (2.2.3): the receiver holds it against the whole header. */
	if (v == 0x03)
		return conf_fail(ps, l, l->at - 1,
				 "type 0x03 is the header's checksum: write 'proxy-v2-options "
				 "crc32c'");
	*ret = (uint8_t)v;
	return 0;
}

/* set-proxy-v2-tlv-fmt(<type>) <format> */
static int parse_pp_tlv(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_server *s = obj;
	struct conf_pp_tlv *t = arena_zalloc(&ps->conf->arena, sizeof(*t));
	unsigned n = 0;
	int r;

	if (!t)
		return -ENOMEM;
	for (const struct conf_pp_tlv *i = s->pp_tlvs; i; i = i->before)
		n++;
	if (n == CONF_PP_TLVS)
		return conf_fail(ps, l, l->at - 1, "a server has %d such fields at most",
				 CONF_PP_TLVS);
	r = want_tlv_type(ps, l, call_argument(l->words[l->at - 1]), &t->type);
	if (r == 0)
		r = compile_format(ps, ps->px, l, PLACE_REQ | PLACE_CONTENT, &t->value);
	if (r)
		return r;
	t->before = s->pp_tlvs;
	s->pp_tlvs = t;
	return 0;
}

/* --- names for machines ------------------------------------------------------------------------------ */

static int claim_guid(struct parser *ps, const struct line *l, unsigned word, struct str guid)
{
	int r;

	if (!ps->guids)
		ps->guids = names_new(&ps->arena);
	r = ps->guids ? names_add(ps->guids, guid, ps) : -ENOMEM;
	return r == -EEXIST ? conf_fail(ps, l, word, "guid '" STR_FMT "' is taken", STR_ARG(guid))
			    : r;
}

static int want_guid(struct parser *ps, struct line *l, char **ret)
{
	int r = arg_string(ps, l, "a text that nothing else in the configuration has", ret);

	for (const char *p = *ret; r == 0 && *p; p++) {
		char c = str_lower_char(*p);

		if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && !strchr(".:-_", c))
			r = conf_fail_off(ps, l, l->at - 1, (size_t)(p - *ret),
					  "character '%c' is not permitted in a guid: letters, "
					  "digits and .:-_ are",
					  *p > ' ' && *p < 127 ? *p : '?');
	}
	if (r == 0 && strlen(*ret) > CONF_GUID_MAX)
		r = conf_fail(ps, l, l->at - 1, "a guid has %d characters at most", CONF_GUID_MAX);
	return r;
}

int parse_guid(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	char **field = (char **)((char *)obj + kw->offset);
	int r = want_guid(ps, l, field);

	return r ? r : claim_guid(ps, l, l->at - 1, str_from_cstr(*field));
}

static int parse_guid_prefix(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	return want_guid(ps, l, &((struct conf_bind *)obj)->guid);
}

int guid_of_bind(struct parser *ps, struct line *l, struct conf_bind *model, struct conf_bind *b)
{
	struct str s = arena_printf(&ps->conf->arena, "%s-%u", model->guid, model->n_guids++);

	b->guid = (char *)s.p;
	return s.p ? claim_guid(ps, l, 0, s) : -ENOMEM;
}

/* --- idle connections, places on the ring --------------------------------------------------------------- */

static int parse_pool_name(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	return compile_expr(ps, ps->px, l, PLACE_REQ | PLACE_CONTENT,
			    &((struct conf_server *)obj)->pool_name);
}

static const struct keyword_value hash_keys[] = { VALUE("id", HASH_KEY_ID),
						  VALUE("addr", HASH_KEY_ADDR),
						  VALUE("addr-port", HASH_KEY_ADDR_PORT),
						  VALUES_END };

/* redir: what clients are told is a header field. */
static int parse_redir(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_server *s = obj;
	int r = arg_string(ps, l, "the beginning of a URL, such as http://www.example.com",
			   &s->redir);

	for (const char *p = s->redir; r == 0 && *p; p++)
		if ((unsigned char)*p <= ' ' || *p == 127)
			r = conf_fail_off(ps, l, l->at - 1, (size_t)(p - s->redir),
					  "'redir' has a character that no URL can have");
	return r;
}

int finalize_server_link(struct parser *ps, struct conf_server *s, struct line *l)
{
	if (s->send_proxy != 2 && (s->pp_options || s->pp_tlvs))
		return conf_warn(ps, l, 1,
				 "server '%.64s' sends no PROXY header of version 2: without "
				 "'send-proxy-v2' there is nothing that '%s' could add to",
				 s->name,
				 s->pp_options ? "proxy-v2-options" : "set-proxy-v2-tlv-fmt");
	return 0;
}

/* --- what was understood --------------------------------------------------------------------------- */

void conf_dump_socket(FILE *f, const struct conf_socket *s)
{
	if (s->user_timeout)
		fprintf(f, "    tcp-ut %" PRIu64 "ms\n", s->user_timeout / 1000000);
	if (s->congestion)
		fprintf(f, "    cc %s\n", s->congestion);
	if (s->netns)
		fprintf(f, "    namespace %s number %u\n", s->netns, s->netns_number);
}

void conf_dump_server_link(FILE *f, const struct conf_server *s)
{
	if (s->port_offset)
		fprintf(f, "    port %+d to the client's\n", s->port_offset);
	conf_dump_socket(f, &s->sock);
	if (s->guid)
		fprintf(f, "    guid %s\n", s->guid);
	if (s->redir)
		fprintf(f, "    redir %s\n", s->redir);
	if (s->pool_name)
		fprintf(f, "    pool-conn-name " STR_FMT "\n", STR_ARG(expr_text(s->pool_name)));
	if (s->tfo)
		fputs("    tfo\n", f);
	if (s->send_proxy)
		fprintf(f, "    send-proxy version %u\n", s->send_proxy);
	if (s->pp_options)
		fprintf(f, "    proxy-v2-options %#x\n", s->pp_options);
	for (const struct conf_pp_tlv *t = s->pp_tlvs; t; t = t->before)
		fprintf(f, "    set-proxy-v2-tlv-fmt(%u)\n", t->type);
}

/* --- tables ---------------------------------------------------------------------------------------- */

#define SEND_PROXY(text, version, what, tells) \
	{ NAME(text),                          \
	  SEC_SRV,                             \
	  ARG_FUNC,                            \
	  KW_NO,                               \
	  .parse = parse_send_proxy,           \
	  NUMBER(version, what),               \
	  .grade = '1',                        \
	  .help = tells }

/* tfo, no-tfo */
static int parse_tfo(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	((struct conf_server *)obj)->tfo = !l->is_negated;
	return 0;
}

static const struct keyword bind_rows[] = {
	SOCKET_ROWS(SEC_BIND, conf_bind, false, "clients' connections"),
	{ NAME("guid-prefix"), SEC_BIND, ARG_FUNC, .parse = parse_guid_prefix, .grade = '2',
	  .args = "<text>",
	  .help = "the line's listeners are known to `show guid` as <text>-0, <text>-1, …" },
};
const struct keyword_table conf_kw_bind_link = KEYWORDS("bind option", bind_rows);

static const struct keyword rows[] = {
	SOCKET_ROWS(SEC_SRV, conf_server, true, "connections to this server"),
	{ NAME("pool-conn-name"), SEC_SRV, ARG_FUNC, .parse = parse_pool_name, .grade = '2',
	  .args = "<expression>", .def = "that of `sni`",
	  .help = "idle connections are used again by requests for which this is the same" },
	{ NAME("hash-key"), SEC_SRV, ARG_ENUM, AT(hash_key), .values = hash_keys, .grade = '2',
	  .args = "id|addr|addr-port", .def = "id",
	  .help = "`hash-type consistent`: what the server's places on the ring are made from" },
	{ NAME("guid"), SEC_SERVER, ARG_FUNC, AT(guid), .parse = parse_guid, .grade = '2',
	  .args = "<text>", .help = "name in `show guid` that nothing else has" },
	{ NAME("redir"), SEC_SRV, ARG_FUNC, .parse = parse_redir, .grade = '2', .args = "<prefix>",
	  .help = "GET and HEAD are answered by a redirect (302) to <prefix> and the path" },
	{ NAME("tfo"), SEC_SRV, ARG_FUNC, KW_NO, .parse = parse_tfo, .grade = '2',
	  .help = "TCP fast open: the request goes with the first packet, where it is whole and "
		  "may "
		  "be sent again" },
	SEND_PROXY("send-proxy", 1, 0, "connections begin with a PROXY header, version 1"),
	SEND_PROXY("send-proxy-v2", 2, 0, "the same, version 2"),
	SEND_PROXY("send-proxy-v2-ssl", 2, PP_SSL, "the same, with the client's TLS in it"),
	SEND_PROXY("send-proxy-v2-ssl-cn", 2, PP_SSL | PP_CERT_CN,
		   "the same, and the name in the client's certificate"),
	{ NAME("proxy-v2-options"), SEC_SRV, ARG_FUNC, .parse = parse_pp_options, .grade = '2',
	  .args = "<option>[,<option>]…",
	  .help = "more in PROXY headers of version 2: ssl, cert-cn, ssl-cipher, cert-sig, "
		  "cert-key, authority, crc32c, unique-id" },
	{ NAME("set-proxy-v2-tlv-fmt"), SEC_SRV, ARG_FUNC, KW_CALL, .parse = parse_pp_tlv,
	  .grade = '2', .args = "(<type>) <format>",
	  .help = "a field of that type, 0 to 255, in PROXY headers of version 2" },
};
const struct keyword_table conf_kw_server_link = KEYWORDS("server option", rows);
