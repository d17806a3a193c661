/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * State files (server_state.h). Version 1 of HAProxy's format: a line "1", a header, and one line per server whose
 * fields are those of `show servers state`. Fields are found by position; later versions of HAProxy only add some.
 */
#include "ctl/server_state.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/mem.h"
#include "proxy/proxy.h"

/* Fields by position; those that are not named are not used. */
enum field {
	F_BE_NAME = 1,
	F_SRV_NAME = 3,
	F_ADDR = 4,
	F_OP = 5,
	F_ADMIN = 6,
	F_UWEIGHT = 7,
	F_IWEIGHT = 8,
	F_SINCE = 9,
	F_CHECK_STATUS = 10,
	F_CHECK_HEALTH = 12,
	F_CHECK_STATE = 13,
	F_AGENT_STATE = 14,
	F_FQDN = 17,
	F_PORT = 18,
	N_REQUIRED = 19,
};

#define CHECK_IS_CONFIGURED 0x02u
#define CHECK_IS_ENABLED    0x04u

struct state_row {
	struct str be_name, srv_name, addr, fqdn; /* in the file's text */
	uint64_t hash;
	uint32_t op, admin, uweight, iweight, check_status, check_health, check_state, agent_state,
		port;
	uint64_t since_s;
};

/* One file; sections that share one share it. */
struct state_file {
	struct list link;
	struct str text;
	struct state_row **table; /* by hash, n_slots a power of two; NULL slots are free */
	size_t n_slots;
	char path[PATH_MAX];
};

struct server_states {
	struct arena arena;
	struct list files; /* state_file */
	const struct state_file **of_proxy; /* [n_proxies]; NULL: none */
};

static uint64_t row_hash(struct str be, struct str srv)
{
	return str_hash(srv, str_hash(be, 0));
}

static struct state_row *file_find(const struct state_file *f, struct str be, struct str srv)
{
	uint64_t hash = row_hash(be, srv);

	if (!f || !f->n_slots)
		return NULL;
	for (size_t i = hash & (f->n_slots - 1); f->table[i]; i = (i + 1) & (f->n_slots - 1))
		if (f->table[i]->hash == hash && str_is_eq(f->table[i]->be_name, be) &&
		    str_is_eq(f->table[i]->srv_name, srv))
			return f->table[i];
	return NULL;
}

/* The last line of a server counts. */
static void file_put(struct state_file *f, struct state_row *row)
{
	size_t i = row->hash & (f->n_slots - 1);

	while (f->table[i] && !(str_is_eq(f->table[i]->be_name, row->be_name) &&
				str_is_eq(f->table[i]->srv_name, row->srv_name)))
		i = (i + 1) & (f->n_slots - 1);
	f->table[i] = row;
}

/* --- reading ---------------------------------------------------------------------------------------- */

static int row_parse(struct str line, struct state_row *ret)
{
	static const struct {
		enum field at;
		size_t offset;
		uint64_t max;
	} numbers[] = {
		{ F_OP, offsetof(struct state_row, op), SERVER_STOPPING },
		{ F_ADMIN, offsetof(struct state_row, admin), 0xff },
		{ F_UWEIGHT, offsetof(struct state_row, uweight), 256 },
		{ F_IWEIGHT, offsetof(struct state_row, iweight), 256 },
		{ F_CHECK_STATUS, offsetof(struct state_row, check_status), 255 },
		{ F_CHECK_HEALTH, offsetof(struct state_row, check_health), UINT32_MAX },
		{ F_CHECK_STATE, offsetof(struct state_row, check_state), 0xff },
		{ F_AGENT_STATE, offsetof(struct state_row, agent_state), 0xff },
		{ F_PORT, offsetof(struct state_row, port), 65535 },
	};
	struct str field[N_REQUIRED];
	unsigned n = 0;
	uint64_t v;

	while (n < N_REQUIRED && line.len) {
		struct str word = str_cut(&line, ' ');

		if (word.len)
			field[n++] = word;
	}
	if (n < N_REQUIRED)
		return -EINVAL;
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (str_to_u64(field[numbers[i].at], &v) != 0 || v > numbers[i].max)
			return -EINVAL;
		*(uint32_t *)((char *)ret + numbers[i].offset) = (uint32_t)v;
	}
	if (str_to_u64(field[F_SINCE], &ret->since_s) != 0)
		return -EINVAL;
	ret->be_name = field[F_BE_NAME];
	ret->srv_name = field[F_SRV_NAME];
	ret->addr = field[F_ADDR];
	ret->fqdn = field[F_FQDN];
	ret->hash = row_hash(ret->be_name, ret->srv_name);
	return 0;
}

