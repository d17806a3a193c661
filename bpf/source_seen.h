/* SPDX-License-Identifier: BSD-2-Clause */
/* What the guard has seen of a source, for rules of the L7 tier that ask (hg_control.watch). */
#ifndef HG_BPF_SOURCE_SEEN_H
#define HG_BPF_SOURCE_SEEN_H

#include "bpf/maps_live.h"

/* By source. Writer: this program; two CPUs at once may lose one. Miss: nothing was seen lately. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_SEEN_LINES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_seen_line);
} source_seen SEC(".maps");

#define SEEN_SYN  1u
#define SEEN_DROP 2u

/* A SYN of the source with this hash, or a drop, or both. Not inlined: only while somebody asks. */
GLOBAL u32 source_note(u64 hash, u32 what)
{
	u32 row = (u32)hash & (HG_SEEN_LINES - 1), tag = HG_SEEN_TAG(hash), at = 0, way;
	u16 now = bpf_jiffies64() >> ro.tick_shift, age, oldest = 0;
	struct hg_seen_line *line = bpf_map_lookup_elem(&source_seen, &row);
	struct hg_seen *s;

	if (!line)
		return 0;
#pragma clang loop unroll(full)
	for (way = 0; way < HG_SEEN_WAYS; way++) {
		s = &line->source[way];
		age = s->tag ? now - s->tick : 0xffff;
		if (s->tag == tag)
			age = 0xffff; /* its own, whatever the others are */
		if (age >= oldest && !(at < way && line->source[at].tag == tag)) {
			oldest = age;
			at = way;
		}
	}
	s = &line->source[at & (HG_SEEN_WAYS - 1)];
	if (s->tag != tag)
		*s = (struct hg_seen){ .tag = tag, .tick = now };
	if (s->tick != now) {
		s->before = (u16)(s->tick + 1) == now ? s->syns : 0;
		s->syns = 0;
		s->tick = now;
	}
	if (what & SEEN_SYN && s->syns < 0xffff)
		s->syns++;
	if (what & SEEN_DROP)
		s->dropped++;
	return 0;
}

#endif
