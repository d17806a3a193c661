/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every counter and every drop reason, once. The rows feed the BPF programs, the CLI, Prometheus and
 * the generated docs. Rows are only ever appended: position is meaning, in maps that outlive us.
 */
#ifndef HEADGATE_COUNTERS_H
#define HEADGATE_COUNTERS_H

#include <headgate/base.h>

/* --- kernel tier: per CPU and service (map `xdp_services`), index = id * n_cpus + cpu ----------- */
#define HG_SERVICE_COUNTERS(X)                                        \
	X(packets, "packets addressed to the service")                \
	X(bytes, "bytes of those, from the IP header on")             \
	X(forwarded, "packets sent to a backend")                     \
	X(local, "packets handed to this host's TCP for the L7 tier") \
	X(dropped, "packets dropped, all reasons")                    \
	X(syns, "TCP SYNs")                                           \
	X(answered, "packets answered by the balancer itself")        \
	X(returned, "packets of servers sent back to clients (NAT)")        \
	X(denied, "of the dropped, from denied prefixes, or from none that may use the service")             \
	X(limited, "of the dropped, over a limit of the source or the service")             \
	X(cookies_sent, "of the answered, SYNs that got a cookie")    \
	X(cookies_valid, "connections that came with a cookie of ours")     \
	X(cookies_invalid, "of the dropped, answers to no cookie of ours")

struct hg_service_counters {
#define X(name, help) __u64 name;
	HG_SERVICE_COUNTERS(X)
#undef X
	__u64 pad[3];
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_service_counters, 128);

/* --- kernel tier: per CPU and backend (map `xdp_backends`), index = id * n_cpus + cpu ----------- */
#define HG_BACKEND_COUNTERS(X)                                                  \
	X(packets, "packets sent to the backend")                               \
	X(bytes, "bytes of those, before encapsulation, from the IP header on") \
	X(syns, "TCP SYNs sent to the backend")                                 \
	X(begun, "connections begun (NAT, 'track on')")                                     \
	X(rsp_packets, "packets from the backend to clients (NAT)")             \
	X(rsp_bytes, "bytes of those, from the IP header on")

struct hg_backend_counters {
#define X(name, help) __u64 name;
	HG_BACKEND_COUNTERS(X)
#undef X
	__u64 nat_cursor; /* no counter: of the NAT ports that this CPU tries first for this backend */
	__u64 pad;
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_backend_counters, 64);

/* --- kernel tier: verdicts per CPU (map `xdp_verdicts`), index = cpu ---------------------------- */
#define HG_VERDICTS(X)                                               \
	X(PASS_NOT_IP, "not IP: to the kernel, untouched")           \
	X(PASS_NOT_OURS, "no service: to the kernel, untouched")     \
	X(PASS_LOCAL, "service of the L7 tier: to the kernel's TCP") \
	X(TX, "sent back out of the interface it came from")         \
	X(REDIRECT, "sent out of another interface")                 \
	X(DROP, "dropped, see the reasons")                          \
	X(DECAP, "decapsulated and handed to the kernel (agent)")    \
	X(REPLY, "answered: echo reply, packet-too-big or SYN cookie sent back")

enum hg_verdict {
#define X(name, help) HG_VERDICT_##name,
	HG_VERDICTS(X)
#undef X
	HG_VERDICT_COUNT
};

/* Drop reasons. Only packets for a service are ever dropped. 0 is "not dropped". */
#define HG_DROPS(X)                                                       \
	X(NONE, "not dropped")                                            \
	X(BAD_HEADER, "IP or transport header cut short or inconsistent") \
	X(NO_BACKEND, "the service has no backend, or its slot is empty") \
	X(BAD_BACKEND, "slot names a backend that does not exist")        \
	X(NO_NEIGHBOUR, "next hop of the backend not resolved")           \
	X(NO_HEADROOM, "driver left no room for the outer header")        \
	X(TOO_BIG, "packet would exceed the MTU towards the backend")     \
	X(FRAGMENT, "later fragment whose first one was not seen")        \
	X(TTL, "time to live would reach zero")                           \
	X(INTERNAL, "map lookup failed that cannot fail")                 \
	X(NO_REDIRECT, "interface towards the backend takes no redirected frames") \
	X(NAT_UNKNOWN, "NAT: not the beginning of a connection, nor of a known one") \
	X(NAT_FULL, "NAT: no port free, or no room for the connection")              \
	X(MAXCONN, "server or section has as many connections as it may (maxconn, max-conn)") \
	X(DENIED, "source in a denied prefix")                            \
	X(SOURCE_PACKETS, "source sends more packets than 'xdp guard packet-rate' allows") \
	X(SOURCE_SYNS, "source sends more SYNs than 'xdp guard syn-rate' allows")          \
	X(SOURCE_CONNS, "source has as many connections as 'xdp guard max-conn' allows")   \
	X(SERVICE_SYNS, "service gets more SYNs than its 'xdp guard syn-rate' allows")     \
	X(NOT_ALLOWED, "source is in none of the prefixes that may use the service")       \
	X(DENIED_RESET, "source in a denied prefix that is told so: TCP gets an RST") \
	X(SYN_COOKIE, "of no connection, and no answer to a SYN cookie, while SYNs are answered by cookies")

