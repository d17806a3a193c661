/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What entries of stick tables hold: plain numbers, and rates. A rate is counted in periods: the count of
 * the running one, that of the one before, and when the running one began; what is read is the old count
 * weighted by what is left of it in the last `period`, plus the new one. Called under the stripe's lock.
 */
#include <errno.h>

#include "lb/stick_priv.h"

#define RATE_WORDS STICK_RATE_WORDS

uint64_t stick_rate_get(const uint64_t *w, uint32_t period_ms, uint64_t now_ms)
{
	uint64_t cur = w[0], last = w[1], age = now_ms > w[2] ? now_ms - w[2] : 0, left;

	if (age >= 2ull * period_ms)
		return 0;
	if (age >= period_ms) {
		last = cur;
		cur = 0;
		age -= period_ms;
	}
	left = period_ms - age;
	/* A single event is shown until it is over, not as 0 from the first moment on. */
	if (cur == 0 && last <= 1)
		return last;
	return cur + (uint64_t)((unsigned __int128)last * left / period_ms);
}

void stick_rate_add(uint64_t *w, uint32_t period_ms, uint64_t n, uint64_t now_ms)
{
	uint64_t age = now_ms > w[2] ? now_ms - w[2] : 0;

	if (age >= period_ms) {
		bool is_next = age < 2ull * period_ms;

		w[1] = is_next ? w[0] : 0;
		w[2] = is_next ? w[2] + period_ms : now_ms;
		w[0] = 0;
	}
	w[0] += n;
}

/* How long so many take at an even pace. */
static uint32_t time_of(const struct stick_limit *l, uint64_t n)
{
	unsigned __int128 ms = ((unsigned __int128)n * l->period_ms + (l->limit - 1)) / l->limit;

	return ms < l->period_ms ? (uint32_t)ms : l->period_ms;
}

uint64_t stick_rate_take(uint64_t w[STICK_RATE_WORDS], const struct stick_limit *l, uint64_t want,
			 uint64_t now_ms, uint32_t *ret_wait_ms)
{
	uint64_t piece = l->step > l->least ? l->step : l->least;
	uint64_t crumb = l->least > piece / 2 ? l->least : piece / 2;
	uint64_t rate, room, n, age, due;

	stick_rate_add(w, l->period_ms, 0, now_ms);
	age = now_ms > w[2] ? now_ms - w[2] : 0;
	/* At most a piece ahead of an even pace, then until that has caught up. */
	due = (uint64_t)((unsigned __int128)l->limit * age / l->period_ms);
	n = w[0] < due + piece ? due + piece - w[0] : 0;
	if (n > want)
		n = want;
	if (!n || (n < want && n < crumb)) {
		*ret_wait_ms = time_of(l, w[0] > due ? w[0] - due : 1);
		return 0;
	}
	/* What the period before leaves of this one grows evenly. */
	rate = stick_rate_get(w, l->period_ms, now_ms);
	room = rate < l->limit ? l->limit - rate : 0;
	if (room < n && room < crumb) {
		*ret_wait_ms = time_of(l, (n < piece ? n : piece) - room);
		return 0;
	}
	n = n < room ? n : room;
	w[0] += n;
	return n;
}

/* --- columns -------------------------------------------------------------------------------------- */

/* The array's element, or the single one of old. */
static unsigned column_of(const struct stick_table *t, unsigned what, unsigned *idx)
{
	static const uint8_t singles[3][2] = {
		{ STICK_DATA_GPC0, STICK_DATA_GPC1 },
		{ STICK_DATA_GPC0_RATE, STICK_DATA_GPC1_RATE },
		{ STICK_DATA_GPT0, STICK_DATA_GPT },
	};
	const uint8_t *s;

	if (t->cols[what].n)
		return what;
	switch (what) {
	case STICK_DATA_GPC:
		s = singles[0];
		break;
	case STICK_DATA_GPC_RATE:
		s = singles[1];
		break;
	case STICK_DATA_GPT:
		s = singles[2];
		break;
	default:
		return what;
	}
	if (*idx > 1)
		return what;
	what = s[*idx];
	*idx = 0;
	return what;
}

static bool is_rate(unsigned what)
{
	enum conf_stick_kind k = conf_stick_data_kind((enum conf_stick_data)what);

	return k == STICK_KIND_RATE || k == STICK_KIND_RATES;
}

int stick_word_of(const struct stick_table *t, unsigned what, unsigned idx,
		  const struct stick_column **ret_col)
{
	const struct stick_column *c;

	if (what >= STICK_DATA_COUNT)
		return -1;
	c = &t->cols[column_of(t, what, &idx)];
	if (idx >= c->n)
		return -1;
	*ret_col = c;
	return (int)(c->at + idx * (c->period_ms ? RATE_WORDS : 1));
}

