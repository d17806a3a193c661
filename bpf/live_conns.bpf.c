/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counts the connections of services of the L7 tier, by source and by service. Attached to the daemon's
 * control group, it sees every TCP socket of its processes: begun when the handshake of a client completes
 * (the socket may still wait to be accepted), over when the kernel is done with the socket, whoever ended it. The maps
 * it shares with xdp_lb are the same ones. Sockets that were there before are never counted, nor given back.
 */
#include <headgate/nat.h>

#include "bpf/maps_live.h"

#include <linux/bpf.h>

/* Written by the loader: buckets of a generation of `services`, minus 1, and ids of `live_services`. */
const volatile __u32 service_mask = 63;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 128);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_service);
} services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_control);
} control SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_live);
} live_services SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_verdict_counters);
} xdp_verdicts SEC(".maps");

/* What a counted socket remembers; it goes with the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct hg_live_mark);
} live_marks SEC(".maps");

#define AF_INET	 2
#define AF_INET6 10

/* Both ends of the socket, IPv4 in the mapped form, which a socket of both families has anyway. */
struct ends {
	__be32 local[4], remote[4];
};

INLINE bool read_ends(struct bpf_sock_ops *ctx, struct ends *e)
{
	if (ctx->family == AF_INET) {
		e->local[0] = e->local[1] = e->remote[0] = e->remote[1] = 0;
		e->local[2] = e->remote[2] = V4_MAPPED;
		e->local[3] = ctx->local_ip4;
		e->remote[3] = ctx->remote_ip4;
		return true;
	}
	if (ctx->family != AF_INET6)
		return false;
	/* Word by word: the context takes no wider access. */
	e->local[0] = READ_ONCE(ctx->local_ip6[0]);
	e->local[1] = READ_ONCE(ctx->local_ip6[1]);
	e->local[2] = READ_ONCE(ctx->local_ip6[2]);
	e->local[3] = READ_ONCE(ctx->local_ip6[3]);
	e->remote[0] = READ_ONCE(ctx->remote_ip6[0]);
	e->remote[1] = READ_ONCE(ctx->remote_ip6[1]);
	e->remote[2] = READ_ONCE(ctx->remote_ip6[2]);
	e->remote[3] = READ_ONCE(ctx->remote_ip6[3]);
	return true;
}

INLINE u64 hash_of(const __be32 *a, u64 seed)
{
	if (!a[0] && !a[1] && a[2] == V4_MAPPED)
		return hg_source_hash(0, a[3], false, seed);
	return hg_source_hash(a[0] | (u64)a[1] << 32, a[2] | (u64)a[3] << 32, true, seed);
}

/* The L7 tier's service that the socket belongs to; NULL: somebody else's socket. */
INLINE const struct hg_service *service_of(const struct hg_control *c, const __be32 *local,
					   __be16 port)
{
	struct hg_service_key k = { .port = port, .proto = IPPROTO_TCP };
	u32 base = (READ_ONCE(c->service_generation) & 1) * (service_mask + 1), hash, bucket, i;
	const struct hg_service *s;

	__builtin_memcpy(k.addr, local, sizeof(k.addr));
	hash = hg_service_hash(&k);
#pragma clang loop unroll(disable)
	for (i = 0; i < HG_SERVICE_PROBES; i++) {
		bucket = base + ((hash + i) & service_mask);
		s = bpf_map_lookup_elem(&services, &bucket);
		if (!s || s->mode == HG_MODE_EMPTY)
			return NULL;
		if (s->mode == HG_MODE_LOCAL && s->key.port == k.port && s->key.proto == k.proto &&
		    s->key.addr[3] == k.addr[3] && s->key.addr[2] == k.addr[2] &&
		    s->key.addr[1] == k.addr[1] && s->key.addr[0] == k.addr[0])
			return s;
	}
	return NULL;
}

