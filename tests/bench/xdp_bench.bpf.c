/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wrappers that make the balancer measurable by BPF_PROG_TEST_RUN, which runs a program many times on
 * one buffer and never resets it. A wrapper calls the balancer's entry (inlined, as in xdp_lb), takes
 * the outer header off again and restores what was rewritten: the Ethernet header and the inner TTL.
 * The other programs measure what the wrapping itself costs, so that it can be subtracted. Those with the
 * balancer in them are "xdp.frags" as it is: the kernel lets only one kind use a map of devices or CPUs.
 */
#include "bpf/xdp_lb.bpf.c"

#include "bench/bench_nat.h"

#define V4_OUTER  ((int)sizeof(struct iphdr))
#define V6_OUTER  ((int)sizeof(struct ipv6hdr))
#define GUE_OUTER ((int)(sizeof(struct iphdr) + sizeof(struct udphdr) + HG_GUE_LEN))

/* The yardstick: swaps the MACs, returns TX. */
SEC("xdp")
int bench_bare(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	u8 mac[ETH_ALEN];

	if ((void *)(eth + 1) > end)
		return XDP_DROP;
	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
	return XDP_TX;
}

/* The yardstick of what is dropped. */
SEC("xdp")
int bench_drop(struct xdp_md *ctx)
{
	return XDP_DROP;
}

INLINE int restore(struct xdp_md *ctx, int action, bool v6)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u64a *w = data;

	if (data + ETH_HLEN + sizeof(struct ipv6hdr) > end)
		return XDP_DROP;
	w[0] = 0x0002edull;
	*(u32a *)(data + 8) = 0x01;
	*(u16a *)(data + 12) = v6 ? hg_be16(ETH_P_IPV6) : hg_be16(ETH_P_IP);
	if (v6) {
		((struct ipv6hdr *)(data + ETH_HLEN))->hop_limit = 64;
	} else {
		((struct iphdr *)(data + ETH_HLEN))->ttl = 64;
		((struct iphdr *)(data + ETH_HLEN))->check = 0;
	}
	return action;
}

/* Sources minus 1, a power of two minus 1: how many flows there are. Written by the benchmark. */
__u32 bench_flow_mask = 0xffff;

INLINE void write_source(struct xdp_md *ctx, u32 addr, u16 port)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	if (data + ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr) > end)
		return;
	*(u32a *)(data + ETH_HLEN + 12) = addr;
	*(u16a *)(data + ETH_HLEN + sizeof(struct iphdr)) = port;
}

/* All sources in turn, in an order that visits slots, counters and flows at random. */
INLINE void rewrite_source(struct xdp_md *ctx)
{
	static u32 n;
	u32 i = (n++ * 2654435761u) & bench_flow_mask;

	write_source(ctx, 0x0a000000u | i, (u16)(i * 7));
}

/* A source that was never seen, each time: 48 bits before it begins again. */
INLINE void rewrite_new(struct xdp_md *ctx)
{
	static u64 n;
	u64 i = n++ * 0x9e3779b97f4a7c15ull;

	write_source(ctx, i >> 32, i >> 16);
}

/* A source in one of the denied prefixes, of which there are `bench_flow_mask` and one. */
INLINE void rewrite_denied(struct xdp_md *ctx)
{
	static u32 n;
	u32 i = (n++ * 2654435761u) & bench_flow_mask;

	write_source(ctx, __builtin_bswap32(BENCH_DENIED(i) | 1), (u16)(i * 7));
}

INLINE int pair(struct xdp_md *ctx, int outer)
{
	return bpf_xdp_adjust_head(ctx, -outer) || bpf_xdp_adjust_head(ctx, outer);
}

INLINE int undo(struct xdp_md *ctx, int outer, bool v6)
{
	int action = lb_packet(ctx);

	if (action != XDP_TX || bpf_xdp_adjust_head(ctx, outer))
		return XDP_ABORTED;
	return restore(ctx, action, v6);
}

SEC("xdp")
int bench_empty(struct xdp_md *ctx)
{
	return XDP_TX;
}

SEC("xdp")
int bench_pair(struct xdp_md *ctx)
{
	if (pair(ctx, V4_OUTER))
		return XDP_ABORTED;
	return restore(ctx, XDP_TX, false);
}

SEC("xdp")
int bench_two_pairs(struct xdp_md *ctx)
{
	if (pair(ctx, V4_OUTER) || pair(ctx, V4_OUTER))
		return XDP_ABORTED;
	return restore(ctx, XDP_TX, false);
}