int stick_words_get(const struct stick_table *t, const uint64_t *words, unsigned what, unsigned idx,
		    uint64_t now_ms, uint64_t *ret_value)
{
	const struct stick_column *c = NULL;
	int w = stick_word_of(t, what, idx, &c);

	if (w < 0)
		return -ENODATA;
	*ret_value = c->period_ms ? stick_rate_get(words + w, c->period_ms, now_ms) : words[w];
	return 0;
}

void stick_words_add(const struct stick_table *t, uint64_t *words, const struct stick_delta *d,
		     uint64_t now_ms)
{
	static const struct {
		uint8_t count, rate;
	} events[STICK_EVENT_COUNT] = {
		[STICK_CONN] = { STICK_DATA_CONN_CNT, STICK_DATA_CONN_RATE },
		[STICK_SESS] = { STICK_DATA_SESS_CNT, STICK_DATA_SESS_RATE },
		[STICK_HTTP_REQ] = { STICK_DATA_HTTP_REQ_CNT, STICK_DATA_HTTP_REQ_RATE },
		[STICK_HTTP_ERR] = { STICK_DATA_HTTP_ERR_CNT, STICK_DATA_HTTP_ERR_RATE },
		[STICK_HTTP_FAIL] = { STICK_DATA_HTTP_FAIL_CNT, STICK_DATA_HTTP_FAIL_RATE },
		[STICK_BYTES_IN] = { STICK_DATA_BYTES_IN_CNT, STICK_DATA_BYTES_IN_RATE },
		[STICK_BYTES_OUT] = { STICK_DATA_BYTES_OUT_CNT, STICK_DATA_BYTES_OUT_RATE },
	};
	const struct stick_column *c;

	for (unsigned i = 0; i < STICK_EVENT_COUNT; i++) {
		if (!d->n[i])
			continue;
		c = &t->cols[events[i].count];
		if (c->n)
			words[c->at] += d->n[i];
		c = &t->cols[events[i].rate];
		if (c->n)
			stick_rate_add(words + c->at, c->period_ms, d->n[i], now_ms);
	}
	c = &t->cols[STICK_DATA_CONN_CUR];
	if (!c->n || !d->conn_cur)
		return;
	words[c->at] += (uint64_t)(int64_t)d->conn_cur;
	/* Somebody may have written 0 over connections that end now. */
	if ((int64_t)words[c->at] < 0)
		words[c->at] = 0;
}

void stick_words_move(const struct stick_table *to, uint64_t *dst, const struct stick_table *from,
		      const uint64_t *src)
{
	for (unsigned i = 0; i < STICK_DATA_COUNT; i++) {
		const struct stick_column *a = &to->cols[i], *b = &from->cols[i];
		unsigned n = a->n < b->n ? a->n : b->n;

		/* Whoever is connected now lets go of the old table; a rate means nothing over another period. */
		if (i == STICK_DATA_CONN_CUR || a->period_ms != b->period_ms)
			continue;
		memcpy(dst + a->at, src + b->at, n * (is_rate(i) ? RATE_WORDS : 1u) * sizeof(*dst));
		if (i == STICK_DATA_SERVER_ID && n)
			dst[a->at + 1] = src[b->at + 1];
	}
}

/* --- by reference ----------------------------------------------------------------------------------- */

static struct stick_stripe *ref_lock(const struct stick_ref *r)
{
	/* The hash of an entry that is held does not change. */
	struct stick_stripe *s = stick_stripe_of(r->t, r->e->hash);

	pthread_mutex_lock(&s->lock);
	return s;
}

void stick_change(const struct stick_ref *r, const struct stick_delta *d, uint64_t now_ms)
{
	struct stick_stripe *s = ref_lock(r);

	stick_words_add(r->t, stick_entry_words(r->t, r->e), d, now_ms);
	r->e->touched = (uint32_t)now_ms;
	pthread_mutex_unlock(&s->lock);
}

