/* SPDX-License-Identifier: BSD-2-Clause */
/* `show info`: the process, in HAProxy's names and order. The index of a row is its position. */
#include <inttypes.h>
#include <malloc.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "ctl/cmd.h"
#include "ctl/cmd_rows.h"
#include "ctl/metrics.h"
#include "ctl/version.h"

struct info_writer {
	FILE *out;
	unsigned index;
	enum {
		INFO_PLAIN,
		INFO_TYPED,
		INFO_JSON,
		INFO_SINK, /* no text: every row goes to `sink` */
	} form;
	info_sink *sink;
	void *ctx;
};

static void info_begin(struct info_writer *w, const char *name, const char *tags, const char *type)
{
	if (w->form == INFO_PLAIN)
		fprintf(w->out, "%s: ", name);
	else if (w->form == INFO_TYPED)
		fprintf(w->out, "%u.%s.1:%s:%s:", w->index, name, tags, type);
	else
		fprintf(w->out,
			"%s{\"field\":{\"pos\":%u,\"name\":\"%s\"},\"processNum\":1,\"value\":{"
			"\"type\":\"%s\",\"value\":",
			w->index ? "," : "[", w->index, name, type);
	w->index++;
}

static void info_end(struct info_writer *w)
{
	fputs(w->form == INFO_JSON ? "}}" : "\n", w->out);
}

static void info_str(struct info_writer *w, const char *name, const char *tags, const char *value)
{
	if (w->form == INFO_SINK) {
		w->sink(w->ctx, name, value, 0);
		return;
	}
	info_begin(w, name, tags, "str");
	if (w->form == INFO_JSON) {
		json_put_str(w->out, str_from_cstr(value));
	} else {
		fputs(value, w->out);
	}
	info_end(w);
}

static void info_num(struct info_writer *w, const char *name, const char *tags, const char *type,
		     uint64_t v)
{
	if (w->form == INFO_SINK) {
		w->sink(w->ctx, name, NULL, v);
		return;
	}
	info_begin(w, name, tags, type);
	fprintf(w->out, "%" PRIu64, v);
	info_end(w);
}

static void info_u32(struct info_writer *w, const char *name, const char *tags, uint64_t v)
{
	info_num(w, name, tags, "u32", v);
}

static void info_u64(struct info_writer *w, const char *name, const char *tags, uint64_t v)
{
	info_num(w, name, tags, "u64", v);
}

static void info_process(struct info_writer *w, const struct ctl *ctl)
{
	uint64_t up = (loop_now(ctl->loop) - ctl->start_mono_ns) / 1000000000ull;
	struct mallinfo2 mi = mallinfo2();
	struct rlimit nofile = { 0 };
	char text[48];

	getrlimit(RLIMIT_NOFILE, &nofile);
	info_str(w, "Name", "POSV", "HAProxy");
	info_str(w, "Version", "POSV", CTL_HAPROXY_VERSION "-headgate-" HG_VERSION);
	info_str(w, "Release_date", "POSV", CTL_RELEASE_DATE);
	info_u32(w, "Nbthread", "CGSV", ctl->n_workers);
	info_u32(w, "Nbproc", "CGSV", 1);
	info_u32(w, "Process_num", "KGPV", 1);
	info_u32(w, "Pid", "SGPV", (uint64_t)getpid());
	snprintf(text, sizeof(text), "%" PRIu64 "d %" PRIu64 "h%02" PRIu64 "m%02" PRIu64 "s",
		 up / 86400, up / 3600 % 24, up / 60 % 60, up % 60);
	info_str(w, "Uptime", "MDPV", text);
	info_u32(w, "Uptime_sec", "MDPV", up);
	info_u32(w, "Memmax_MB", "CLPV", ctl->opts->memory_limit >> 20);
	info_u32(w, "PoolAlloc_MB", "MGPV", (mi.arena + mi.hblkhd) >> 20);
	info_u32(w, "PoolUsed_MB", "MGPV", mi.uordblks >> 20);
	info_u32(w, "PoolFailed", "MCPV", 0);
	info_u32(w, "Ulimit-n", "CLPV", nofile.rlim_cur);
	info_u32(w, "Maxsock", "CLPV", nofile.rlim_cur);
	info_u32(w, "Maxconn", "CLPV", atomic_load(&ctl->shared.maxconn));
	info_u32(w, "Hard_maxconn", "CLPV", atomic_load(&ctl->shared.maxconn));
}

