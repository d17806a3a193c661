/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a NAT connection begins: a backend by the service's table, places for it in the counts, a port, a row.
 * Functions of their own one after the other, because the stack of the program is for all of a call chain.
 */
#ifndef HG_BPF_NAT_BEGIN_H
#define HG_BPF_NAT_BEGIN_H

#include "bpf/capture.h"
#include "bpf/csum.h"
#include "bpf/nat_table.h"
#include "bpf/stage_service.h"

/* What the functions here are told about a packet, in one number; NAT_MARK tells it from an XDP action. */
#define NAT_MARK	   (1ull << 63)
#define NAT_TO_CLIENT	   (1ull << 62)
#define NAT_FRAGMENT	   (1ull << 61)
#define NAT_V6		   (1ull << 60)
#define NAT_TAP		   (1ull << 59) /* a capture is on */
#define NAT_SERVICE(what)  ((u32)((what) >> 45) & 0x3fff)
#define NAT_L3_LEN(what)   ((u32)((what) >> 29) & 0xffff)
#define NAT_PROTO(what)	   ((u32)((what) >> 21) & 0xff)
#define NAT_L4_OFF(what)   ((u32)((what) >> 9) & 0xfff)
#define NAT_TYPE_OFF(what) ((u32)((what) >> 4) & 31)
#define NAT_LATER	   (1ull << 0) /* fragment, not the first of its datagram */

INLINE u64 nat_what(const struct pkt *p, bool v6, u32 service)
{
	return NAT_MARK | (v6 ? NAT_V6 : 0) | (p->tap ? NAT_TAP : 0) |
	       (p->odd & ODD_FRAGMENT ? NAT_FRAGMENT : 0) | (u64)(service & 0x3fff) << 45 |
	       (u64)(p->l3_len & 0xffff) << 29 | (u64)p->proto << 21 | (p->l4_off & 0xfff) << 9 |
	       (p->type_off & 31) << 4;
}

/* The other way round; false: not the frame it was. The headers lie in the frame: 20 bytes of TCP, 8 of UDP. */
INLINE bool nat_read(struct pkt *p, u64 what, bool v6, void **ret_l4)
{
	void *end = (void *)(long)p->ctx->data_end, *l4;

	p->tap = what & NAT_TAP ? TAP_ASK : 0;
	p->type_off = NAT_TYPE_OFF(what);
	p->l3_len = NAT_L3_LEN(what);
	p->l3 = (void *)(long)p->ctx->data + p->type_off + 2;
	l4 = p->l3 + NAT_L4_OFF(what);
	if (p->l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end ||
	    l4 + sizeof(struct udphdr) > end)
		return false;
	p->sport = ((u16a *)l4)[0];
	p->dport = ((u16a *)l4)[1];
	*ret_l4 = l4;
	return true;
}

/* TCP's flags, 0 for UDP; sets p->proto and, from the client, p->syn. False: header cut short. */
INLINE bool nat_read_flags(struct pkt *p, void *l4, u32 proto, u32 *ret_flags)
{
	p->proto = proto;
	*ret_flags = 0;
	if (proto != IPPROTO_TCP)
		return proto == IPPROTO_UDP;
	if (l4 + sizeof(struct tcphdr) > (void *)(long)p->ctx->data_end)
		return false;
	*ret_flags = ((const u8 *)l4)[13];
	p->syn = tcp_is_syn(l4);
	return true;
}

/* --- a connection begins ------------------------------------------------------------------------------ */

/* One's complement sum of what takes the place of `old`. */
INLINE u32 addr_delta(u32 sum, const __be32 *old, const __be32 *new)
{
	u32 i;

#pragma clang loop unroll(full)
	for (i = 0; i < 4; i++)
		sum = csum_add32(csum_add32(sum, ~old[i]), new[i]);
	return sum;
}

INLINE void nat_fill_sums(struct hg_nat_conn *c, const struct hg_nat_addrs *a)
{
	u32 sum = 0;

	sum = addr_delta(sum, a->addr[HG_NAT_CLIENT], a->addr[HG_NAT_EDGE]);
	sum = addr_delta(sum, a->addr[HG_NAT_VIP], a->addr[HG_NAT_BACKEND]);
	c->ip_delta = csum_fold(
		sum); /* words that are the same in both cancel out: also right for IPv4 */
	sum += (u16)~c->client_port + c->edge_port + (u16)~c->vip_port + c->backend_port;
	c->l4_delta = csum_fold(sum);
}

/* Where the next packet to the client goes: back to where this one came from. */
INLINE void nat_learn_link(struct hg_nat_conn *c, struct xdp_md *ctx, u64 client, u64 own)
{
	*(volatile u64 *)&c->client.word = client;
	*(volatile u64 *)&c->own.word = own;
	c->ifindex = ctx->ingress_ifindex;
}

