/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maps without a program of this file: the counters of the L7 tier, and what steering connections looks at. The daemon maps them into its address space
 * and workers add to their own rows; being BPF maps, they can be dumped by name while that goes on.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <headgate/counters.h>
#include <headgate/steer.h>

/* Rows by frontend: index = id * n_workers + worker. Writer: the worker. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_l7_counters);
} stats_services SEC(".maps");

/* Rows by backend and by server: index = id * n_workers + worker. Writer: the worker. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_l7_counters);
} stats_backends SEC(".maps");

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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
