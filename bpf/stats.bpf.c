/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Maps without a program of this file: the counters of the L7 tier, and what steering connections looks at. The daemon maps them into its address space
 * and workers add to their own rows; being BPF maps, they can be dumped by name while that goes on.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <headgate/counters.h>

#include "bpf/maps_sk.h"

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

char LICENSE[] SEC("license") = "Dual BSD/GPL";
