/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which worker gets a new connection: of the sockets that listen on one address with SO_REUSEPORT, one per worker, the
 * kernel asks for one when a SYN comes (also when a SYN cookie of its own comes back, and when one of them is closed
 * with connections in it: Linux 5.14). Loaded once for each address, because the array of sockets and the group they
 * form belong together; attached to the group it lives as long as that. No answer, or a socket that is not in
 * the array: the kernel goes by its hash.
 */
#include "bpf/maps_sk.h"
#include "bpf/pkt.h"

/* The group's sockets, index = worker. Writer: control thread. */
struct {
	__uint(type, BPF_MAP_TYPE_REUSEPORT_SOCKARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} sk_sockets SEC(".maps");

#define NOBODY	 0xffffffffu
#define LOAD_MAX 0x3fffffffu

/* Connections that the worker has accepted and not ended; its own store, read as it is. */
INLINE u32 conns_of(u32 worker)
{
	const struct hg_worker_counters *c = bpf_map_lookup_elem(&stats_workers, &worker);

	return c ? (u32)READ_ONCE(c->cur_conns) & LOAD_MAX : LOAD_MAX;
}

/*
 * And what it was given lately: part of that is on its way, and accepted ones among it count twice, for every worker
 * alike. It keeps all CPUs from sending everything to one worker until that has accepted. A function of its
 * own, so that the verifier looks at it once.
 */
GLOBAL u32 load_of(u32 worker, u32 window)
{
	const struct hg_sk_worker *w = bpf_map_lookup_elem(&sk_workers, &worker);
	u32 load = conns_of(worker), age;

	if (!w)
		return NOBODY;
	age = window - READ_ONCE(w->window);
	if (age <= 1)
		load += READ_ONCE(w->given);
	if (age == 0)
		load += READ_ONCE(w->given_before);
	return load;
}

/* Of `n` workers, some from a random one on: load in the upper half, worker in the lower one. */
GLOBAL u64 least_loaded(u32 hash, u32 n, u32 window)
{
	u64 best = ~0ull;
	u32 i, at, load;

#pragma clang loop unroll(disable)
	for (i = 0; i < HG_SK_LOOKS && i < n; i++) {
		/* A remainder and no wrap-around by comparison, of which the verifier would follow every case. */
		at = (hash % n + i) % n;
		load = load_of(at, window);
		if (load < best >> 32)
			best = (u64)load << 32 | at;
	}
	return best;
}

/* Of the workers that are pinned to this CPU, one by the hash. */
INLINE u32 own_worker(const struct hg_sk_steer *s, u32 hash)
{
	u32 cpu = bpf_get_smp_processor_id(), at, n;

	if (cpu >= HG_STEER_MAX)
		return NOBODY;
	n = READ_ONCE(s->cpu[cpu].n);
	if (!n)
		return NOBODY;
	at = READ_ONCE(s->cpu[cpu].first) + ((u64)hash * n >> 32);
	return READ_ONCE(s->order[at & (HG_SK_WORKERS - 1)]);
}

INLINE bool is_too_many(u32 own, u64 least)
{
	return own > least + least / 4 + HG_SK_SLACK;
}

/* Anything else that looks for a listener (a SYN cookie, a stray packet) has no part in the counts. */
INLINE bool is_syn(const struct sk_reuseport_md *ctx)
{
	const struct tcphdr *th = ctx->data;

	return (void *)(th + 1) <= ctx->data_end && th->syn && !th->ack;
}

INLINE void store32(u32 *at, u32 value)
{
	*(volatile u32 *)at = value;
}

INLINE void count_given(struct hg_sk_worker *w, u32 window)
{
	u32 was = READ_ONCE(w->window);

	if (was != window) {
		store32(&w->given_before, window - was == 1 ? READ_ONCE(w->given) : 0);
		store32(&w->given, 0);
		store32(&w->window, window);
	}
	store32(&w->given, READ_ONCE(w->given) + 1);
}

SEC("sk_reuseport/migrate")
int sk_steer_conn(struct sk_reuseport_md *ctx)
{
	u32 zero = 0, hash = ctx->hash, window, worker = NOBODY, mode;
	const struct hg_sk_steer *s = bpf_map_lookup_elem(&sk_steer, &zero);
	bool migrates = ctx->migrating_sk, is_own = false;
	struct hg_sk_worker *w;
	u64 least;

	mode = s ? READ_ONCE(s->mode) : HG_SK_OFF;
	if (mode == HG_SK_OFF)
		return SK_PASS;
	window = bpf_ktime_get_coarse_ns() >> HG_SK_SHIFT;
	least = least_loaded(hash, READ_ONCE(s->n_workers), window);
	/* What migrates does so all at once, on the CPU of whoever closes the socket. */
	if (mode == HG_SK_CPU && !migrates)
		worker = own_worker(s, hash);
	if (worker == NOBODY || is_too_many(conns_of(worker), least >> 32))
		worker = (u32)least;
	else
		is_own = true;
	if (bpf_sk_select_reuseport(ctx, &sk_sockets, &worker, 0))
		return SK_PASS;
	w = bpf_map_lookup_elem(&sk_workers, &worker);
	if (!w || (!migrates && !is_syn(ctx)))
		return SK_PASS;
	count_given(w, window);
	__sync_fetch_and_add(migrates ? &w->migrated : is_own ? &w->by_cpu : &w->by_load, 1);
	return SK_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