static uint32_t rate_limit(const struct ctl *ctl, enum proxy_rate which)
{
	return atomic_load(&ctl->shared.rates[which].limit);
}

static void info_traffic(struct info_writer *w, const struct ctl *ctl,
			 const struct hg_worker_counters *sum)
{
	const struct process_rates *r = metrics_process(ctl->metrics);
	const struct conf_global *g = &ctl->current->conf->global;
	uint64_t tls = metrics_tls_sessions(ctl);

	info_u32(w, "CurrConns", "MGPV", atomic_load(&ctl->shared.cur_conns));
	info_u32(w, "CumConns", "MCPV", sum->connections);
	info_u32(w, "CumReq", "MCPV", sum->requests);
	info_u32(w, "MaxSslConns", "CLPV", g->maxsslconn);
	info_u32(w, "CurrSslConns", "MGPV", atomic_load(&ctl->shared.cur_tls));
	info_u32(w, "CumSslConns", "MCPV", tls);
	info_u32(w, "Maxpipes", "CLPV", 0);
	info_u32(w, "PipesUsed", "MCPV", 0);
	info_u32(w, "PipesFree", "MCPV", 0);
	info_u32(w, "ConnRate", "MRPV", r->connections.now);
	info_u32(w, "ConnRateLimit", "CLPV", rate_limit(ctl, PROXY_RATE_CONNS));
	info_u32(w, "MaxConnRate", "MMPV", r->connections.max);
	info_u32(w, "SessRate", "MRPV", r->sessions.now);
	info_u32(w, "SessRateLimit", "CLPV", rate_limit(ctl, PROXY_RATE_SESSIONS));
	info_u32(w, "MaxSessRate", "MMPV", r->sessions.max);
	info_u32(w, "SslRate", "MRPV", r->tls.now);
	info_u32(w, "SslRateLimit", "CLPV", rate_limit(ctl, PROXY_RATE_TLS));
	info_u32(w, "MaxSslRate", "MMPV", r->tls.max);
	info_u32(w, "SslFrontendKeyRate", "MRPV", r->tls.now);
	info_u32(w, "SslFrontendMaxKeyRate", "MMPV", r->tls.max);
	info_u32(w, "SslFrontendSessionReuse_pct", "MaPV", 0);
	info_u32(w, "SslBackendKeyRate", "MRPV", 0);
	info_u32(w, "SslBackendMaxKeyRate", "MMPV", 0);
	info_u32(w, "SslCacheLookups", "MCPV", 0);
	info_u32(w, "SslCacheMisses", "MCPV", 0);
	info_u32(w, "CompressBpsIn", "MRPV", r->comp_in.now);
	info_u32(w, "CompressBpsOut", "MRPV", r->comp_out.now);
	info_u32(w, "CompressBpsRateLim", "CLPV",
		 (uint64_t)atomic_load(&ctl->shared.comp_limit) * 1024);
}

