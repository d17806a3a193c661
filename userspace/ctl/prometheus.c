/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The metrics exporter: HAProxy's names and labels, text format 0.0.4. Every metric has a text of its
 * own while the rows are walked once; at the end the texts are joined, not copied. The formatting is by
 * hand: ten thousand servers are a million lines.
 */
#include "ctl/prometheus.h"

#include <errno.h>

static const struct str scope_names[PROM_SCOPES] = {
	[PROM_GLOBAL] = STR("global"),	   [PROM_FRONTEND] = STR("frontend"),
	[PROM_LISTENER] = STR("listener"), [PROM_BACKEND] = STR("backend"),
	[PROM_SERVER] = STR("server"),	   [PROM_STICKTABLE] = STR("sticktable"),
	[PROM_RESOLVER] = STR("resolver"), [PROM_XDP] = STR("xdp"),
};
#define ALL_SCOPES ((1u << PROM_SCOPES) - 1)

/* --- query ----------------------------------------------------------------------------------------- */

static int query_scope(struct prom_query *q, struct str value)
{
	if (!value.p)
		return -EINVAL;
	if (!value.len) {
		q->scopes = 0;
		return 0;
	}
	if (str_is_eq(value, STR("*"))) {
		q->scopes = ALL_SCOPES;
		return 0;
	}
	for (unsigned i = 0; i < PROM_SCOPES; i++) {
		if (str_is_eq(value, scope_names[i])) {
			q->scopes |= 1u << i;
			return 0;
		}
	}
	return -EINVAL;
}

int prom_parse_query(struct str path, struct arena *arena, struct prom_query *ret)
{
	size_t at = str_find_char(path, '?');
	struct str query = at == SIZE_MAX ? STR_NULL : str_from(path, at + 1);
	bool has_scope = false;
	struct web_param p;

	*ret = (struct prom_query){ 0 };
	while (web_param_next(&query, arena, &p)) {
		if (str_is_eq(p.name, STR("scope"))) {
			has_scope = true;
			if (query_scope(ret, p.value))
				return -EINVAL;
		} else if (str_is_eq(p.name, STR("metrics"))) {
			ret->metrics = p.value;
		} else if (str_is_eq(p.name, STR("no-maint"))) {
			ret->no_maint = true;
		} else if (str_is_eq(p.name, STR("desc-labels"))) {
			ret->desc_labels = true;
		}
	}
	if (!has_scope)
		ret->scopes = ALL_SCOPES;
	return p.name.p ? 0 : -ENOMEM;
}

bool prom_is_wanted(const struct prom_query *q, struct str name, struct str short_name)
{
	struct str rest = q->metrics;
	bool has_includes = false, is_included = false;

	while (rest.p) {
		struct str item = str_trim(str_cut(&rest, ','));
		bool is_not = item.len && item.p[0] == '-';

		if (is_not)
			item = str_from(item, 1);
		if (!item.len)
			continue;
		has_includes |= !is_not;
		if (!str_is_eq(item, name) && !str_is_eq(item, short_name))
			continue;
		if (is_not)
			return false;
		is_included = true;
	}
	return is_included || !has_includes;
}

/* --- writing --------------------------------------------------------------------------------------- */

void prom_metric_init(struct prom_metric *m, const struct prom_query *q, const char *prefix,
		      const char *name, const char *help, enum prom_type type)
{
	int n = snprintf(m->name, sizeof(m->name), "%s%s", prefix, name);

	BUG_ON(n < 0 || (size_t)n >= sizeof(m->name) - 1);
	m->text = (struct service_text){ 0 };
	m->name_len = (size_t)n;
	m->name[n] = '{';
	m->name[n + 1] = '\0';
	m->help = help;
	m->type = (uint8_t)type;
	m->is_wanted = prom_is_wanted(q, str_make(m->name, m->name_len), str_from_cstr(name));
}

static void metric_head(struct prom_metric *m)
{
	static const char *const types[] = { "gauge", "counter", "summary", "histogram" };
	int len = (int)m->name_len;

	out_fmt(&m->text, "# HELP %.*s %s\n# TYPE %.*s %s\n", len, m->name, m->help, len, m->name,
		types[m->type]);
}

static inline char *put(char *p, struct str s)
{
	if (s.len)
		memcpy(p, s.p, s.len);
	return p + s.len;
}

#define VALUE_MAX 32 /* what a number takes, and more than the marks around it */

/* Name and labels; the value and a line feed are to follow. NULL: not wanted, or no memory. */
static inline char *line_begin(struct prom_metric *m, struct str suffix, struct str labels,
			       struct str more, char **ret_start)
{
	char *p;

	if (!m->is_wanted)
		return NULL;
	if (unlikely(!m->text.first))
		metric_head(m);
	p = service_text_reserve(&m->text,
				 m->name_len + suffix.len + labels.len + more.len + VALUE_MAX + 8);
	if (!p)
		return NULL;
	*ret_start = p;
	if (likely(labels.len && !suffix.len)) {
		p = put(p, str_make(m->name, m->name_len + 1));
		p = put(p, labels);
		p = put(p, more);
		*p++ = '}';
		*p++ = ' ';
		return p;
	}
	p = put(p, str_make(m->name, m->name_len));
	p = put(p, suffix);
	if (!labels.len && more.len)
		more = str_from(more, 1);
	if (labels.len || more.len) {
		*p++ = '{';
		p = put(p, labels);
		p = put(p, more);
		*p++ = '}';
	}
	*p++ = ' ';
	return p;
}

