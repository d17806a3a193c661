/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Questions and answers: the one file that talks to c-ares. Its sockets are registered with the control thread's
 * loop, its timeouts are a timer. Whatever an answer holds is checked by c-ares' parsers; what we take of it
 * has bounds. Repeating is ours: c-ares would wait longer each time.
 */
#include <arpa/nameser.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>

#include "ctl/dns_priv.h"

struct dns_sock {
	struct list link;
	struct dns_ns *ns;
	struct ev_fd ev;
};

struct dns_query {
	struct list link; /* name.queries */
	struct dns_ns *ns;
	struct dns_name *name; /* NULL: nobody wants the answer */
	struct dns_part *part;
	unsigned round, n_sent;
};

static struct loop *loop_of(const struct dns_ns *ns)
{
	return ns->section->dns->ctl->loop;
}

/* --- sockets ------------------------------------------------------------------------------------- */

static struct dns_sock *sock_find(const struct dns_ns *ns, int fd)
{
	struct list *l;

	list_for_each(l, &ns->socks) {
		struct dns_sock *s = list_entry(l, struct dns_sock, link);

		if (s->ev.fd == fd)
			return s;
	}
	return NULL;
}

static void ns_rearm(struct dns_ns *ns)
{
	struct timeval tv;

	if (ares_timeout(ns->channel, NULL, &tv))
		timer_start(loop_of(ns), &ns->timer,
			    (uint64_t)tv.tv_sec * 1000000000ull + (uint64_t)tv.tv_usec * 1000ull);
	else
		timer_stop(loop_of(ns), &ns->timer);
}

