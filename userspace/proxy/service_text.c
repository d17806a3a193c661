/* SPDX-License-Identifier: BSD-2-Clause */
/* What an answer is made of. Text in chunks: nothing is copied twice, and what was sent can be freed. */
#include "proxy/service.h"

#define CHUNK_MIN 1024
#define CHUNK_MAX (256 * 1024)

char *service_text_reserve_slow(struct service_text *t, size_t n)
{
	size_t size = t->last ? (t->last->cap + sizeof(struct service_chunk)) * 2 : CHUNK_MIN;
	struct service_chunk *c;

	if (t->is_failed)
		return NULL;
	if (size > CHUNK_MAX)
		size = CHUNK_MAX;
	if (size < n + sizeof(*c))
		size = n + sizeof(*c);
	c = mem_alloc(size);
	if (!c) {
		t->is_failed = true;
		return NULL;
	}
	c->next = NULL;
	c->len = 0;
	c->cap = size - sizeof(*c);
	if (t->last)
		t->last->next = c;
	else
		t->first = c;
	t->last = c;
	return c->data;
}

void service_text_put(struct service_text *t, struct str s)
{
	/* What fits goes into the chunk that is there. */
	while (s.len) {
		struct service_chunk *c = t->last;
		size_t room = c ? c->cap - c->len : 0;
		size_t n = room && room < s.len ? room : s.len;
		char *to = service_text_reserve(t, n);

		if (!to)
			return;
		memcpy(to, s.p, n);
		service_text_commit(t, n);
		s = str_from(s, n);
	}
}

void service_text_join(struct service_text *t, struct service_text *from)
{
	t->is_failed |= from->is_failed;
	if (from->first) {
		if (t->last)
			t->last->next = from->first;
		else
			t->first = from->first;
		t->last = from->last;
		t->len += from->len;
	}
	*from = (struct service_text){ 0 };
}

void service_text_free(struct service_text *t)
{
	struct service_chunk *c = t->first;

	while (c) {
		struct service_chunk *next = c->next;

		mem_free(c);
		c = next;
	}
	*t = (struct service_text){ 0 };
}

void service_add_field(struct service_call *c, const char *name, struct str value)
{
	if (c->n_fields < SERVICE_FIELDS && value.p)
		c->fields[c->n_fields++] = (struct service_field){ .name = name, .value = value };
}
