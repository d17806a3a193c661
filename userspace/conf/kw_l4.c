/* SPDX-License-Identifier: BSD-2-Clause */
/* Keywords of sections in `mode l4`: which packets stay together, and for how long that is remembered. */
#include <errno.h>
#include <headgate/service.h>

#include "conf/conf_priv.h"

#define AT(field) .offset = offsetof(struct conf_proxy, field)

#define SECOND 1000000000ull
/* Ticks of remembered flows are 16 bits of more than a second each: half a day is told from a whole one. */
#define WINDOW_MAX_S 43200u
#define DRAIN_MAX_S  (30u * 86400)

static int parse_quic_cid(struct parser *ps, struct line *l, struct conf_proxy *px)
{
	uint64_t v;
	int r = 0;

	while (r == 0 && line_has(l)) {
		if (line_accept(l, "offset")) {
			r = arg_u64(ps, l, 0, HG_QUIC_OFFSET_MAX, &v);
			px->quic_offset = (uint8_t)v;
		} else if (line_accept(l, "length")) {
			r = arg_u64(ps, l, 1, HG_QUIC_ID_MAX, &v);
			px->quic_length = (uint8_t)v;
		} else {
			return conf_fail(ps, l, l->at,
					 "'affinity quic-cid' expects 'offset <bytes>' or "
					 "'length <bytes>' instead of '" STR_FMT "'",
					 STR_ARG(str_sub(line_peek(l), 0, 64)));
		}
	}
	return r;
}

static int parse_affinity(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value values[] = {
		VALUE("flow", AFFINITY_FLOW), VALUE("source", AFFINITY_SOURCE),
		VALUE("none", AFFINITY_NONE), VALUE("quic-cid", AFFINITY_QUIC_CID), VALUES_END
	};
	struct conf_proxy *px = &((struct proxy_build *)obj)->px;
	int r = arg_value(ps, l, values, &px->affinity);

	px->quic_offset = px->quic_length = 1;
	return r || px->affinity != AFFINITY_QUIC_CID ? r : parse_quic_cid(ps, l, px);
}

/* Whole seconds at least, because slots are looked at about once in one. `max` in seconds. */
static int parse_seconds(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	uint64_t *field = (uint64_t *)(void *)((char *)obj + kw->offset), v;
	int r = arg_time(ps, l, SECOND / 1000, &v);

	if (r)
		return r;
	if (v && (v < SECOND || v > kw->max * SECOND))
		return conf_fail(ps, l, l->at - 1, "'" STR_FMT "' expects 1 second to %u %s",
				 STR_ARG(kw->name),
				 (unsigned)(kw->max / (kw->max > 86400 ? 86400 : 3600)),
				 kw->max > 86400 ? "days" : "hours");
	if (!v && kw->max == WINDOW_MAX_S)
		return conf_fail(ps, l, l->at - 1,
				 "'" STR_FMT "' cannot be 0; 'track off' remembers nothing",
				 STR_ARG(kw->name));
	*field = v;
	return 0;
}

static const struct keyword_value tracks[] = { VALUE("auto", CONF_TRACK_AUTO),
					       VALUE("on", CONF_TRACK_ON),
					       VALUE("off", CONF_TRACK_OFF), VALUES_END };

static const struct keyword rows[] = {
	{ NAME("affinity"), SEC_DLB, ARG_FUNC, .parse = parse_affinity, .grade = '1',
	  .args = "flow|source|none|quic-cid [offset <bytes>] [length <bytes>]", .def = "flow",
	  .help = "mode l4: what stays together" },
	{ NAME("track"), SEC_DLB, ARG_ENUM, AT(track), .values = tracks, .grade = '1',
	  .args = "auto|on|off", .def = "auto",
	  .help = "mode l4: flows are remembered where a change would break them, all (and "
		  "connections counted), or none" },
	{ NAME("learn-window"), SEC_DLB, ARG_FUNC, AT(learn_window), .parse = parse_seconds,
	  NUMBER(1, WINDOW_MAX_S), .grade = '1', .args = "<time>", .def = "1h",
	  .help = "mode l4: a connection that is silent for longer is not kept over a change" },
	{ NAME("drain-timeout"), SEC_DLB, ARG_FUNC, AT(drain_timeout), .parse = parse_seconds,
	  NUMBER(1, DRAIN_MAX_S), .grade = '1', .args = "<time>", .def = "0 (no limit)",
	  .help = "mode l4: how long connections stay with a server that has lost its share" },
};
const struct keyword_table conf_kw_l4 = KEYWORDS("keyword", rows);

int parse_quic_id(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_server *s = obj;
	uint64_t v;
	int r = arg_u64(ps, l, 0, CONF_QUIC_ID_MAX, &v);

	s->has_quic_id = true;
	s->quic_id = r ? 0 : (uint16_t)v;
	return r;
}
