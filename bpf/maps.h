/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every map of the balancer. All are mmapable arrays: a lookup is inlined by the kernel (no call),
 * and userspace reads and writes rows without a system call. The sizes here are those of an empty
 * set-up; the loader sets the real ones before load, with the constants in `ro` to match.
 */
#ifndef HG_BPF_MAPS_H
#define HG_BPF_MAPS_H

#include <headgate/nat.h>

#include "bpf/pkt.h"

/* Written by the loader before the verifier looks; see limits.h. */
const volatile struct hg_rodata ro = {
	.n_cpus = 1,
	.service_mask = 63,
	.max_services = 64,
	.max_backends = 64,
	.flow_mask = HG_FLOW_LINES_MIN - 1,
	.fragment_mask = HG_FLOW_LINES_MIN - 1,
	.deny_mask = HG_DENY_INDEX_MIN - 1,
	.tick_shift = 8, /* of 250 Hz */
	.fragment_ticks = HG_RODATA_DEFAULT_FRAGMENT_TICKS,
	.flow_idle_ticks = HG_RODATA_DEFAULT_FLOW_IDLE,
	.learn_per_jiffy = HG_RODATA_DEFAULT_LEARN,
	.icmp_per_jiffy = HG_RODATA_DEFAULT_ICMP,
	.nat_mask = HG_NAT_CONNS_MIN - 1,
	.nat_line_mask = HG_NAT_LINES(HG_NAT_CONNS_MIN) - 1,
};

/* Buckets of both generations. Writer: control thread, idle half only. Miss (empty bucket): not ours. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 128);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_service);
} services SEC(".maps");

/* Maglev tables in blocks of 16 slots. Key: hg_service.slots_block + slot / 16. Writer: control thread. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_slot_block);
} slots SEC(".maps");

/* Backends by id, 0 never valid. Writer: control thread, before any slot names the id. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_backend);
} backends SEC(".maps");

/* Flows of moved or tracked slots, see flow.h. Writer: this program; control thread clears words. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_FLOW_LINES_MIN);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_line);
} flows SEC(".maps");

/* Datagrams whose first fragment has gone by. Writer: this program. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_FLOW_LINES_MIN);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_line);
} fragments SEC(".maps");

/* Backends by server id of connection ids. Key: hg_service.quic_block + id / 32. Writer: control thread. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_QUIC_BLOCKS_DEFAULT);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_quic_block);
} quic_ids SEC(".maps");

/*
 * Interfaces that packets may be redirected to, by interface index. Writer: control thread. Miss: the
 * interface takes no redirected frames, a named drop.
 */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, HG_MAX_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} xdp_ports SEC(".maps");

/* Tokens that bound rare work, row = cpu. Writer: this program; a missing row means none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_cpu);
} xdp_cpus SEC(".maps");

/* One row: words that change while packets flow. Writer: control thread. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_control);
} control SEC(".maps");

/* Counters by service id * n_cpus + cpu. Writer: this program, each CPU its rows; readers sum. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_service_counters);
} xdp_services SEC(".maps");

/* Counters by backend id * n_cpus + cpu, as above. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_backend_counters);
} xdp_backends SEC(".maps");

INLINE struct hg_control *control_row(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&control, &zero);
}

/* One token, if there is one; tokens come with the timer's ticks. */
INLINE bool bucket_take(struct hg_bucket *b, u32 per_jiffy)
{
	u64 now = bpf_jiffies64(), passed = now - b->jiffies, tokens = b->tokens;

	if ((__s64)passed > 0) {
		if (passed > HG_BUCKET_JIFFIES)
			passed = HG_BUCKET_JIFFIES;
		tokens += passed * per_jiffy;
		if (tokens > HG_BUCKET_JIFFIES * per_jiffy)
			tokens = HG_BUCKET_JIFFIES * per_jiffy;
		b->jiffies = now;
	}
	if (tokens)
		b->tokens = tokens - 1;
	return tokens;
}

#endif
