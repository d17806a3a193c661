/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Requests that the control thread answers: statistics page, metrics. The stream asks by a mail and
 * sleeps; control builds the whole body in chunks and mails it back; the stream sends it as fast as its client
 * reads, giving chunks back as they leave. A worker never waits, and has at most
 * SERVICE_MAX_PER_WORKER calls.
 *
 * A call has one owner at a time: the worker, control while it is under way, the worker again. A
 * client that goes away meanwhile leaves the call without a stream: it is freed when it comes home.
 */
#ifndef PROXY_SERVICE_H
#define PROXY_SERVICE_H

#include <stdatomic.h>

#include "base/list.h"
#include "base/mem.h"
#include "conf/conf.h"
#include "ev/mailbox.h"
#include "http/http.h"

struct worker;
struct stream;

#define SERVICE_MAX_PER_WORKER 16
#define SERVICE_FORM_MAX       65536
#define SERVICE_FIELDS	       8

/* --- text in chunks ------------------------------------------------------------------------------ */

struct service_chunk {
	struct service_chunk *next;
	size_t len, cap;
	char data[];
};

/* Grows at the end. Zeroed: empty. After a failed allocation it takes nothing more and says so. */
struct service_text {
	struct service_chunk *first, *last;
	size_t len;
	bool is_failed;
};

/* At least `n` bytes to write to, then service_text_commit(); NULL: out of memory. */
char *service_text_reserve_slow(struct service_text *t, size_t n);
static inline char *service_text_reserve(struct service_text *t, size_t n)
{
	struct service_chunk *c = t->last;

	if (likely(c && c->cap - c->len >= n && !t->is_failed))
		return c->data + c->len;
	return service_text_reserve_slow(t, n);
}
static inline void service_text_commit(struct service_text *t, size_t n)
{
	t->last->len += n;
	t->len += n;
}
void service_text_put(struct service_text *t, struct str s);
/* Moves all of `from` to the end of `t`. */
void service_text_join(struct service_text *t, struct service_text *from);
void service_text_free(struct service_text *t);

/* --- calls --------------------------------------------------------------------------------------- */

enum service_kind {
	SERVICE_STATS,
	SERVICE_PROMETHEUS,
	SERVICE_KINDS
};

struct service_field {
	const char *name;
	struct str value;
};

struct service_call {
	struct mail mail;
	struct list link; /* control's queue */
	struct worker *w;
	struct stream *st; /* worker's thread only; NULL: nobody waits any more */
	struct arena arena; /* of the strings below, both ways */
	bool is_away; /* worker's thread: control has it */
	bool is_answered;
	size_t held; /* bytes of this body counted in proxy_shared.service_bytes */
	/* --- the question --- */
	uint8_t kind; /* enum service_kind */
	uint8_t method; /* enum http_method */
	struct str path; /* with query */
	struct str host, origin; /* of the request's fields, p NULL: not there */
	struct str form; /* body of a POST */
	bool is_form_too_long;
	/* of the section that the page belongs to */
	struct str uri, desc, node;
	struct str scopes; /* sections that may be seen, each between two newlines; empty: all */
	uint64_t refresh_ns;
	bool hide_version, show_legends, show_node, show_desc;
	bool is_admin; /* `stats admin` says yes to this request */
	/* --- the answer --- */
	uint16_t status;
	struct service_field fields[SERVICE_FIELDS];
	unsigned n_fields;
	struct service_text body;
};

/* A field of the answer; `value` is constant or in c->arena. More than there is room for: left out. */
void service_add_field(struct service_call *c, const char *name, struct str value);
/* The answer is complete: it goes home. Control; `c` is no longer the caller's. */
void service_answer(struct service_call *c);

#endif