static inline void line_end(struct prom_metric *m, char *start, char *p)
{
	*p++ = '\n';
	service_text_commit(&m->text, (size_t)(p - start));
}

static void metric_line(struct prom_metric *m, struct str suffix, struct str labels,
			struct str more, struct str value)
{
	char *start, *p = line_begin(m, suffix, labels, more, &start);

	BUG_ON(value.len > VALUE_MAX);
	if (p)
		line_end(m, start, put(p, value));
}

void prom_put_value(struct prom_metric *m, struct str labels, struct str more, struct str value)
{
	metric_line(m, STR_NULL, labels, more, value);
}

void prom_put_u64(struct prom_metric *m, struct str labels, struct str more, uint64_t v)
{
	char *start, *p = line_begin(m, STR_NULL, labels, more, &start);

	if (p)
		line_end(m, start, p + out_digits(p, v));
}

struct str prom_ms(char out[28], uint64_t ms)
{
	size_t n = out_digits(out, ms / 1000);

	ms %= 1000;
	out[n++] = '.';
	out[n++] = (char)('0' + ms / 100);
	out[n++] = (char)('0' + ms / 10 % 10);
	out[n++] = (char)('0' + ms % 10);
	return str_make(out, n);
}

void prom_put_summary(struct prom_metric *m, struct str labels, uint64_t sum_ms, uint64_t count)
{
	char text[28];

	metric_line(m, STR("_sum"), labels, STR_NULL, prom_ms(text, sum_ms));
	metric_line(m, STR("_count"), labels, STR_NULL, str_make(text, out_digits(text, count)));
}

/* `n` with `digits` behind the point. */
static struct str fraction(char *out, uint64_t n, unsigned digits)
{
	uint64_t unit = 1;
	size_t at;

	for (unsigned i = 0; i < digits; i++)
		unit *= 10;
	at = out_digits(out, n / unit);
	out[at++] = '.';
	for (n %= unit; unit > 1; n %= unit) {
		unit /= 10;
		out[at++] = (char)('0' + n / unit);
	}
	return str_make(out, at);
}

/* ,le="0.25": the bounds in seconds, without zeros at the end. */
static struct str bucket_label(char out[VALUE_MAX], unsigned bucket)
{
	size_t n = 5;
	struct str s;

	if (bucket == LB_TIME_BUCKETS - 1)
		return STR(",le=\"+Inf\"");
	memcpy(out, ",le=\"", 5);
	s = fraction(out + n, lb_time_bounds_us[bucket], 6);
	while (s.p[s.len - 1] == '0')
		s.len--;
	if (s.p[s.len - 1] == '.')
		s.len--;
	n += s.len;
	out[n++] = '"';
	return str_make(out, n);
}

/* The counts of Prometheus are cumulative. */
void prom_put_histogram(struct prom_metric *m, struct str labels, const struct lb_histogram *h)
{
	char text[VALUE_MAX], digits[VALUE_MAX];
	uint64_t n = 0;

	for (unsigned i = 0; i < LB_TIME_BUCKETS; i++) {
		n += h->n[i];
		metric_line(m, STR("_bucket"), labels, bucket_label(text, i),
			    str_make(digits, out_digits(digits, n)));
	}
	metric_line(m, STR("_sum"), labels, STR_NULL, fraction(text, h->sum_us, 6));
	metric_line(m, STR("_count"), labels, STR_NULL, str_make(digits, out_digits(digits, n)));
}

bool prom_label(struct buf *labels, const char *name, struct str value)
{
	struct str n = str_from_cstr(name);
	char *p;

	if (buf_room(labels) < n.len + value.len * 2 + 4)
		return false;
	p = buf_tail(labels);
	if (buf_len(labels))
		*p++ = ',';
	p = put(p, n);
	*p++ = '=';
	*p++ = '"';
	for (size_t i = 0; i < value.len; i++) {
		char c = value.p[i];

		if (c == '\\' || c == '"' || c == '\n')
			*p++ = '\\';
		*p++ = c == '\n' ? 'n' : c;
	}
	*p++ = '"';
	buf_commit(labels, (uint32_t)(p - buf_tail(labels)));
	return true;
}

/* --- the answer ------------------------------------------------------------------------------------ */

void prom_answer(struct ctl *ctl, struct service_call *c)
{
	struct prom_query q;
	int rc;

	if (c->method != HTTP_METHOD_GET && c->method != HTTP_METHOD_HEAD) {
		web_say(c, 405, "Only GET and HEAD.");
		service_add_field(c, "allow", STR("GET, HEAD"));
		return;
	}
	rc = prom_parse_query(c->path, &c->arena, &q);
	if (rc != 0) {
		web_say(c, rc == -EINVAL ? 400 : 503,
			rc == -EINVAL ? "Unknown scope." : "Out of memory.");
		return;
	}
	c->status = 200;
	service_add_field(c, "content-type", STR("text/plain; version=0.0.4"));
	service_add_field(c, "cache-control", STR("no-cache"));
	if (q.scopes & 1u << PROM_GLOBAL)
		prom_global(ctl, &q, &c->body);
	prom_rows(ctl, &q, &c->body);
	if (q.scopes & 1u << PROM_RESOLVER)
		prom_dns(ctl, &q, &c->body);
	prom_own(ctl, &q, &c->body);
}
