/* SPDX-License-Identifier: BSD-2-Clause */
/* Intrusive doubly linked list. An entry that is on no list points to itself after list_init(). */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>

#include "base/err.h"

struct list {
	struct list *next, *prev;
};

#define LIST_INIT(name) { &(name), &(name) }
#define list_entry(ptr, type, member) container_of(ptr, type, member)
#define list_for_each(pos, head) for (pos = (head)->next; pos != (head); pos = pos->next)
/* Safe against removal of `pos` itself, not of its neighbour. */
#define list_for_each_safe(pos, tmp, head) \
	for (pos = (head)->next, tmp = pos->next; pos != (head); pos = tmp, tmp = pos->next)

static inline void list_init(struct list *l)
{
	l->next = l;
	l->prev = l;
}

static inline bool list_is_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_insert_between(struct list *n, struct list *prev, struct list *next)
{
	n->prev = prev;
	n->next = next;
	prev->next = n;
	next->prev = n;
}

static inline void list_push_front(struct list *head, struct list *n)
{
	list_insert_between(n, head, head->next);
}

static inline void list_push_back(struct list *head, struct list *n)
{
	list_insert_between(n, head->prev, head);
}

/* Removes and re-initialises: removing twice is harmless. */
static inline void list_del(struct list *n)
{
	n->prev->next = n->next;
	n->next->prev = n->prev;
	list_init(n);
}

/* First entry taken off, or NULL. */
static inline struct list *list_pop_front(struct list *head)
{
	struct list *n = head->next;

	if (n == head)
		return NULL;
	list_del(n);
	return n;
}

/* Moves all of `src` behind the entries of `dst`; `src` is empty afterwards. */
static inline void list_splice_back(struct list *dst, struct list *src)
{
	if (list_is_empty(src))
		return;
	src->next->prev = dst->prev;
	dst->prev->next = src->next;
	src->prev->next = dst;
	dst->prev = src->prev;
	list_init(src);
}

#endif
