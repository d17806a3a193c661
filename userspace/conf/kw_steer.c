/* SPDX-License-Identifier: BSD-2-Clause */
/* `xdp steer`: the CPUs that packets for the L7 tier go to; `sk-steer`: the workers that connections go to. Control thread. */
#include <errno.h>
#include <string.h>

#include "conf/conf_priv.h"

int conf_cpus_parse(struct str text, struct conf_xdp_steer *ret)
{
	memset(ret->cpus, 0, sizeof(ret->cpus));
	if (!text.len)
		return -EINVAL;
	while (text.len) {
		struct str part = str_cut(&text, ','), from = str_cut(&part, '-');
		uint64_t a, b;

		if (str_to_u64(from, &a))
			return -EINVAL;
		b = a;
		if (part.p && str_to_u64(part, &b))
			return -EINVAL;
		if (a > b || b >= HG_STEER_MAX)
			return -EINVAL;
		for (; a <= b; a++)
			ret->cpus[a / 64] |= 1ull << a % 64;
	}
	return 0;
}

int parse_steer(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_xdp_steer *s = &((struct conf_global *)obj)->xdp_steer;
	struct str w;
	int r;

	if (s->is_set)
		return conf_fail(ps, l, l->at - 1, "'xdp steer' is set twice");
	if (line_accept(l, "off") || line_accept(l, "auto")) {
		*s = (struct conf_xdp_steer){
			.is_set = true,
			.mode = str_is_eq(l->words[l->at - 1], STR("auto")) ? CONF_STEER_AUTO
									    : CONF_STEER_OFF,
		};
		return 0;
	}
	(void)line_accept(l, "cpus");
	r = line_want(ps, l, "CPUs such as 2-7 or 0,4-6, 'auto' or 'off'", &w);
	if (r)
		return r;
	if (conf_cpus_parse(w, s) != 0)
		return conf_fail(
			ps, l, l->at - 1,
			"'xdp steer' expects CPUs from 0 to %d such as 2-7 or 0,4-6, 'auto' "
			"or 'off' instead of '" STR_FMT "'",
			HG_STEER_MAX - 1, STR_ARG(str_sub(w, 0, 64)));
	s->is_set = true;
	s->mode = CONF_STEER_CPUS;
	return 0;
}

static const char *const sk_modes[] = {
	[HG_SK_OFF] = "off", [HG_SK_CPU] = "cpu", [HG_SK_LEAST] = "least"
};

const char *conf_sk_steer_name(enum hg_sk_mode mode)
{
	return sk_modes[mode];
}

int parse_sk_steer(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct conf_sk_steer *s = &((struct conf_global *)obj)->sk_steer;
	struct str w;
	int r;

	if (s->is_set)
		return conf_fail(ps, l, l->at - 1, "'sk-steer' is set twice");
	r = line_want(ps, l, "'cpu', 'least' or 'off'", &w);
	if (r)
		return r;
	s->mode = 0;
	while (s->mode < ARRAY_SIZE(sk_modes) && !str_is_eq(w, str_from_cstr(sk_modes[s->mode])))
		s->mode++;
	if (s->mode == ARRAY_SIZE(sk_modes))
		return conf_fail(ps, l, l->at - 1,
				 "'sk-steer' expects 'cpu', 'least' or 'off' instead of '" STR_FMT
				 "'",
				 STR_ARG(str_sub(w, 0, 64)));
	s->is_set = true;
	s->pos = l->pos;
	return 0;
}

static void dump_cpus(FILE *f, const struct conf_xdp_steer *s)
{
	bool is_first = true;

	if (s->mode == CONF_STEER_OFF)
		return;
	fputs("  xdp steer ", f);
	if (s->mode == CONF_STEER_AUTO)
		fputs("auto", f);
	for (unsigned cpu = 0; s->mode == CONF_STEER_CPUS && cpu < HG_STEER_MAX; cpu++) {
		if (!(s->cpus[cpu / 64] >> cpu % 64 & 1))
			continue;
		fprintf(f, "%s%u", is_first ? "" : ",", cpu);
		is_first = false;
	}
	putc('\n', f);
}

void dump_steer(FILE *f, const struct conf_global *g)
{
	dump_cpus(f, &g->xdp_steer);
	if (g->sk_steer.mode != HG_SK_OFF)
		fprintf(f, "  sk-steer %s\n", sk_modes[g->sk_steer.mode]);
}
