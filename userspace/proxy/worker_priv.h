/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A worker from the inside: its loop, pools, listeners, client connections. Everything belongs to the
 * worker's thread but the fields marked otherwise. Included by the files of proxy/ only.
 */
#ifndef PROXY_WORKER_PRIV_H
#define PROXY_WORKER_PRIV_H

#include "proxy/proxy.h"
#include "proxy/stream.h"

/* Heads are serialised here before they leave: a head buffer plus everything rules may add. */
#define WORKER_SCRATCH	98304
#define WORKER_LOG_LINE 8192

struct worker_listener {
	struct listener l; /* owner: this */
	struct list link;
	struct worker *w;
	const struct proxy_bind *pb; /* of the adopted snapshot */
	struct listen_socket *socket;
	bool is_admin_paused; /* disable frontend */
	bool is_limit_paused; /* counted in shared->n_paused */
};

/* One mail per generation slot: a slot is used again only after control has seen the last one. */
struct done_mail {
	struct mail mail;
	struct worker *w;
	struct snapshot *snap;
};

/* compress.c: encoders that wait for a response, and how busy the worker is. */
struct worker_compress {
	struct http_encoder *idle[HTTP_CODING_COUNT];
	unsigned n_idle[HTTP_CODING_COUNT];
	uint64_t sampled_ns, busy_ns, idle_ns;
	unsigned busy_percent;
};

struct worker {
	struct worker_opts o;
	pthread_t thread;
	struct loop *loop;
	struct net_worker net;
	struct mailbox mailbox;
	struct snapshot_view view;
	struct proxy_snapshot *snap; /* adopted */
	struct list listeners; /* worker_listener */
	struct list clients; /* client.link */
	struct list streams; /* stream.link */
	struct list queued; /* stream.queue_link: waiting for a server slot */
	unsigned n_clients, n_streams;
	unsigned n_head_parts; /* clients in CLIENT_HEAD */
	unsigned n_service_calls; /* service.c: questions to control, and answers being sent */
	struct pool client_pool, exchange_pool, head_pool, big_pool, track_pool;
	struct list free_streams;
	unsigned n_free_streams;
	struct worker_compress compress;
	uint32_t head_size; /* tune.bufsize at the start of the worker */
	uint32_t conn_time_rotor;
	struct timer rate_timer; /* listeners wait for a limit per second */
	struct timer tick; /* idle server connections, counters */
	struct loop_hook hook; /* end of iteration */
	struct hg_worker_counters *ctr;
	uint64_t req_ids, req_ids_end; /* batch of shared->req_counter */
	uint64_t pool_seed; /* of the keys of server connections; secret */
	_Atomic uint64_t oldest_stream_ns; /* for control, see worker_oldest_stream() */
	bool is_draining, is_stopping;
	bool is_over; /* the thread has ended: late mails do nothing */
	void (*on_drained)(struct worker *w);
	char *scratch; /* WORKER_SCRATCH */
	char *log_line; /* WORKER_LOG_LINE */
	/* Control and other workers: each mail is in flight at most once (the flag). */
	struct mail news_mail, drain_mail, kill_mail, stop_mail, resume_mail, drained_mail,
		bury_mail, observed_mail, waiting_mail;
	_Atomic bool news_sent, kill_sent, resume_sent, observed_sent;
	_Atomic bool has_limit_paused; /* some listener of ours waits for a connection to end */
	struct done_mail done[SNAPSHOT_GENERATIONS];
};

void worker_tell_waiting(struct worker *w); /* that worker: a stream waits for a server that XDP counts at, too */

static inline void ctr_add(__u64 *p, uint64_t n)
{
	/* One writer; readers on other threads see whole words. */
	__atomic_store_n(p, *p + n, __ATOMIC_RELAXED);
}

/* Counters of a client's listener; NULL without option socket-stats. */
static inline struct hg_l7_counters *listener_ctr(const struct client *cl)
{
	return likely(!cl->pb->stats.rows) ? NULL : &cl->pb->stats.rows[cl->w->o.index];
}

/* One counter of the frontend, and of its listener. */
#define CLIENT_COUNT(cl, field, n)                                   \
	do {                                                         \
		struct hg_l7_counters *li_ = listener_ctr(cl);       \
		ctr_add(&(cl)->ctr->field, n);                       \
		if (unlikely(li_))                                   \
			ctr_add(&li_->field, n);                     \
	} while (0)
#define STREAM_COUNT(st, field, n)                                   \
	do {                                                         \
		struct hg_l7_counters *li_ = listener_ctr((st)->cl); \
		ctr_add(&(st)->fe_ctr->field, n);                    \
		if (unlikely(li_))                                   \
			ctr_add(&li_->field, n);                     \
	} while (0)

static inline void gauge_add(__s64 *p, int64_t n)
{
	__atomic_store_n(p, *p + n, __ATOMIC_RELAXED);
}

static inline void ctr_max(__u64 *p, uint64_t v)
{
	if (v > *p)
		__atomic_store_n(p, v, __ATOMIC_RELAXED);
}

/* accept.c: listeners and limits */
HG_WUR int worker_listen(struct worker *w); /* listeners follow w->snap; 0 or the first error */
void worker_unlisten(struct worker *w);
void worker_resume_listeners(struct worker *w);
void worker_rate_timer(struct timer *t); /* worker->rate_timer */
void worker_conn_ended(struct worker *w, const struct client *cl); /* limits: one less */
void worker_tls_ended(struct net_worker *nw); /* the same, of a TLS connection to whomever */
void worker_set_paused(struct worker *w, struct str frontend, bool pause);

/* worker_mail.c */
void worker_init_mails(struct worker *w);
void worker_said_done(struct snapshot_view *v, struct snapshot *s);
void worker_check_drained(struct worker *w);

/* worker.c */
void worker_adopt(struct worker *w);
void worker_end_all(struct worker *w, char code);
void worker_end_older(struct worker *w, uint64_t generation);
void worker_begin_drain(struct worker *w);
uint64_t worker_next_request_id(struct worker *w);

#endif
