/* SPDX-License-Identifier: BSD-2-Clause */
/* links: ctl proxy lb net conf expr http ev base */
/*
 * Answers of the control thread to requests from workers: metrics, statistics page, its actions. The
 * kernel tier, health checks and workers are doubles.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ctl/cmd.h"
#include "ctl/metrics.h"
#include "ctl/page.h"
#include "ctl/prometheus.h"
#include "ctl/web.h"

/* --- doubles ----------------------------------------------------------------------------------------- */

static struct ctl ctl;
static unsigned n_changed, n_shut, n_answered;
static bool has_dp;

const char *cmd_arg(const struct cmd *c, unsigned i)
{
	return NULL;
}
void cmd_say(struct cmd *c, const char *fmt, ...)
{
}
void cmd_tell(struct cmd *c, const char *fmt, ...)
{
}
void cmd_data(struct cmd *c, const char *fmt, ...)
{
}
void ctl_server_changed(struct ctl *c, struct server *s)
{
	n_changed++;
}
void health_admin_changed(struct health *h, struct server *s)
{
}
void health_set_enabled(struct health *h, struct server *s, bool on)
{
	s->check.is_enabled = on;
}
void health_agent_set_enabled(struct health *h, struct server *s, bool on)
{
	s->agent.is_enabled = on;
}
void health_agent_force(struct health *h, struct server *s, bool up)
{
	server_set_op(&ctl.registry, s, up ? SERVER_RUNNING : SERVER_STOPPED);
}
void health_force(struct health *h, struct server *s, bool up)
{
	server_set_op(&ctl.registry, s, up ? SERVER_RUNNING : SERVER_STOPPED);
}
void health_force_stopping(struct health *h, struct server *s)
{
	server_set_op(&ctl.registry, s, SERVER_STOPPING);
}
void worker_shutdown_server(struct worker *w, struct server *s, char code)
{
	n_shut++;
}
void *worker_owner(const struct worker *w)
{
	return &ctl;
}
const struct loop_stats *worker_loop_stats(const struct worker *w)
{
	static const struct loop_stats none;

	return &none;
}
void service_answer(struct service_call *c)
{
	n_answered++;
}
bool dp_has_kernel_tier(const struct dp *dp)
{
	return has_dp;
}
int dp_each_service(struct dp *dp, int (*fn)(void *ctx, const struct dp_service_info *i), void *ctx)
{
	struct dp_service_info i = { .name = "d\"n\\s",
				     .key = { .addr = { 0, 0, htonl(0xffff), htonl(0xc0000201) },
					      .port = htons(53),
					      .proto = IPPROTO_UDP },
				     .mode = HG_MODE_IPIP,
				     .sum = { .packets = 7, .dropped = 2 } };

	return fn(ctx, &i);
}
int dp_each_backend(struct dp *dp, int (*fn)(void *ctx, const struct dp_backend_info *i), void *ctx)
{
	struct dp_backend_info i = { .service_name = "dns",
				     .server_name = "r1",
				     .flags = HG_BE_ALIVE,
				     .ifname = "eth0",
				     .sum = { .packets = 5 } };

	i.addr.in.sin_family = AF_INET;
	i.addr.in.sin_addr.s_addr = htonl(0x0a000001);
	return fn(ctx, &i);
}
void dp_verdicts(struct dp *dp, struct hg_verdict_counters *ret_sum)
{
	*ret_sum = (struct hg_verdict_counters){ 0 };
	ret_sum->verdict[HG_VERDICT_TX] = 5;
	ret_sum->drop[HG_DROP_NO_BACKEND] = 2;
}
const char *dp_drop_name(unsigned drop)
{
	return drop == HG_DROP_NO_BACKEND ? "NO_BACKEND" : "other";
}
const char *dp_drop_help(unsigned drop)
{
	return "<why>";
}
const char *dp_verdict_name(unsigned verdict)
{
	return verdict == HG_VERDICT_TX ? "TX" : "other";
}

/* --- a control thread without threads -------------------------------------------------------------------- */

#define IDS 64

static struct proxy_snapshot snap;
static struct hg_worker_counters workers[2];
static struct worker *threads[2];
static struct ctl_options opts;
static void *areas[2];

