/* SPDX-License-Identifier: BSD-2-Clause */
/* What the kernel tier knows of a client. Formats and who writes them: include/headgate/live.h. */
#include "lb/sources.h"

#include <errno.h>
#include <string.h>

#include "base/jiffies.h"

/* An address of IPv4, also as a socket of both families has it, or the network of one of IPv6. */
static bool hash_of(const struct source_view *v, const struct addr *a, uint64_t *ret)
{
	uint64_t w[2], seed = v->control->source_seed;
	uint8_t raw[16];
	uint32_t v4;

	if (a->sa.sa_family != AF_INET && a->sa.sa_family != AF_INET6)
		return false;
	addr_to_v6_mapped(a, raw);
	memcpy(w, raw, sizeof(w));
	memcpy(&v4, raw + 12, sizeof(v4));
	if (!w[0] && !memcmp(raw + 8, "\0\0\xff\xff", 4))
		*ret = hg_source_hash(0, v4, false, seed);
	else
		*ret = hg_source_hash(w[0], w[1], true, seed);
	return true;
}

static int64_t conns_of(const struct source_view *v, uint64_t hash)
{
	uint32_t row = hg_live_row(hash);
	int64_t n = 0;

	for (unsigned i = 0; i < 2 * HG_LIVE_WAYS; i++) {
		const __u64 *word = &v->live[row ^ (i & 1)].word[i / 2];
		uint64_t w = __atomic_load_n(word, __ATOMIC_RELAXED);

		if (HG_LIVE_TAG(w) == HG_LIVE_TAG(hash))
			n += (int64_t)(w & HG_LIVE_COUNT);
	}
	return n;
}

static int64_t syns_of(const struct source_view *v, const struct hg_seen *s, uint64_t now_ns)
{
	uint32_t age = (tick_of(now_ns, v->hz, v->tick_shift) - s->tick) & 0xffff, n = 0;

	if (age == 0 || age >= 0x8000) /* its clock is a moment ahead of ours */
		n = s->syns > s->before ? s->syns : s->before;
	else if (age == 1)
		n = s->syns;
	return ((int64_t)n * v->hz + (1 << v->tick_shift) - 1) >>
	       v->tick_shift; /* one is never none */
}

int source_ask(const struct source_view *v, const struct addr *a, uint64_t now_ns,
	       enum source_fact f, int64_t *ret)
{
	const struct hg_seen_line *line;
	uint64_t hash;

	if (!v->control || !v->live || !v->seen || !hash_of(v, a, &hash))
		return -ENOENT;
	if (f == SOURCE_CONNS) {
		*ret = conns_of(v, hash);
		return 0;
	}
	*ret = 0;
	line = &v->seen[(uint32_t)hash & (HG_SEEN_LINES - 1)];
	for (unsigned i = 0; i < HG_SEEN_WAYS; i++) {
		struct hg_seen s = line->source[i];

		if (s.tag == HG_SEEN_TAG(hash))
			*ret = f == SOURCE_DROPPED ? (int64_t)s.dropped : syns_of(v, &s, now_ns);
	}
	return 0;
}
