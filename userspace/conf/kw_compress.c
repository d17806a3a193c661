/* SPDX-License-Identifier: BSD-2-Clause */
/* `compression …`: what is offered to clients, and for which responses. Control thread. */
#include <errno.h>

#include "conf/conf_priv.h"

static struct conf_compression *compression_of(void *obj)
{
	return &((struct proxy_build *)obj)->px.compression;
}

/* Rows with .min = 1 are about requests. */
static int want_coding(struct parser *ps, struct line *l, enum http_coding *ret)
{
	*ret = http_coding_from_name(line_peek(l));
	if (*ret == HTTP_CODING_NONE)
		return conf_fail(ps, l, l->at,
				 "'compression algo' expects identity, gzip, deflate or "
				 "raw-deflate instead of '" STR_FMT "'",
				 STR_ARG(str_sub(line_peek(l), 0, 64)));
	l->at++;
	return 0;
}

static int parse_algo(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_compression *c = compression_of(obj);
	enum http_coding coding;
	int r = line_has(l) ? 0 : conf_fail(ps, l, l->n, "'compression algo' expects an algorithm");

	if (r == 0 && kw->min) {
		r = want_coding(ps, l, &coding);
		c->req_algo = r ? c->req_algo : (uint8_t)coding;
		return r;
	}
	while (r == 0 && line_has(l)) {
		r = want_coding(ps, l, &coding);
		if (r == 0 && !memchr(c->algos, (int)coding, c->n_algos))
			c->algos[c->n_algos++] = (uint8_t)coding;
	}
	return r;
}

static int parse_type(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_compression *c = compression_of(obj);
	struct str **types = kw->min ? &c->req_types : &c->types, *all;
	unsigned *n_types = kw->min ? &c->n_req_types : &c->n_types, n = l->n - l->at;

	if (!n)
		return conf_fail(ps, l, l->n, "'compression type' expects media types");
	all = arena_alloc(&ps->conf->arena, (*n_types + n) * sizeof(*all));
	if (!all)
		return -ENOMEM;
	if (*n_types)
		memcpy(all, *types, *n_types * sizeof(*all));
	memcpy(all + *n_types, l->words + l->at, n * sizeof(*all));
	*types = all; /* a defaults section may still point to the shorter list */
	*n_types += n;
	l->at = l->n;
	return 0;
}

/* As HAProxy: what all sections inherit must not take Accept-Encoding away from their servers. */
static int parse_offload(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	if (((struct proxy_build *)obj)->section & SEC_DEFAULTS)
		return conf_warn(ps, l, l->kw,
				 "'compression offload' has no effect in a defaults section");
	compression_of(obj)->is_offload = true;
	return 0;
}

static int parse_minsize(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_compression *c = compression_of(obj);

	return arg_size(ps, l, kw->min ? &c->req_min_size : &c->min_size);
}

static int parse_direction(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value values[] = { VALUE("response", COMPRESS_RESPONSE),
						       VALUE("request", COMPRESS_REQUEST),
						       VALUE("both", COMPRESS_BOTH), VALUES_END };

	return arg_value(ps, l, values, &compression_of(obj)->direction);
}

#define ALGO_ROW(text)                                    \
	{ NAME(text),                                     \
	  SEC_DFLB,                                       \
	  ARG_FUNC,                                       \
	  .parse = parse_algo,                            \
	  .grade = '2',                                   \
	  .args = "identity|gzip|deflate|raw-deflate...", \
	  .help = "what is offered" }
#define TYPE_ROW(text, is_req)       \
	{ NAME(text),                \
	  SEC_DFLB,                  \
	  ARG_FUNC,                  \
	  .parse = parse_type,       \
	  .min = is_req,             \
	  .grade = '2',              \
	  .args = "<media type>...", \
	  .help = "beginnings of the Content-Type that is compressed; without: any" }

static const struct keyword compression_rows[] = {
	ALGO_ROW("algo"),
	ALGO_ROW("algo-res"),
	{ NAME("algo-req"), SEC_DFLB, ARG_FUNC, .parse = parse_algo, .min = 1, .grade = '2',
	  .args = "identity|gzip|deflate|raw-deflate",
	  .help = "how requests are compressed; servers are not asked whether they like it" },
	TYPE_ROW("type", 0),
	TYPE_ROW("type-res", 0),
	TYPE_ROW("type-req", 1),
	{ NAME("offload"), SEC_DFLB, ARG_FUNC, .parse = parse_offload, .grade = '2',
	  .help = "servers are not asked to compress" },
	{ NAME("minsize-res"), SEC_DFLB, ARG_FUNC, .parse = parse_minsize, .grade = '2',
	  .args = "<size>", .help = "shorter answers are left alone" },
	{ NAME("minsize-req"), SEC_DFLB, ARG_FUNC, .parse = parse_minsize, .min = 1, .grade = '2',
	  .args = "<size>", .help = "shorter requests are left alone" },
	{ NAME("direction"), SEC_DFLB, ARG_FUNC, .parse = parse_direction, .grade = '2',
	  .args = "request|response|both", .def = "response", .help = "which messages" },
};
const struct keyword_table conf_kw_compression = KEYWORDS("compression keyword", compression_rows);
