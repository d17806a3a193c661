/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The forwarding methods beside IP in IP, and all methods for frames with tags, part of stage forward: a function that gets the packet's view as
 * numbers, so that the caller's can stay in registers.
 */
#ifndef HG_BPF_FORWARD_OTHER_H
#define HG_BPF_FORWARD_OTHER_H

/* Direct routing: the backend has the service address itself, on the same link. */
INLINE bool forward_l2(struct pkt *p, union hg_neigh neigh, bool v6)
{
	void *data = (void *)(long)p->ctx->data, *end = (void *)(long)p->ctx->data_end;

	if (unlikely(p->l3_len > p->be->mtu))
		return too_big(p, p->be->mtu);
	if (unlikely(!age(p->l3, v6)))
		return pkt_drop(p, HG_DROP_TTL);
	if (unlikely(data + sizeof(struct ethhdr) > end))
		return pkt_drop(p, HG_DROP_INTERNAL);
	write_macs(data, &neigh, p->be->src_mac);
	return true;
}

/* The other backend this flow may live on, when the outer header can name it. */
INLINE struct hg_backend *gue_alternative(const struct pkt *p, bool outer_v6)
{
	u32 id = p->alt;
	struct hg_backend *alt;

	if (likely(!id))
		return NULL;
	alt = bpf_map_lookup_elem(&backends, &id);
	if (!alt || (alt->flags & HG_BE_USABLE) != HG_BE_USABLE ||
	    !!(alt->flags & HG_BE_OUTER_V6) != outer_v6)
		return NULL;
	return alt;
}

/*
 * Source port from the hash for the receivers' queues (49152 up, RFC 8086 3.1.1), UDP checksum zero: the
 * inner packet has its own, and over IPv6 RFC 6935 5 allows it to tunnels that check the rest (RFC 6936).
 */
INLINE bool write_gue(struct pkt *p, u32 outer_len, u32 extra, bool v6,
		      const struct hg_backend *alt, u32 alt_len)
{
	void *data = (void *)(long)p->ctx->data, *end = (void *)(long)p->ctx->data_end;
	u32a *w = data + p->type_off + 2 + outer_len;

	if (unlikely((void *)w + sizeof(struct udphdr) + HG_GUE_LEN + alt_len > end))
		return false;
	w[0] = hg_be32((0xc000u | ((u32)p->hash & 0x3fff)) << 16 | HG_GUE_PORT);
	w[1] = hg_be16(p->l3_len + extra);
	w[2] = hg_be32(alt_len / 4 << 24 | (v6 ? IPPROTO_IPV6 : IPPROTO_IPIP) << 16);
	if (likely(!alt_len))
		return true;
	w[3] = hg_be32(HG_GUE_ALT_MAGIC << 24 | 1 << 16 | 1 << 8 |
		       (alt_len == HG_GUE_ALT_V6 ? 6 : 4));
	if (alt_len == HG_GUE_ALT_V6)
		__builtin_memcpy(w + 4, alt->addr, 16);
	else
		w[4] = alt->addr[3];
	return true;
}

/* `alt`, with `alt_len` bytes for it, is named as alternative; NULL and 0: none. */
INLINE bool forward_gue(struct pkt *p, union hg_neigh neigh, bool v6, bool outer_v6,
			const struct hg_backend *alt, u32 alt_len)
{
	u32 extra = sizeof(struct udphdr) + HG_GUE_LEN + alt_len;
	u32 outer_len = outer_v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);

	if (!encapsulate(p, neigh, IPPROTO_UDP, extra, v6, outer_v6))
		return false;
	if (unlikely(!write_gue(p, outer_len, extra, v6, alt, alt_len)))
		return pkt_drop(p, HG_DROP_INTERNAL);
	return true;
}

INLINE bool gue(struct pkt *p, union hg_neigh neigh, bool v6, bool outer_v6)
{
	u32 outer_len = outer_v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
	u32 alt_len = outer_v6 ? HG_GUE_ALT_V6 : HG_GUE_ALT_V4;
	const struct hg_backend *alt = gue_alternative(p, outer_v6);

	/* The second chance is given only as far as the MTU goes. */
	if (unlikely(alt && p->l3_len + outer_len + sizeof(struct udphdr) + HG_GUE_LEN + alt_len <=
				    p->be->mtu))
		return forward_gue(p, neigh, v6, outer_v6, alt, alt_len);
	return forward_gue(p, neigh, v6, outer_v6, NULL, 0);
}

/* What forward_by_mode() is told in one number beside hash and length. */
#define FWD_MODE(mode)	((u64)(mode))
#define FWD_V6		0x100u
#define FWD_TYPE_OFF(n) ((u64)(n) << 16)
#define FWD_HASH(n)	((u64)(u32)(n) << 32)

/* Verdict in the lower byte, drop reason, and what would fit above; 0: sent on. `ids`: backend, and above it the alternative. */
GLOBAL u32 forward_by_mode(struct xdp_md *ctx, u64 what, u32 l3_len, u32 ids)
{
	struct pkt p = { .ctx = ctx, .hash = what >> 32, .l3_len = l3_len, .alt = ids >> 16 };
	bool v6 = what & FWD_V6, sent;
	union hg_neigh neigh;
	u32 id = ids & 0xffff;

	p.type_off = (what >> 16) & 31;
	p.l3 = (void *)(long)ctx->data + p.type_off + 2;
	p.be = bpf_map_lookup_elem(&backends, &id);
	if (!p.be || p.l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) >
			     (void *)(long)ctx->data_end)
		return HG_VERDICT_DROP | HG_DROP_INTERNAL << 8;
	neigh.word = READ_ONCE(p.be->neigh.word);
	if (unlikely(!(neigh.state & HG_NEIGH_OK)))
		return HG_VERDICT_DROP | HG_DROP_NO_NEIGHBOUR << 8;
	switch (what & 0xff) {
	case HG_MODE_IPIP:
		sent = v6 ? forward_ipip(&p, neigh, true) : forward_ipip(&p, neigh, false);
		break;
	case HG_MODE_L2:
		sent = v6 ? forward_l2(&p, neigh, true) : forward_l2(&p, neigh, false);
		break;
	case HG_MODE_GUE:
		if (p.be->flags & HG_BE_OUTER_V6)
			sent = gue(&p, neigh, v6, true);
		else
			sent = gue(&p, neigh, v6, false);
		break;
	default: /* The writer stores no mode that this program does not have. */
		sent = pkt_drop(&p, HG_DROP_INTERNAL);
	}
	if (sent && unlikely(neigh.state != HG_NEIGH_OK || p.type_off != NO_TAG) &&
	    !retag(ctx, p.type_off, neigh.state))
		sent = pkt_drop(&p, HG_DROP_NO_HEADROOM);
	return sent ? 0 : p.verdict | (u32)p.drop << 8 | (u32)p.fits << 16;
}

INLINE bool forward_other(struct pkt *p, bool v6)
{
	u64 what = FWD_HASH(p->hash) | FWD_TYPE_OFF(p->type_off) | (v6 ? FWD_V6 : 0) |
		   FWD_MODE(p->svc->mode);
	u32 ret = forward_by_mode(p->ctx, what, p->l3_len, p->be->id | (u32)p->alt << 16);

	if (!ret)
		return true;
	p->verdict = (u8)ret;
	p->drop = (u8)(ret >> 8);
	p->fits = ret >> 16;
	return false;
}

#endif