SEC("xdp")
int bench_rewrite(struct xdp_md *ctx)
{
	rewrite_source(ctx);
	return XDP_TX;
}

SEC("xdp")
int bench_rewrite_new(struct xdp_md *ctx)
{
	rewrite_new(ctx);
	return XDP_TX;
}

SEC("xdp.frags")
int bench_lb_v4(struct xdp_md *ctx)
{
	return undo(ctx, V4_OUTER, false);
}

SEC("xdp.frags")
int bench_lb_v4_flows(struct xdp_md *ctx)
{
	rewrite_source(ctx);
	return undo(ctx, V4_OUTER, false);
}

SEC("xdp.frags")
int bench_lb_v4_denied(struct xdp_md *ctx)
{
	rewrite_denied(ctx);
	return lb_packet(ctx);
}

SEC("xdp")
int bench_rewrite_denied(struct xdp_md *ctx)
{
	rewrite_denied(ctx);
	return XDP_DROP;
}

SEC("xdp.frags")
int bench_lb_v4_new(struct xdp_md *ctx)
{
	rewrite_new(ctx);
	return undo(ctx, V4_OUTER, false);
}

SEC("xdp.frags")
int bench_lb_gue(struct xdp_md *ctx)
{
	return undo(ctx, GUE_OUTER, false);
}

SEC("xdp.frags")
int bench_lb_l2(struct xdp_md *ctx)
{
	int action = lb_packet(ctx);

	return action == XDP_TX ? restore(ctx, action, false) : XDP_ABORTED;
}

SEC("xdp.frags")
int bench_lb_v6(struct xdp_md *ctx)
{
	return undo(ctx, V6_OUTER, true);
}

/*
 * NAT rewrites nearly everything, so its packets are written anew each time, in front of the balancer. Flows come in another
 * order than they began in, in which their rows lie.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BENCH_NAT_FLOWS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct bench_nat_flow);
} bench_nat_flows SEC(".maps");

__u64 bench_nat_other; /* packets that were not sent on */

INLINE void write_nat(struct xdp_md *ctx, bool back)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u32a *w = data + ETH_HLEN;
	struct bench_nat_flow *f;
	static u32 n;
	u32 at = n++ & bench_flow_mask, i = BENCH_NAT_FLOW(at) & bench_flow_mask;

	if (data + ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr) > end)
		return;
	*(u64a *)data = back ? 0x04000000000002edull : 0x02000000000002edull;
	*(u32a *)(data + 8) = 0x01;
	w[2] = hg_be32(64 << 24 | IPPROTO_TCP << 16);
	if (!back) {
		w[3] = BENCH_NAT_CLIENT(i);
		w[4] = hg_be32(BENCH_NAT_VIP);
		w[5] = BENCH_NAT_PORT(i) | (u32)hg_be16(80) << 16;
		return;
	}
	f = bpf_map_lookup_elem(&bench_nat_flows, &at);
	if (!f)
		return;
	w[3] = hg_be32(BENCH_NAT_BACKEND(f->backend));
	w[4] = hg_be32(BENCH_NAT_EDGE);
	w[5] = hg_be16(80) | (u32)f->edge_port << 16;
}

INLINE int nat_flow(struct xdp_md *ctx, bool back)
{
	int action;

	write_nat(ctx, back);
	action = lb_packet(ctx);
	if (action != XDP_TX)
		bench_nat_other++;
	return action;
}

SEC("xdp")
int bench_write_nat(struct xdp_md *ctx)
{
	write_nat(ctx, false);
	return XDP_TX;
}

SEC("xdp")
int bench_write_answer(struct xdp_md *ctx)
{
	write_nat(ctx, true);
	return XDP_TX;
}

SEC("xdp.frags")
int bench_lb_nat_out(struct xdp_md *ctx)
{
	return nat_flow(ctx, false);
}

SEC("xdp.frags")
int bench_lb_nat_back(struct xdp_md *ctx)
{
	return nat_flow(ctx, true);
}

/*
 * The benchmark over a veth pair: a source of frames, and the near end that counts what comes back. The kernel
 * makes frames of the pages of earlier ones, so what the target has changed is written anew.
 */
__u32 bench_gen_ifindex = 1;
__u64 bench_sunk;

SEC("xdp")
int bench_gen(struct xdp_md *ctx)
{
	rewrite_source(ctx);
	restore(ctx, XDP_TX, false);
	return bpf_redirect(bench_gen_ifindex, 0);
}

SEC("xdp")
int bench_sink(struct xdp_md *ctx)
{
	bench_sunk++;
	return XDP_DROP;
}
