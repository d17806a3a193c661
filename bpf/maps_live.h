/* SPDX-License-Identifier: BSD-2-Clause */
/* Connections now by source, which one program counts and another one reads. Rules: include/headgate/live.h. */
#ifndef HG_BPF_MAPS_LIVE_H
#define HG_BPF_MAPS_LIVE_H

#include <headgate/live.h>

#include "bpf/pkt.h"

/* Writer: live_conns. Miss: the source has none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_LIVE_LINES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_live_line);
} live_sources SEC(".maps");

INLINE u32 live_of_line(const struct hg_live_line *line, u64 tag)
{
	u64 n = 0, w, other;
	u32 way;

	if (unlikely(!line))
		return 0;
	/* Without branches: the verifier follows each of them, eight times over. */
#pragma clang loop unroll(full)
	for (way = 0; way < HG_LIVE_WAYS; way++) {
		w = READ_ONCE(line->word[way]);
		other = (w ^ tag) >> HG_LIVE_COUNT_BITS;
		n += w & HG_LIVE_COUNT & -((other - 1) >> 63);
	}
	return n;
}

/* Connections that the source with this hash has. */
INLINE u32 live_of_source(u64 hash)
{
	u32 row = hg_live_row(hash), other = HG_LIVE_NEIGHBOUR(row);
	u64 tag = HG_LIVE_TAG(hash);

	return live_of_line(bpf_map_lookup_elem(&live_sources, &row), tag) +
	       live_of_line(bpf_map_lookup_elem(&live_sources, &other), tag);
}

#endif
