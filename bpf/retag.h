/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * VLAN tags of a frame that is ready to leave: none, one, or those it came with, as its next hop demands.
 * Last step of stage forward, so that an answer to the client (too_big.h) still has the client's tags.
 */
#ifndef HG_BPF_RETAG_H
#define HG_BPF_RETAG_H

#include "bpf/pkt.h"

#define TAG_PRIORITY 0xf000 /* PCP and DEI, which a rewritten tag keeps */

/* `state` is the next hop's, `type_off` the frame's own. False: no room for a tag. */
INLINE bool retag(struct xdp_md *ctx, u32 type_off, u32 state)
{
	u32 have = type_off - NO_TAG, vlan = state >> HG_NEIGH_VLAN_SHIFT;
	u32 want = vlan ? VLAN_TAG_LEN : 0, macs[3], tag;
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u32a *w = data;

	if (state & HG_NEIGH_KEEP_TAGS)
		return true;
	if (data + NO_TAG + VLAN_TAG_LEN > end)
		return false;
	macs[0] = w[0];
	macs[1] = w[1];
	macs[2] = w[2];
	tag = have ? w[3] & hg_be32(TAG_PRIORITY) : 0;
	if (have != want && bpf_xdp_adjust_head(ctx, (int)have - (int)want))
		return false;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	w = data;
	if (data + NO_TAG + VLAN_TAG_LEN > end)
		return false;
	w[0] = macs[0];
	w[1] = macs[1];
	w[2] = macs[2];
	if (want)
		w[3] = tag | hg_be32((state & HG_NEIGH_TAG_AD ? ETH_P_8021AD : ETH_P_8021Q) << 16 |
				     vlan);
	return true;
}

#endif