enum hg_drop {
#define X(name, help) HG_DROP_##name,
	HG_DROPS(X)
#undef X
	HG_DROP_COUNT
};

/* What else happened to packets on their way, beside the verdict. */
#define HG_EVENTS(X)                                                                               \
	X(FLOW_HIT, "moved slot or tracking: the flow was known")                                  \
	X(FLOW_NEW, "moved slot or tracking: new flow, to the current owner")                      \
	X(FLOW_BASE, "moved slot: unknown flow, to the owner before the change")                   \
	X(FLOW_OTHER, "moved slot or tracking: unknown flow, to the current owner")                \
	X(FLOW_STORED, "flows remembered")                                                         \
	X(FLOW_FULL, "flows not remembered: no room that they may take")                           \
	X(FLOW_LIMITED, "flows not remembered: learning rate reached")                             \
	X(FRAG_FIRST, "first fragments remembered")                                                \
	X(FRAG_FOLLOWED, "later fragments sent after their first one")                             \
	X(ICMP_ERROR, "ICMP errors sent to the backend of the flow they are about")                \
	X(ECHO, "echo requests answered")                                                          \
	X(TOO_BIG_SENT, "packet-too-big or fragmentation-needed sent to the client")               \
	X(TOO_BIG_LIMITED, "of those, not sent: rate reached")                                     \
	X(QUIC_BY_ID, "QUIC packets sent by their connection id")                                  \
	X(QUIC_UNKNOWN_ID, "QUIC packets whose server id is unknown or down, sent by flow")        \
	X(SECOND_CHANCE, "packets of unknown connections sent to the alternative backend (agent)") \
	X(SECOND_KNOWN, "packets that name an alternative, of connections known here (agent)")     \
	X(NAT_NEW, "NAT connections begun")                                                        \
	X(NAT_EARLY, "NAT rows of closed or half-open connections taken before their time")        \
	X(LIVE_FULL, "connections not counted for their source: no room")                          \
	X(RESET_SENT, "RSTs sent to denied sources")                                                 \
	X(COOKIE_LOST, "valid SYN cookies whose connection the kernel did not take")               \
	X(COOKIE_TAKEN, "connections that came with a SYN cookie (agent)")                         \
	X(COOKIE_STRAY, "packets for listeners that are no answer to a SYN cookie, dropped while cookies come (agent)")

enum hg_event {
#define X(name, help) HG_EVENT_##name,
	HG_EVENTS(X)
#undef X
	HG_EVENT_COUNT
};

struct hg_verdict_counters {
	__u64 verdict[8]; /* enum hg_verdict */
	__u64 drop[32]; /* enum hg_drop */
	__u64 event[32]; /* enum hg_event */
} __attribute__((aligned(HG_CACHE_LINE)));
HG_ASSERT_LAYOUT(struct hg_verdict_counters, 576);
_Static_assert(HG_VERDICT_COUNT <= 8 && HG_DROP_COUNT <= 32 && HG_EVENT_COUNT <= 32,
	       "grow hg_verdict_counters");

/* --- L7 tier: per worker and proxy side or server (maps `stats_services`, `stats_backends`) ------ */
/*
 * index = id * n_workers + worker; one writer (the worker), so plain adds. `stats_services` has one
 * row per frontend or listen section, `stats_backends` one per server and one per backend section
 * (kind says which). u64 throughout; *_ms are sums of milliseconds.
 */
