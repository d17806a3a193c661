/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Health checks through the tunnel, at tc on the interface towards the servers. `hc_encap` (egress): what
 * carries a check's mark and goes to a server is addressed to the service instead, and gets the outer header
 * that XDP would have given it. `hc_return` (ingress): the answer, which the server sends from the service
 * address, is from the server again. Everything else passes untouched. See include/headgate/check.h.
 */
#include <linux/pkt_cls.h>

#include <headgate/check.h>

#include "bpf/csum.h"
#include "bpf/pkt.h"

/* Writer: control thread. Miss, or method 0: the packet is dropped, it must not go out as it is. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HG_CHECK_TARGETS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_check_target);
} check_targets SEC(".maps");

/* Writer: hc_encap. Miss: no answer to a check. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, HG_CHECK_FLOWS);
	__type(key, struct hg_check_flow);
	__type(value, struct hg_check_addr);
} check_flows SEC(".maps");

#define L3 ((u32)sizeof(struct ethhdr))

/* The fixed headers of a TCP segment, in one piece. */
struct headers4 {
	struct ethhdr eth;
	struct iphdr ip;
	struct tcphdr tcp;
} __attribute__((packed));
struct headers6 {
	struct ethhdr eth;
	struct ipv6hdr ip;
	struct tcphdr tcp;
} __attribute__((packed));

/* Is it TCP without IP options, extension headers and fragments, its headers at data? Sets both addresses. */
INLINE bool read_headers(struct __sk_buff *skb, bool v6, __be32 *src, __be32 *dst, u32 *ports)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct headers4 *h4 = data;
	struct headers6 *h6 = data;
	const u32a *w = data + L3;

	if (v6) {
		if ((void *)(h6 + 1) > end || h6->ip.nexthdr != IPPROTO_TCP)
			return false;
		__builtin_memcpy(src, w + 2, 16);
		__builtin_memcpy(dst, w + 6, 16);
		*ports = *(u32a *)(data + sizeof(h6->eth) + sizeof(h6->ip));
		return true;
	}
	if ((void *)(h4 + 1) > end || *(u8 *)&h4->ip != 0x45 || h4->ip.protocol != IPPROTO_TCP ||
	    h4->ip.frag_off & hg_be16(0x3fff))
		return false;
	src[0] = src[1] = dst[0] = dst[1] = 0;
	src[2] = dst[2] = V4_MAPPED;
	src[3] = w[3];
	dst[3] = w[4];
	*ports = *(u32a *)(data + sizeof(h4->eth) + sizeof(h4->ip));
	return true;
}

INLINE bool pull(struct __sk_buff *skb, bool v6)
{
	u32 len = v6 ? sizeof(struct headers6) : sizeof(struct headers4);

	return (void *)(long)skb->data + len <= (void *)(long)skb->data_end ||
	       !bpf_skb_pull_data(skb, len);
}

/* Another address at `off` from the IP header, and the sums that cover it. */
INLINE bool readdress(struct __sk_buff *skb, bool v6, u32 off, const __be32 *old, const __be32 *new)
{
	u32 check = L3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) +
		    __builtin_offsetof(struct tcphdr, check);
	int i;

	if (!v6)
		return !bpf_l4_csum_replace(skb, check, old[3], new[3], BPF_F_PSEUDO_HDR | 4) &&
		       !bpf_l3_csum_replace(skb, L3 + __builtin_offsetof(struct iphdr, check),
					    old[3], new[3], 4) &&
		       !bpf_skb_store_bytes(skb, L3 + off, &new[3], 4, 0);
#pragma clang loop unroll(full)
	for (i = 0; i < 4; i++)
		if (bpf_l4_csum_replace(skb, check, old[i], new[i], BPF_F_PSEUDO_HDR | 4))
			return false;
	return !bpf_skb_store_bytes(skb, L3 + off, new, 16, 0);
}

INLINE u16 header_sum(const struct iphdr *ip)
{
	const u16 *w = (const u16 *)ip;
	u32 sum = 0;
	int i;

#pragma clang loop unroll(full)
	for (i = 0; i < 10; i++)
		sum += w[i];
	return ~csum_fold(sum);
}

/* UDP and GUE, as the balancer writes them: variant 0, no checksum. `len`: of the inner packet. */
INLINE bool write_gue(struct __sk_buff *skb, u32 off, bool v6, u32 len)
{
	struct {
		struct udphdr udp;
		u32 gue;
	} h = {
		.udp = { .source = hg_be16(0xc000),
			 .dest = hg_be16(HG_GUE_PORT),
			 .len = hg_be16((u16)(len + sizeof(h))) },
		.gue = hg_be32((v6 ? IPPROTO_IPV6 : IPPROTO_IPIP) << 16),
	};

	return !bpf_skb_store_bytes(skb, off, &h, sizeof(h), 0);
}

