/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where log lines leave the process: datagrams in batches by sendmmsg(), lines for descriptors in
 * chunks a pipe takes whole. Belongs to whoever drains the rings. It may wait SEND_WAIT_MS for a
 * target; a target that fails is left alone for a while (BACKOFF_*), its lines are counted as lost.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/log_priv.h"

#define BATCH		 64
#define SEND_WAIT_MS	 20
#define BACKOFF_FIRST_NS 100000000ull
#define BACKOFF_LAST_NS	 1000000000ull

enum family {
	FAMILY_V4,
	FAMILY_V6,
	FAMILY_UNIX,
	N_FAMILIES,
};

static const int families[N_FAMILIES] = { AF_INET, AF_INET6, AF_UNIX };

/* One unconnected socket per family; its messages point into the rings. */
struct dgram_sink {
	int fd; /* 0: not open */
	unsigned n;
	struct mmsghdr msgs[BATCH];
	struct iovec iovs[BATCH];
	struct log_record *recs[BATCH];
};

/* Lines for one descriptor; PIPE_BUF bytes go into a pipe that polls writable without blocking. */
struct fd_sink {
	int fd;
	unsigned n_bytes, n_lines;
	bool is_mid_line; /* the last write ended inside a line */
	char bytes[PIPE_BUF];
};

/* A target that failed: not tried before retry_at. */
struct dead {
	uint64_t retry_at, delay;
	uint8_t transport, addr_len;
	char addr[sizeof(struct sockaddr_un)];
};
#define N_DEAD 16

static struct dgram_sink dgrams[N_FAMILIES];
static struct fd_sink fds = { .fd = -1 };
static struct dead deads[N_DEAD];
static unsigned n_deads;
static _Atomic uint64_t n_dropped;

static void count_drops(uint64_t n)
{
	atomic_fetch_add_explicit(&n_dropped, n, memory_order_relaxed);
}

uint64_t log_sink_dropped(void)
{
	return atomic_load_explicit(&n_dropped, memory_order_relaxed);
}

/* --- targets that failed --- */

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

static struct dead *find_dead(uint8_t transport, const void *addr, unsigned addr_len)
{
	for (unsigned i = 0; i < n_deads; i++) {
		struct dead *d = &deads[i];

		if (d->transport == transport && d->addr_len == addr_len &&
		    memcmp(d->addr, addr, addr_len) == 0)
			return d;
	}
	return NULL;
}

static bool is_dead(uint8_t transport, const void *addr, unsigned addr_len)
{
	struct dead *d = n_deads ? find_dead(transport, addr, addr_len) : NULL;

	return d && now_ns() < d->retry_at;
}

static void mark_dead(uint8_t transport, const void *addr, unsigned addr_len)
{
	struct dead *d = find_dead(transport, addr, addr_len);

	if (!d) {
		/* Full: the oldest entry gives way, its target is tried again sooner. */
		d = &deads[n_deads < N_DEAD ? n_deads++ : 0];
		d->transport = transport;
		d->addr_len = (uint8_t)addr_len;
		memcpy(d->addr, addr, addr_len);
		d->delay = BACKOFF_FIRST_NS;
	} else if (d->delay < BACKOFF_LAST_NS) {
		d->delay *= 2;
	}
	d->retry_at = now_ns() + d->delay;
}

static void mark_alive(uint8_t transport, const void *addr, unsigned addr_len)
{
	struct dead *d = n_deads ? find_dead(transport, addr, addr_len) : NULL;

	if (d)
		*d = deads[--n_deads];
}

/* --- datagrams --- */

