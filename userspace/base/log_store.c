/* SPDX-License-Identifier: BSD-2-Clause */
/* Lines kept in memory (log_store.h): a queue of bytes per ring, whose oldest lines make room for new ones. */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "base/log_priv.h"
#include "base/log_store.h"

#define LENGTH_SIZE sizeof(uint16_t) /* in front of each line */

struct log_store {
	struct log_store_spec spec; /* its texts are in `texts` */
	char *texts;
	struct log_store_file *file; /* has the bytes, and is told what is in them; NULL: memory */
	uint8_t *bytes; /* [spec.size] */
	uint64_t head, tail; /* of the oldest line, behind the newest; bytes ever written */
	uint64_t first_line, next_line; /* numbers of the same */
	uint64_t dropped;
};

static struct {
	pthread_mutex_t lock;
	struct log_store *all;
	unsigned n;
	int eventfd; /* -1: nobody wants to know */
	bool has_news; /* of the drainer alone: lines came since the last notification */
} stores = { .lock = PTHREAD_MUTEX_INITIALIZER, .eventfd = -1 };

/* --- one ring; under the lock, or not published yet --- */

static void copy_in(struct log_store *s, const void *from, size_t n)
{
	size_t at = s->tail % s->spec.size, first = s->spec.size - at;

	if (first > n)
		first = n;
	memcpy(s->bytes + at, from, first);
	memcpy(s->bytes, (const uint8_t *)from + first, n - first);
	s->tail += n;
}

static void copy_out(const struct log_store *s, uint64_t pos, void *to, size_t n)
{
	size_t at = pos % s->spec.size, first = s->spec.size - at;

	if (first > n)
		first = n;
	memcpy(to, s->bytes + at, first);
	memcpy((uint8_t *)to + first, s->bytes, n - first);
}

static uint16_t line_length(const struct log_store *s, uint64_t pos)
{
	uint16_t len;

	copy_out(s, pos, &len, sizeof(len));
	return len;
}

static void store_put(struct log_store *s, const char *text, uint16_t len)
{
	if (len + LENGTH_SIZE > s->spec.size) {
		s->dropped++;
		return;
	}
	while (s->tail - s->head + LENGTH_SIZE + len > s->spec.size) {
		s->head += LENGTH_SIZE + line_length(s, s->head);
		s->first_line++;
	}
	/* A crash between any two of these leaves whole lines. */
	if (s->file)
		__atomic_store_n(&s->file->head, s->head, __ATOMIC_RELEASE);
	copy_in(s, &len, sizeof(len));
	copy_in(s, text, len);
	if (s->file)
		__atomic_store_n(&s->file->tail, s->tail, __ATOMIC_RELEASE);
	s->next_line++;
}

static struct log_store *store_find(struct log_store *all, unsigned n, struct str name)
{
	for (unsigned i = 0; i < n; i++) {
		if (str_is_eq(all[i].spec.name, name))
			return &all[i];
	}
	return NULL;
}

static void store_close(struct log_store *s)
{
	if (s->file)
		log_store_file_close(s->file);
	else
		mem_free(s->bytes);
	mem_free(s->texts);
}

static struct str keep_text(char **at, struct str text)
{
	struct str kept = str_make(*at, text.len);

	if (text.len)
		memcpy(*at, text.p, text.len);
	(*at)[text.len] = '\0';
	*at += text.len + 1;
	return kept;
}

/* Is it the same file, which goes on as it is? Only control changes what a ring is. */
static bool has_file(const struct log_store *old, const struct log_store_spec *spec)
{
	return old && spec->path.len && str_is_eq(old->spec.path, spec->path) &&
	       old->spec.size == spec->size;
}

static int open_bytes(struct log_store *s)
{
	int r;

	if (!s->spec.path.len) {
		s->bytes = mem_alloc(s->spec.size);
		return s->bytes ? 0 : -ENOMEM;
	}
	r = log_store_file_create(s->spec.path.p, s->spec.size, &s->file);
	if (r == 0)
		s->bytes = (uint8_t *)s->file + LOG_STORE_FILE_HEAD;
	else
		log_msg(LOG_LVL_ERR, "ring " STR_FMT ": cannot make %s: %s", STR_ARG(s->spec.name),
			s->spec.path.p,
			r == -EEXIST ? "what is there is not a ring" : strerror(-r));
	return r;
}

/* Without bytes where the old one's file goes on. */
static int store_open(struct log_store *s, const struct log_store_spec *spec)
{
	char *at;
	int r;

	*s = (struct log_store){ .spec = *spec };
	s->texts = at = mem_alloc(spec->name.len + spec->description.len + spec->path.len + 3);
	if (!s->texts)
		return -ENOMEM;
	s->spec.name = keep_text(&at, spec->name);
	s->spec.description = keep_text(&at, spec->description);
	s->spec.path = keep_text(&at, spec->path);
	if (has_file(store_find(stores.all, stores.n, spec->name), spec))
		return 0;
	r = open_bytes(s);
	if (r)
		mem_free(s->texts);
	return r;
}

