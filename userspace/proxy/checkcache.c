/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * option checkcache: a response that a cache may keep must not carry somebody's cookie. What counts as
 * cacheable is HAProxy's list, not RFC 9111's: it errs on the side of refusing.
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

/* What one directive of Cache-Control says: -1 not to be kept, 1 public, 0 nothing. */
static int directive_says(struct str d)
{
	static const char *const forbids[] = { "private", "no-store", "no-cache", "max-age=0",
					       "s-maxage=0" };

	if (str_is_case_eq(d, STR("public")))
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(forbids); i++)
		if (str_is_case_eq(d, str_from_cstr(forbids[i])))
			return -1;
	return str_is_case_prefix(d, STR("no-cache=\"set-cookie")) ? -1 : 0;
}

bool rsp_leaks_cookie(const struct stream *st)
{
	const struct http_msg *rsp = &st->rsp;
	const struct http_field *f;
	bool is_public = false;
	unsigned from = 0;

	if (!http_msg_has(rsp, HTTP_FIELD_SET_COOKIE))
		return false;
	f = http_msg_find_name(rsp, STR("pragma"), 0);
	if (f && http_list_has(f->value, STR("no-cache")))
		return false;
	while ((f = http_msg_find(rsp, HTTP_FIELD_CACHE_CONTROL, from))) {
		struct str list = f->value, item;

		from = (unsigned)(f - rsp->fields) + 1;
		while (http_list_next(&list, &item)) {
			int says = directive_says(item);

			if (says < 0)
				return false;
			is_public |= says > 0;
		}
	}
	return is_public || (is_cacheable_status(rsp->status) && is_safe_method(st->req.method));
}