static void info_state(struct info_writer *w, const struct ctl *ctl,
		       const struct hg_worker_counters *sum)
{
	const struct process_rates *r = metrics_process(ctl->metrics);
	const struct conf_global *g = &ctl->current->conf->global;
	char host[256] = "";

	if (gethostname(host, sizeof(host) - 1) != 0)
		host[0] = '\0';
	info_u32(w, "Tasks", "MGPV", sum->cur_streams > 0 ? (uint64_t)sum->cur_streams : 0);
	info_u32(w, "Run_queue", "MGPV", 0);
	info_u32(w, "Idle_pct", "MaPV", r->idle_percent);
	info_str(w, "node", "CNSV", g->node ? g->node : host);
	if (g->description)
		info_str(w, "description", "CNSV", g->description);
	info_u32(w, "Stopping", "SGPV", ctl->phase == CTL_STOPPING);
	info_u32(w, "Jobs", "MGPV", atomic_load(&ctl->shared.cur_conns) + ctl->current->n_binds);
	info_u32(w, "Unstoppable Jobs", "MGPV", 0);
	info_u32(w, "Listeners", "MGPV", ctl->current->n_binds);
	info_u32(w, "ActivePeers", "MGPV", 0);
	info_u32(w, "ConnectedPeers", "MGPV", 0);
	info_u32(w, "DroppedLogs", "MCPV", log_dropped());
	info_u32(w, "BusyPolling", "CGPV", 0);
	info_u32(w, "FailedResolutions", "MCPV", 0);
	info_u64(w, "TotalBytesOut", "MCPV", sum->bytes_out);
	info_u64(w, "TotalSplicedBytesOut", "MCPV", 0);
	info_u64(w, "BytesOutRate", "MRPV", r->bytes_out.now);
	info_u32(w, "DebugCommandsIssued", "MCPV", 0);
	info_u32(w, "CumRecvLogs", "MCPV", 0);
	info_str(w, "Build info", "POSV", CTL_HAPROXY_VERSION);
}

static void info_tail(struct info_writer *w, const struct ctl *ctl,
		      const struct hg_worker_counters *sum)
{
	struct mallinfo2 mi = mallinfo2();

	info_u64(w, "Memmax_bytes", "CLPV", ctl->opts->memory_limit);
	info_u64(w, "PoolAlloc_bytes", "MGPV", mi.arena + mi.hblkhd);
	info_u64(w, "PoolUsed_bytes", "MGPV", mi.uordblks);
	info_u32(w, "Start_time_sec", "MDPV", ctl->start_wall_ns / 1000000000ull);
	info_str(w, "Tainted", "SGPV", "0");
	info_u32(w, "TotalWarnings", "MCPV", ctl->current->conf->n_warnings);
	info_u32(w, "MaxconnReached", "MCPV", sum->accept_paused);
	info_u32(w, "BootTime_ms", "MGPV", ctl->boot_ms);
	info_u32(w, "Niced_tasks", "MGPV", 0);
	info_u32(w, "CurrStreams", "MGPV", sum->cur_streams > 0 ? (uint64_t)sum->cur_streams : 0);
	info_u64(w, "CumStreams", "MCPV", sum->requests);
	info_u32(w, "BlockedTrafficWarnings", "MCPV", 0);
	info_u64(w, "PatternsAdded", "MCPV", 0);
	info_u64(w, "PatternsFreed", "MCPV", 0);
	info_u32(w, "NbThreadGroups", "CGSV", 1);
}

static void info_all(struct info_writer *w, struct ctl *ctl)
{
	struct hg_worker_counters sum;

	metrics_worker_sum(ctl, &sum);
	info_process(w, ctl);
	info_traffic(w, ctl, &sum);
	info_state(w, ctl, &sum);
	info_tail(w, ctl, &sum);
}

void info_each(struct ctl *ctl, info_sink *sink, void *ctx)
{
	struct info_writer w = { .form = INFO_SINK, .sink = sink, .ctx = ctx };

	info_all(&w, ctl);
}

int cmd_show_info(struct cmd *c)
{
	const char *form = cmd_arg(c, 0);
	struct info_writer w = { .out = c->out };

	if (form && strcmp(form, "typed") == 0)
		w.form = INFO_TYPED;
	else if (form && strcmp(form, "json") == 0)
		w.form = INFO_JSON;
	info_all(&w, c->ctl);
	if (w.form == INFO_JSON)
		fputs("]\n", c->out);
	return 0;
}
