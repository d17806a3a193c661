/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Log: identity, global targets, and the two ways in (log.h). The lock is taken at start-up, when a
 * thread comes or goes, when the identity changed, and by log_msg(); never by a traffic line.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "base/log_priv.h"

static struct {
	pthread_mutex_t lock; /* everything here but the atomics */
	struct list rings;
	struct log_identity identity;
	_Atomic unsigned
		identity_gen; /* grows with every change; threads copy when theirs is older */
	struct log_target *targets;
	unsigned n_targets;
	_Atomic bool is_on_stderr;
	uint64_t dropped; /* of rings that are gone */
} logs = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.rings = LIST_INIT(logs.rings),
	.identity = { .tag = "headgate", .tag_len = 8, .pid_text = "0", .pid_len = 1 },
	.identity_gen = 1,
	.is_on_stderr = true,
};

static _Thread_local struct log_ring *my_ring;

static const char *const level_names[] = { "emerg",   "alert",	"crit", "err",
					   "warning", "notice", "info", "debug" };
static const char *const facility_names[] = {
	"kern",	  "user",   "mail",   "daemon", "auth",	  "syslog", "lpr",    "news",
	"uucp",	  "cron",   "auth2",  "ftp",	"ntp",	  "audit",  "alert",  "cron2",
	"local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
};

static int find_name(const char *const *names, size_t n, struct str name)
{
	for (size_t i = 0; i < n; i++) {
		if (str_is_eq(name, str_from_cstr(names[i])))
			return (int)i;
	}
	return -1;
}

int log_level_from_name(struct str name)
{
	return find_name(level_names, ARRAY_SIZE(level_names), name);
}

int log_facility_from_name(struct str name)
{
	return find_name(facility_names, ARRAY_SIZE(facility_names), name);
}

const char *log_level_name(enum log_level level)
{
	return (size_t)level < ARRAY_SIZE(level_names) ? level_names[level] : "?";
}

int log_init(void)
{
	tzset();
	log_set_identity(STR("headgate"), getpid(), STR_NULL);
	return 0;
}

static uint16_t copy_text(char *to, size_t size, struct str s)
{
	size_t n = s.len < size ? s.len : size;

	if (n)
		memcpy(to, s.p, n);
	return (uint16_t)n;
}

void log_set_identity(struct str tag, int pid, struct str host)
{
	struct log_identity *id = &logs.identity;

	pthread_mutex_lock(&logs.lock);
	id->tag_len = copy_text(id->tag, sizeof(id->tag), tag);
	id->host_len = copy_text(id->host, sizeof(id->host), host);
	id->pid_len = (uint16_t)snprintf(id->pid_text, sizeof(id->pid_text), "%d", pid);
	atomic_fetch_add_explicit(&logs.identity_gen, 1, memory_order_release);
	pthread_mutex_unlock(&logs.lock);
}

int log_set_global_targets(const struct log_target *targets, unsigned n)
{
	struct log_target *copy = NULL, *old;

	if (n) {
		copy = mem_alloc(n * sizeof(*copy));
		if (!copy)
			return -ENOMEM;
		memcpy(copy, targets, n * sizeof(*copy));
	}
	pthread_mutex_lock(&logs.lock);
	old = logs.targets;
	logs.targets = copy;
	logs.n_targets = n;
	pthread_mutex_unlock(&logs.lock);
	mem_free(old);
	return 0;
}

void log_set_stderr(bool on)
{
	atomic_store_explicit(&logs.is_on_stderr, on, memory_order_relaxed);
}

