/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Second chance, part of the agent: while a slot moves, an edge host may not know on which of two backends a
 * connection lives, and names the other one in the GUE header. A TCP packet that begins nothing and belongs
 * to no socket here goes there, once. Costs a socket lookup, but only for packets that name an alternative.
 */
#ifndef HG_BPF_SECOND_CHANCE_H
#define HG_BPF_SECOND_CHANCE_H

#include "bpf/csum.h"
#include "bpf/maps_common.h"
#include "bpf/parse_slow.h"
#include "bpf/syn_check.h"

#define SK_LISTEN 10 /* TCP_LISTEN of <net/tcp_states.h> */

struct tunnel {
	struct parsed outer; /* proto, type_off, l3_len of the outer packet */
	u32 kind; /* enum hg_decap_flags; 0: no tunnel */
	u32 inner; /* offset of the inner header from the outer one */
	u32 alt; /* likewise of struct hg_gue_alt; 0: none, or its hops are used up */
	bool inner_v6, outer_v6;
	u8 tos; /* outer */
};

/* Private data, `len` bytes, of the GUE header at `gue`, `off` from the outer header. */
INLINE void read_alternative(struct tunnel *t, const u8 *gue, void *end, u32 off, u32 len)
{
	const struct hg_gue_alt *alt = (const void *)(gue + HG_GUE_LEN);

	if (*(const u16a *)(gue + 2) || len < HG_GUE_ALT_V4 ||
	    (const void *)alt + HG_GUE_ALT_V4 > end || alt->magic != HG_GUE_ALT_MAGIC ||
	    alt->version != 1 || !alt->hops || alt->family != (t->outer_v6 ? 6 : 4))
		return;
	if (!t->outer_v6 || len >= HG_GUE_ALT_V6)
		t->alt = off + HG_GUE_LEN;
}

/* An answer to a SYN cookie of the balancers, which the program at tc makes a connection of. */
INLINE bool brings_fleet_cookie(struct xdp_md *ctx, u32 at)
{
	u32 zero = 0;
	const struct hg_syn_control *c = bpf_map_lookup_elem(&syn_control, &zero);

	if (!c || !c->n_secrets)
		return false;
	syn_keys(c);
	return brings_cookie(ctx, at);
}

/* A socket here has the connection, or a listener may begin it with the cookie in the packet. `at`: of the headers. */
INLINE bool known_here(struct xdp_md *ctx, struct bpf_sock_tuple *tuple, u32 tuple_len, void *ip,
		       u32 ip_len, struct tcphdr *tcp, u32 at)
{
	struct bpf_sock *sk = bpf_skc_lookup_tcp(ctx, tuple, tuple_len, BPF_F_CURRENT_NETNS, 0);
	bool known;

	if (!sk)
		return false;
	known = sk->state != SK_LISTEN ||
		!bpf_tcp_check_syncookie(sk, ip, ip_len, tcp, sizeof(*tcp));
	bpf_sk_release(sk);
	return known || brings_fleet_cookie(ctx, at);
}

/* False: not a TCP packet that should belong to somebody, or it does here. `off`: of `inner` from the frame's begin. */
INLINE bool unknown_v4(struct xdp_md *ctx, void *inner, void *end, u32 off)
{
	struct bpf_sock_tuple tuple = {};
	struct iphdr *ip = inner;
	struct tcphdr *tcp;
	u32 hlen;

	if (inner + sizeof(*ip) > end || ip->protocol != IPPROTO_TCP ||
	    ip->frag_off & IP_MF_OR_OFFSET)
		return false;
	hlen = (*(const u8 *)inner & 0x0f) * 4;
	tcp = inner + hlen;
	if (hlen < sizeof(*ip) || (void *)(tcp + 1) > end || tcp_is_syn(tcp))
		return false;
	tuple.ipv4.saddr = ip->saddr;
	tuple.ipv4.daddr = ip->daddr;
	tuple.ipv4.sport = tcp->source;
	tuple.ipv4.dport = tcp->dest;
	return !known_here(ctx, &tuple, sizeof(tuple.ipv4), ip, sizeof(*ip), tcp,
			   SYN_AT(off, hlen, false));
}

