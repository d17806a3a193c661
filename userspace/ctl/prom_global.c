/* SPDX-License-Identifier: BSD-2-Clause */
/* Metrics of the process: rows of `show info` under the exporter's names. Control thread. */
#include <string.h>

#include "ctl/metrics.h"
#include "ctl/prometheus.h"
#include "ctl/version.h"

enum info_form {
	INFO_NUMBER,
	INFO_LABEL, /* a text: a label of that name, value 1 */
};

static const struct info_metric {
	const char *info, *name;
	uint8_t type; /* enum prom_type */
	uint8_t form; /* enum info_form */
	const char *label, *help;
} info_metrics[] = {
#define G(info, name, help) { info, name, PROM_GAUGE, INFO_NUMBER, NULL, help }
#define C(info, name, help) { info, name, PROM_COUNTER, INFO_NUMBER, NULL, help }
	G("Nbthread", "nbthread", "Worker threads."),
	G("Nbproc", "nbproc", "Processes."),
	G("Process_num", "relative_process_id", "Number of this process."),
	G("Uptime_sec", "uptime_seconds", "Time since the start."),
	G("Start_time_sec", "start_time_seconds", "When it was started, seconds since 1970."),
	G("Memmax_bytes", "max_memory_bytes", "Limit of memory, 0: none."),
	G("PoolAlloc_bytes", "pool_allocated_bytes", "Memory taken from the system."),
	G("PoolUsed_bytes", "pool_used_bytes", "Of that, in use."),
	C("PoolFailed", "pool_failures_total", "Allocations that failed."),
	G("Ulimit-n", "max_fds", "Limit of file descriptors."),
	G("Maxsock", "max_sockets", "Limit of sockets."),
	G("Maxconn", "max_connections", "Limit of client connections."),
	G("Hard_maxconn", "hard_max_connections", "The same as it was at the start."),
	G("CurrConns", "current_connections", "Client connections now."),
	C("CumConns", "connections_total", "Client connections accepted."),
	C("CumReq", "requests_total", "Requests."),
	G("MaxSslConns", "max_ssl_connections", "Limit of TLS connections."),
	G("CurrSslConns", "current_ssl_connections", "TLS connections now."),
	C("CumSslConns", "ssl_connections_total", "TLS connections."),
	G("Maxpipes", "max_pipes", "Limit of pipes."),
	C("PipesUsed", "pipes_used_total", "Pipes in use."),
	C("PipesFree", "pipes_free_total", "Pipes not in use."),
	G("ConnRate", "current_connection_rate", "Connections in the last second."),
	G("ConnRateLimit", "limit_connection_rate", "Limit of connections per second."),
	G("MaxConnRate", "max_connection_rate", "Most connections in a second."),
	G("SessRate", "current_session_rate", "Sessions in the last second."),
	G("SessRateLimit", "limit_session_rate", "Limit of sessions per second."),
	G("MaxSessRate", "max_session_rate", "Most sessions in a second."),
	G("SslRate", "current_ssl_rate", "TLS connections in the last second."),
	G("SslRateLimit", "limit_ssl_rate", "Limit of TLS connections per second."),
	G("MaxSslRate", "max_ssl_rate", "Most TLS connections in a second."),
	G("SslFrontendKeyRate", "current_frontend_ssl_key_rate",
	  "Full handshakes with clients in the last second."),
	G("SslFrontendMaxKeyRate", "max_frontend_ssl_key_rate",
	  "Most full handshakes with clients in a second."),
	G("SslFrontendSessionReuse_pct", "frontend_ssl_reuse",
	  "Percentage of handshakes that were resumed."),
	G("SslBackendKeyRate", "current_backend_ssl_key_rate",
	  "Full handshakes with servers in the last second."),
	G("SslBackendMaxKeyRate", "max_backend_ssl_key_rate",
	  "Most full handshakes with servers in a second."),
	C("SslCacheLookups", "ssl_cache_lookups_total", "Look-ups in the TLS session cache."),
	C("SslCacheMisses", "ssl_cache_misses_total", "Of those, not found."),
	C("CompressBpsIn", "http_comp_bytes_in_total", "Bytes per second given to compression."),
	C("CompressBpsOut", "http_comp_bytes_out_total", "Bytes per second that compression gave."),
	G("CompressBpsRateLim", "limit_http_comp", "Limit of compressed bytes per second."),
	G("ZlibMemUsage", "current_zlib_memory", "Memory of compression."),
	G("MaxZlibMemUsage", "max_zlib_memory", "Limit of the memory of compression."),
	G("Tasks", "current_tasks", "Streams now."),
	G("Run_queue", "current_run_queue", "Streams that wait for their turn."),
	G("Idle_pct", "idle_time_percent", "Idle time of the workers in the last second."),
	{ "node", "node", PROM_GAUGE, INFO_LABEL, "node", "Name of the node." },
	{ "description", "description", PROM_GAUGE, INFO_LABEL, "desc", "Description." },
	G("Stopping", "stopping", "1 while it stops."),
	G("Jobs", "jobs", "Connections and listeners."),
	G("Unstoppable Jobs", "unstoppable_jobs", "Of those, not stopped by a soft stop."),
	G("Listeners", "listeners", "Listeners."),
	G("ActivePeers", "active_peers", "Peers that are active."),
	G("ConnectedPeers", "connected_peers", "Peers that are connected."),
	C("DroppedLogs", "dropped_logs_total", "Log lines lost."),
	G("BusyPolling", "busy_polling_enabled", "1 when workers poll without sleeping."),
	C("FailedResolutions", "failed_resolutions", "Name resolutions that failed."),
	C("TotalBytesOut", "bytes_out_total", "Bytes sent to clients."),
	C("TotalSplicedBytesOut", "spliced_bytes_out_total", "Of those, spliced."),
	G("BytesOutRate", "bytes_out_rate", "Bytes sent in the last second."),
	C("CumRecvLogs", "recv_logs_total", "Log messages received."),
	{ "Build info", "build_info", PROM_GAUGE, INFO_LABEL, "version", "Version." },
	C("TotalWarnings", "total_warnings", "Warnings about the configuration."),
	C("PatternsAdded", "patterns_added_total", "Patterns added."),
	C("PatternsFreed", "patterns_freed_total", "Patterns removed."),
	G("NbThreadGroups", "nb_thread_groups", "Thread groups."),
#undef G
#undef C
};
#define N_METRICS ARRAY_SIZE(info_metrics)