int log_thread_enter(void)
{
	struct log_ring *r;

	if (my_ring)
		return 0;
	r = mem_zalloc(sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->mem = mem_alloc(LOG_RING_SIZE);
	if (!r->mem) {
		mem_free(r);
		return -ENOMEM;
	}
	pthread_mutex_lock(&logs.lock);
	list_push_back(&logs.rings, &r->link);
	pthread_mutex_unlock(&logs.lock);
	my_ring = r;
	return 0;
}

void log_thread_leave(void)
{
	struct log_ring *r = my_ring;

	if (!r)
		return;
	my_ring = NULL;
	/* Last access: whoever drains frees the ring once it is empty. */
	atomic_store_explicit(&r->is_closed, true, memory_order_seq_cst);
	log_writer_wake();
}

static void ring_free(struct log_ring *r)
{
	list_del(&r->link);
	logs.dropped += atomic_load_explicit(&r->dropped, memory_order_relaxed);
	mem_free(r->mem);
	mem_free(r);
}

static unsigned drain_ring(struct log_ring *r)
{
	uint32_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
	uint32_t pos = atomic_load_explicit(&r->head, memory_order_relaxed);
	struct log_record *rec;
	unsigned n = 0;

	while ((rec = log_ring_next(r, &pos, tail))) {
		log_sink_add(rec);
		n++;
		if (!log_sink_is_full())
			continue;
		log_sink_flush();
		atomic_store_explicit(&r->head, pos, memory_order_release);
	}
	log_sink_flush();
	atomic_store_explicit(&r->head, pos, memory_order_release);
	return n;
}

unsigned log_drain(void)
{
	struct list *pos;
	unsigned n = 0;

	/*
	 * Threads only add at the end, and nobody but the one that drains removes, so the list can be
	 * walked with the lock taken for each step: sending takes time, and log_msg() wants the lock.
	 */
	pthread_mutex_lock(&logs.lock);
	for (pos = logs.rings.next; pos != &logs.rings;) {
		struct log_ring *r = list_entry(pos, struct log_ring, link);
		bool is_closed = atomic_load_explicit(&r->is_closed, memory_order_acquire);

		pthread_mutex_unlock(&logs.lock);
		n += drain_ring(r);
		pthread_mutex_lock(&logs.lock);
		pos = pos->next;
		if (is_closed)
			ring_free(r);
	}
	pthread_mutex_unlock(&logs.lock);
	return n;
}

bool log_is_pending(void)
{
	bool is_pending = false;
	struct list *pos;

	pthread_mutex_lock(&logs.lock);
	list_for_each(pos, &logs.rings) {
		struct log_ring *r = list_entry(pos, struct log_ring, link);

		if (atomic_load_explicit(&r->tail, memory_order_seq_cst) !=
			    atomic_load_explicit(&r->head, memory_order_relaxed) ||
		    atomic_load_explicit(&r->is_closed, memory_order_seq_cst))
			is_pending = true;
	}
	pthread_mutex_unlock(&logs.lock);
	return is_pending;
}

uint64_t log_dropped(void)
{
	uint64_t n = log_sink_dropped();
	struct list *pos;

	pthread_mutex_lock(&logs.lock);
	n += logs.dropped;
	list_for_each(pos, &logs.rings) {
		struct log_ring *r = list_entry(pos, struct log_ring, link);

		n += atomic_load_explicit(&r->dropped, memory_order_relaxed);
	}
	pthread_mutex_unlock(&logs.lock);
	return n;
}

/* --- emitting --- */

static HG_COLD void copy_identity(struct log_ring *r)
{
	pthread_mutex_lock(&logs.lock);
	r->identity = logs.identity;
	r->identity_gen = atomic_load_explicit(&logs.identity_gen, memory_order_relaxed);
	pthread_mutex_unlock(&logs.lock);
}

static void count_drop(struct log_ring *r)
{
	/* One writer, so no read-modify-write is needed. */
	uint64_t n = atomic_load_explicit(&r->dropped, memory_order_relaxed);

	atomic_store_explicit(&r->dropped, n + 1, memory_order_relaxed);
}

/* How many lines this thread has emitted to this list of targets. */
static uint32_t count_line(struct log_ring *r, const struct log_target *targets)
{
	size_t at = ((uintptr_t)targets >> 4) * 0x9e3779b97f4a7c15ull >> 58;
	struct log_sample *s;

	for (size_t i = 0; i < LOG_SAMPLE_SLOTS; i++) {
		s = &r->samples[(at + i) % LOG_SAMPLE_SLOTS];
		if (s->targets == targets)
			return s->count++;
		if (!s->targets)
			break;
	}
	/* A free slot, or with all taken a neighbour's: its list starts counting over. */
	s->targets = targets;
	s->count = 1;
	return 0;
}

static bool is_sampled(const struct log_target *t, uint32_t count)
{
	uint32_t at = count % t->sample_of + 1;

	for (unsigned i = 0; i < t->n_samples; i++)
		if (at >= t->samples[i].lo && at <= t->samples[i].hi)
			return true;
	return false;
}

static bool emit_one(struct log_ring *r, const struct log_target *t, enum log_level level,
		     struct str tag, struct str sd, struct str line, size_t bound)
{
	size_t max = bound < t->max_len ? bound : t->max_len;
	const void *addr = &t->fd;
	unsigned len = sizeof(t->fd);
	struct log_record *rec;

	if (level < t->min_level)
		level = (enum log_level)t->min_level;
	if (t->transport == LOG_TO_UDP) {
		addr = &t->udp;
		len = addr_len(&t->udp);
	} else if (t->transport == LOG_TO_UNIX) {
		addr = &t->un;
		len = (unsigned)(offsetof(struct sockaddr_un, sun_path) +
				 strnlen(t->un.sun_path, sizeof(t->un.sun_path)));
	} else if (t->transport == LOG_TO_STORE) {
		addr = t->store;
		len = (unsigned)strlen(t->store);
	}
	rec = max ? log_ring_reserve(r, len, (uint32_t)max) : NULL;
	if (!rec)
		return false;
	rec->transport = (uint8_t)t->transport;
	memcpy(log_record_addr(rec), addr, len);
	max = log_format_line(log_record_text(rec), max, t, level, &r->identity, &r->dates, tag, sd,
			      line);
	log_ring_commit(r, rec, (uint32_t)max);
	return true;
}

/* The line and a newline, at once; what the descriptor does not take is lost. */
static void write_stderr(struct str line)
{
	char text[2100];
	size_t n = line.len < sizeof(text) - 1 ? line.len : sizeof(text) - 1;
	ssize_t done;

	memcpy(text, line.p, n);
	text[n++] = '\n';
	do
		done = write(STDERR_FILENO, text, n);
	while (done < 0 && errno == EINTR);
}

static void emit_all(struct log_ring *r, const struct log_target *targets, unsigned n,
		     enum log_level level, struct str tag, struct str sd, struct str line)
{
	size_t bound = log_format_bound(&r->identity, tag, sd, line);
	bool is_counted = false;
	uint32_t count = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct log_target *t = &targets[i];

		if (level > t->max_level)
			continue;
		if (t->sample_of) {
			if (!is_counted)
				count = count_line(r, targets);
			is_counted = true;
			if (!is_sampled(t, count))
				continue;
		}
		if (!emit_one(r, t, level, tag, sd, line, bound))
			count_drop(r);
	}
	if (atomic_load_explicit(&r->tail, memory_order_relaxed) == r->tail_local)
		return;
	log_ring_publish(r);
	log_writer_wake();
}

