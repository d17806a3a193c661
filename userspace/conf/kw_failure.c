/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is done about peers that fail: `retry-on` says which failures of a server are worth another attempt,
 * `min-rate` how slow a client may be. Control thread.
 */
#include <errno.h>

#include "conf/conf_priv.h"

static const struct retry_word {
	struct str name;
	uint32_t bits;
} retry_words[] = {
	{ NAME("conn-failure"), RETRY_CONN_FAILURE },
	{ NAME("empty-response"), RETRY_EMPTY_RESPONSE },
	{ NAME("junk-response"), RETRY_JUNK_RESPONSE },
	{ NAME("response-timeout"), RETRY_RESPONSE_TIMEOUT },
	/* No early data is ever sent to a server, so none is refused. */
	{ NAME("0rtt-rejected"), 0 },
	{ NAME("all-retryable-errors"), RETRY_ALL_ERRORS },
	{ NAME("401"), RETRY_STATUS(0) },
	{ NAME("403"), RETRY_STATUS(1) },
	{ NAME("404"), RETRY_STATUS(2) },
	{ NAME("408"), RETRY_STATUS(3) },
	{ NAME("421"), RETRY_STATUS(4) },
	{ NAME("425"), RETRY_STATUS(5) },
	{ NAME("429"), RETRY_STATUS(6) },
	{ NAME("500"), RETRY_STATUS(7) },
	{ NAME("501"), RETRY_STATUS(8) },
	{ NAME("502"), RETRY_STATUS(9) },
	{ NAME("503"), RETRY_STATUS(10) },
	{ NAME("504"), RETRY_STATUS(11) },
};

uint32_t conf_retry_status_bit(unsigned status)
{
	for (size_t i = 0; i < ARRAY_SIZE(retry_words); i++) {
		const char *p = retry_words[i].name.p;

		if (retry_words[i].name.len == 3 && status / 100 == (unsigned)(p[0] - '0') &&
		    status / 10 % 10 == (unsigned)(p[1] - '0') &&
		    status % 10 == (unsigned)(p[2] - '0'))
			return retry_words[i].bits;
	}
	return 0;
}

static int retry_word(struct parser *ps, struct line *l, uint32_t *bits)
{
	struct nearest near;
	char hint[96];

	for (size_t i = 0; i < ARRAY_SIZE(retry_words); i++) {
		if (str_is_eq(line_peek(l), retry_words[i].name)) {
			*bits |= retry_words[i].bits;
			l->at++;
			return 0;
		}
	}
	nearest_init(&near, line_peek(l));
	for (size_t i = 0; i < ARRAY_SIZE(retry_words); i++)
		nearest_offer(&near, retry_words[i].name);
	return conf_fail(ps, l, l->at,
			 "'retry-on' expects 'none', or failures and statuses, instead of '" STR_FMT
			 "'%s",
			 STR_ARG(str_sub(line_peek(l), 0, 64)), nearest_hint(&near, hint));
}

/* retry-on none | <failure>... */
int parse_retry_on(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_proxy *px = &((struct proxy_build *)obj)->px;
	uint32_t bits = 0;
	int r = 0;

	if (!line_has(l))
		return conf_fail(ps, l, l->n, "'retry-on' expects at least one failure, or 'none'");
	if (line_accept(l, "none")) {
		px->retry_on = 0;
		return 0;
	}
	while (r == 0 && line_has(l))
		r = retry_word(ps, l, &bits);
	if (r == 0)
		px->retry_on = bits;
	return r;
}

/* min-rate request|response <bytes>/s after <time>; `no min-rate`: neither */
int parse_min_rate(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	static const struct keyword_value which[] = { VALUE("request", MIN_RATE_REQUEST),
						      VALUE("response", MIN_RATE_RESPONSE),
						      VALUES_END };
	struct conf_proxy *px = &((struct proxy_build *)obj)->px;
	struct conf_min_rate r;
	struct str w;
	uint8_t i;
	int ret;

	if (l->is_negated) {
		memset(px->min_rate, 0, sizeof(px->min_rate));
		return 0;
	}
	ret = arg_value(ps, l, which, &i);
	if (ret == 0)
		ret = line_want(ps, l, "a rate such as 128/s", &w);
	if (ret)
		return ret;
	if (w.len < 3 || w.p[w.len - 2] != '/' || w.p[w.len - 1] != 's' ||
	    str_to_size(str_sub(w, 0, w.len - 2), &r.bytes_per_s) || !r.bytes_per_s ||
	    r.bytes_per_s > 1u << 30)
		return conf_fail(ps, l, l->at - 1,
				 "'min-rate' expects bytes per second, such as 128/s");
	if (!line_accept(l, "after"))
		return conf_fail(ps, l, line_has(l) ? l->at : l->n,
				 "'min-rate' expects 'after' and a time");
	ret = arg_time(ps, l, 1000000, &r.after_ns);
	if (ret == 0 && (!r.after_ns || r.after_ns > 86400ull * 1000000000))
		return conf_fail(ps, l, l->at - 1, "'min-rate' expects a time from 1ms to one day");
	if (ret == 0)
		px->min_rate[i] = r;
	return ret;
}