static void report(void *ctx, enum conf_severity sev, const struct conf_pos *pos, const char *text)
{
	if (sev == CONF_ERROR)
		fprintf(stderr, "%u: %s\n", pos ? pos->line : 0, text);
}

static void quiesced(struct lb_registry *r, void (*call)(void *arg), void *arg)
{
	call(arg);
}

static const char config[] =
	"defaults\n mode http\n timeout client 1s\n timeout server 1s\n"
	" timeout connect 1s\n"
	"frontend web\n bind 127.0.0.1:1\n description front <door>\n"
	" default_backend app\n"
	"backend app\n server s1 127.0.0.1:2 check weight 10\n"
	" server s2 127.0.0.1:3 disabled\n server s3 127.0.0.1:4 backup maxconn 9\n"
	"backend raw\n mode tcp\n server t1 127.0.0.1:5\n";

static void wake(struct lb_waker *wk, unsigned to_worker, struct server *s)
{
}
static struct lb_waker waker = { .wake = wake };

static int setup(void **state)
{
	struct conf_source src = { .report = report };
	struct err err = { "" };

	memset(&ctl, 0, sizeof(ctl));
	memset(&snap, 0, sizeof(snap));
	memset(workers, 0, sizeof(workers));
	n_changed = n_shut = n_answered = 0;
	has_dp = false;
	arena_init(&snap.arena, 4096);
	if (conf_load_text(str_from_cstr(config), "test", &src, &snap.conf))
		return -1;
	for (unsigned i = 0; i < 2; i++) {
		size_t size = IDS * 2 * sizeof(struct hg_l7_counters);

		areas[i] = aligned_alloc(64, size);
		memset(areas[i], 0, size);
		stats_area_init(i ? &ctl.backends_area : &ctl.services_area, areas[i], IDS, 2);
	}
	lb_registry_init(&ctl.registry, 2, &ctl.services_area, &ctl.backends_area);
	ctl.registry.after_quiescence = quiesced;
	lb_set_waker(&ctl.registry, &waker);
	if (lb_registry_prepare(&ctl.registry, snap.conf, &snap.arena, &snap.backends, &err))
		return -1;
	lb_registry_commit(&ctl.registry, snap.conf, snap.backends);
	ctl.current = &snap;
	ctl.opts = &opts;
	ctl.n_workers = 2;
	ctl.worker_counters = workers;
	ctl.workers = threads;
	ctl.phase = CTL_RUNNING;
	if (loop_create(&ctl.loop) || metrics_create(&ctl, &ctl.metrics) ||
	    web_create(&ctl, &ctl.web))
		return -1;
	return 0;
}

static int teardown(void **state)
{
	mem_fail_at(0);
	web_stop(ctl.web);
	web_destroy(ctl.web);
	metrics_destroy(ctl.metrics);
	lb_registry_release(&ctl.registry, snap.backends, snap.conf->n_proxies);
	lb_registry_fini(&ctl.registry);
	loop_destroy(ctl.loop);
	conf_free(snap.conf);
	arena_free(&snap.arena);
	free(areas[0]);
	free(areas[1]);
	return 0;
}

static struct server *srv(const char *be, const char *name)
{
	return lb_find_server(&ctl.registry, str_from_cstr(be), str_from_cstr(name));
}

static void call_init(struct service_call *c, enum service_kind kind, const char *path)
{
	*c = (struct service_call){ .kind = (uint8_t)kind,
				    .method = HTTP_METHOD_GET,
				    .path = str_from_cstr(path),
				    .uri = STR("/stats") };
	list_init(&c->link);
	arena_init(&c->arena, 1024);
}

static void call_fini(struct service_call *c)
{
	service_text_free(&c->body);
	arena_free(&c->arena);
}

/* The body as one string, to be freed. */
static char *body_of(struct service_call *c)
{
	char *all = malloc(c->body.len + 1), *p = all;

	for (struct service_chunk *k = c->body.first; k; k = k->next) {
		memcpy(p, k->data, k->len);
		p += k->len;
	}
	assert_int_equal(p - all, c->body.len);
	*p = '\0';
	return all;
}

static char *get(enum service_kind kind, const char *path, unsigned want_status)
{
	struct service_call c;
	char *body;

	call_init(&c, kind, path);
	(kind == SERVICE_PROMETHEUS ? prom_answer : page_answer)(&ctl, &c);
	assert_int_equal(c.status, want_status);
	assert_false(c.body.is_failed);
	body = body_of(&c);
	call_fini(&c);
	return body;
}

