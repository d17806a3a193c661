/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Part of stage select: QUIC connections that change address keep their backend, because the backend has
 * written its server id into the connection id (draft-ietf-quic-load-balancers, plaintext). Short headers go
 * by it; long headers by flow, since a client's first connection id is its own invention.
 */
#ifndef HG_BPF_STAGE_QUIC_H
#define HG_BPF_STAGE_QUIC_H

#include "bpf/maps.h"
#include "bpf/stage_flow.h"

#define QUIC_LONG      0x80
#define QUIC_TYPE      0x30
#define QUIC_V1	       hg_be32(1)
#define QUIC_V2	       hg_be32(0x6b3343cf)
#define QUIC_INITIAL_2 0x10 /* of version 2, RFC 9369 3.2; zero in version 1 */

/* By flow, and whether a connection begins. */
#define QUIC_BY_FLOW 0u
#define QUIC_NEW     0x10000u

/*
 * Backend id in the lower half, or one of the above. `off`: of the payload in the frame; `cid`: offset of the
 * server id, and in the second byte its length; then the service's range of ids.
 */
GLOBAL u32 quic_route(struct xdp_md *ctx, u32 off, u32 cid, u32 first_block, u32 ids)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u32 offset = cid & 0xff, len = cid >> 8, server, key, id, version, type;
	struct hg_quic_block *block;
	const u8 *quic;

	if (off > 2 * MAX_L4_OFF)
		return QUIC_BY_FLOW;
	quic = data + off;
	if ((void *)(quic + 5) > end)
		return QUIC_BY_FLOW;
	if (quic[0] & QUIC_LONG) {
		version = *(const u32a *)(quic + 1);
		type = quic[0] & QUIC_TYPE;
		if ((version == QUIC_V1 && !type) || (version == QUIC_V2 && type == QUIC_INITIAL_2))
			return QUIC_NEW;
		return QUIC_BY_FLOW;
	}
	if (offset > HG_QUIC_OFFSET_MAX || !len || len > HG_QUIC_ID_MAX)
		return QUIC_BY_FLOW;
	/* Four bytes are always there: behind the id come a packet number and 16 bytes of AEAD tag. */
	quic += 1 + offset;
	if ((void *)(quic + HG_QUIC_ID_MAX) > end)
		return QUIC_BY_FLOW;
	server = __builtin_bswap32(*(const u32a *)quic) >> (32 - 8 * len);
	key = first_block + server / HG_QUIC_IDS_PER_BLOCK;
	block = server < ids ? bpf_map_lookup_elem(&quic_ids, &key) : NULL;
	id = block ? block->backend[server % HG_QUIC_IDS_PER_BLOCK] : 0;
	if (id && backend_usable(id)) {
		count_event(HG_EVENT_QUIC_BY_ID);
		return id;
	}
	count_event(HG_EVENT_QUIC_UNKNOWN_ID);
	return QUIC_BY_FLOW;
}

#endif
