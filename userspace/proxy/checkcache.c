/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * option checkcache, `cookie … nocache`: a response that a cache may keep must not carry somebody's cookie. What counts
 * as cacheable is HAProxy's list, not RFC 9111's: it errs on the side of refusing.
 */
#include "proxy/worker_priv.h"

static bool is_cacheable_status(unsigned status)
{
	static const uint16_t list[] = { 200, 203, 204, 206, 300, 301, 404, 405, 410, 414, 501 };

	for (size_t i = 0; i < ARRAY_SIZE(list); i++)
		if (list[i] == status)
			return true;
	return false;
}

static bool is_safe_method(unsigned method)
{
	return method == HTTP_METHOD_GET || method == HTTP_METHOD_HEAD ||
	       method == HTTP_METHOD_OPTIONS || method == HTTP_METHOD_TRACE;
}

enum says {
	SAYS_NOTHING,
	SAYS_PUBLIC,
	SAYS_LIFETIME,
	SAYS_NO
};

/* What one directive of Cache-Control says about keeping. */
static enum says directive_says(struct str d)
{
	static const char *const forbids[] = { "private", "no-store", "no-cache", "max-age=0",
					       "s-maxage=0" };

	if (str_is_case_eq(d, STR("public")))
		return SAYS_PUBLIC;
	for (size_t i = 0; i < ARRAY_SIZE(forbids); i++)
		if (str_is_case_eq(d, str_from_cstr(forbids[i])))
			return SAYS_NO;
	if (str_is_case_prefix(d, STR("no-cache=\"set-cookie")))
		return SAYS_NO;
	return str_is_case_prefix(d, STR("max-age=")) || str_is_case_prefix(d, STR("s-maxage="))
		       ? SAYS_LIFETIME
		       : SAYS_NOTHING;
}

/* `counts_lifetime`: RFC 9111 3 lets caches keep any status that says for how long, and HAProxy does not look at that. */
static bool is_cacheable(const struct stream *st, bool counts_lifetime)
{
	const struct http_msg *rsp = &st->rsp;
	const struct http_field *f;
	bool is_explicit = false;
	unsigned from = 0;

	f = http_msg_find_name(rsp, STR("pragma"), 0);
	if (f && http_list_has(f->value, STR("no-cache")))
		return false;
	while ((f = http_msg_find(rsp, HTTP_FIELD_CACHE_CONTROL, from))) {
		struct str list = f->value, item;

		from = (unsigned)(f - rsp->fields) + 1;
		while (http_list_next(&list, &item)) {
			enum says says = directive_says(item);

			if (says == SAYS_NO)
				return false;
			is_explicit |= says == SAYS_PUBLIC ||
				       (counts_lifetime && says == SAYS_LIFETIME);
		}
	}
	if (counts_lifetime && http_msg_find_name(rsp, STR("expires"), 0))
		is_explicit = true;
	return is_explicit || (is_cacheable_status(rsp->status) && is_safe_method(st->req.method));
}

bool rsp_leaks_cookie(const struct stream *st)
{
	return http_msg_has(&st->rsp, HTTP_FIELD_SET_COOKIE) && is_cacheable(st, false);
}

bool rsp_may_be_kept(const struct stream *st)
{
	return is_cacheable(st, true);
}