#define assert_has(body, text)                                        \
	do {                                                          \
		if (!strstr(body, text))                              \
			fail_msg("missing: %s\nin:\n%s", text, body); \
	} while (0)
#define assert_lacks(body, text)                          \
	do {                                              \
		if (strstr(body, text))                   \
			fail_msg("not wanted: %s", text); \
	} while (0)

static unsigned count(const char *body, const char *text)
{
	unsigned n = 0;

	for (; (body = strstr(body, text)); body += strlen(text))
		n++;
	return n;
}

/* --- metrics ----------------------------------------------------------------------------------------------- */

static void test_metrics(void **state)
{
	struct server *s = srv("app", "s1");
	char *b;

	s->stats.rows[0].sessions = 3;
	s->stats.rows[1].sessions = 4;
	s->stats.rows[0].requests = 5;
	s->stats.rows[0].hrsp_2xx = 5;
	s->stats.rows[0].rtime_ms = 1234;
	s->stats.rows[1].max_rtime_ms = 42;
	workers[1].connections = 9;
	b = get(SERVICE_PROMETHEUS, "/metrics", 200);
	assert_has(b, "haproxy_process_nbthread 2\n");
	assert_has(b, "haproxy_process_build_info{version=\"");
	assert_has(b, "# TYPE haproxy_server_sessions_total counter\n");
	assert_has(b, "haproxy_server_sessions_total{proxy=\"app\",server=\"s1\"} 7\n");
	assert_has(b, "haproxy_server_http_responses_total{proxy=\"app\",server=\"s1\","
		      "code=\"2xx\"} 5\n");
	assert_has(b, "haproxy_server_max_response_time_seconds{proxy=\"app\",server=\"s1\"} "
		      "0.042\n");
	assert_has(b, "haproxy_server_status{proxy=\"app\",server=\"s2\",state=\"MAINT\"} 1\n");
	assert_has(b, "haproxy_server_status{proxy=\"app\",server=\"s2\",state=\"UP\"} 0\n");
	assert_has(b, "haproxy_server_limit_sessions{proxy=\"app\",server=\"s3\"} 9\n");
	assert_has(b, "haproxy_server_limit_sessions{proxy=\"app\",server=\"s1\"} NaN\n");
	assert_has(b, "haproxy_server_last_session_seconds{proxy=\"app\",server=\"s1\"} -1\n");
	assert_has(b, "haproxy_backend_agg_server_status{proxy=\"app\",state=\"MAINT\"} 1\n");
	assert_has(b, "haproxy_backend_agg_server_status{proxy=\"app\",state=\"UP\"} 2\n");
	assert_has(b, "haproxy_backend_agg_server_status{proxy=\"raw\",state=\"UP\"} 1\n");
	assert_has(b, "haproxy_frontend_status{proxy=\"web\",state=\"UP\"} 1\n");
	assert_has(b, "# TYPE headgate_server_response_time_seconds summary\n");
	assert_has(b, "headgate_server_response_time_seconds_sum{proxy=\"app\",server=\"s1\"} "
		      "1.234\n");
	assert_has(b, "headgate_server_response_time_seconds_count{proxy=\"app\",server=\"s1\"} "
		      "5\n");
	assert_has(b, "headgate_worker_connections_total{worker=\"1\"} 9\n");
	/* No check, no HTTP: no series. */
	assert_lacks(b, "haproxy_server_check_status{proxy=\"app\",server=\"s3\"");
	assert_lacks(b, "haproxy_server_http_responses_total{proxy=\"raw\"");
	assert_lacks(b, "headgate_xdp_");
	free(b);
}

