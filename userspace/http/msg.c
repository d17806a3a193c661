/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The message: finding, adding, replacing and removing fields, comma lists, hop-by-hop fields. Called
 * by both codecs and by the rules. A message and its arena belong to one stream and so to one thread.
 */
#include "http/http_priv.h"

#include <errno.h>

int http_msg_init(struct http_msg *m, struct arena *arena, unsigned max_fields)
{
	if (max_fields == 0 || max_fields > UINT16_MAX - HTTP_MAX_EDITS)
		return -EINVAL;
	*m = (struct http_msg){ .arena = arena };
	m->fields = arena_alloc(arena, max_fields * sizeof(*m->fields));
	if (!m->fields)
		return -ENOMEM;
	m->cap_fields = (uint16_t)max_fields;
	m->max_fields = (uint16_t)max_fields;
	return 0;
}

/* Once per head on the hot path: only what is not an allocation is cleared. */
void http_msg_reset(struct http_msg *m)
{
	const size_t from = offsetof(struct http_msg, flags),
		     to = offsetof(struct http_msg, fields);

	memset((char *)m + from, 0, to - from);
	m->n_fields = 0;
	m->n_trailers = 0;
	memset(m->first, 0, sizeof(m->first));
}

struct http_field *http_msg_find(const struct http_msg *m, enum http_field_id id, unsigned from)
{
	unsigned i;

	if (!m->first[id])
		return NULL;
	i = m->first[id] - 1u;
	if (i < from)
		i = from;
	for (; i < m->n_fields; i++)
		if (m->fields[i].id == id && !m->fields[i].is_removed)
			return &m->fields[i];
	return NULL;
}

struct http_field *http_msg_find_name(const struct http_msg *m, struct str name, unsigned from)
{
	return http_msg_find_named(m, &(struct http_header_name){ name, http_field_id(name) },
				   from);
}

struct http_field *http_msg_find_named(const struct http_msg *m,
				       const struct http_header_name *name, unsigned from)
{
	if (name->id != HTTP_FIELD_OTHER)
		return http_msg_find(m, name->id, from);
	for (unsigned i = from; i < m->n_fields; i++) {
		struct http_field *f = &m->fields[i];

		if (f->id == HTTP_FIELD_OTHER && !f->is_removed &&
		    str_is_case_eq(f->name, name->text))
			return f;
	}
	return NULL;
}

/* --- edits ------------------------------------------------------------------------------------- */

static int make_room(struct http_msg *m)
{
	unsigned limit = m->max_fields + HTTP_MAX_EDITS, cap;
	struct http_field *fields;

	if (m->n_fields < m->cap_fields)
		return 0;
	if (m->n_fields >= limit)
		return -ENOSPC;
	cap = m->cap_fields + 32u;
	if (cap > limit)
		cap = limit;
	fields = arena_alloc(m->arena, cap * sizeof(*fields));
	if (!fields)
		return -ENOMEM;
	if (m->n_fields)
		memcpy(fields, m->fields, m->n_fields * sizeof(*fields));
	m->fields = fields;
	m->cap_fields = (uint16_t)cap;
	return 0;
}

static struct str trim(struct str s)
{
	while (s.len && http_is_ws(s.p[0])) {
		s.p++;
		s.len--;
	}
	while (s.len && http_is_ws(s.p[s.len - 1]))
		s.len--;
	return s;
}

/* The name, checked and in the arena. */
static int copy_name(struct http_msg *m, struct str name, struct http_header_name *ret)
{
	if (!http_is_token(name))
		return -EINVAL;
	if (!m->arena)
		return -ENOMEM;
	*ret = (struct http_header_name){ arena_str(m->arena, name), http_field_id(name) };
	return ret->text.p ? 0 : -ENOMEM;
}

static int make_field(struct http_msg *m, const struct http_header_name *name, struct str value,
		      bool is_lasting, struct http_field *ret)
{
	value = trim(value);
	if (!http_is_value(value))
		return -EINVAL;
	if (!m->arena)
		return -ENOMEM;
	if (!value.len)
		value = STR("");
	else if (!is_lasting)
		value = arena_str(m->arena, value);
	*ret = (struct http_field){ .id = (uint8_t)name->id, .name = name->text, .value = value };
	return value.p ? 0 : -ENOMEM;
}

int http_msg_add_named(struct http_msg *m, const struct http_header_name *name, struct str value,
		       bool is_lasting)
{
	struct http_field f;
	int err = make_field(m, name, value, is_lasting, &f);

	if (!err)
		err = make_room(m);
	if (err)
		return err;
	m->fields[m->n_fields++] = f;
	if (f.id != HTTP_FIELD_OTHER && !m->first[f.id])
		m->first[f.id] = m->n_fields;
	return 0;
}

int http_msg_set_named(struct http_msg *m, const struct http_header_name *name, struct str value,
		       bool is_lasting)
{
	struct http_field *old = http_msg_find_named(m, name, 0);
	struct http_field f;
	unsigned index;
	int err;

	if (!old)
		return http_msg_add_named(m, name, value, is_lasting);
	err = make_field(m, name, value, is_lasting, &f);
	if (err)
		return err;
	index = (unsigned)(old - m->fields);
	*old = f;
	while ((old = http_msg_find_named(m, name, index + 1)))
		old->is_removed = true;
	return 0;
}