static int file_parse(struct server_states *st, struct state_file *f, conf_report_fn *report,
		      void *ctx)
{
	struct conf_pos pos = { .file = f->path };
	struct str rest = f->text, line;
	size_t n_lines = 1;

	for (size_t i = 0; i < rest.len; i++)
		n_lines += rest.p[i] == '\n';
	for (f->n_slots = 16; f->n_slots < 2 * n_lines;)
		f->n_slots *= 2;
	f->table = arena_zalloc(&st->arena, f->n_slots * sizeof(*f->table));
	if (!f->table)
		return -ENOMEM;
	while (rest.len) {
		struct state_row *row;

		line = str_trim(str_cut(&rest, '\n'));
		pos.line++;
		pos.column = 1;
		if (pos.line == 1 && !str_is_eq(line, STR("1"))) {
			report(ctx, CONF_WARNING, &pos,
			       "not a file of server states: '1', its version, was expected");
			return 0;
		}
		if (pos.line == 1 || !line.len || line.p[0] == '#')
			continue;
		row = arena_zalloc(&st->arena, sizeof(*row));
		if (!row)
			return -ENOMEM;
		if (row_parse(line, row) == 0)
			file_put(f, row);
		else
			report(ctx, CONF_WARNING, &pos,
			       "not a line of 'show servers state': it is ignored");
	}
	return 0;
}

static int file_open(struct server_states *st, const char *path, conf_report_fn *report, void *ctx,
		     const struct state_file **ret)
{
	struct state_file *f;
	struct err err = { "" };
	struct list *l;
	int rc;

	list_for_each(l, &st->files) {
		f = list_entry(l, struct state_file, link);
		if (strcmp(f->path, path) == 0) {
			*ret = f;
			return 0;
		}
	}
	f = arena_zalloc(&st->arena, sizeof(*f));
	if (!f)
		return -ENOMEM;
	snprintf(f->path, sizeof(f->path), "%s", path);
	list_push_back(&st->files, &f->link);
	*ret = f;
	rc = conf_read_file(&st->arena, path, &f->text, &err);
	if (rc == -ENOMEM)
		return rc;
	if (rc != 0) {
		report(ctx, CONF_WARNING, NULL, err.text);
		return 0;
	}
	return file_parse(st, f, report, ctx);
}

/* NULL: the section loads none. */
static const char *path_of(const struct conf *conf, const struct conf_proxy *px, char *buf,
			   size_t size)
{
	const char *base = conf->global.server_state_base, *name;

	if (px->state_load == STATE_LOAD_GLOBAL)
		name = conf->global.server_state_file;
	else if (px->state_load == STATE_LOAD_LOCAL)
		name = px->state_file && *px->state_file ? px->state_file : px->name;
	else
		return NULL;
	if (!name || name[0] == '/' || !base)
		return name;
	snprintf(buf, size, "%s/%s", base, name);
	return buf;
}

int server_states_load(const struct conf *conf, conf_report_fn *report, void *ctx,
		       struct server_states **ret_states)
{
	struct server_states *st = NULL;
	struct list *l;
	int rc = 0;

	list_for_each(l, &conf->proxies) {
		const struct conf_proxy *px = list_entry(l, struct conf_proxy, link);
		char buf[PATH_MAX];
		const char *path = path_of(conf, px, buf, sizeof(buf));

		if (!path || !px->n_servers || px->is_disabled)
			continue;
		if (!st) {
			st = mem_zalloc(sizeof(*st));
			if (!st)
				return -ENOMEM;
			arena_init(&st->arena, 16384);
			list_init(&st->files);
			st->of_proxy = arena_zalloc(&st->arena,
						    conf->n_proxies * sizeof(*st->of_proxy));
			rc = st->of_proxy ? 0 : -ENOMEM;
		}
		if (rc == 0)
			rc = file_open(st, path, report, ctx, &st->of_proxy[px->index]);
		if (rc != 0)
			break;
	}
	if (rc != 0) {
		server_states_free(st);
		st = NULL;
	}
	*ret_states = st;
	return rc;
}

