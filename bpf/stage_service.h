/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage service: whose packet is it? Exact address, port and protocol first, then the services that
 * take any port. Nobody's: to the kernel, bytes untouched, whatever its shape; so ssh survives us.
 */
#ifndef HG_BPF_STAGE_SERVICE_H
#define HG_BPF_STAGE_SERVICE_H

#include "bpf/maps.h"

/* Both addresses of the packet as the contract has them. */
INLINE void read_addrs(const struct pkt *p, bool v6, __be32 *src, __be32 *dst)
{
	const u32a *w = p->l3;

	if (v6) {
		__builtin_memcpy(src, w + 2, 16);
		__builtin_memcpy(dst, w + 6, 16);
		return;
	}
	src[0] = src[1] = dst[0] = dst[1] = 0;
	src[2] = dst[2] = V4_MAPPED;
	src[3] = w[3];
	dst[3] = w[4];
}

INLINE bool service_is(const struct hg_service *s, const struct hg_service_key *k)
{
	const u64a *a = (const u64a *)&s->key, *b = (const u64a *)k;

	return *(const u32a *)&s->key.port == *(const u32a *)&k->port && a[1] == b[1] &&
	       a[0] == b[0];
}

/* Bucket that holds the key, NO_BUCKET when none does. */
#define NO_BUCKET (~0u)

INLINE u32 service_probe(const struct hg_service_key *k, u32 base, bool addr_row)
{
	u32 hash = hg_service_hash(k), bucket, i;
	struct hg_service *s;

#pragma clang loop unroll(disable)
	for (i = 0; i < HG_SERVICE_PROBES; i++) {
		bucket = base + ((hash + i) & ro.service_mask);
		s = bpf_map_lookup_elem(&services, &bucket);
		if (!s || s->mode == HG_MODE_EMPTY)
			break;
		if (service_is(s, k) && (s->mode == HG_MODE_ADDR) == addr_row)
			return bucket;
	}
	return NO_BUCKET;
}

/*
 * The whole search, for when the first bucket did not decide. Not inlined: in a table that is at most
 * a quarter full it is rare, and its loops would stand between the instructions of the common path.
 */
GLOBAL u32 service_search(struct hg_service_key *k, u32 base, u32 exact, u32 any)
{
	u32 bucket;

	if (!k)
		return NO_BUCKET;
	bucket = exact ? service_probe(k, base, false) : NO_BUCKET;

	if (bucket != NO_BUCKET || !any)
		return bucket;
	k->port = 0;
	bucket = service_probe(k, base, false);
	if (bucket != NO_BUCKET || !k->proto)
		return bucket;
	k->proto = 0;
	return service_probe(k, base, false);
}

/* For the rare callers: the service of `k`, or with `addr_row` the address row. NULL: none. */
GLOBAL u32 service_bucket(struct hg_service_key *k, u32 exact, u32 addr_row)
{
	const struct hg_control *c = control_row();
	u32 generation, base;

	if (!c || !k)
		return NO_BUCKET;
	generation = READ_ONCE(c->service_generation) & 1;
	base = generation * (ro.service_mask + 1);
	if (addr_row)
		return service_probe(k, base, true);
	return service_search(k, base, exact, c->generation_flags[generation] & HG_CTL_ANY_PORT);
}

INLINE struct hg_service *service_get(struct hg_service_key *k, u32 exact, u32 addr_row)
{
	u32 bucket = service_bucket(k, exact, addr_row);

	return bucket == NO_BUCKET ? NULL : bpf_map_lookup_elem(&services, &bucket);
}

INLINE struct hg_service *service_find_slowly(struct pkt *p, const struct hg_service_key *k,
					      u32 base, u32 any)
{
	struct hg_service_key copy = *k; /* so that the caller's may stay in registers */
	u32 bucket = service_search(&copy, base, !(p->odd & ODD_NO_PORTS), any & HG_CTL_ANY_PORT);

	return bucket == NO_BUCKET ? NULL : bpf_map_lookup_elem(&services, &bucket);
}

INLINE bool stage_service(struct pkt *p, bool v6)
{
	struct hg_service_key k = { .port = p->dport, .proto = p->proto };
	const struct hg_control *c = control_row();
	u32 generation, base, bucket, any;
	struct hg_service *s;
	__be32 src[4];

	read_addrs(p, v6, src, k.addr);
	if (unlikely(!c))
		return pkt_end(p, HG_VERDICT_PASS_NOT_OURS);
	p->control = c;
	p->tap = READ_ONCE(c->capture);
	if (p->plain && unlikely(p->tap))
		return pkt_end(p, VERDICT_AGAIN);
	generation = READ_ONCE(c->service_generation) & 1;
	any = c->generation_flags[generation];
	base = generation * (ro.service_mask + 1);
	bucket = base + (hg_service_hash(&k) & ro.service_mask);
	s = bpf_map_lookup_elem(&services, &bucket);
	if (unlikely(!s))
		return pkt_end(p, HG_VERDICT_PASS_NOT_OURS);
	if (unlikely(p->odd & ODD_NO_PORTS)) {
		s = service_find_slowly(p, &k, base, any);
	} else if (s->mode == HG_MODE_EMPTY) {
		if (likely(!(any & HG_CTL_ANY_PORT)))
			return pkt_end(p, HG_VERDICT_PASS_NOT_OURS);
		s = service_find_slowly(p, &k, base, any);
	} else if (unlikely(!service_is(s, &k))) {
		s = service_find_slowly(p, &k, base, any);
	}
	p->svc = s;
	return s ? true : pkt_end(p, HG_VERDICT_PASS_NOT_OURS);
}

#endif
