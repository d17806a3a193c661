/* SPDX-License-Identifier: BSD-2-Clause */
/* `show guard`, `set guard`: limits that the datapath enforces, changed until the next reload. */
#include <errno.h>
#include <string.h>

#include "ctl/cmd_rows.h"
#include "dp/dp.h"

static const char *const limit_names[] = {
#define X(id, text, help) [HG_LIMIT_##id] = text,
	HG_LIMITS(X)
#undef X
};

static struct dp *guarded(struct cmd *c)
{
	if (c->ctl->dp && dp_has_kernel_tier(c->ctl->dp))
		return c->ctl->dp;
	cmd_say(c, "No 'xdp interface': nothing is guarded.");
	return NULL;
}

/* --- show ------------------------------------------------------------------------------------------------ */

static void show_rate(struct cmd *c, const char *of, const char *what,
		      const struct conf_xdp_limit *l)
{
	if (l->rate)
		fprintf(c->out, "%s %s %u/s burst %llu\n", of, what, l->rate,
			(unsigned long long)l->burst);
}

static int on_service(void *ctx, const struct dp_service_info *i)
{
	struct cmd *c = ctx;

	show_rate(c, i->name, "syn-rate", &i->syn_rate);
	if (i->mode == HG_MODE_LOCAL && i->maxconn)
		fprintf(c->out, "%s max-conn %u now %u\n", i->name, i->maxconn, i->conns);
	if (i->has_allow)
		fprintf(c->out, "%s allow %u prefixes\n", i->name, i->n_allow);
	return 0;
}

int cmd_show_guard(struct cmd *c)
{
	struct dp *dp = guarded(c);
	struct dp_guard_info g;

	if (!dp)
		return 0;
	dp_guard_show(dp, &g);
	for (unsigned i = 0; i < HG_LIMIT_COUNT; i++)
		show_rate(c, "source", limit_names[i], &g.limits[i]);
	if (g.max_conn)
		fprintf(c->out, "source max-conn %u\n", g.max_conn);
	(void)dp_each_service(dp, on_service, c);
	return 0;
}

/* --- set ------------------------------------------------------------------------------------------------- */

/* "50k/s", "50k/s burst 60k" or "off", from word `at` on. */
static bool read_rate(struct cmd *c, unsigned at, struct conf_xdp_limit *ret)
{
	const char *rate = cmd_arg(c, at), *word = cmd_arg(c, at + 1), *burst = cmd_arg(c, at + 2);

	*ret = (struct conf_xdp_limit){ 0 };
	if (rate && strcmp(rate, "off") == 0 && !word)
		return true;
	if (rate && (!word || (strcmp(word, "burst") == 0 && burst)) &&
	    conf_limit_parse(str_from_cstr(rate), word ? str_from_cstr(burst) : (struct str){ 0 },
			     ret) == 0)
		return true;
	cmd_say(c, "A rate such as 200/s, 50k/s burst 100k, or 'off' is expected.");
	return false;
}

static bool read_count(struct cmd *c, unsigned at, uint32_t *ret)
{
	const char *word = cmd_arg(c, at);
	uint64_t n = 0;

	if (!word || (strcmp(word, "off") != 0 &&
		      (str_to_u64(str_from_cstr(word), &n) != 0 || n > HG_LIVE_COUNT_MAX))) {
		cmd_say(c, "A number of connections, or 'off' is expected.");
		return false;
	}
	*ret = (uint32_t)n;
	return true;
}

static void set_source(struct cmd *c, struct dp *dp, const char *what)
{
	struct conf_xdp_limit limit;
	struct err err;
	uint32_t n;

	for (unsigned i = 0; i < HG_LIMIT_COUNT; i++) {
		if (strcmp(what, limit_names[i]) != 0)
			continue;
		if (read_rate(c, 2, &limit))
			dp_guard_source_rate(dp, i, &limit);
		return;
	}
	if (strcmp(what, "max-conn") != 0)
		return cmd_say(
			c, "'set guard source' expects 'packet-rate', 'syn-rate' or 'max-conn'.");
	if (read_count(c, 2, &n) && dp_guard_source_conns(dp, n, &err) != 0)
		cmd_say(c, "%s", err.text);
}

static void set_section(struct cmd *c, struct dp *dp, const char *name, const char *what)
{
	bool is_rate = strcmp(what, "syn-rate") == 0;
	struct conf_xdp_limit limit;
	struct err err;
	uint32_t n;

	if (!is_rate && strcmp(what, "max-conn") != 0)
		return cmd_say(c, "'set guard <section>' expects 'syn-rate' or 'max-conn'.");
	if (is_rate ? !read_rate(c, 2, &limit) : !read_count(c, 2, &n))
		return;
	if (dp_guard_section(dp, name, is_rate ? &limit : NULL, is_rate ? NULL : &n, &err) != 0)
		cmd_say(c, "%s", err.text);
}

int cmd_set_guard(struct cmd *c)
{
	const char *of = cmd_arg(c, 0), *what = cmd_arg(c, 1);
	struct dp *dp = guarded(c);

	if (!dp)
		return 0;
	if (!of || !what)
		cmd_say(c, "'set guard' expects 'source' or a section, a limit and its value.");
	else if (strcmp(of, "source") == 0)
		set_source(c, dp, what);
	else
		set_section(c, dp, of, what);
	return 0;
}