int stick_take(const struct stick_ref *r, unsigned what, const struct stick_limit *l, uint64_t want,
	       uint64_t now_ms, uint64_t *ret_n, uint32_t *ret_wait_ms)
{
	const struct stick_column *c = NULL;
	int w = stick_word_of(r->t, what, 0, &c);
	struct stick_limit here = *l;
	struct stick_stripe *s;

	if (w < 0 || !c->period_ms)
		return -ENODATA;
	here.period_ms = c->period_ms;
	s = ref_lock(r);
	*ret_n = stick_rate_take(stick_entry_words(r->t, r->e) + w, &here, want, now_ms,
				 ret_wait_ms);
	r->e->touched = (uint32_t)now_ms;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

int stick_read(const struct stick_ref *r, unsigned what, unsigned idx, uint64_t now_ms,
	       uint64_t *ret_value)
{
	struct stick_stripe *s = ref_lock(r);
	uint32_t idle = (uint32_t)now_ms - r->e->touched;
	uint32_t expire = atomic_load_explicit(&r->t->expire_ms, memory_order_relaxed);
	int rc = 0;

	if ((int32_t)idle < 0)
		idle = 0;
	if (what == STICK_FACT_REFS)
		*ret_value = r->e->refs;
	else if (what == STICK_FACT_IDLE_MS)
		*ret_value = idle;
	else if (what == STICK_FACT_EXPIRE_MS)
		*ret_value = expire > idle ? expire - idle : 0;
	else
		rc = stick_words_get(r->t, stick_entry_words(r->t, r->e), what, idx, now_ms,
				     ret_value);
	pthread_mutex_unlock(&s->lock);
	return rc;
}

int stick_gpc_add(const struct stick_ref *r, unsigned idx, uint64_t n, uint64_t now_ms,
		  uint64_t *ret_value)
{
	const struct stick_column *c;
	struct stick_stripe *s = ref_lock(r);
	uint64_t *words = stick_entry_words(r->t, r->e);
	int count = stick_word_of(r->t, STICK_DATA_GPC, idx, &c);
	int rate = stick_word_of(r->t, STICK_DATA_GPC_RATE, idx, &c);

	*ret_value = 0;
	if (rate >= 0) {
		stick_rate_add(words + rate, c->period_ms, n, now_ms);
		*ret_value = stick_rate_get(words + rate, c->period_ms, now_ms);
	}
	if (count >= 0)
		*ret_value = words[count] += n;
	r->e->touched = (uint32_t)now_ms;
	pthread_mutex_unlock(&s->lock);
	return count < 0 && rate < 0 ? -ENODATA : 0;
}

int stick_write(const struct stick_ref *r, unsigned what, unsigned idx, uint64_t value,
		uint64_t now_ms, uint64_t *ret_old)
{
	const struct stick_column *c = NULL;
	int w = stick_word_of(r->t, what, idx, &c);
	struct stick_stripe *s;
	uint64_t *word;

	if (w < 0)
		return -ENODATA;
	s = ref_lock(r);
	word = stick_entry_words(r->t, r->e) + w;
	if (c->period_ms) {
		*ret_old = stick_rate_get(word, c->period_ms, now_ms);
		word[0] = 0;
		word[1] = value;
		word[2] = now_ms;
	} else {
		*ret_old = word[0];
		word[0] = value;
		if (what == STICK_DATA_SERVER_ID)
			word[1] = 0;
	}
	r->e->touched = (uint32_t)now_ms;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

int stick_read_server(const struct stick_ref *r, uint64_t *ret_id, uint64_t *ret_name)
{
	const struct stick_column *c = &r->t->cols[STICK_DATA_SERVER_ID];
	const uint64_t *words = stick_entry_words(r->t, r->e);
	struct stick_stripe *s;

	if (!c->n)
		return -ENODATA;
	s = ref_lock(r);
	*ret_id = words[c->at];
	*ret_name = words[c->at + 1];
	pthread_mutex_unlock(&s->lock);
	return 0;
}

int stick_write_server(const struct stick_ref *r, uint64_t id, uint64_t name, uint64_t now_ms)
{
	const struct stick_column *c = &r->t->cols[STICK_DATA_SERVER_ID];
	uint64_t *words = stick_entry_words(r->t, r->e);
	struct stick_stripe *s;

	if (!c->n)
		return -ENODATA;
	s = ref_lock(r);
	words[c->at] = id;
	words[c->at + 1] = name;
	r->e->touched = (uint32_t)now_ms;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

size_t stick_ref_key(const struct stick_ref *r, char out[CONF_STICK_KEY_MAX])
{
	/* Written once, before anybody could hold the entry. */
	memcpy(out, stick_entry_key(r->e), r->e->key_len);
	return r->e->key_len;
}

/* --- the table ---------------------------------------------------------------------------------------- */

enum conf_stick_type stick_type(const struct stick_table *t)
{
	return (enum conf_stick_type)t->type;
}

uint32_t stick_key_len(const struct stick_table *t)
{
	return t->key_len;
}

uint32_t stick_size(const struct stick_table *t)
{
	return t->size;
}

uint32_t stick_used(const struct stick_table *t)
{
	return atomic_load_explicit(&t->used, memory_order_relaxed);
}

bool stick_has(const struct stick_table *t, enum conf_stick_data d)
{
	return t->cols[d].n;
}

unsigned stick_count_of(const struct stick_table *t, enum conf_stick_data d)
{
	return t->cols[d].n;
}

uint32_t stick_period_ms(const struct stick_table *t, enum conf_stick_data d)
{
	return t->cols[d].period_ms;
}

int stick_view_get(const struct stick_table *t, const struct stick_view *v, enum conf_stick_data d,
		   unsigned idx, uint64_t now_ms, uint64_t *ret_value)
{
	return stick_words_get(t, v->words, d, idx, now_ms, ret_value);
}
