/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage nat for the packets of which there are most: plain ones of IPv4, of established connections with a ticket. A ticket
 * is eight bytes, and a client's packet finds it by a hint of four, where stage nat reads a line of the index and one of the row.
 * Whatever is unusual (TCP's SYN, FIN and RST, time to renew the row, another way to the client, tags, MTU, TTL) is left to
 * stage nat, and the packet untouched.
 */
#ifndef HG_BPF_NAT_QUICK_H
#define HG_BPF_NAT_QUICK_H

#include "bpf/stage_nat.h"

/* The row that this half line has for the client, 0: none. Arithmetic, as in line_find(). */
INLINE u32 quick_hint(u32 line, u32 hint)
{
	struct hg_nat_hints *l = bpf_map_lookup_elem(&nat_hints, &line);
	u64 row = 0, differs, i;

	if (!l)
		return 0;
#pragma clang loop unroll(full)
	for (i = 0; i < HG_NAT_HINTS; i++) {
		differs = READ_ONCE(l->word[i]) ^ hint;
		row |= differs & ((s64)(differs - ro.nat_mask - 1) >> 63);
	}
	return (u32)row;
}

/* Not inlined: on the stack of xdp_lb() there is no place for the words of eight rows. */
GLOBAL u32 nat_quick_row(u64 hint)
{
	u32 line = nat_hint_line(hint), bits = (u32)hint & ~ro.nat_mask, row = 0, i;

#pragma clang loop unroll(disable)
	for (i = 0; i < 2; i++) {
		row = quick_hint(line, bits);
		if (likely(row))
			break;
		line = HG_LINE_NEIGHBOUR(line);
	}
	return row;
}

/* The path of the row's ticket if the row needs no renewal yet; NULL: look at the row. */
INLINE struct hg_nat_path *quick_path(u32 row, u64 word)
{
	u32 index = HG_NAT_TICKET_PATH(word), line = row / HG_NAT_TICKS;
	struct hg_nat_path *path = bpf_map_lookup_elem(&nat_paths, &index);
	struct hg_nat_ticks *ticks = bpf_map_lookup_elem(&nat_ticks, &line);

	if (!path || !ticks ||
	    tick_age(READ_ONCE(ticks->tick[row & (HG_NAT_TICKS - 1)]), tick_now()) * 8 >
		    path->idle_ticks)
		return NULL;
	return path;
}

/*
 * The IP header of a plain packet, with 20 bytes behind it, of which stage nat has nothing to learn but that it came; NULL: it
 * has, or the TTL is used up.
 */
INLINE void *quick_header(const struct pkt *p)
{
	void *l3 = frame_start(p->ctx);

	if (!l3)
		return NULL;
	l3 += sizeof(struct ethhdr);
	if (unlikely(l3 + sizeof(struct iphdr) + sizeof(struct tcphdr) >
		     (void *)(long)p->ctx->data_end))
		return NULL;
	if (p->proto == IPPROTO_TCP &&
	    ((const u8 *)l3)[sizeof(struct iphdr) + 13] & (NAT_FIN | NAT_SYN | NAT_RST))
		return NULL;
	return ((const struct iphdr *)l3)->ttl > 1 ? l3 : NULL;
}

/* Addresses, ports, TTL, sums. `delta`: what they add to the sums. */
INLINE void quick_rewrite(void *l3, u32 proto, u32 src, u32 dst, u32 ports, u32 ip_delta,
			  u32 l4_delta)
{
	u16a *udp = l3 + sizeof(struct iphdr) + 6;
	u16a *tcp = l3 + sizeof(struct iphdr) + 16;
	struct iphdr *ip = l3;
	u32a *w = l3;

	csum_ttl_dec(ip);
	ip->check = csum_shift(ip->check, ip_delta);
	w[3] = src;
	w[4] = dst;
	w[5] = ports;
	if (proto == IPPROTO_TCP) {
		*tcp = csum_shift(*tcp, l4_delta);
	} else if (*udp) { /* else the sender made none */
		l4_delta = csum_shift(*udp, l4_delta);
		*udp = l4_delta ? l4_delta : 0xffff;
	}
}

/*
 * A client's packet for a NAT service: an XDP action; NOT_HANDLED: stage nat's. `who`: HG_NAT_TICKET_CLIENT(), and the edge's
 * port above it.
 */
INLINE int quick_out(struct pkt *p, void *l3, u64 who, const struct hg_nat_path *path)
{
	u32 id = path->backend_id, client = (u32)who, ip_delta, l4_delta;
	struct hg_backend *be = bpf_map_lookup_elem(&backends, &id);
	void *data = l3 - sizeof(struct ethhdr);
	u64 from = *(u64a *)(data + ETH_ALEN);
	union hg_neigh neigh;

	/* Sender of a frame without tags, as of frame_macs(). */
	if (unlikely((from << 16 | HG_NEIGH_OK) !=
		     (path->client.word << 16 | path->client.state)) ||
	    path->ifindex != p->ctx->ingress_ifindex || !be)
		return NOT_HANDLED;
	neigh.word = READ_ONCE(be->neigh.word);
	if (unlikely(neigh.state != HG_NEIGH_OK || p->l3_len > be->mtu))
		return NOT_HANDLED;
	ip_delta = csum_add32(path->ip_base, ~client);
	l4_delta = csum_add32(path->l4_base, ~client) + (u16) ~(who >> 32) + (u16)(who >> 48);
	quick_rewrite(l3, p->proto, path->edge, path->backend,
		      (u32)(who >> 48) | (u32)path->backend_port << 16, ip_delta, l4_delta);
	write_macs(data, &neigh, be->src_mac);
	nat_send(p, be->ifindex);
	return nat_report(p, id, p->svc->id, false, 0);
}

INLINE int nat_quick_out(struct pkt *p)
{
	const u64 key = (u64)p->dport << 32 | (u64)p->proto << 48;
	void *l3 = quick_header(p);
	struct hg_nat_ticket *t;
	struct hg_nat_path *path;
	u64 client, word, hint;
	u32 row;

	if (unlikely(!l3))
		return NOT_HANDLED;
	client = HG_NAT_TICKET_CLIENT(((u32a *)l3)[3], p->sport);
	hint = hg_nat_hint(client, ((u32a *)l3)[4], p->dport, p->proto, ro.hash_seed);
	row = nat_quick_row(hint);
	t = bpf_map_lookup_elem(&nat_tickets, &row);
	if (unlikely(!t))
		return NOT_HANDLED;
	word = READ_ONCE(t->word);
	path = quick_path(row, word);
	if (unlikely(!path || (word ^ client) << 16 ||
		     *(const u64a *)path != (key | ((u32a *)l3)[4])))
		return NOT_HANDLED;
	row = ((row - path->base) & ro.nat_mask & 0xffff) | path->port_high;
	return quick_out(p, l3, client | (u64)__builtin_bswap16(row) << 48, path);
}

/* A packet of a backend, likewise. */
INLINE int quick_back(struct pkt *p, void *l3, u64 who, const struct hg_nat_path *path)
{
	u32 client = (u32)who, ip_delta, l4_delta;
	void *data = l3 - sizeof(struct ethhdr);

	/* As of nat_mtu_back(). */
	if (unlikely(path->client.state != HG_NEIGH_OK ||
		     (p->l3_len > MIN_MTU_V6 && path->ifindex != p->ctx->ingress_ifindex)))
		return NOT_HANDLED;
	ip_delta = (u16)~csum_fold(csum_add32(path->ip_base, ~client));
	l4_delta = (u16)~csum_fold(csum_add32(path->l4_base, ~client) + (u16) ~(who >> 32) +
				   (u16)(who >> 48));
	quick_rewrite(l3, p->proto, path->vip, client, path->vip_port | (u32)(u16)(who >> 32) << 16,
		      ip_delta, l4_delta);
	write_macs(data, &path->client, path->own.mac);
	nat_send(p, path->ifindex);
	return nat_report(p, path->backend_id, path->service, true, 0);
}

INLINE int nat_quick_back(struct pkt *p)
{
	struct hg_flow_key k = { .sport = p->sport, .proto = p->proto };
	void *l3 = quick_header(p);
	struct hg_nat_ticket *t;
	struct hg_nat_path *path;
	u64 word;
	u32 row;

	if (unlikely(!l3))
		return NOT_HANDLED;
	read_addrs(p, false, k.src, k.dst);
	row = hg_nat_row(hg_nat_base(&k, ro.hash_seed), __builtin_bswap16(p->dport), ro.nat_mask);
	t = bpf_map_lookup_elem(&nat_tickets, &row);
	if (unlikely(!t))
		return NOT_HANDLED;
	word = READ_ONCE(t->word);
	path = quick_path(row, word);
	if (unlikely(!path || *(const u64a *)&path->backend != *(u64a *)(l3 + 12) ||
		     path->backend_port != p->sport || path->proto != p->proto ||
		     path->port_high != (__builtin_bswap16(p->dport) & ~ro.nat_mask)))
		return NOT_HANDLED;
	word = (word & 0xffffffffffffull) | (u64)p->dport << 48;
	return quick_back(p, l3, word, path);
}

#endif
