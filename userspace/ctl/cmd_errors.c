/* SPDX-License-Identifier: BSD-2-Clause */
/* `show errors`: the last invalid request and response of each section (proxy/invalid.c), in HAProxy's form. */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "ctl/cmd.h"
#include "ctl/cmd_rows.h"

/* Where HAProxy's parser would have stood: names and numbers of its states. */
static const struct msg_state {
	const char *name;
	unsigned number;
} msg_states[] = {
#define S(error, name, number) [HTTP_ERR_##error] = { "MSG_" name, number }
	S(NONE, "RQBEFORE", 0),
	S(BAD_START_LINE, "RQMETH", 2),
	S(BAD_METHOD, "RQMETH", 2),
	S(BAD_TARGET, "RQURI", 4),
	S(BAD_VERSION, "RQVER", 6),
	S(BAD_FIELD_NAME, "HDR_NAME", 17),
	S(BAD_FIELD_VALUE, "HDR_VAL", 22),
	S(BARE_LF, "HDR_L2_LF", 23),
	S(BARE_CR, "HDR_L2_LWS", 24),
	S(OBS_FOLD, "HDR_L2_LWS", 24),
	S(TOO_LARGE, "HDR_VAL", 22),
	S(TOO_MANY_FIELDS, "HDR_FIRST", 16),
	S(BAD_LENGTH, "HDR_L2_LWS", 24),
	S(LENGTH_CONFLICT, "HDR_L2_LWS", 24),
	S(BAD_TRANSFER_ENCODING, "HDR_L2_LWS", 24),
	S(TRANSFER_ENCODING_1_0, "LAST_LF", 25),
	S(NO_HOST, "LAST_LF", 25),
	S(BAD_HOST, "HDR_L2_LWS", 24),
	S(BAD_CHUNK, "CHUNK_SIZE", 26),
	S(BAD_TRAILER, "TRAILERS", 29),
	S(BAD_EXPECT, "LAST_LF", 25),
	S(NO_MEMORY, "LAST_LF", 25),
#undef S
};

static const struct msg_state *state_of(const struct invalid_msg *m, bool is_rsp)
{
	static const struct msg_state version = { "MSG_RPVER", 10 };
	const struct msg_state *s = &msg_states[m->error < HTTP_ERR_COUNT ? m->error : 0];

	/* Start lines are different ones. */
	return is_rsp && s->number < version.number ? &version : s;
}

/* "dd/Mon/yyyy:hh:mm:ss.mmm", local time. */
static void put_date(FILE *out, uint64_t wall_ns)
{
	time_t second = (time_t)(wall_ns / 1000000000u);
	char text[40] = "";
	struct tm tm;

	if (localtime_r(&second, &tm))
		strftime(text, sizeof(text), "%d/%b/%Y:%H:%M:%S", &tm);
	fprintf(out, "[%s.%03u]", text, (unsigned)(wall_ns / 1000000u % 1000u));
}

#define DUMP_COLUMNS 80 /* of a line, offset and newline included */

static size_t put_byte(char out[5], uint8_t c)
{
	static const char specials[] = "\tt\nn\rr\033e\\\\";
	const char *p;

	if (c >= ' ' && c <= '~' && c != '\\') {
		out[0] = (char)c;
		return 1;
	}
	for (p = specials; *p; p += 2)
		if ((uint8_t)*p == c)
			return (size_t)snprintf(out, 5, "\\%c", p[1]);
	return (size_t)snprintf(out, 5, "\\x%02X", c);
}

/* Lines of the message with their offsets; '+' behind one that goes on with the line before. */
static void put_dump(FILE *out, const char *bytes, uint32_t len)
{
	uint32_t line = 0;

	for (uint32_t i = 0; i < len;) {
		char text[DUMP_COLUMNS + 32];
		size_t n = (size_t)snprintf(text, sizeof(text), "  %05u%c ", i,
					    i == line ? ' ' : '+');

		while (i < len) {
			char byte[5];
			size_t width = put_byte(byte, (uint8_t)bytes[i]);

			if (n + width >= DUMP_COLUMNS)
				break;
			memcpy(text + n, byte, width);
			n += width;
			if (bytes[i++] == '\n') {
				line = i;
				break;
			}
		}
		fprintf(out, "%.*s\n", (int)n, text);
	}
}