static void ns_on_timer(struct timer *t)
{
	struct dns_ns *ns = container_of(t, struct dns_ns, timer);

	ares_process_fd(ns->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	ns_rearm(ns);
}

/* Edge-triggered, and c-ares reads a stream once per call: as long as there is something, and the socket. */
static void sock_on_event(struct ev_fd *ev, uint32_t events)
{
	struct dns_ns *ns = container_of(ev, struct dns_sock, ev)->ns;
	struct pollfd p = { .fd = ev->fd, .events = POLLIN };

	ares_process_fd(ns->channel, events & ~(uint32_t)EPOLLOUT ? p.fd : ARES_SOCKET_BAD,
			events & EPOLLOUT ? p.fd : ARES_SOCKET_BAD);
	while (sock_find(ns, p.fd) && poll(&p, 1, 0) == 1)
		ares_process_fd(ns->channel, p.fd, ARES_SOCKET_BAD);
	ns_rearm(ns);
}

/* c-ares opened, or is about to close, a socket. */
static void ns_on_socket(void *arg, ares_socket_t fd, int readable, int writable)
{
	struct dns_ns *ns = arg;
	struct dns_sock *s = sock_find(ns, fd);

	if (!readable && !writable) {
		if (s) {
			loop_del_fd(loop_of(ns), &s->ev);
			list_del(&s->link);
			mem_free(s);
		}
		return;
	}
	if (s)
		return;
	s = mem_zalloc(sizeof(*s));
	if (!s)
		return; /* no answer is seen: the question times out */
	s->ns = ns;
	s->ev.on_event = sock_on_event;
	if (loop_add_fd(loop_of(ns), &s->ev, fd, 0) != 0) {
		mem_free(s);
		return;
	}
	list_push_back(&ns->socks, &s->link);
}

int dns_ns_open(struct dns_ns *ns, const struct conf_nameserver *conf, struct err *err)
{
	const struct conf_resolvers *c = &ns->section->conf;
	uint64_t ms = (c->timeout_retry + 999999) / 1000000;
	struct ares_options o = {
		/* Errors that a server says are its answer, not a reason to ask again. */
		.flags = ARES_FLAG_NOCHECKRESP | ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES |
			 (conf->is_tcp ? ARES_FLAG_USEVC | ARES_FLAG_STAYOPEN : 0) |
			 (c->payload > 512 ? ARES_FLAG_EDNS : 0),
		.timeout = ms > 3600000 ? 3600000 : (int)ms,
		.tries = 1,
		.ednspsz = (int)c->payload,
		.lookups = (char[]){ "b" },
		.sock_state_cb = ns_on_socket,
		.sock_state_cb_data = ns,
	};
	char text[ADDR_TEXT_MAX];
	int rc;

	list_init(&ns->socks);
	timer_init(&ns->timer, ns_on_timer);
	rc = ares_init_options(&ns->channel, &o,
			       ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES |
				       ARES_OPT_EDNSPSZ | ARES_OPT_LOOKUPS |
				       ARES_OPT_SOCK_STATE_CB);
	if (rc != ARES_SUCCESS) {
		ns->channel = NULL;
		return err_set(err, rc == ARES_ENOMEM ? -ENOMEM : -EIO, "name server %s: %s",
			       conf->id, ares_strerror(rc));
	}
	addr_format(&conf->addr, text, sizeof(text));
	rc = ares_set_servers_ports_csv(ns->channel, text);
	if (rc != ARES_SUCCESS)
		return err_set(err, -EIO, "name server %s: %s", conf->id, ares_strerror(rc));
	return 0;
}

void dns_ns_close(struct dns_ns *ns)
{
	if (!ns->channel)
		return;
	ares_destroy(ns->channel); /* every query's callback is called, every socket told */
	ns->channel = NULL;
	timer_stop(loop_of(ns), &ns->timer);
}

/* --- answers ------------------------------------------------------------------------------------- */

static enum dns_status status_of(int rc, struct dns_counters *ctr)
{
	switch (rc) {
	case ARES_SUCCESS:
		return DNS_VALID;
	case ARES_ENODATA:
		ctr->any_err++;
		return DNS_NODATA;
	case ARES_ENOTFOUND:
		ctr->nx++;
		return DNS_NX;
	case ARES_EREFUSED:
		ctr->refused++;
		return DNS_REFUSED;
	case ARES_ETIMEOUT:
		ctr->timeout++;
		return DNS_TIMEOUT;
	case ARES_ECONNREFUSED:
		ctr->snd_error++;
		return DNS_TIMEOUT;
	case ARES_EBADRESP:
	case ARES_EFORMERR:
		ctr->invalid++;
		return DNS_OTHER;
	default:
		ctr->other++;
		return DNS_OTHER;
	}
}

void dns_records_free(struct dns_record *records, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		mem_free(records[i].target);
	mem_free(records);
}

static void note_cname(struct dns_ns *ns, const struct hostent *host)
{
	ns->ctr.cname += host && host->h_aliases && host->h_aliases[0];
}

/* Count of records, or -ENOMEM, -EBADMSG. */
static int parse_a(struct dns_ns *ns, const unsigned char *msg, int len,
		   struct dns_record **ret_records)
{
	struct ares_addrttl found[DNS_MAX_RECORDS];
	struct hostent *host = NULL;
	int n = DNS_MAX_RECORDS;

	if (ares_parse_a_reply(msg, len, &host, found, &n) != ARES_SUCCESS)
		return -EBADMSG;
	note_cname(ns, host);
	ares_free_hostent(host);
	*ret_records = mem_zalloc((size_t)(n + 1) * sizeof(**ret_records));
	for (int i = 0; *ret_records && i < n; i++) {
		(*ret_records)[i].addr.in = (struct sockaddr_in){ .sin_family = AF_INET,
								  .sin_addr = found[i].ipaddr };
	}
	return *ret_records ? n : -ENOMEM;
}

static int parse_aaaa(struct dns_ns *ns, const unsigned char *msg, int len,
		      struct dns_record **ret_records)
{
	struct ares_addr6ttl found[DNS_MAX_RECORDS];
	struct hostent *host = NULL;
	int n = DNS_MAX_RECORDS;

	if (ares_parse_aaaa_reply(msg, len, &host, found, &n) != ARES_SUCCESS)
		return -EBADMSG;
	note_cname(ns, host);
	ares_free_hostent(host);
	*ret_records = mem_zalloc((size_t)(n + 1) * sizeof(**ret_records));
	for (int i = 0; *ret_records && i < n; i++) {
		struct sockaddr_in6 *to = &(*ret_records)[i].addr.in6;

		to->sin6_family = AF_INET6;
		memcpy(&to->sin6_addr, &found[i].ip6addr, sizeof(to->sin6_addr));
	}
	return *ret_records ? n : -ENOMEM;
}

static int parse_srv(struct dns_ns *ns, const unsigned char *msg, int len,
		     struct dns_record **ret_records)
{
	struct ares_srv_reply *all, *r;
	unsigned n = 0, n_all = 0;

	if (ares_parse_srv_reply(msg, len, &all) != ARES_SUCCESS)
		return -EBADMSG;
	for (r = all; r && n_all < DNS_MAX_RECORDS; r = r->next)
		n_all++;
	*ret_records = mem_zalloc((n_all + 1) * sizeof(**ret_records));
	for (r = all; *ret_records && r && n < n_all; r = r->next) {
		size_t host_len = strlen(r->host);

		if (!host_len || host_len >= DNS_HOST_MAX || !r->port)
			continue;
		(*ret_records)[n] = (struct dns_record){
			.target = mem_strdup(str_make(r->host, host_len)),
			.port = r->port,
			.weight = r->weight,
		};
		if (!(*ret_records)[n].target) {
			dns_records_free(*ret_records, n);
			*ret_records = NULL;
			break;
		}
		n++;
	}
	ares_free_data(all);
	return *ret_records ? (int)n : -ENOMEM;
}

static void query_free(struct dns_query *q)
{
	list_del(&q->link);
	mem_free(q);
}

static void query_send(struct dns_query *q);

static bool query_is_late(const struct dns_query *q)
{
	return !q->name || q->round != q->name->round || q->part->is_done;
}

static void query_on_answer(void *arg, int rc, int timeouts, unsigned char *msg, int len)
{
	struct dns_query *q = arg;
	struct dns_ns *ns = q->ns;
	struct dns_name *name = q->name;
	struct dns_part *part = q->part;
	struct dns_record *records = NULL;
	enum dns_status status;
	int n = 0;

	if (rc == ARES_EDESTRUCTION || rc == ARES_ECANCELLED)
		return query_free(q);
	if (query_is_late(q)) {
		ns->ctr.outdated += rc == ARES_SUCCESS;
		return query_free(q);
	}
	if (rc == ARES_ETIMEOUT && q->n_sent < ns->section->conf.retries)
		return query_send(q);
	if (rc == ARES_SUCCESS) {
		n = part->type == ns_t_srv ? parse_srv(ns, msg, len, &records)
		    : part->type == ns_t_a ? parse_a(ns, msg, len, &records)
					   : parse_aaaa(ns, msg, len, &records);
		if (n < 0)
			rc = n == -ENOMEM ? ARES_ENOMEM : ARES_EBADRESP;
		else if (n == 0) /* a CNAME to a name without addresses */
			rc = ARES_ENODATA;
	}
	status = status_of(rc, &ns->ctr);
	ns->ctr.valid += status == DNS_VALID;
	if (status != DNS_VALID && records) {
		dns_records_free(records, 0);
		records = NULL;
	}
	query_free(q);
	dns_name_answer(name, part, ns, status, records, n > 0 ? (unsigned)n : 0);
}

static void query_send(struct dns_query *q)
{
	struct dns_ns *ns = q->ns;

	q->n_sent++;
	ns->ctr.sent++;
	/* May answer at once; `q` is gone then. */
	ares_query(ns->channel, q->name->host, ns_c_in, q->part->type, query_on_answer, q);
	if (ns->channel)
		ns_rearm(ns);
}

void dns_ask(struct dns_ns *ns, struct dns_name *name, struct dns_part *part)
{
	struct dns_query *q = mem_zalloc(sizeof(*q));

	if (!q) {
		ns->ctr.snd_error++;
		return dns_name_answer(name, part, ns, DNS_OTHER, NULL, 0);
	}
	*q = (struct dns_query){ .ns = ns, .name = name, .part = part, .round = name->round };
	list_push_back(&name->queries, &q->link);
	query_send(q);
}

void dns_forget_queries(struct dns_name *name)
{
	struct list *l;

	while ((l = list_pop_front(&name->queries)))
		list_entry(l, struct dns_query, link)->name = NULL;
}
