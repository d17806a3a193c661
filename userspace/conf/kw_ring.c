/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Section `ring`: lines that `log ring@<name>` sends, kept in memory for `show events` and sent on to log
 * servers by TCP. A ring may be used before it is written. Control thread.
 */
#include <errno.h>
#include <inttypes.h>

#include "conf/conf_priv.h"

static struct conf_ring *ring_get(struct parser *ps, struct str name, const struct conf_pos *pos)
{
	struct conf_ring *r = names_find(ps->ring_names, name);

	if (r)
		return r;
	r = arena_zalloc(&ps->conf->arena, sizeof(*r));
	if (!r)
		return NULL;
	*r = (struct conf_ring){
		.pos = *pos, .format = LOG_FMT_RAW, .max_len = 1024, .size = 16384
	};
	r->name = arena_strdup(&ps->conf->arena, name);
	if (!r->name || names_add(ps->ring_names, str_from_cstr(r->name), r) != 0)
		return NULL;
	list_push_back(&ps->conf->rings, &r->link);
	return r;
}

int ring_open(struct parser *ps, struct line *l)
{
	struct conf_ring *r;
	struct str name;
	int rc = section_want_name(ps, l, &name);

	if (rc)
		return rc;
	if (name.len > LOG_STORE_NAME) {
		ps->is_skipping = true;
		return conf_fail(ps, l, 1, "the name of a ring has at most %d characters",
				 LOG_STORE_NAME);
	}
	r = ring_get(ps, name, &l->pos);
	if (!r)
		return -ENOMEM;
	ps->ring = r;
	if (r->is_defined)
		return conf_fail(ps, l, 1,
				 "ring '" STR_FMT "' has the same name as the one in %s:%u",
				 STR_ARG(str_sub(name, 0, 64)), r->pos.file, r->pos.line);
	r->is_defined = true;
	r->pos = l->pos;
	return 0;
}

int parse_log_ring(struct parser *ps, struct line *l, struct log_target *t)
{
	struct str name = str_from(l->words[l->at], sizeof("ring@") - 1);

	if (!name.len || name.len > LOG_STORE_NAME)
		return conf_fail(ps, l, l->at,
				 "'ring@' expects the name of a ring, %d characters at most",
				 LOG_STORE_NAME);
	if (!ring_get(ps, name,
		      &(struct conf_pos){ l->pos.file, l->pos.line, line_column(l, l->at, 0) }))
		return -ENOMEM;
	l->at++;
	t->transport = LOG_TO_STORE;
	memcpy(t->store, name.p, name.len);
	t->store[name.len] = '\0';
	return 0;
}

/* --- its lines --------------------------------------------------------------------------------- */

static int parse_timeout(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value which[] = { VALUE("connect", 0), VALUE("server", 1),
						      VALUES_END };
	struct conf_ring *r = obj;
	uint8_t v;
	int rc = arg_value(ps, l, which, &v);

	return rc ? rc : arg_time(ps, l, 1000000, v ? &r->timeout_server : &r->timeout_connect);
}

static int parse_server_options(struct parser *ps, struct line *l, struct conf_ring_server *s)
{
	static const struct keyword_value protos[] = { VALUE("legacy", 0), VALUE("octet-count", 1),
						       VALUES_END };
	uint8_t v = 0;
	int rc;

	while (line_has(l)) {
		if (!line_accept(l, "log-proto"))
			return conf_fail(ps, l, l->at,
					 "a server of a ring knows only 'log-proto "
					 "legacy|octet-count', not '" STR_FMT "'",
					 STR_ARG(str_sub(line_peek(l), 0, 64)));
		rc = arg_value(ps, l, protos, &v);
		if (rc)
			return rc;
	}
	s->is_counted = v;
	return 0;
}

static int set_server_addr(struct parser *ps, struct line *l, const struct endpoint *ep,
			   struct conf_ring_server *s)
{
	char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];
	int rc;

	if (ep->kind == ENDPOINT_UNIX || ep->kind == ENDPOINT_ABNS) {
		snprintf(path, sizeof(path), "%s" STR_FMT, ep->kind == ENDPOINT_ABNS ? "@" : "",
			 STR_ARG(ep->path));
		s->addr.sa.sa_family = AF_UNIX;
		s->path = arena_strdup(&ps->conf->arena, str_from_cstr(path));
		return s->path ? 0 : -ENOMEM;
	}
	rc = log_server_addr(ps, l, ep, SOCK_STREAM, &s->addr);
	if (rc)
		return rc;
	if (!ep->port || ep->port != ep->port_last || ep->port_offset_sign || ep->has_any_host)
		return conf_fail(ps, l, l->at - 1,
				 "a server of a ring is an address and a port such as "
				 "192.0.2.7:6514");
	return 0;
}

static int parse_server(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_ring *r = obj;
	struct conf_ring_server *s = &r->servers[r->n_servers];
	struct endpoint ep;
	struct str name;
	int rc;

	if (r->n_servers == CONF_RING_SERVERS)
		return conf_fail(ps, l, l->at - 1, "a ring has at most %d servers",
				 CONF_RING_SERVERS);
	rc = line_want_name(ps, l, &name);
	if (rc == 0)
		rc = arg_endpoint(ps, l, &ep);
	if (rc)
		return rc;
	*s = (struct conf_ring_server){ .name = arena_strdup(&ps->conf->arena, name) };
	if (!s->name)
		return -ENOMEM;
	rc = set_server_addr(ps, l, &ep, s);
	if (rc == 0)
		rc = parse_server_options(ps, l, s);
	r->n_servers += rc == 0;
	return rc;
}

