/* SPDX-License-Identifier: BSD-2-Clause */
/* `log` lines: in `global`, in defaults and in proxies. Names of log servers are resolved while loading. */
#include <errno.h>
#include <netdb.h>

#include "conf/conf_priv.h"

const struct keyword_value conf_log_formats[] = { VALUE("local", LOG_FMT_LOCAL),
						  VALUE("rfc3164", LOG_FMT_RFC3164),
						  VALUE("rfc5424", LOG_FMT_RFC5424),
						  VALUE("priority", LOG_FMT_PRIORITY),
						  VALUE("short", LOG_FMT_SHORT),
						  VALUE("timed", LOG_FMT_TIMED),
						  VALUE("iso", LOG_FMT_ISO),
						  VALUE("raw", LOG_FMT_RAW),
						  VALUES_END };

static int resolve_name(struct parser *ps, struct line *l, const struct endpoint *ep, int socktype,
			struct addr *ret)
{
	const struct addrinfo hints = { .ai_family = ep->family, .ai_socktype = socktype };
	char name[256];
	struct addrinfo *res = NULL;
	int r;

	memcpy(name, ep->host.p, ep->host.len); /* at most 253, says endpoint_parse() */
	name[ep->host.len] = '\0';
	r = getaddrinfo(name, NULL, &hints, &res);
	if (r)
		return conf_fail(ps, l, l->at - 1, "cannot resolve log server '%s': %s", name,
				 gai_strerror(r));
	memset(ret, 0, sizeof(*ret));
	memcpy(ret, res->ai_addr, res->ai_addrlen < sizeof(*ret) ? res->ai_addrlen : sizeof(*ret));
	freeaddrinfo(res);
	return 0;
}

int log_server_addr(struct parser *ps, struct line *l, const struct endpoint *ep, int socktype,
		    struct addr *ret)
{
	int r = 0;

	if (ep->kind == ENDPOINT_NAME)
		r = resolve_name(ps, l, ep, socktype, ret);
	else if (ep->kind == ENDPOINT_IP)
		*ret = ep->addr;
	else
		r = conf_fail(ps, l, l->at - 1, "a log server has an IP address or a name");
	if (r == 0)
		addr_set_port(ret, ep->port);
	return r;
}

static int set_endpoint(struct parser *ps, struct line *l, const struct endpoint *ep,
			struct log_target *t)
{
	int r = 0;

	switch (ep->kind) {
	case ENDPOINT_FD:
		t->transport = LOG_TO_FD;
		t->fd = ep->fd;
		return 0;
	case ENDPOINT_UNIX:
	case ENDPOINT_ABNS:
		t->transport = LOG_TO_UNIX;
		t->un.sun_family = AF_UNIX;
		memcpy(t->un.sun_path + (ep->kind == ENDPOINT_ABNS), ep->path.p, ep->path.len);
		return 0;
	case ENDPOINT_NAME:
	case ENDPOINT_IP:
		r = log_server_addr(ps, l, ep, SOCK_DGRAM, &t->udp);
		break;
	}
	if (ep->port_offset_sign || ep->port != ep->port_last)
		return conf_fail(ps, l, l->at - 1, "'log' expects one port");
	t->transport = LOG_TO_UDP;
	addr_set_port(&t->udp, ep->port ? ep->port : 514);
	return r;
}

static int parse_target(struct parser *ps, struct line *l, struct log_target *t)
{
	struct str w = line_peek(l);
	struct endpoint ep;
	int r;

	if (line_accept(l, "stdout") || line_accept(l, "stderr")) {
		t->transport = LOG_TO_FD;
		t->fd = str_is_eq(w, STR("stdout")) ? 1 : 2;
		return 0;
	}
	if (str_is_prefix(w, STR("ring@")))
		return parse_log_ring(ps, l, t);
	if (str_is_prefix(w, STR("backend@")))
		return conf_fail(ps, l, l->at,
				 "log target 'backend@' is known by HAProxy but not supported by "
				 "Headgate");
	r = arg_endpoint(ps, l, &ep);
	return r ? r : set_endpoint(ps, l, &ep, t);
}

/* "3", "2-4" */
static bool parse_range(struct str text, struct log_range *ret)
{
	uint64_t lo, hi;

	if (str_to_u64(str_cut(&text, '-'), &lo))
		return false;
	hi = lo;
	if (text.p && str_to_u64(text, &hi))
		return false;
	if (!lo || hi < lo || hi > UINT16_MAX)
		return false;
	*ret = (struct log_range){ (uint16_t)lo, (uint16_t)hi };
	return true;
}

