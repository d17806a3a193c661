/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Variables of the process (proc.*): shared by all threads, read and written by rules. A variable has two
 * copies; the writer fills the one that nobody reads and makes it current by counting `seq` on, so readers
 * neither wait nor see half a value. Of two writers at the same moment the second gives way: it
 * counts as the one that came first. Slots are made while compiling and stay until the process ends.
 */
#include <stdatomic.h>

#include "expr/expr_priv.h"

#define PROC_IDS   8192
#define PROC_WORDS (VARS_PROC_TEXT_MAX / 8)
#define NOT_SET	   0xff

struct proc_copy {
	_Atomic uint32_t type; /* enum sample_type or NOT_SET */
	_Atomic uint32_t len;
	_Atomic uint64_t words[PROC_WORDS]; /* text, or the union of a sample */
};

struct proc_var {
	_Atomic uint32_t seq; /* the current copy is seq & 1 */
	_Atomic bool is_busy; /* a writer is at the other copy */
	_Atomic bool exists; /* was set once */
	struct proc_copy copies[2];
};

static _Atomic(struct proc_var *) slots[PROC_IDS];

int vars_proc_make(uint32_t id, struct err *err)
{
	struct proc_var *v;

	if (id >= PROC_IDS)
		return err_set(err, -EINVAL, "too many variables for one of the process");
	if (atomic_load_explicit(&slots[id], memory_order_relaxed))
		return 0;
	v = mem_zalloc(sizeof(*v));
	if (!v)
		return -ENOMEM;
	v->copies[0].type = NOT_SET;
	atomic_store_explicit(&slots[id], v, memory_order_release);
	return 0;
}

static struct proc_var *proc_find(uint32_t id)
{
	return id < PROC_IDS ? atomic_load_explicit(&slots[id], memory_order_acquire) : NULL;
}

static void words_put(struct proc_copy *c, const void *p, size_t n)
{
	for (size_t i = 0; i < (n + 7) / 8; i++) {
		uint64_t w = 0;

		memcpy(&w, (const char *)p + 8 * i, n - 8 * i < 8 ? n - 8 * i : 8);
		atomic_store_explicit(&c->words[i], w, memory_order_relaxed);
	}
}

static void words_get(const struct proc_copy *c, void *p, size_t n)
{
	for (size_t i = 0; i < (n + 7) / 8; i++) {
		uint64_t w = atomic_load_explicit(&c->words[i], memory_order_relaxed);

		memcpy((char *)p + 8 * i, &w, n - 8 * i < 8 ? n - 8 * i : 8);
	}
}

static void proc_write(struct proc_var *v, unsigned type, const void *p, size_t n)
{
	uint32_t seq;
	struct proc_copy *c;

	if (atomic_exchange_explicit(&v->is_busy, true, memory_order_acquire))
		return;
	seq = atomic_load_explicit(&v->seq, memory_order_relaxed);
	c = &v->copies[(seq + 1) & 1];
	/* Readers of the copy that was current before this one see that `seq` has moved. */
	atomic_thread_fence(memory_order_release);
	atomic_store_explicit(&c->type, type, memory_order_relaxed);
	atomic_store_explicit(&c->len, (uint32_t)n, memory_order_relaxed);
	words_put(c, p, n);
	atomic_store_explicit(&v->seq, seq + 1, memory_order_release);
	atomic_store_explicit(&v->is_busy, false, memory_order_release);
}

int vars_proc_set(uint32_t id, const struct sample *s)
{
	struct proc_var *v = proc_find(id);

	if (!v)
		return -ENOENT;
	if (s->type >= SAMPLE_STR && s->str.len > VARS_PROC_TEXT_MAX)
		return -EMSGSIZE;
	atomic_store_explicit(&v->exists, true, memory_order_relaxed);
	if (s->type >= SAMPLE_STR)
		proc_write(v, s->type, s->str.p, s->str.len);
	else if (s->type == SAMPLE_ADDR)
		proc_write(v, s->type, &s->addr, sizeof(s->addr));
	else
		proc_write(v, s->type, &s->sint, sizeof(s->sint));
	return 0;
}

void vars_proc_unset(uint32_t id)
{
	struct proc_var *v = proc_find(id);

	if (v)
		proc_write(v, NOT_SET, NULL, 0);
}

bool vars_proc_exists(uint32_t id)
{
	struct proc_var *v = proc_find(id);

	return v && atomic_load_explicit(&v->exists, memory_order_relaxed);
}

/* What lies in the copy; the caller checks afterwards that it was whole. */
static int copy_read(const struct proc_copy *c, char *text, struct sample *ret)
{
	uint32_t type = atomic_load_explicit(&c->type, memory_order_relaxed);
	uint32_t len = atomic_load_explicit(&c->len, memory_order_relaxed);

	if (type == NOT_SET)
		return -ENOENT;
	ret->type = (uint8_t)type;
	ret->is_const = true;
	if (type == SAMPLE_ADDR) {
		words_get(c, &ret->addr, sizeof(ret->addr));
	} else if (type < SAMPLE_STR) {
		words_get(c, &ret->sint, sizeof(ret->sint));
	} else {
		len = len <= VARS_PROC_TEXT_MAX ? len : 0;
		words_get(c, text, len);
		ret->str = str_make(text, len);
	}
	return 0;
}

int vars_proc_get(uint32_t id, struct arena *arena, struct sample *ret)
{
	struct proc_var *v = proc_find(id);
	char text[VARS_PROC_TEXT_MAX];
	uint32_t seq;
	int r;

	if (!v)
		return -ENOENT;
	do {
		seq = atomic_load_explicit(&v->seq, memory_order_acquire);
		r = copy_read(&v->copies[seq & 1], text, ret);
		atomic_thread_fence(memory_order_acquire);
	} while (atomic_load_explicit(&v->seq, memory_order_relaxed) != seq);
	if (r || ret->type < SAMPLE_STR)
		return r;
	ret->str = arena_str(arena, ret->str);
	return ret->str.p ? 0 : -ENOMEM;
}