#define AT(field) .offset = offsetof(struct conf_ring, field)
static const struct keyword rows[] = {
	{ NAME("description"), SEC_RING, ARG_REST, AT(description), .grade = '2', .args = "<text>",
	  .def = "its name", .help = "what 'show events' says about it" },
	{ NAME("format"), SEC_RING, ARG_ENUM, AT(format), .values = conf_log_formats, .grade = '2',
	  .args = "raw|local|rfc3164|rfc5424|priority|short|timed|iso", .def = "raw",
	  .help = "envelope of lines in the ring, whatever the log line says" },
	{ NAME("maxlen"), SEC_RING, ARG_UINT, AT(max_len), NUMBER(80, 65535), .grade = '2',
	  .args = "<bytes>", .def = "1024", .help = "longer lines are cut" },
	{ NAME("size"), SEC_RING, ARG_SIZE, AT(size), NUMBER(1024, 1u << 30), .grade = '2',
	  .args = "<size>", .def = "16k", .help = "memory; the oldest lines make room" },
	{ NAME("backing-file"), SEC_RING, ARG_STRING, AT(backing_file), .grade = '2',
	  .args = "<path>",
	  .help = "a file that has the lines, also when the process is gone (`headgate ring`); one "
		  "of an earlier process becomes <path>.bak" },
	{ NAME("timeout"), SEC_RING, ARG_FUNC, .parse = parse_timeout, .grade = '2',
	  .args = "connect|server <time>", .help = "of its servers: to connect, to take bytes" },
	{ NAME("server"), SEC_RING, ARG_FUNC, .parse = parse_server, .grade = '2',
	  .args = "<name> <address> [log-proto legacy|octet-count]", .def = "legacy",
	  .help = "every line is sent there by TCP, too; legacy: ended by a newline" },
};
const struct keyword_table conf_kw_ring = KEYWORDS("keyword", rows);
#undef AT

/* --- when all is read -------------------------------------------------------------------------- */

/* The ring says how its lines look. Lists of targets are shared, so this may happen twice to one. */
static void shape_lines(const struct conf_names *rings, struct conf_logs *logs)
{
	for (unsigned i = 0; i < logs->n; i++) {
		struct log_target *t = &logs->targets[i];
		const struct conf_ring *r;

		if (t->transport != LOG_TO_STORE)
			continue;
		r = names_find(rings, str_from_cstr(t->store));
		t->format = (enum log_format)r->format;
		if (t->max_len > r->max_len)
			t->max_len = (uint16_t)(r->max_len < UINT16_MAX ? r->max_len + 1
									: r->max_len);
	}
}

int finalize_rings(struct parser *ps)
{
	struct list *p;
	int rc = 0;

	list_for_each(p, &ps->conf->rings) {
		const struct conf_ring *r = list_entry(p, struct conf_ring, link);
		struct nearest near;
		struct list *q;
		char hint[96];

		if (r->is_defined)
			continue;
		nearest_init(&near, str_from_cstr(r->name));
		list_for_each(q, &ps->conf->rings) {
			const struct conf_ring *other = list_entry(q, struct conf_ring, link);

			if (other->is_defined)
				nearest_offer(&near, str_from_cstr(other->name));
		}
		rc = conf_fail_pos(ps, &r->pos, "there is no section 'ring %s'%s", r->name,
				   nearest_hint(&near, hint));
		if (rc == -ENOMEM)
			return rc;
	}
	shape_lines(ps->ring_names, &ps->conf->global.logs);
	list_for_each(p, &ps->builds)
		shape_lines(ps->ring_names, &list_entry(p, struct proxy_build, link)->px.logs);
	return 0;
}

static const char *format_name(uint8_t format)
{
	const struct keyword_value *v = conf_log_formats;

	while (v->value != format)
		v++;
	return v->name.p;
}

void dump_rings(FILE *f, const struct conf *c)
{
	char text[ADDR_TEXT_MAX];
	struct list *p;

	list_for_each(p, &c->rings) {
		const struct conf_ring *r = list_entry(p, struct conf_ring, link);

		fprintf(f, "ring %s (%s)\n  format %s maxlen %u size %u\n", r->name,
			r->description ? r->description : r->name, format_name(r->format),
			r->max_len, r->size);
		if (r->backing_file)
			fprintf(f, "  backing-file %s\n", r->backing_file);
		fprintf(f, "  timeout connect %" PRIu64 "ns server %" PRIu64 "ns\n",
			r->timeout_connect, r->timeout_server);
		for (unsigned i = 0; i < r->n_servers; i++) {
			const struct conf_ring_server *s = &r->servers[i];

			if (!s->path)
				addr_format(&s->addr, text, sizeof(text));
			fprintf(f, "  server %s %s%s\n", s->name, s->path ? s->path : text,
				s->is_counted ? " octet-count" : "");
		}
	}
}