int http_msg_add(struct http_msg *m, struct str name, struct str value)
{
	struct http_header_name n;
	int err = copy_name(m, name, &n);

	return err ? err : http_msg_add_named(m, &n, value, false);
}

int http_msg_set(struct http_msg *m, struct str name, struct str value)
{
	struct http_header_name n;
	int err = copy_name(m, name, &n);

	return err ? err : http_msg_set_named(m, &n, value, false);
}

void http_msg_del(struct http_msg *m, struct str name)
{
	struct http_field *f;
	unsigned from = 0;

	while ((f = http_msg_find_name(m, name, from))) {
		f->is_removed = true;
		from = (unsigned)(f - m->fields) + 1;
	}
}

void http_msg_del_field(struct http_msg *m, struct http_field *f)
{
	(void)m; /* `first` may go on naming it: look-ups skip removed fields */
	f->is_removed = true;
}

/* --- lists ------------------------------------------------------------------------------------- */

/* Offset of the next comma that is not inside a quoted-string (RFC 9110 5.6.4), or the length. */
static size_t item_len(struct str s)
{
	bool is_quoted = false;
	size_t i;

	for (i = 0; i < s.len; i++) {
		if (s.p[i] == '"')
			is_quoted = !is_quoted;
		else if (s.p[i] == '\\' && is_quoted)
			i++;
		else if (s.p[i] == ',' && !is_quoted)
			break;
	}
	return i < s.len ? i : s.len;
}

bool http_list_next(struct str *list, struct str *ret_item)
{
	while (list->len) {
		size_t n = item_len(*list);

		*ret_item = trim(str_make(list->p, n));
		if (n < list->len)
			n++;
		list->p += n;
		list->len -= n;
		if (ret_item->len)
			return true;
	}
	return false;
}

bool http_list_has(struct str list, struct str item)
{
	struct str s;

	while (http_list_next(&list, &s))
		if (str_is_case_eq(s, item))
			return true;
	return false;
}

bool http_msg_list_has(const struct http_msg *m, enum http_field_id id, struct str item)
{
	const struct http_field *f;
	unsigned from = 0;

	while ((f = http_msg_find(m, id, from))) {
		if (http_list_has(f->value, item))
			return true;
		from = (unsigned)(f - m->fields) + 1;
	}
	return false;
}

struct str http_msg_host(const struct http_msg *m)
{
	const struct http_field *f;

	if (m->authority.len)
		return m->authority;
	f = http_msg_find(m, HTTP_FIELD_HOST, 0);
	return f ? f->value : STR_NULL;
}

/* --- hop by hop -------------------------------------------------------------------------------- */

static void remove_all(struct http_msg *m, enum http_field_id id)
{
	struct http_field *f;
	unsigned from = 0;

	while ((f = http_msg_find(m, id, from))) {
		f->is_removed = true;
		from = (unsigned)(f - m->fields) + 1;
	}
}

/* TE: only "trailers" means anything to the next hop, and only when we are asked for it alone. */
static void strip_te(struct http_msg *m)
{
	bool has_trailers = http_msg_list_has(m, HTTP_FIELD_TE, STR("trailers"));
	struct http_field *f = http_msg_find(m, HTTP_FIELD_TE, 0);

	remove_all(m, HTTP_FIELD_TE);
	if (f && has_trailers) {
		f->is_removed = false;
		f->value = STR("trailers");
	}
}

static void strip_nominated(struct http_msg *m, struct str list, bool keep_upgrade)
{
	struct str item;

	while (http_list_next(&list, &item)) {
		switch (http_field_id(item)) {
		case HTTP_FIELD_HOST:
		case HTTP_FIELD_TE: /* strip_te() decides */
			break;
		case HTTP_FIELD_UPGRADE:
			if (keep_upgrade)
				break;
			/* fallthrough */
		default:
			http_msg_del(m, item);
		}
	}
}

void http_msg_strip_hop_by_hop(struct http_msg *m, bool keep_upgrade)
{
	const struct http_field *f;
	unsigned from = 0;

	while ((f = http_msg_find(m, HTTP_FIELD_CONNECTION, from))) {
		from = (unsigned)(f - m->fields) + 1;
		/* What nearly every message says nominates nothing. */
		if (str_is_case_eq(f->value, STR("keep-alive")) ||
		    str_is_case_eq(f->value, STR("close")))
			continue;
		strip_nominated(m, f->value, keep_upgrade);
	}
	remove_all(m, HTTP_FIELD_CONNECTION);
	remove_all(m, HTTP_FIELD_KEEP_ALIVE);
	remove_all(m, HTTP_FIELD_PROXY_CONNECTION);
	if (m->first[HTTP_FIELD_TE])
		strip_te(m);
	if (!keep_upgrade)
		remove_all(m, HTTP_FIELD_UPGRADE);
}