struct global_walk {
	struct prom_metric metrics[N_METRICS];
};

static void global_row(void *ctx, const char *name, const char *text, uint64_t value)
{
	struct global_walk *w = ctx;

	for (unsigned i = 0; i < N_METRICS; i++) {
		const struct info_metric *im = &info_metrics[i];
		char mem[1024];
		struct buf labels;

		if (strcmp(im->info, name) != 0)
			continue;
		buf_init(&labels, mem, sizeof(mem));
		if (im->form == INFO_NUMBER)
			prom_put_u64(&w->metrics[i], STR_NULL, STR_NULL, value);
		else if (text && prom_label(&labels, im->label, str_from_cstr(text)))
			prom_put_u64(&w->metrics[i], buf_str(&labels), STR_NULL, 1);
		return;
	}
}

void prom_global(struct ctl *ctl, const struct prom_query *q, struct service_text *out)
{
	struct global_walk w;

	for (unsigned i = 0; i < N_METRICS; i++)
		prom_metric_init(&w.metrics[i], q, "haproxy_process_", info_metrics[i].name,
				 info_metrics[i].help, (enum prom_type)info_metrics[i].type);
	info_each(ctl, global_row, &w);
	for (unsigned i = 0; i < N_METRICS; i++)
		service_text_join(out, &w.metrics[i].text);
}