/*
 * The frame's beginning with an Ethernet header known to lie in it; NULL: it does not. The compiler can infer
 * that from checks further in, the verifier cannot: so it is not told that both are the same pointer.
 */
INLINE void *frame_start(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;

	asm volatile("" : "+r"(data));
	return data + sizeof(struct ethhdr) + VLAN_TAG_LEN > (void *)(long)ctx->data_end ? NULL
											 : data;
}

/* The state of a next hop that gives frames the tags that this one has; of two tags only their being kept. */
INLINE u32 tags_state(const void *data, u32 type_off)
{
	const u16a *w = data;

	if (likely(type_off == NO_TAG))
		return HG_NEIGH_OK;
	if (type_off > NO_TAG + VLAN_TAG_LEN)
		return HG_NEIGH_OK | HG_NEIGH_KEEP_TAGS;
	return HG_NEIGH_TAGGED(__builtin_bswap16(w[7]) & 0xfff) |
	       (w[6] == hg_be16(ETH_P_8021AD) ? HG_NEIGH_TAG_AD : 0);
}

/* Sender and receiver of a frame as the words of a row; false: no frame. */
INLINE bool frame_macs(const struct pkt *p, union hg_neigh *src, union hg_neigh *dst)
{
	const u32a *w = frame_start(p->ctx);

	if (!w)
		return false;
	dst->word = w[0] | (u64)(u16)w[1] << 32;
	src->word = w[1] >> 16 | (u64)w[2] << 16 | (u64)tags_state(w, p->type_off) << 48;
	return true;
}

/* Backend id for a connection that begins with this packet, by its service's table; 0: none. */
INLINE u32 nat_pick_family(struct xdp_md *ctx, u64 what, bool v6)
{
	struct hg_service_key sk = { .proto = NAT_PROTO(what) };
	struct hg_flow_key k = { .proto = NAT_PROTO(what) };
	struct pkt p = { .ctx = ctx };
	struct hg_slot_block *block;
	struct hg_service *svc;
	u32 slot, key;
	void *l4;

	if (!nat_read(&p, what, v6, &l4))
		return 0;
	read_addrs(&p, v6, k.src, k.dst);
	__builtin_memcpy(sk.addr, k.dst, sizeof(sk.addr));
	sk.port = p.dport;
	svc = service_get(&sk, true, false);
	if (!svc || !svc->slots)
		return 0;
	if (!(svc->flags & HG_SVC_NO_PORT_HASH)) {
		k.sport = p.sport;
		k.dport = p.dport;
	}
	slot = hg_flow_slot(hg_flow_hash(&k, ro.hash_seed), svc->slots);
	key = svc->slots_block + slot / HG_SLOTS_PER_BLOCK;
	block = bpf_map_lookup_elem(&slots, &key);
	return block ? HG_SLOT_CURRENT(READ_ONCE(block->slot[slot % HG_SLOTS_PER_BLOCK])) : 0;
}

GLOBAL u32 nat_pick(struct xdp_md *ctx, u64 what)
{
	return what & NAT_V6 ? nat_pick_family(ctx, what, true) : nat_pick_family(ctx, what, false);
}

/* The edge's address for a connection to `be`: one of the service's, which are of its family, or the route's. */
INLINE void nat_source(const struct hg_nat_service *n, const struct hg_backend *be, u64 hash,
		       __be32 *ret)
{
	u64 which = ((hash & 0xffffffff) * n->n_sources) >> 32;

	__builtin_memcpy(ret, be->outer_src, 16);
	if (n->n_sources && which < HG_NAT_SOURCES_MAX)
		__builtin_memcpy(ret, n->source[which], 16);
}

/* Answers to this address are worth a look from now on. */
INLINE void nat_announce(const __be32 *edge)
{
	u32 zero = 0;
	struct hg_nat_control *n = bpf_map_lookup_elem(&nat_control, &zero);
	u64 bit = 1ull << hg_nat_edge_bit(edge[0] ^ edge[1] ^ edge[2] ^ edge[3]);

	if (n && !(READ_ONCE(n->edges) & bit))
		__sync_fetch_and_or(&n->edges, bit);
}

