/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * tune.h2.*: what HTTP/2 connections may cost. Each setting has three names: for both sides, and for clients (fe.) and
 * servers (be.) by themselves, which win. Control thread.
 */
#include "conf/conf_priv.h"

#define AT(field)  .offset = offsetof(struct conf_global, field)
#define WINDOW_MAX 65535 /* what a stream has a buffer for */

static int parse_window(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	uint32_t *field = (uint32_t *)((char *)obj + kw->offset);
	uint64_t v;
	int r = arg_size(ps, l, &v);

	if (r)
		return r;
	if (v < 1024 || v > INT32_MAX)
		return conf_fail(ps, l, l->at - 1, "'" STR_FMT "' expects 1024 to 2147483647",
				 STR_ARG(kw->name));
	*field = v < WINDOW_MAX ? (uint32_t)v : WINDOW_MAX;
	if (v > WINDOW_MAX + 1) /* HAProxy's default is said as 65536, too */
		return conf_warn(ps, l, l->at - 1,
				 "windows of streams are %u bytes at most, which is used",
				 WINDOW_MAX);
	return 0;
}

/* 0 is a size, too. */
static int parse_table(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	uint64_t v;
	int r = arg_size(ps, l, &v);

	if (r)
		return r;
	if (v > 65535)
		return conf_fail(ps, l, l->at - 1, "'" STR_FMT "' expects 0 to 65535",
				 STR_ARG(kw->name));
	((struct conf_global *)obj)->h2.table = (uint32_t)v + 1;
	return 0;
}

/* A setting of one kind: for both, for clients, for servers. */
#define THREE(text, field, T, def_text, help_text, ...)                                                 \
	{ NAME("tune.h2." text), SEC_GLOBAL,	  T,                                                    \
	  AT(h2.field),		 __VA_ARGS__,	  .grade = '2',                                         \
	  .args = "<number>",	 .def = def_text, .help = help_text ", on both sides" },                \
		{ NAME("tune.h2.fe." text), SEC_GLOBAL,	       T,                                       \
		  AT(h2_fe.field),	    __VA_ARGS__,       .grade = '2',                            \
		  .args = "<number>",	    .def = "as above", .help = help_text ", towards clients" }, \
		{ NAME("tune.h2.be." text), SEC_GLOBAL,	       T,                                       \
		  AT(h2_be.field),	    __VA_ARGS__,       .grade = '2',                            \
		  .args = "<number>",	    .def = "as above", .help = help_text ", towards servers" }

static const struct keyword rows[] = {
	THREE("initial-window-size", window, ARG_FUNC, "65535",
	      "bytes that a stream may send before it has to wait; 65535 at most",
	      .parse = parse_window),
	THREE("max-concurrent-streams", streams, ARG_UINT, "100", "streams at a time",
	      NUMBER(1, 10000)),
	THREE("glitches-threshold", glitches, ARG_UINT, "no limit",
	      "a connection ends after so many oddities, beside the budgets that always hold",
	      NUMBER(0, INT32_MAX)),
	{ NAME("tune.h2.max-frame-size"), SEC_GLOBAL, ARG_SIZE, AT(h2.frame),
	  NUMBER(16384, 16777215), .grade = '2', .args = "<size>", .def = "16384",
	  .help = "largest frame that is taken" },
	{ NAME("tune.h2.header-table-size"), SEC_GLOBAL, ARG_FUNC, .parse = parse_table,
	  .grade = '2', .args = "<size>", .def = "4096",
	  .help = "memory of the compression of what we receive, of each connection" },
	{ NAME("tune.h2.fe.max-total-streams"), SEC_GLOBAL, ARG_UINT, AT(h2_fe.total),
	  NUMBER(0, INT32_MAX), .grade = '2', .args = "<number>", .def = "no limit",
	  .help = "a client's connection is drained after so many requests" },
};
/* How HAProxy divides its work; ours is bounded in other ways. */
static const char *const noop[] = {
	"tune.h2.be.max-frames-at-once",
	"tune.h2.fe.max-frames-at-once",
	"tune.h2.fe.max-rst-at-once",
	"tune.h2.be.rxbuf",
	"tune.h2.fe.rxbuf",
	"tune.h2.log-errors",
	"tune.h2.zero-copy-fwd-send",
	NULL,
};
const struct keyword_table conf_kw_h2 = KEYWORDS("keyword", rows, .noop = noop);

static uint32_t first_of(uint32_t a, uint32_t b, uint32_t dflt)
{
	return a ? a : b ? b : dflt;
}

struct conf_h2 conf_h2_of(const struct conf_global *g, bool is_towards_servers)
{
	const struct conf_h2 *s = is_towards_servers ? &g->h2_be : &g->h2_fe;

	return (struct conf_h2){
		.window = first_of(s->window, g->h2.window, WINDOW_MAX),
		.streams = first_of(s->streams, g->h2.streams, 100),
		.glitches = first_of(s->glitches, g->h2.glitches, 0),
		.total = s->total,
		.frame = first_of(g->h2.frame, 0, 16384),
		.table = g->h2.table,
	};
}
