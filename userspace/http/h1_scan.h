/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The field-line loop of the HTTP/1 reader, to be included once per instruction set by a file that defines
 *
 *   struct scan                     what is known about the bytes around the current position
 *   scan_begin(s, start, end)       before the first byte
 *   scan_name(s, p)                 first byte at or behind p that is no token character, or end
 *   scan_value(s, p)                first byte at or behind p that may not be in a field value, or end
 *
 * where p never goes back. No read goes beyond the input.
 */

static inline void note_field(struct h1_cursor *c, struct http_msg *msg, unsigned id)
{
	uint32_t bit = 1u << id;

	c->seen.again |= c->seen.once & bit;
	if (!(c->seen.once & bit)) {
		c->seen.once |= bit;
		msg->first[id] = msg->n_fields;
	}
}

/*
 * One field line. `p` is its first byte, not CR. On success *ret_next is the start of the next line.
 */
static inline enum h1_result read_field(struct h1_cursor *c, struct scan *s, const char *p,
					const char **ret_next)
{
	const char *end = c->end, *line = p, *colon, *value, *tail;
	struct http_msg *msg = c->msg;
	struct http_field *f;
	unsigned id;

	colon = scan_name(s, p);
	if (unlikely(colon == end))
		return H1_MORE;
	if (unlikely(*colon != ':' || colon == line)) {
		if (c->flags & H1_ALLOW_VIOLATIONS)
			colon = h1_scan_unsafe_name(line, end);
		if (colon == end)
			return H1_MORE;
		if (*colon != ':' || colon == line)
			return h1_refuse_line(c, line, colon);
	}
	value = colon + 1;
	if (likely(value < end && *value == ' '))
		value++;
	while (value < end && unlikely(http_is_ws(*value)))
		value++;
	tail = scan_value(s, value);
	if (unlikely(end - tail < 2)) {
		if (tail == end || *tail == '\r')
			return H1_MORE;
		return h1_refuse_line(c, line, tail);
	}
	if (unlikely(tail[0] != '\r' || tail[1] != '\n'))
		return h1_refuse_line(c, line, tail);
	*ret_next = tail + 2;
	if (unlikely(msg->n_fields >= msg->max_fields))
		return h1_refuse(c, HTTP_ERR_TOO_MANY_FIELDS, line);

	f = &msg->fields[msg->n_fields++];
	/* The writer may copy the line as it is when it reads "name: value CRLF" to the byte. */
	f->line_len = value - colon == 2 && colon[1] == ' ' ? (uint32_t)(tail + 2 - line) : 0;
	if (unlikely(tail > value && http_is_ws(tail[-1]))) {
		do
			tail--;
		while (tail > value && http_is_ws(tail[-1]));
		f->line_len = 0;
	}
	f->name = str_make(line, (size_t)(colon - line));
	f->value = str_make(value, (size_t)(tail - value));
	f->is_removed = false;
	id = http_token_field_id(line, f->name.len);
	f->id = (uint8_t)id;
	if (id != HTTP_FIELD_OTHER)
		note_field(c, msg, id);
	return H1_DONE;
}

static enum h1_result read_fields(struct h1_cursor *c)
{
	const char *p = c->p, *end = c->end;
	enum h1_result r;
	struct scan s;

	scan_begin(&s, p, end);
	for (;;) {
		if (unlikely(p == end))
			return H1_MORE;
		if (*p == '\r') {
			if (p + 1 == end)
				return H1_MORE;
			if (p[1] != '\n')
				return h1_refuse(c, HTTP_ERR_BARE_CR, p);
			c->p = p + 2;
			return H1_DONE;
		}
		r = read_field(c, &s, p, &p);
		if (unlikely(r != H1_DONE))
			return r;
	}
}