/* "lo-hi,n,…:of": which of every `of` lines are sent. */
static int parse_sample(struct parser *ps, struct line *l, struct log_target *t)
{
	static const char what[] = "ranges such as 1:10 or 1,3-4:10";
	struct str w, ranges;
	uint64_t of = 0;
	int r = line_want(ps, l, what, &w);

	if (r)
		return r;
	ranges = str_cut(&w, ':');
	if (!w.p || str_to_u64(w, &of) || of > UINT16_MAX)
		of = 0;
	for (t->n_samples = 0; of && ranges.p; t->n_samples++) {
		struct log_range *n = &t->samples[t->n_samples];

		if (t->n_samples == LOG_SAMPLE_RANGES)
			return conf_fail(ps, l, l->at - 1, "'sample' takes at most %d ranges",
					 LOG_SAMPLE_RANGES);
		if (!parse_range(str_cut(&ranges, ','), n) || n->hi > of)
			of = 0;
		for (unsigned i = 0; i < t->n_samples; i++)
			if (n->lo <= t->samples[i].hi && n->hi >= t->samples[i].lo)
				return conf_fail(ps, l, l->at - 1,
						 "the ranges of 'sample' must not overlap");
	}
	if (!of)
		return conf_fail(ps, l, l->at - 1, "'sample' expects %s", what);
	t->sample_of = (uint16_t)of;
	return 0;
}

static int parse_options(struct parser *ps, struct line *l, struct log_target *t)
{
	uint64_t len;
	uint8_t v;
	int r = 0;

	while (r == 0) {
		if (line_accept(l, "len")) {
			r = arg_u64(ps, l, 80, 65535, &len);
			/* The newline is not counted; it is in the 1,024 that hold without `len`. */
			if (r == 0)
				t->max_len = (uint16_t)(len < UINT16_MAX ? len + 1 : len);
		} else if (line_accept(l, "format")) {
			r = arg_value(ps, l, conf_log_formats, &v);
			if (r == 0)
				t->format = v;
		} else if (line_accept(l, "sample")) {
			r = parse_sample(ps, l, t);
		} else {
			return 0;
		}
	}
	return r;
}

static int parse_level(struct parser *ps, struct line *l, uint8_t *ret)
{
	int level;

	if (!line_has(l))
		return 0;
	level = log_level_from_name(line_peek(l));
	if (level < 0)
		return conf_fail(
			ps, l, l->at,
			"'log' expects a level (emerg, alert, crit, err, warning, notice, info, "
			"debug) instead of '" STR_FMT "'",
			(int)(line_peek(l).len > 64 ? 64 : line_peek(l).len), line_peek(l).p);
	l->at++;
	*ret = (uint8_t)level;
	return 0;
}

static int append(struct parser *ps, struct conf_logs *logs, const struct log_target *t)
{
	struct log_target *more = arena_alloc(&ps->conf->arena, (logs->n + 1) * sizeof(*more));

	if (!more)
		return -ENOMEM;
	if (logs->n)
		memcpy(more, logs->targets, logs->n * sizeof(*more));
	more[logs->n] = *t;
	logs->targets = more; /* defaults may still point to the shorter list */
	logs->n++;
	return 0;
}

int parse_log_line(struct parser *ps, struct line *l, struct conf_logs *logs)
{
	struct log_target t = { .format = LOG_FMT_DEFAULT,
				.max_level = LOG_LVL_DEBUG,
				.min_level = LOG_LVL_EMERG,
				.max_len = 1024 };
	struct str facility;
	int r = parse_target(ps, l, &t), f;

	if (r == 0)
		r = parse_options(ps, l, &t);
	if (r == 0)
		r = line_want(ps, l, "a facility such as local0 or daemon", &facility);
	if (r)
		return r;
	f = log_facility_from_name(facility);
	if (f < 0)
		return conf_fail(ps, l, l->at - 1,
				 "'log' expects 'len', 'format', 'sample' or a facility (kern, "
				 "user, daemon, "
				 "local0 … local7, …) instead of '" STR_FMT "'",
				 (int)(facility.len > 64 ? 64 : facility.len), facility.p);
	t.facility = (uint8_t)f;
	r = parse_level(ps, l, &t.max_level);
	if (r == 0)
		r = parse_level(ps, l, &t.min_level);
	return r ? r : append(ps, logs, &t);
}

static int parse_log(struct parser *ps, struct line *l, void *obj, const struct keyword *kw)
{
	struct proxy_build *b = ps->px;
	struct conf_logs *logs = b ? &b->px.logs : &ps->conf->global.logs;

	if (l->is_negated) {
		*logs = (struct conf_logs){ 0 };
		if (b)
			b->has_log_global = false;
		return 0;
	}
	if (b && l->n == 2 && line_accept(l, "global")) {
		b->has_log_global = true;
		return 0;
	}
	return parse_log_line(ps, l, logs);
}

static const struct keyword rows[] = {
	{ NAME("log"), SEC_GLOBAL | SEC_DFLB, ARG_FUNC, KW_NO, .parse = parse_log, .grade = '1',
	  .args = "global | <address|stdout|stderr|ring@name> [len <n>] [format <f>] [sample "
		  "<r>:<n>] "
		  "<facility> "
		  "[<max level> [<min level>]]",
	  .help = "where log lines go" },
};
const struct keyword_table conf_kw_log = KEYWORDS("keyword", rows);
