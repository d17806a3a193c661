/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Every map of the balancer. All are mmapable arrays: a lookup is inlined by the kernel (no call),
 * and userspace reads and writes rows without a system call. The sizes here are those of an empty
 * set-up; the loader sets the real ones before load, with the constants in `ro` to match.
 */
#ifndef HG_BPF_MAPS_H
#define HG_BPF_MAPS_H

#include "bpf/pkt.h"

/* Written by the loader before the verifier looks; see limits.h. */
const volatile struct hg_rodata ro = {
	.n_cpus = 1,
	.service_mask = 63,
	.max_services = 64,
	.max_backends = 64,
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

#endif