void server_states_free(struct server_states *st)
{
	if (!st)
		return;
	arena_free(&st->arena);
	mem_free(st);
}

/* --- using ------------------------------------------------------------------------------------------ */

static const struct state_row *row_of(const struct server_states *st, const struct conf_server *cs)
{
	return file_find(st->of_proxy[cs->proxy->index], str_from_cstr(cs->proxy->name),
			 str_from_cstr(cs->name));
}

bool server_states_addr(const struct server_states *st, const struct conf_server *cs,
			struct addr *ret_addr)
{
	const struct state_row *row = row_of(st, cs);

	/* The address of another name, or one that nobody had found, says nothing. */
	if (!row || !str_is_eq(row->fqdn, cs->ep.host) ||
	    row->admin & (SERVER_RESOLUTION_MAINT | SERVER_FQDN_BY_CLI) ||
	    addr_parse_ip(row->addr, ret_addr) != 0)
		return false;
	addr_set_port(ret_addr, (uint16_t)row->port);
	return true;
}

static uint32_t clamp(uint32_t v, uint32_t low, uint32_t high)
{
	return v < low ? low : v > high ? high : v;
}

/* What checks had found; without checks nothing would bring the server up again. */
static void apply_health(const struct state_row *row, struct lb_registry *r, struct server *s,
			 const struct conf_server *cs)
{
	uint32_t rise = cs->rise ? cs->rise : 2, fall = cs->fall ? cs->fall : 3;
	bool is_up = row->op == SERVER_RUNNING || row->op == SERVER_STARTING;
	uint64_t now = (uint64_t)time(NULL);

	if (!(row->check_state & CHECK_IS_CONFIGURED))
		return;
	s->check.is_enabled = row->check_state & CHECK_IS_ENABLED;
	if (strcmp(check_status_code((enum check_status)row->check_status), "UNK") != 0)
		s->check.status = (uint8_t)row->check_status;
	/* In maintenance the line says "stopped" whatever checks had found. */
	if (row->admin & SERVER_MAINT_MASK)
		return;
	s->check.health = is_up || row->op == SERVER_STOPPING
				  ? clamp(row->check_health, rise, rise + fall - 1)
				  : clamp(row->check_health, 0, rise - 1);
	server_set_op(r, s, is_up ? SERVER_RUNNING : (enum server_op)row->op);
	/* It has been so since then: for server_set_op() it is a change of this moment. */
	s->check.last_change_s = now > row->since_s ? now - row->since_s : 0;
}

static void apply_row(const struct state_row *row, struct lb_registry *r, struct server *s,
		      const struct conf_server *cs)
{
	struct err err;

	if (row->admin & (SERVER_FORCED_MAINT | SERVER_FORCED_DRAIN))
		server_set_admin(r, s, row->admin & (SERVER_FORCED_MAINT | SERVER_FORCED_DRAIN), 0);
	/* Changed in the configuration since: that is what is wanted now. */
	if (row->iweight == atomic_load(&s->iweight) && row->uweight != row->iweight &&
	    server_set_weight(r, s, row->uweight, &err) != 0)
		log_msg(LOG_LVL_WARNING, "server %s/%s: its weight stays as configured: %s",
			cs->proxy->name, cs->name, err.text);
	if (cs->track_server)
		return;
	if (cs->has_check)
		apply_health(row, r, s, cs);
	if (cs->has_agent && row->agent_state & CHECK_IS_CONFIGURED)
		s->agent.is_enabled = row->agent_state & CHECK_IS_ENABLED;
}

void server_states_apply(const struct server_states *st, struct lb_registry *r,
			 const struct proxy_snapshot *snap)
{
	struct list *p, *l;

	lb_batch_begin(r);
	list_for_each(p, &snap->conf->proxies) {
		const struct conf_proxy *px = list_entry(p, struct conf_proxy, link);

		list_for_each(l, &px->servers) {
			const struct conf_server *cs = list_entry(l, struct conf_server, link);
			const struct state_row *row = row_of(st, cs);

			if (row)
				apply_row(row, r,
					  snap->backends[px->index]->servers[cs->pos_in_backend],
					  cs);
		}
	}
	lb_batch_end(r);
}