/* Each metric has one head, in front of all of its series. */
static void test_metrics_form(void **state)
{
	char *b = get(SERVICE_PROMETHEUS, "/metrics", 200), *line = b, *end, current[128] = "";

	for (; *line; line = end + 1) {
		size_t len = strcspn(line, "{ ");
		char head[160];

		end = strchr(line, '\n');
		assert_non_null(end);
		if (strncmp(line, "# HELP ", 7) == 0) {
			snprintf(current, sizeof(current), "%.*s", (int)strcspn(line + 7, " "),
				 line + 7);
			snprintf(head, sizeof(head), "# TYPE %s ", current);
			assert_int_equal(count(b, head), 1);
			assert_int_equal(strncmp(end + 1, head, strlen(head)), 0);
			continue;
		}
		if (*line == '#')
			continue;
		assert_true(len >= strlen(current));
		assert_int_equal(strncmp(line, current, strlen(current)), 0);
	}
	free(b);
}

static void test_scopes(void **state)
{
	char *b = get(SERVICE_PROMETHEUS, "/m?scope=server", 200);

	assert_has(b, "haproxy_server_");
	assert_lacks(b, "haproxy_backend_");
	assert_lacks(b, "haproxy_process_");
	free(b);
	b = get(SERVICE_PROMETHEUS, "/m?scope=global&scope=frontend", 200);
	assert_has(b, "haproxy_process_");
	assert_has(b, "haproxy_frontend_");
	assert_lacks(b, "haproxy_server_");
	free(b);
	b = get(SERVICE_PROMETHEUS, "/m?scope=backend", 200);
	assert_has(b, "haproxy_backend_agg_server_status{proxy=\"app\",state=\"UP\"} 2\n");
	assert_lacks(b, "haproxy_server_");
	free(b);
	b = get(SERVICE_PROMETHEUS, "/m?scope=", 200);
	assert_int_equal(strlen(b), 0);
	free(b);
	b = get(SERVICE_PROMETHEUS, "/m?scope=%2A", 200);
	assert_has(b, "haproxy_server_");
	assert_has(b, "haproxy_process_");
	free(b);
	free(get(SERVICE_PROMETHEUS, "/m?scope", 400));
	free(get(SERVICE_PROMETHEUS, "/m?scope=nosuch", 400));
}

static void test_filters(void **state)
{
	char *b = get(SERVICE_PROMETHEUS, "/m?metrics=haproxy_server_status,max_queue", 200);

	assert_int_equal(count(b, "# HELP "), 3);
	assert_has(b, "haproxy_backend_max_queue{");
	free(b);
	b = get(SERVICE_PROMETHEUS, "/m?scope=server&metrics=-haproxy_server_status", 200);
	assert_lacks(b, "haproxy_server_status");
	assert_has(b, "haproxy_server_max_queue");
	free(b);
	b = get(SERVICE_PROMETHEUS, "/m?scope=server&scope=backend&no-maint", 200);
	assert_lacks(b, "server=\"s2\"");
	assert_has(b, "server=\"s1\"");
	assert_has(b, "haproxy_backend_agg_server_status{proxy=\"app\",state=\"MAINT\"} 1\n");
	free(b);
	b = get(SERVICE_PROMETHEUS, "/m?desc-labels", 200);
	assert_has(b,
		   "haproxy_frontend_status{proxy=\"web\",desc=\"front <door>\",state=\"UP\"} 1");
	free(b);
	free(get(SERVICE_PROMETHEUS, "/m?%&=&a=%zz&&x=+", 200));
}

static void test_kernel_tier(void **state)
{
	char *b;

	has_dp = true;
	ctl.dp = (struct dp *)&ctl;
	b = get(SERVICE_PROMETHEUS, "/m?scope=xdp", 200);
	assert_has(b, "headgate_xdp_service_packets_total{proxy=\"d\\\"n\\\\s\","
		      "service=\"udp@192.0.2.1:53\",mode=\"ipip\"} 7\n");
	assert_has(b, "headgate_xdp_backend_packets_total{proxy=\"dns\",server=\"r1\","
		      "address=\"10.0.0.1\"} 5\n");
	assert_has(b, "headgate_xdp_drops_total{reason=\"NO_BACKEND\"} 2\n");
	assert_lacks(b, "haproxy_");
	free(b);
	b = get(SERVICE_STATS, "/stats", 200);
	assert_has(b, "d&quot;n\\s");
	assert_has(b, "udp@192.0.2.1:53");
	assert_has(b, "&lt;why&gt;");
	free(b);
	ctl.dp = NULL;
}