static void refresh_identity(struct log_ring *r)
{
	if (unlikely(r->identity_gen !=
		     atomic_load_explicit(&logs.identity_gen, memory_order_acquire)))
		copy_identity(r);
}

void log_emit(const struct log_target *targets, unsigned n, enum log_level level, struct str tag,
	      struct str sd, struct str line)
{
	if (unlikely(!my_ring)) {
		if (line.len)
			write_stderr(line);
		return;
	}
	refresh_identity(my_ring);
	emit_all(my_ring, targets, n, level, tag, sd, line);
}

/* "[NOTICE]   (4321) : text", the columns people know from start-up messages. */
static void emit_stderr(enum log_level level, struct str line)
{
	static const char *const labels[] = { "[EMERG]",   "[ALERT]",  "[CRIT]", "[ERR]",
					      "[WARNING]", "[NOTICE]", "[INFO]", "[DEBUG]" };
	const struct log_target t = { .transport = LOG_TO_FD,
				      .fd = STDERR_FILENO,
				      .format = LOG_FMT_RAW,
				      .max_level = LOG_LVL_DEBUG,
				      .max_len = 2100 };
	char text[2100];
	int n = snprintf(text, sizeof(text), "%-10s (%d) : " STR_FMT, labels[level], (int)getpid(),
			 STR_ARG(line));

	if (n < 0)
		return;
	if ((size_t)n >= sizeof(text))
		n = sizeof(text) - 1;
	if (my_ring && log_writer_is_running())
		log_emit(&t, 1, level, STR_NULL, STR_NULL, str_make(text, (size_t)n));
	else
		write_stderr(str_make(text, (size_t)n));
}

void log_msg(enum log_level level, const char *fmt, ...)
{
	char text[2048];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	if ((size_t)n >= sizeof(text))
		n = sizeof(text) - 1;
	/* One message is one line, whatever names from outside it quotes. */
	for (int i = 0; i < n; i++) {
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			text[i] = ' ';
	}
	if (my_ring) {
		refresh_identity(my_ring);
		/* Lines are copies, so the list may be replaced as soon as the lock is gone. */
		pthread_mutex_lock(&logs.lock);
		emit_all(my_ring, logs.targets, logs.n_targets, level, STR_NULL, STR_NULL,
			 str_make(text, (size_t)n));
		pthread_mutex_unlock(&logs.lock);
	}
	if (!my_ring || atomic_load_explicit(&logs.is_on_stderr, memory_order_relaxed))
		emit_stderr(level, str_make(text, (size_t)n));
}