#define HG_L7_COUNTERS(X)                                                                     \
	X(sessions, "sessions (connections for a frontend, streams for a backend or server)") \
	X(requests, "HTTP requests")                                                          \
	X(bytes_in, "bytes from the client side")                                             \
	X(bytes_out, "bytes to the client side")                                              \
	X(req_denied, "requests denied by a rule")                                            \
	X(rsp_denied, "responses denied by a rule")                                           \
	X(req_errors,                                                                         \
	  "request errors: bad requests, client gone or silent before the request was whole") \
	X(conn_errors, "connections to a server that failed")                                 \
	X(rsp_errors, "response errors: server gone, silent or not speaking HTTP")            \
	X(retries, "connection retries")                                                      \
	X(redispatches, "requests moved to another server")                                   \
	X(hrsp_1xx, "1xx responses")                                                          \
	X(hrsp_2xx, "2xx responses")                                                          \
	X(hrsp_3xx, "3xx responses")                                                          \
	X(hrsp_4xx, "4xx responses")                                                          \
	X(hrsp_5xx, "5xx responses")                                                          \
	X(hrsp_other, "other responses")                                                      \
	X(cli_aborts, "transfers ended by the client")                                        \
	X(srv_aborts, "transfers ended by the server")                                        \
	X(connects, "connections tried to a server")                                          \
	X(reuses, "requests sent on an idle connection")                                      \
	X(picked, "times the load balancer chose it")                                         \
	X(intercepted, "requests answered by the load balancer itself")                       \
	X(conn_denied, "connections denied")                                                  \
	X(sess_denied, "sessions denied")                                                     \
	X(internal_errors, "internal errors")                                                 \
	X(failed_rewrites, "header rewrites that failed")                                     \
	X(ssl_sessions, "TLS handshakes completed")                                           \
	X(ssl_reused, "of those, resumed")                                                    \
	X(ssl_failed, "TLS handshakes failed")                                                \
	X(qtime_ms, "time in queue")                                                          \
	X(ctime_ms, "time to connect")                                                        \
	X(rtime_ms, "time to the response headers")                                           \
	X(ttime_ms, "total time")                                                             \
	X(queued, "requests that had to wait in a queue")                                     \
	X(comp_in, "bytes given to compression")                                              \
	X(comp_out, "bytes compression gave back")                                            \
	X(comp_bypassed, "bytes that went round compression")                                 \
	X(comp_responses, "responses compressed")                                             \
	X(h2_sessions, "HTTP/2 connections")                                                  \
	X(h2_requests, "HTTP/2 requests")

/* Gauges: the worker's share of a level, signed differences added by one writer. */
#define HG_L7_GAUGES(X)                                     \
	X(cur_sessions, "sessions now")                     \
	X(cur_queue, "requests in the queue now")           \
	X(idle_conns, "idle connections to the server now") \
	X(used_conns, "connections to the server in use now")

/* Maxima of one worker; the sum over workers is an upper bound, which is what is shown. */
#define HG_L7_MAXIMA(X)                                         \
	X(max_sessions, "most sessions at once")                \
	X(max_queue, "most queued at once")                     \
	X(max_qtime_ms, "longest time in queue")                \
	X(max_ctime_ms, "longest time to connect")              \
	X(max_rtime_ms, "longest time to the response headers") \
	X(max_ttime_ms, "longest total time")

struct hg_l7_counters {
	__u32 id; /* stable row number of the service, backend or server */
	__u16 worker;
	__u16 kind; /* enum hg_l7_kind */
	__u64 last_session_s; /* CLOCK_REALTIME seconds */
#define X(name, help) __u64 name;
	HG_L7_COUNTERS(X)
	HG_L7_MAXIMA(X)
#undef X
#define X(name, help) __s64 name;
	HG_L7_GAUGES(X)
#undef X
} __attribute__((aligned(HG_CACHE_LINE)));
_Static_assert(sizeof(struct hg_l7_counters) % HG_CACHE_LINE == 0, "rows must not share lines");

enum hg_l7_kind {
	HG_L7_UNUSED = 0,
	HG_L7_FRONTEND = 1,
	HG_L7_BACKEND = 2,
	HG_L7_SERVER = 3,
	HG_L7_LISTENER = 4,
};

/* --- L7 tier: per worker (map `stats_workers`), index = worker ----------------------------------- */
#define HG_WORKER_COUNTERS(X)                                        \
	X(connections, "connections accepted")                       \
	X(requests, "requests and TCP sessions")                     \
	X(iterations, "loop iterations")                             \
	X(events, "events handled")                                  \
	X(busy_ns, "time awake")                                     \
	X(idle_ns, "time asleep")                                    \
	X(accept_errors, "accept() failures other than would-block") \
	X(accept_paused, "times accepting stopped at a limit")       \
	X(alloc_failures, "allocations that failed")                 \
	X(log_dropped, "log lines lost")                             \
	X(bytes_out, "bytes to clients")

struct hg_worker_counters {
#define X(name, help) __u64 name;
	HG_WORKER_COUNTERS(X)
#undef X
	__s64 cur_conns; /* client connections now */
	__s64 cur_ssl_conns;
	__s64 cur_streams;
} __attribute__((aligned(HG_CACHE_LINE)));

#endif