INLINE bool encapsulate(struct __sk_buff *skb, bool v6, const __be32 *src, const __be32 *dst,
			bool is_gue)
{
	u32 len = skb->len - L3, head = v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	u32 extra = is_gue ? sizeof(struct udphdr) + HG_GUE_LEN : 0;
	u64 flags = v6 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	u8 proto = is_gue ? IPPROTO_UDP : v6 ? IPPROTO_IPV6 : IPPROTO_IPIP;

	if (is_gue)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (bpf_skb_adjust_room(skb, head + extra, BPF_ADJ_ROOM_MAC, flags))
		return false;
	if (v6) {
		struct ipv6hdr ip = { .version = 6,
				      .payload_len = hg_be16((u16)(len + extra)),
				      .nexthdr = proto,
				      .hop_limit = HG_OUTER_TTL };

		__builtin_memcpy(&ip.saddr, src, 16);
		__builtin_memcpy(&ip.daddr, dst, 16);
		if (bpf_skb_store_bytes(skb, L3, &ip, sizeof(ip), 0))
			return false;
	} else {
		struct iphdr ip = { .version = 4,
				    .ihl = 5,
				    .tot_len = hg_be16((u16)(len + head + extra)),
				    .frag_off = hg_be16(HG_OUTER_FRAG_OFF),
				    .ttl = HG_OUTER_TTL,
				    .protocol = proto,
				    .saddr = src[3],
				    .daddr = dst[3] };

		ip.check = header_sum(&ip);
		if (bpf_skb_store_bytes(skb, L3, &ip, sizeof(ip), 0))
			return false;
	}
	return !is_gue || write_gue(skb, L3 + head, v6, len);
}

INLINE int send_check(struct __sk_buff *skb, const struct hg_check_target *t, bool v6)
{
	u32 dst_off = v6 ? __builtin_offsetof(struct ipv6hdr, daddr)
			 : __builtin_offsetof(struct iphdr, daddr);
	struct hg_check_addr to;
	struct hg_check_flow f;
	u8 method = t->method;
	__be32 dst[4];
	u32 ports;

	if (!pull(skb, v6) || !read_headers(skb, v6, f.local, dst, &ports))
		return TC_ACT_SHOT;
	__builtin_memcpy(f.vip, t->vip, sizeof(f.vip));
	__builtin_memcpy(to.addr, t->addr, sizeof(to.addr));
	if (((const u64a *)dst)[0] != ((const u64a *)to.addr)[0] ||
	    ((const u64a *)dst)[1] != ((const u64a *)to.addr)[1])
		return TC_ACT_SHOT;
	f.vport = ports >> 16;
	f.lport = (u16)ports;
	if (bpf_map_update_elem(&check_flows, &f, &to, BPF_ANY) ||
	    !readdress(skb, v6, dst_off, to.addr, f.vip))
		return TC_ACT_SHOT;
	if (method == HG_MODE_L2)
		return TC_ACT_UNSPEC;
	return encapsulate(skb, v6, f.local, to.addr, method == HG_MODE_GUE) ? TC_ACT_UNSPEC
									     : TC_ACT_SHOT;
}

SEC("tc")
int hc_encap(struct __sk_buff *skb)
{
	u32 mark = skb->mark, id = mark & ~HG_CHECK_MARK_MASK;
	struct hg_check_target *t;

	if ((mark & HG_CHECK_MARK_MASK) != HG_CHECK_MARK)
		return TC_ACT_UNSPEC;
	t = bpf_map_lookup_elem(&check_targets, &id);
	if (!t || !t->method)
		return TC_ACT_SHOT;
	if (skb->protocol == hg_be16(ETH_P_IP))
		return send_check(skb, t, false);
	if (skb->protocol == hg_be16(ETH_P_IPV6))
		return send_check(skb, t, true);
	return TC_ACT_SHOT;
}

INLINE int take_answer(struct __sk_buff *skb, bool v6)
{
	u32 src_off = v6 ? __builtin_offsetof(struct ipv6hdr, saddr)
			 : __builtin_offsetof(struct iphdr, saddr);
	struct hg_check_addr *server, copy;
	struct hg_check_flow f;
	u32 ports;

	if (!pull(skb, v6) || !read_headers(skb, v6, f.vip, f.local, &ports))
		return TC_ACT_UNSPEC;
	f.vport = (u16)ports;
	f.lport = ports >> 16;
	server = bpf_map_lookup_elem(&check_flows, &f);
	if (!server)
		return TC_ACT_UNSPEC;
	copy = *server;
	return readdress(skb, v6, src_off, f.vip, copy.addr) ? TC_ACT_UNSPEC : TC_ACT_SHOT;
}

SEC("tc")
int hc_return(struct __sk_buff *skb)
{
	if (skb->protocol == hg_be16(ETH_P_IP))
		return take_answer(skb, false);
	if (skb->protocol == hg_be16(ETH_P_IPV6))
		return take_answer(skb, true);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