static void put_event(FILE *out, const struct conf_proxy *px, bool is_rsp,
		      const struct invalid_msg *m)
{
	const struct msg_state *state = state_of(m, is_rsp);
	const char *other = m->has_other ? m->other : "<NONE>";
	int other_id = m->has_other ? (int)m->other_id : -1;
	char ip[ADDR_TEXT_MAX] = "?";

	if (m->src.sa.sa_family == AF_INET || m->src.sa.sa_family == AF_INET6)
		addr_format_ip(&m->src, ip, sizeof(ip));
	fputs(" \n", out);
	put_date(out, m->wall_ns);
	fprintf(out,
		is_rsp ? " backend %s (#%u): invalid response\n  frontend %s (#%d)"
		       : " frontend %s (#%u): invalid request\n  backend %s (#%d)",
		px->name, px->id, other, other_id);
	fprintf(out,
		", server %s (#%d), event #%" PRIu64 ", src %s:%u\n"
		"  buffer starts at %" PRIu64 " (including 0 out), %u free,\n"
		"  len %u, wraps at %u, error at position %u\n",
		*m->server ? m->server : "<NONE>", *m->server ? (int)m->server_id : -1, m->id, ip,
		addr_port(&m->src), m->offset, m->room - (m->len < m->room ? m->len : m->room),
		m->len, m->room, m->error_at);
	fprintf(out,
		"  H1 connection flags 0x%08x, H1 stream flags 0x%08x\n"
		"  H1 msg state %s(%u), H1 msg flags 0x%08x\n"
		"  H1 chunk len %" PRIu64 " bytes, H1 body len %" PRIu64 " bytes :\n"
		"  reason: %s\n  \n",
		0u, m->stream_flags, state->name, state->number, 0u, m->chunk_left, m->body_len,
		http_error_text((enum http_error)m->error));
	put_dump(out, m->bytes, m->len);
}

struct errors_filter {
	bool has_id;
	unsigned id; /* iid of the section, or of the one at the other end */
	bool skips[2]; /* by INVALID_REQUEST, INVALID_RESPONSE */
};

/* [<iid>|<proxy>] [request|response]; false: there is no such section. */
static bool read_filter(struct cmd *c, struct errors_filter *f)
{
	const struct conf_proxy *px;
	const char *word;
	int64_t id;

	for (unsigned i = 0; (word = cmd_arg(c, i)); i++) {
		if (strcmp(word, "request") == 0) {
			f->skips[INVALID_RESPONSE] = true;
			continue;
		}
		if (strcmp(word, "response") == 0) {
			f->skips[INVALID_REQUEST] = true;
			continue;
		}
		px = conf_find_proxy(c->ctl->current->conf, str_from_cstr(word),
				     CONF_CAP_FRONTEND | CONF_CAP_BACKEND);
		if (px)
			id = px->id;
		else if (str_to_i64(str_from_cstr(word), &id) != 0 || !id || id > INT32_MAX)
			return false;
		f->has_id = id > 0;
		f->id = id > 0 ? (unsigned)id : 0;
	}
	return true;
}

static void show_errors_of(struct cmd *c, const struct conf_proxy *px,
			   const struct errors_filter *f)
{
	struct lb_backend *be = c->ctl->current->backends[px->index];

	for (unsigned which = 0; which < ARRAY_SIZE(f->skips); which++) {
		struct invalid_msg *m;

		if (f->skips[which])
			continue;
		if (invalid_get(be, which, &m) != 0) {
			cmd_say(c, "out of memory");
			return;
		}
		if (m && (!f->has_id || f->id == px->id || (m->has_other && f->id == m->other_id)))
			put_event(c->out, px, which == INVALID_RESPONSE, m);
		mem_free(m);
	}
}

int cmd_show_errors(struct cmd *c)
{
	struct errors_filter f = { 0 };
	struct list *l;

	if (!read_filter(c, &f)) {
		cmd_say(c, "No such proxy.");
		return 0;
	}
	fputs("Total events captured on ", c->out);
	put_date(c->out, loop_wall(c->ctl->loop));
	fprintf(c->out, " : %" PRIu64 "\n", atomic_load(&c->ctl->shared.n_invalid));
	list_for_each(l, &c->ctl->current->conf->proxies)
		show_errors_of(c, list_entry(l, struct conf_proxy, link), &f);
	return 0;
}