INLINE void count_full(void)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct hg_verdict_counters *c = bpf_map_lookup_elem(&xdp_verdicts, &cpu);

	/* Atomically: this runs in processes, too, which xdp_lb's CPU may interrupt. */
	if (c)
		__sync_fetch_and_add(&c->event[HG_EVENT_LIVE_FULL], 1);
}

/* One more in this word, if it is the source's. */
INLINE bool word_add(__u64 *word, u64 tag)
{
	u64 w = READ_ONCE(*word);

	if (HG_LIVE_TAG(w) != tag || (w & HG_LIVE_COUNT) >= HG_LIVE_COUNT_MAX)
		return false;
	if (HG_LIVE_TAG(__sync_fetch_and_add(word, 1)) == tag)
		return true;
	__sync_fetch_and_add(word, -1); /* it came free, and may be another's by now */
	return false;
}

INLINE bool word_take(__u64 *word, u64 tag)
{
	u64 w = READ_ONCE(*word);

	return !(w & HG_LIVE_COUNT) && __sync_val_compare_and_swap(word, w, tag | 1) == w;
}

/* Its own word first, in both lines; else one that is free. */
INLINE void source_begin(u64 hash, struct hg_live_mark *mark)
{
	u64 tag = HG_LIVE_TAG(hash);
	u32 row, step, way;
	struct hg_live_line *line;

#pragma clang loop unroll(full)
	for (step = 0; step < 4; step++) {
		row = hg_live_row(hash) ^ (step & 1);
		line = bpf_map_lookup_elem(&live_sources, &row);
#pragma clang loop unroll(disable)
		for (way = 0; line && way < HG_LIVE_WAYS; way++) {
			if (step < 2 ? word_add(&line->word[way], tag)
				     : word_take(&line->word[way], tag)) {
				mark->row = row;
				mark->way = way;
				return;
			}
		}
	}
	mark->way = HG_LIVE_WAYS;
	count_full();
}

INLINE void source_end(const struct hg_live_mark *mark)
{
	u32 row = mark->row, way = mark->way;
	struct hg_live_line *line = bpf_map_lookup_elem(&live_sources, &row);

	if (line && way < HG_LIVE_WAYS)
		__sync_fetch_and_add(&line->word[way], -1);
}

INLINE void service_add(u32 id, u32 n)
{
	struct hg_live *live = bpf_map_lookup_elem(&live_services, &id);

	if (live)
		__sync_fetch_and_add(&live->conns, n);
}

INLINE void conn_begins(struct bpf_sock_ops *ctx)
{
	u32 zero = 0;
	const struct hg_control *c = bpf_map_lookup_elem(&control, &zero);
	const struct hg_service *svc;
	struct bpf_sock *sk = ctx->sk;
	struct hg_live_mark *mark;
	struct ends e;

	if (!c || !sk || READ_ONCE(c->netns_cookie) != bpf_get_netns_cookie(ctx) ||
	    !read_ends(ctx, &e))
		return;
	svc = service_of(c, e.local, __builtin_bswap16(ctx->local_port));
	if (!svc)
		return;
	mark = bpf_sk_storage_get(&live_marks, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!mark) {
		count_full();
		return;
	}
	source_begin(hash_of(e.remote, c->source_seed), mark);
	mark->service = svc->id;
	service_add(svc->id, 1);
	mark->is_counted = 1;
	bpf_sock_ops_cb_flags_set(ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
}

INLINE void conn_ends(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct hg_live_mark *mark;

	if (!sk)
		return;
	mark = bpf_sk_storage_get(&live_marks, sk, NULL, 0);
	if (!mark || !mark->is_counted)
		return;
	mark->is_counted = 0; /* a socket may close twice: tcp_disconnect() */
	source_end(mark);
	service_add(mark->service, -1);
}

SEC("sockops")
int live_conns(struct bpf_sock_ops *ctx)
{
	if (ctx->op == BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB)
		conn_begins(ctx);
	else if (ctx->op == BPF_SOCK_OPS_STATE_CB && ctx->args[1] == BPF_TCP_CLOSE)
		conn_ends(ctx);
	return 1;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