static void test_methods(void **state)
{
	struct service_call c;

	call_init(&c, SERVICE_PROMETHEUS, "/m");
	c.method = HTTP_METHOD_DELETE;
	prom_answer(&ctl, &c);
	assert_int_equal(c.status, 405);
	call_fini(&c);
	call_init(&c, SERVICE_STATS, "/stats");
	c.method = HTTP_METHOD_PUT;
	page_answer(&ctl, &c);
	assert_int_equal(c.status, 405);
	call_fini(&c);
}

/* --- the page ------------------------------------------------------------------------------------------------- */

static void test_page(void **state)
{
	char *b = get(SERVICE_STATS, "/stats", 200);

	assert_has(b, "<!doctype html>");
	assert_has(b, "front &lt;door&gt;");
	assert_lacks(b, "<door>");
	assert_lacks(b, "<form method=post");
	assert_lacks(b, "src=");
	assert_lacks(b, "href=\"http");
	assert_has(b, ">s1<");
	free(b);
	b = get(SERVICE_STATS, "/stats;up;no-maint?scope=%3Cscript%3E", 200);
	assert_lacks(b, "value=\"<script>");
	assert_has(b, "value=\"&lt;script&gt;\"");
	free(b);
	b = get(SERVICE_STATS, "/stats;no-maint", 200);
	assert_lacks(b, ">s2<");
	assert_has(b, ">s1<");
	free(b);
	b = get(SERVICE_STATS, "/stats;st=DONE", 200);
	assert_has(b, ">Done.<");
	free(b);
	b = get(SERVICE_STATS, "/stats;st=<b>", 200);
	assert_lacks(b, "<b>");
	assert_lacks(b, "role=status");
	free(b);
}

static void test_page_forms(void **state)
{
	char *b = get(SERVICE_STATS, "/stats;csv", 200);

	assert_int_equal(strncmp(b, "# pxname,svname,", 16), 0);
	assert_int_equal(count(b, "\n"), 8);
	free(b);
	b = get(SERVICE_STATS, "/stats;csv?scope=ra", 200);
	assert_int_equal(count(b, "\n"), 3);
	free(b);
	b = get(SERVICE_STATS, "/stats?scope=ra;csv", 200);
	assert_int_equal(count(b, "\n"), 3);
	free(b);
	b = get(SERVICE_STATS, "/stats;typed;norefresh", 200);
	assert_has(b, "F.1.0.0.pxname.1:");
	free(b);
	b = get(SERVICE_STATS, "/stats;json", 200);
	assert_int_equal(strncmp(b, "[[{\"objType\"", 12), 0);
	free(b);
	b = get(SERVICE_STATS, "/stats;json-schema", 200);
	assert_has(b, "\"$schema\":\"http://json-schema.org/draft-04/schema#\"");
	free(b);
}

/* A POST; the code in the redirect. */
static const char *post(const char *form, const char *origin, bool is_admin)
{
	static char code[16];
	struct service_call c;
	const char *at;

	call_init(&c, SERVICE_STATS, "/stats;st=NONE;up");
	c.method = HTTP_METHOD_POST;
	c.is_admin = is_admin;
	c.host = STR("edge:80");
	c.origin = origin ? str_from_cstr(origin) : STR_NULL;
	c.form = form ? str_from_cstr(form) : STR_NULL;
	page_answer(&ctl, &c);
	assert_int_equal(c.status, 303);
	assert_string_equal(c.fields[0].name, "location");
	assert_true(str_is_prefix(c.fields[0].value, STR("/stats;st=")));
	assert_true(str_is_suffix(c.fields[0].value, STR(";up")));
	at = c.fields[0].value.p + 10;
	snprintf(code, sizeof(code), "%.4s", at);
	call_fini(&c);
	return code;
}

