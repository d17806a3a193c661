/* SPDX-License-Identifier: BSD-2-Clause */
/* Converters that know forms of the web: query parameters, languages. Workers. */
#include "expr/expr_priv.h"

static int conv_param(struct eval *ev, const struct expr_arg *args, unsigned kw, struct sample *smp)
{
	struct str seps = args[1].type == ARG_STR ? args[1].str : STR("&"), v;

	if (smp->str.len == 0 || !url_find_param(smp->str, seps, args[0].str, &v))
		return -ENOENT;
	smp->str = v;
	return 0;
}

/* "0.8" in thousandths (RFC 9110 12.4.2); malformed: 1000. */
static unsigned quality(struct str s)
{
	unsigned v, scale = 100;

	s = str_trim(s);
	if (!str_is_case_prefix(s, STR("q=")) || s.len < 3)
		return 1000;
	if (s.p[2] != '0')
		return 1000;
	v = 0;
	for (size_t i = 4; i < s.len && i < 7; i++, scale /= 10) {
		if (s.p[i] < '0' || s.p[i] > '9')
			break;
		v += (unsigned)(s.p[i] - '0') * scale;
	}
	return v;
}

/* Accept-Language against "fr;en;de": the offered language the client likes best. */
static int conv_language(struct eval *ev, const struct expr_arg *args, unsigned kw,
			 struct sample *smp)
{
	struct str list = smp->str, best = STR_NULL;
	unsigned best_q = 0;

	for (unsigned n = 0; list.p && n < 64; n++) {
		struct str params = str_cut(&list, ','), offered = args[0].str;
		struct str lang = str_trim(str_cut(&params, ';'));
		unsigned q = params.p ? quality(params) : 1000;

		while (q > best_q && offered.p) {
			struct str o = str_cut(&offered, ';');

			/* "en" is satisfied by en-GB's first part and the other way round. */
			if (str_is_case_eq(o, lang) || (str_is_case_prefix(lang, o) &&
							lang.len > o.len && lang.p[o.len] == '-')) {
				best = o;
				best_q = q;
			}
		}
	}
	if (!best.p && args[1].type == ARG_STR)
		best = args[1].str;
	if (!best.p)
		return -ENOENT;
	sample_set_str(smp, SAMPLE_STR, best);
	return 0;
}

static const struct conv_def convs[] = {
	C("param", "name,[delimiters]", "s[s", STR, STR, 0, conv_param, NULL,
	  "parameter of a text like a=1&b=2"),
	C("language", "offered,[default]", "s[s", STR, STR, 0, conv_language, NULL,
	  "best of the offered languages (fr;en;de) for an Accept-Language"),
};

const struct conv_table conv_web_table = { convs, ARRAY_SIZE(convs) };
