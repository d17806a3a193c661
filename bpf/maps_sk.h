/* SPDX-License-Identifier: BSD-2-Clause */
/* What steering connections to workers looks at: one set per process, which the programs of all addresses share. */
#ifndef HG_BPF_MAPS_SK_H
#define HG_BPF_MAPS_SK_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include <headgate/counters.h>
#include <headgate/steer.h>

/* Rows by worker. Writer: the worker. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_worker_counters);
} stats_workers SEC(".maps");

/* Which worker gets a new connection: see sk_steer.bpf.c. Writer: control thread. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_sk_steer);
} sk_steer SEC(".maps");

/* Rows by worker. Writer: sk_steer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_sk_worker);
} sk_workers SEC(".maps");

#endif