static void test_actions(void **state)
{
	struct server *s1 = srv("app", "s1"), *s2 = srv("app", "s2");

	assert_string_equal(post("b=app&s=s1&action=drain", NULL, true), "DONE");
	assert_int_equal(atomic_load(&s1->admin), SERVER_FORCED_DRAIN);
	assert_string_equal(post("b=app&s=s1&action=drain", NULL, true), "NONE");
	assert_string_equal(post("action=maint&s=s1&s=s%32&b=app", NULL, true), "DONE");
	assert_int_equal(atomic_load(&s1->admin), SERVER_FORCED_MAINT);
	assert_string_equal(post("b=app&s=s1&s=s2&action=ready", NULL, true), "DONE");
	assert_int_equal(atomic_load(&s1->admin), 0);
	assert_int_equal(atomic_load(&s2->admin), 0);
	assert_string_equal(post("b=app&s=s1&s=zz&action=maint", NULL, true), "PART");
	assert_string_equal(post("b=app&s=s1&action=enable", NULL, true), "DONE");
	assert_string_equal(post("b=app&s=s1&action=shutdown", NULL, true), "DONE");
	assert_int_equal(n_shut, 2);
	assert_true(n_changed > 3);
	/* s3 has no check */
	assert_string_equal(post("b=app&s=s3&action=hdown", NULL, true), "NONE");
	assert_string_equal(post("b=app&s=s1&action=hdown", NULL, true), "DONE");
	assert_int_equal(atomic_load(&s1->op), SERVER_STOPPED);
}

static void test_actions_refused(void **state)
{
	struct server *s1 = srv("app", "s1");
	char id[64];

	assert_string_equal(post("b=app&s=s1&action=maint", NULL, false), "DENY");
	assert_string_equal(post("b=app&s=s1&action=maint", "http://evil", true), "DENY");
	assert_string_equal(post("b=app&s=s1&action=maint", "null", true), "DENY");
	assert_string_equal(post("b=zz&s=s1&action=maint", NULL, true), "ERRP");
	assert_string_equal(post("b=web&s=s1&action=maint", NULL, true), "ERRP");
	assert_string_equal(post("b=#99&s=s1&action=maint", NULL, true), "ERRP");
	assert_string_equal(post("b=app&s=s1&action=rm", NULL, true), "ERRP");
	assert_string_equal(post("b=app&s=zz&action=maint", NULL, true), "ERRP");
	assert_string_equal(post("b=app&action=maint", NULL, true), "NONE");
	assert_string_equal(post("s&b&action&&=&%", NULL, true), "ERRP");
	assert_string_equal(post(NULL, NULL, true), "IVAL");
	assert_int_equal(atomic_load(&s1->admin), 0);
	snprintf(id, sizeof(id), "b=%%23%u&s=s1&action=maint",
		 conf_find_proxy(snap.conf, STR("app"), CONF_CAP_BACKEND)->id);
	assert_string_equal(post(id, "http://EDGE:80", true), "DONE");
	assert_int_equal(atomic_load(&s1->admin), SERVER_FORCED_MAINT);
}

/* --- limits ------------------------------------------------------------------------------------------------- */

static void test_out_of_memory(void **state)
{
	static const struct {
		enum service_kind kind;
		const char *path;
	} asks[] = { { SERVICE_PROMETHEUS, "/m?scope=server&metrics=status" },
		     { SERVICE_STATS, "/stats" },
		     { SERVICE_STATS, "/stats;csv" } };

	for (unsigned a = 0; a < ARRAY_SIZE(asks); a++) {
		char *whole = get(asks[a].kind, asks[a].path, 200);
		size_t len = strlen(whole);
		bool is_over = false;

		for (unsigned n = 1; !is_over; n++) {
			struct service_call c;

			assert_true(n < 1000);
			call_init(&c, asks[a].kind, asks[a].path);
			mem_fail_at(n);
			(asks[a].kind == SERVICE_PROMETHEUS ? prom_answer : page_answer)(&ctl, &c);
			is_over = mem_alloc_count() < n;
			mem_fail_at(0);
			/* Never half an answer that looks whole. */
			if (!c.body.is_failed && is_over)
				assert_true(c.body.len + 40 > len);
			if (!is_over && asks[a].kind == SERVICE_PROMETHEUS && c.status == 200 &&
			    !c.body.is_failed)
				assert_true(c.body.len == len);
			call_fini(&c);
		}
		free(whole);
	}
}