/* Packets with extension headers are taken as known. */
INLINE bool unknown_v6(struct xdp_md *ctx, void *inner, void *end, u32 off)
{
	struct bpf_sock_tuple tuple = {};
	struct ipv6hdr *ip = inner;
	struct tcphdr *tcp = (void *)(ip + 1);

	if ((void *)(tcp + 1) > end || ip->nexthdr != IPPROTO_TCP || tcp_is_syn(tcp))
		return false;
	__builtin_memcpy(tuple.ipv6.saddr, inner + 8, 16);
	__builtin_memcpy(tuple.ipv6.daddr, inner + 24, 16);
	tuple.ipv6.sport = tcp->source;
	tuple.ipv6.dport = tcp->dest;
	return !known_here(ctx, &tuple, sizeof(tuple.ipv6), ip, sizeof(*ip), tcp,
			   SYN_AT(off, sizeof(*ip), true));
}

/* Outer header from us to the alternative; no hop left in it, so that it goes on but once. */
INLINE bool readdress(const struct tunnel *t, void *l3, void *end)
{
	struct hg_gue_alt *alt = l3 + (t->alt & 0xfff);
	struct iphdr *ip = l3;
	u32 sum;

	if ((void *)alt + HG_GUE_ALT_V4 > end)
		return false;
	alt->hops = 0;
	/* Its sum would be wrong now; zero is none (RFC 768, RFC 6935). */
	*(u16a *)((void *)alt - HG_GUE_LEN - 2) = 0;
	if (t->outer_v6) {
		if ((void *)(alt + 1) > end || l3 + sizeof(struct ipv6hdr) > end)
			return false;
		__builtin_memcpy(l3 + 8, l3 + 24, 16);
		__builtin_memcpy(l3 + 24, alt->addr, 16);
		return true;
	}
	if ((void *)(ip + 1) > end)
		return false;
	sum = csum_add32((u16)~ip->check, ~ip->saddr);
	sum = csum_add32(sum, *(const u32a *)alt->addr);
	ip->check = ~csum_fold(sum);
	ip->saddr = ip->daddr;
	ip->daddr = *(const u32a *)alt->addr;
	return true;
}

/*
 * To the next hop that the kernel's tables name; where they name none (no forwarding on this interface, or
 * nobody has asked for the neighbour yet), back to where the packet came from, a router or the edge.
 */
INLINE enum hg_verdict send_on(struct xdp_md *ctx, const struct tunnel *t, void *l3, u32 *ifindex)
{
	struct bpf_fib_lookup fib = { .family = t->outer_v6 ? 10 : 2, .l4_protocol = IPPROTO_UDP };
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u8 mac[ETH_ALEN];

	if (data + sizeof(struct ethhdr) > end || l3 + sizeof(struct iphdr) > end)
		return HG_VERDICT_DROP;
	fib.tot_len = t->outer.l3_len;
	fib.ifindex = ctx->ingress_ifindex;
	if (!t->outer_v6) {
		fib.ipv4_src = ((struct iphdr *)l3)->saddr;
		fib.ipv4_dst = ((struct iphdr *)l3)->daddr;
	} else if (l3 + sizeof(struct ipv6hdr) <= end) {
		__builtin_memcpy(fib.ipv6_src, l3 + 8, 16);
		__builtin_memcpy(fib.ipv6_dst, l3 + 24, 16);
	}
	*ifindex = ctx->ingress_ifindex;
	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) == BPF_FIB_LKUP_RET_SUCCESS) {
		__builtin_memcpy(data, fib.dmac, ETH_ALEN);
		__builtin_memcpy(data + ETH_ALEN, fib.smac, ETH_ALEN);
		*ifindex = fib.ifindex;
	} else {
		__builtin_memcpy(mac, data, ETH_ALEN);
		__builtin_memcpy(data, data + ETH_ALEN, ETH_ALEN);
		__builtin_memcpy(data + ETH_ALEN, mac, ETH_ALEN);
	}
	return *ifindex == ctx->ingress_ifindex ? HG_VERDICT_TX : HG_VERDICT_REDIRECT;
}

#endif
