/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Wrappers that make the balancer measurable by BPF_PROG_TEST_RUN, which runs a program many times on
 * one buffer and never resets it. A wrapper calls the balancer's entry (inlined, as in xdp_lb), takes
 * the outer header off again and restores what was rewritten: the Ethernet header and the inner TTL.
 * The other programs measure what the wrapping itself costs, so that it can be subtracted.
 */
#include "bpf/xdp_lb.bpf.c"

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

/* One of 65,536 sources, in an order that visits slots and counters at random. */
INLINE void rewrite_source(struct xdp_md *ctx)
{
	static u32 n;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u32 i = (n++ * 40503u) & 0xffff;

	if (data + ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr) > end)
		return;
	*(u32a *)(data + ETH_HLEN + 12) = 0x0a000000u | i;
	*(u16a *)(data + ETH_HLEN + sizeof(struct iphdr)) = (u16)(i * 7);
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
int bench_lb_v4(struct xdp_md *ctx)
{
	return undo(ctx, V4_OUTER, false);
}

SEC("xdp")
int bench_lb_v4_flows(struct xdp_md *ctx)
{
	rewrite_source(ctx);
	return undo(ctx, V4_OUTER, false);
}

SEC("xdp")
int bench_lb_gue(struct xdp_md *ctx)
{
	return undo(ctx, GUE_OUTER, false);
}

SEC("xdp")
int bench_lb_l2(struct xdp_md *ctx)
{
	int action = lb_packet(ctx);

	return action == XDP_TX ? restore(ctx, action, false) : XDP_ABORTED;
}

SEC("xdp")
int bench_lb_v6(struct xdp_md *ctx)
{
	return undo(ctx, V6_OUTER, true);
}