static void test_queue(void **state)
{
	struct service_call calls[70];

	for (unsigned i = 0; i < 70; i++) {
		call_init(&calls[i], SERVICE_PROMETHEUS, "/m?scope=");
		web_ask(&calls[i]);
	}
	/* What is too much is refused at once, the rest is answered one by one. */
	assert_int_equal(n_answered, 6);
	assert_int_equal(calls[69].status, 503);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(loop_run_once(ctl.loop, 0), 0);
	assert_int_equal(n_answered, 16);
	assert_int_equal(calls[0].status, 200);
	/* Slow readers hold too much. */
	atomic_store(&ctl.shared.service_bytes, 1u << 30);
	assert_int_equal(loop_run_once(ctl.loop, 0), 0);
	assert_int_equal(calls[10].status, 503);
	web_stop(ctl.web);
	assert_int_equal(n_answered, 70);
	assert_int_equal(calls[60].status, 503);
	for (unsigned i = 0; i < 70; i++)
		call_fini(&calls[i]);
}

static void test_numbers(void **state)
{
	static const struct {
		uint64_t n;
		const char *text;
	} counts[] = { { 0, "0" },	     { 99999, "99999" },    { 100000, "100k" },
		       { 1234567, "1.23M" }, { 12345678, "12.3M" }, { UINT64_MAX, "18.4E" } };

	for (unsigned i = 0; i < ARRAY_SIZE(counts); i++) {
		struct service_call c;
		char *b;

		call_init(&c, SERVICE_STATS, "");
		page_count(&c.body, counts[i].n);
		b = body_of(&c);
		assert_string_equal(b, counts[i].text);
		free(b);
		call_fini(&c);
	}
}

/* As printf would write them. */
static void test_digits(void **state)
{
	uint64_t v = 1;
	char out[32], want[32];

	for (unsigned i = 0; i < 64; i++, v = v * 2 + i % 2) {
		size_t n = out_digits(out, v - 1);

		assert_int_equal(n,
				 snprintf(want, sizeof(want), "%llu", (unsigned long long)v - 1));
		assert_memory_equal(out, want, n);
	}
	assert_int_equal(out_digits(out, UINT64_MAX), 20);
	assert_memory_equal(out, "18446744073709551615", 20);
}

static void test_histogram_text(void **state)
{
	static const struct prom_query all = { .scopes = 1 };
	struct lb_histogram h = { .sum_us = 12003004 };
	char want[4096], *at = want;
	uint64_t sum = 0;
	struct prom_metric m;
	struct service_call c;
	char *b;

	call_init(&c, SERVICE_STATS, "");
	prom_metric_init(&m, &all, "x_", "seconds", "Time.", PROM_HISTOGRAM);
	at += sprintf(at, "# HELP x_seconds Time.\n# TYPE x_seconds histogram\n");
	for (unsigned i = 0; i < LB_TIME_BUCKETS; i++) {
		h.n[i] = i * i * i;
		sum += h.n[i];
		at += sprintf(at, "x_seconds_bucket{proxy=\"p\",le=\"");
		at += i < LB_TIME_BUCKETS - 1 ? sprintf(at, "%g", lb_time_bounds_us[i] / 1e6)
					      : sprintf(at, "+Inf");
		at += sprintf(at, "\"} %llu\n", (unsigned long long)sum);
	}
	sprintf(at, "x_seconds_sum{proxy=\"p\"} 12.003004\nx_seconds_count{proxy=\"p\"} %llu\n",
		(unsigned long long)sum);
	prom_put_histogram(&m, STR("proxy=\"p\""), &h);
	service_text_join(&c.body, &m.text);
	b = body_of(&c);
	assert_string_equal(b, want);
	free(b);
	call_fini(&c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_metrics, setup, teardown),
		cmocka_unit_test_setup_teardown(test_metrics_form, setup, teardown),
		cmocka_unit_test_setup_teardown(test_scopes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_filters, setup, teardown),
		cmocka_unit_test_setup_teardown(test_kernel_tier, setup, teardown),
		cmocka_unit_test_setup_teardown(test_methods, setup, teardown),
		cmocka_unit_test_setup_teardown(test_page, setup, teardown),
		cmocka_unit_test_setup_teardown(test_page_forms, setup, teardown),
		cmocka_unit_test_setup_teardown(test_actions, setup, teardown),
		cmocka_unit_test_setup_teardown(test_actions_refused, setup, teardown),
		cmocka_unit_test_setup_teardown(test_out_of_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_queue, setup, teardown),
		cmocka_unit_test_setup_teardown(test_numbers, setup, teardown),
		cmocka_unit_test(test_digits),
		cmocka_unit_test_setup_teardown(test_histogram_text, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