/* The old one's lines; readers' places stay right, because lines keep their numbers and positions. */
static void store_take_over(struct log_store *s, struct log_store *old)
{
	uint64_t pos = old->head;

	if (!s->bytes) {
		s->bytes = old->bytes;
		s->file = old->file;
		old->bytes = NULL;
		old->file = NULL;
		s->head = old->head;
		s->tail = old->tail;
		s->first_line = old->first_line;
		s->next_line = old->next_line;
		s->dropped = old->dropped;
		return;
	}
	s->first_line = old->first_line;
	while (old->tail - pos > s->spec.size) {
		pos += LENGTH_SIZE + line_length(old, pos);
		s->first_line++;
	}
	s->head = s->tail = pos;
	while (pos < old->tail) {
		size_t at = pos % old->spec.size, n = old->spec.size - at;

		if (n > old->tail - pos)
			n = old->tail - pos;
		copy_in(s, old->bytes + at, n);
		pos += n;
	}
	s->next_line = old->next_line;
	s->dropped = old->dropped;
	if (s->file) {
		s->file->head = s->head;
		s->file->tail = s->tail;
	}
}

static void free_all(struct log_store *all, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		store_close(&all[i]);
	mem_free(all);
}

/* --- the writer's side --- */

void log_store_put(struct str name, struct str line)
{
	struct log_store *s;

	pthread_mutex_lock(&stores.lock);
	s = store_find(stores.all, stores.n, name);
	if (s)
		store_put(s, line.p, (uint16_t)line.len);
	stores.has_news |= s != NULL;
	pthread_mutex_unlock(&stores.lock);
}

void log_store_flush(void)
{
	const uint64_t one = 1;

	if (!stores.has_news)
		return;
	stores.has_news = false;
	pthread_mutex_lock(&stores.lock);
	/* Full means that the reader has been told already. */
	if (stores.eventfd >= 0 && write(stores.eventfd, &one, sizeof(one)) < 0)
		BUG_ON(errno != EAGAIN && errno != EINTR);
	pthread_mutex_unlock(&stores.lock);
}

/* --- control's side --- */

int log_stores_set(const struct log_store_spec *specs, unsigned n)
{
	struct log_store *all = n ? mem_alloc(n * sizeof(*all)) : NULL, *old;
	unsigned n_old;

	if (n && !all)
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++) {
		int r = store_open(&all[i], &specs[i]);

		if (r == 0)
			continue;
		free_all(all, i);
		return r;
	}
	pthread_mutex_lock(&stores.lock);
	for (unsigned i = 0; i < n; i++) {
		old = store_find(stores.all, stores.n, all[i].spec.name);
		if (old)
			store_take_over(&all[i], old);
	}
	old = stores.all;
	n_old = stores.n;
	stores.all = all;
	stores.n = n;
	pthread_mutex_unlock(&stores.lock);
	free_all(old, n_old);
	return 0;
}

void log_stores_notify(int eventfd)
{
	pthread_mutex_lock(&stores.lock);
	stores.eventfd = eventfd;
	pthread_mutex_unlock(&stores.lock);
}

int log_store_end(struct str name, struct log_cursor *ret)
{
	struct log_store *s;

	pthread_mutex_lock(&stores.lock);
	s = store_find(stores.all, stores.n, name);
	if (s)
		*ret = (struct log_cursor){ s->tail, s->next_line };
	pthread_mutex_unlock(&stores.lock);
	return s ? 0 : -ENOENT;
}

static int store_next(struct log_store *s, struct log_cursor *at, char *out, size_t room)
{
	uint16_t len;

	/* The place of a reader of an older ring of that name, which was gone in between: from the oldest. */
	if (at->pos > s->tail)
		*at = (struct log_cursor){ s->head, s->first_line };
	if (at->pos < s->head) {
		if (at->pos || at->line) /* who begins has missed nothing */
			s->dropped += s->first_line - at->line;
		*at = (struct log_cursor){ s->head, s->first_line };
	}
	if (at->pos == s->tail)
		return -EAGAIN;
	len = line_length(s, at->pos);
	copy_out(s, at->pos + LENGTH_SIZE, out, len < room ? len : room);
	at->pos += LENGTH_SIZE + len;
	at->line++;
	return (int)(len < room ? len : room);
}

int log_store_next(struct str name, struct log_cursor *at, char *out, size_t room)
{
	struct log_store *s;
	int r = -ENOENT;

	pthread_mutex_lock(&stores.lock);
	s = store_find(stores.all, stores.n, name);
	if (s)
		r = store_next(s, at, out, room);
	pthread_mutex_unlock(&stores.lock);
	return r;
}

bool log_store_info(unsigned i, struct log_store_spec *ret, uint64_t *ret_dropped)
{
	bool is_there;

	pthread_mutex_lock(&stores.lock);
	is_there = i < stores.n;
	if (is_there) {
		*ret = stores.all[i].spec;
		*ret_dropped = stores.all[i].dropped;
	}
	pthread_mutex_unlock(&stores.lock);
	return is_there;
}