/* Claims row and port, fills the row and lets it be found; the counts are the caller's. 0, or why not. */
INLINE u32 nat_open_family(struct xdp_md *ctx, u64 what, u32 id, bool v6)
{
	struct hg_flow_key k = { .proto = NAT_PROTO(what) };
	u32 row, state, service = NAT_SERVICE(what);
	struct hg_backend *be = bpf_map_lookup_elem(&backends, &id);
	struct hg_nat_service *n = bpf_map_lookup_elem(&nat_services, &service);
	struct pkt p = { .ctx = ctx };
	union hg_neigh client, own;
	struct hg_nat_addrs *a;
	struct hg_nat_conn *c;
	u64 hash, claim;
	void *l4;

	if (!be || !n || !nat_read(&p, what, v6, &l4))
		return HG_DROP_INTERNAL;
	read_addrs(&p, v6, k.src, k.dst);
	k.sport = p.sport;
	k.dport = p.dport;
	hash = hg_flow_hash(&k, ro.hash_seed);
	/* The key is turned into the backend's: there is no stack for two. */
	k.sport = be->port ? be->port : p.dport;
	k.dport = 0;
	__builtin_memcpy(k.src, be->addr, 16);
	nat_source(n, be, hash, k.dst);
	claim = nat_claim(&k, n->port_first, n->n_ports, id);
	row = (u32)claim;
	c = bpf_map_lookup_elem(&nat_conns, &row);
	a = bpf_map_lookup_elem(&nat_addrs, &row);
	if (!claim || !c || !a || !frame_macs(&p, &client, &own))
		return HG_DROP_NAT_FULL;
	c->row = row;
	read_addrs(&p, v6, a->addr[HG_NAT_CLIENT], a->addr[HG_NAT_VIP]);
	__builtin_memcpy(a->addr[HG_NAT_EDGE], k.dst, 16);
	__builtin_memcpy(a->addr[HG_NAT_BACKEND], be->addr, 16);
	c->last[HG_NAT_CLIENT] = a->addr[HG_NAT_CLIENT][3];
	c->last[HG_NAT_EDGE] = a->addr[HG_NAT_EDGE][3];
	c->last[HG_NAT_VIP] = a->addr[HG_NAT_VIP][3];
	c->last[HG_NAT_BACKEND] = a->addr[HG_NAT_BACKEND][3];
	c->client_port = p.sport;
	c->vip_port = p.dport;
	c->edge_port = hg_be16((u16)(claim >> 32));
	c->backend_port = k.sport;
	c->backend = id;
	c->service = service;
	c->idle_ticks = n->idle_ticks;
	c->proto = k.proto;
	c->v6 = v6;
	nat_learn_link(c, ctx, client.word, own.word);
	nat_fill_sums(c, a);
	nat_announce(k.dst);
	state = k.proto == IPPROTO_TCP ? HG_NAT_SYN : HG_NAT_UDP_NEW;
	__sync_lock_test_and_set(&c->life, HG_NAT_LIFE(state, tick_now()));
	if (nat_line_swap(hash, 0, HG_NAT_WORD(hash, row)))
		return 0;
	/* The caller takes the counts back, so the row must not. */
	__sync_lock_test_and_set(&c->life, 0);
	return HG_DROP_NAT_FULL;
}

GLOBAL u32 nat_open(struct xdp_md *ctx, u64 what, u32 id)
{
	return what & NAT_V6 ? nat_open_family(ctx, what, id, true)
			     : nat_open_family(ctx, what, id, false);
}

/* The end of what nat_admit() began: with `why` the backend's and the service's places are given back. */
GLOBAL u32 nat_settle(u64 what, u32 id, u32 why)
{
	u32 service = NAT_SERVICE(what);

	if (!why) {
		count_begun(id);
		count_event(HG_EVENT_NAT_NEW);
		return 0;
	}
	server_end(bpf_map_lookup_elem(&live_backends, &id));
	live_end(bpf_map_lookup_elem(&live_services, &service));
	return 0;
}

#define NAT_REFUSED(why) ((u32)(why) << 16)

/* Chooses a backend and takes a place in both counts, so that none begins that may not. Id, or NAT_REFUSED(). */
GLOBAL u32 nat_admit(struct xdp_md *ctx, u64 what)
{
	u32 id = nat_pick(ctx, what) & 0xffff, service = NAT_SERVICE(what);
	struct hg_backend *be = bpf_map_lookup_elem(&backends, &id);
	struct hg_live *live_svc;

	if (!id)
		return NAT_REFUSED(HG_DROP_NO_BACKEND);
	if (!be || !(be->flags & HG_BE_VALID))
		return NAT_REFUSED(HG_DROP_BAD_BACKEND);
	if (!(be->flags & HG_BE_OUTER_V6) == !!(what & NAT_V6)) /* families are not crossed */
		return NAT_REFUSED(HG_DROP_BAD_BACKEND);
	/* Without a route there is no address to send from. */
	if (!(be->neigh.state & HG_NEIGH_OK))
		return NAT_REFUSED(HG_DROP_NO_NEIGHBOUR);
	live_svc = bpf_map_lookup_elem(&live_services, &service);
	if (!live_begin(live_svc))
		return NAT_REFUSED(HG_DROP_MAXCONN);
	if (server_begin(bpf_map_lookup_elem(&live_backends, &id)))
		return id;
	live_end(live_svc);
	return NAT_REFUSED(HG_DROP_MAXCONN);
}

#endif