static int open_dgram(int family)
{
	/* Blocking with a bound: EAGAIN then means the target did not take a line for that long. */
	const struct timeval wait = { .tv_usec = SEND_WAIT_MS * 1000 };
	int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

/* Messages from `first` on to the first failure; returns how many went out, or -errno for `first`. */
static int send_some(struct dgram_sink *s, unsigned first)
{
	int r;

	do
		r = sendmmsg(s->fd, s->msgs + first, s->n - first, MSG_NOSIGNAL);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

static void flush_dgrams(struct dgram_sink *s, int family)
{
	unsigned i = 0;

	if (s->n && s->fd <= 0)
		s->fd = open_dgram(family);
	while (i < s->n) {
		struct log_record *rec = s->recs[i];
		int r;

		/* A line that was queued before its target failed. */
		if (s->fd <= 0 || is_dead(rec->transport, log_record_addr(rec), rec->addr_len)) {
			count_drops(1);
			i++;
			continue;
		}
		r = send_some(s, i);
		if (r > 0) {
			for (int k = 0; n_deads && k < r; k++) {
				rec = s->recs[i + (unsigned)k];
				mark_alive(rec->transport, log_record_addr(rec), rec->addr_len);
			}
			i += (unsigned)r;
			continue;
		}
		/* A text that is too long says nothing about the target. */
		if (r != -EMSGSIZE)
			mark_dead(rec->transport, log_record_addr(rec), rec->addr_len);
		count_drops(1);
		i++;
	}
	s->n = 0;
}

static void add_dgram(struct dgram_sink *s, struct log_record *rec)
{
	unsigned i = s->n++;

	s->recs[i] = rec;
	s->iovs[i].iov_base = log_record_text(rec);
	s->iovs[i].iov_len = rec->text_len;
	memset(&s->msgs[i], 0, sizeof(s->msgs[i]));
	s->msgs[i].msg_hdr.msg_name = log_record_addr(rec);
	s->msgs[i].msg_hdr.msg_namelen = rec->addr_len;
	s->msgs[i].msg_hdr.msg_iov = &s->iovs[i];
	s->msgs[i].msg_hdr.msg_iovlen = 1;
}

/* --- descriptors --- */

/* Up to PIPE_BUF bytes as far as they go without blocking for long; bytes taken or -errno. */
static ssize_t write_some(int fd, const char *p, size_t n)
{
	struct pollfd pfd = { .fd = fd, .events = POLLOUT };
	ssize_t r;

	do {
		r = send(fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (r < 0 && errno == EAGAIN && poll(&pfd, 1, SEND_WAIT_MS) > 0)
			r = send(fd, p, n, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (r < 0 && errno == ENOTSOCK) {
			/* No MSG_DONTWAIT for pipes, and O_NONBLOCK would hit whoever shares the file. */
			errno = EAGAIN;
			if (poll(&pfd, 1, SEND_WAIT_MS) > 0)
				r = write(fd, p, n);
		}
	} while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : r;
}

static bool write_all(struct fd_sink *s, const char *p, size_t n)
{
	while (n) {
		ssize_t r = write_some(s->fd, p, n < PIPE_BUF ? n : PIPE_BUF);

		if (r < 0)
			return false;
		s->is_mid_line = r > 0 && p[r - 1] != '\n';
		p += r;
		n -= (size_t)r;
	}
	return true;
}

static void write_lines(struct fd_sink *s, const char *p, size_t n, unsigned n_lines)
{
	bool is_ok = !is_dead(LOG_TO_FD, &s->fd, sizeof(s->fd));

	if (!is_ok) {
		count_drops(n_lines);
		return;
	}
	/* What follows a torn line begins on a line of its own. */
	if (s->is_mid_line)
		is_ok = write_all(s, "\n", 1);
	if (is_ok)
		is_ok = write_all(s, p, n);
	if (is_ok) {
		mark_alive(LOG_TO_FD, &s->fd, sizeof(s->fd));
		return;
	}
	count_drops(n_lines);
	mark_dead(LOG_TO_FD, &s->fd, sizeof(s->fd));
}

static void flush_fd(struct fd_sink *s)
{
	if (s->n_bytes)
		write_lines(s, s->bytes, s->n_bytes, s->n_lines);
	s->n_bytes = 0;
	s->n_lines = 0;
}

static void add_line(struct fd_sink *s, struct log_record *rec)
{
	int fd;

	memcpy(&fd, log_record_addr(rec), sizeof(fd));
	if (fd != s->fd || rec->text_len > sizeof(s->bytes) - s->n_bytes) {
		flush_fd(s);
		if (fd != s->fd)
			s->is_mid_line = false;
		s->fd = fd;
	}
	if (rec->text_len > sizeof(s->bytes)) {
		write_lines(s, log_record_text(rec), rec->text_len, 1);
		return;
	}
	memcpy(s->bytes + s->n_bytes, log_record_text(rec), rec->text_len);
	s->n_bytes += rec->text_len;
	s->n_lines++;
}

/* --- all of them --- */

void log_sink_add(struct log_record *rec)
{
	sa_family_t family = AF_UNSPEC;

	if (rec->transport == LOG_TO_FD) {
		add_line(&fds, rec);
		return;
	}
	if (rec->transport == LOG_TO_STORE) {
		/* Without the newline that ends every record. */
		log_store_put(str_make(log_record_addr(rec), rec->addr_len),
			      str_make(log_record_text(rec), rec->text_len - 1u));
		return;
	}
	if (rec->addr_len >= sizeof(family))
		memcpy(&family, log_record_addr(rec), sizeof(family));
	for (unsigned i = 0; i < N_FAMILIES; i++) {
		if (families[i] == family) {
			add_dgram(&dgrams[i], rec);
			return;
		}
	}
	count_drops(1);
}

bool log_sink_is_full(void)
{
	for (unsigned i = 0; i < N_FAMILIES; i++) {
		if (dgrams[i].n == BATCH)
			return true;
	}
	return false;
}

void log_sink_flush(void)
{
	for (unsigned i = 0; i < N_FAMILIES; i++)
		flush_dgrams(&dgrams[i], families[i]);
	flush_fd(&fds);
	log_store_flush();
}

void log_sink_close(void)
{
	for (unsigned i = 0; i < N_FAMILIES; i++) {
		if (dgrams[i].fd > 0)
			close(dgrams[i].fd);
		dgrams[i].fd = 0;
	}
	n_deads = 0;
	fds.fd = -1;
	fds.is_mid_line = false;
}
