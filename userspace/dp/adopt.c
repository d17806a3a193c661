/* SPDX-License-Identifier: BSD-2-Clause */
/* What an earlier process pinned, taken over where it fits: the same version, the same seed, large enough. Control thread. */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include "dp/dp_priv.h"

static int open_pin(struct dp *dp, enum dp_map_id id)
{
	char path[PATH_MAX];
	int fd;

	dp_pin_path(dp, dp_map_name(id), path);
	fd = bpf_obj_get(path);
	if (fd < 0)
		return -errno;
	return dp_map_in(&dp->maps[id], fd);
}

/* Are the pinned maps ours to use, and large enough? */
static bool fits(const struct dp *dp, const struct dp_opts *o)
{
	const struct hg_meta *meta = dp->maps[DP_MAP_META].mem;
	struct hg_rodata want = { 0 };
	uint32_t blocks;

	if (!meta || meta->abi != HG_ABI_VERSION || meta->role != (uint32_t)dp->role)
		return false;
	if (dp->role == HG_ROLE_BACKEND || o->adopt_only)
		return true;
	dp_size(o, &want, &blocks);
	return meta->ro.hash_seed == o->hash_seed && meta->ro.n_cpus == want.n_cpus &&
	       (!o->n_nat || meta->ro.nat_mask >= want.nat_mask) &&
	       meta->ro.max_services >= o->n_services + 16 &&
	       meta->ro.max_backends >= o->n_backends + 16 &&
	       (!o->n_flows || meta->ro.flow_mask >= want.flow_mask) &&
	       meta->ro.deny_mask >= want.deny_mask &&
	       dp->maps[DP_MAP_SLOTS].max_entries >=
		       (o->n_slots + HG_SLOTS_SPARE / 2) / HG_SLOTS_PER_BLOCK &&
	       dp->maps[DP_MAP_QUIC_IDS].max_entries >= dp_quic_blocks_of(o->n_quic_ids);
}

static void tell_beside(struct dp *dp, const struct dp_opts *o)
{
	if (dp_carry_begin(dp, o->hash_seed, (uint32_t)libbpf_num_possible_cpus()))
		dp_notice(dp, "pinned maps are too small: loading larger ones beside them, with "
			      "what they hold");
	else
		dp_notice(dp, "pinned maps are of another version or another 'xdp hash-seed': "
			      "loading new ones beside them");
}

int dp_adopt(struct dp *dp, const struct dp_opts *o)
{
	enum dp_map_id first = dp->role == HG_ROLE_BACKEND ? DP_MAP_SYN_CONTROL : DP_MAP_SERVICES;
	enum dp_map_id last = dp->role == HG_ROLE_BACKEND ? DP_MAP_DECAP_ADDRS : DP_MAP_META;
	char path[PATH_MAX];
	int rc = -ENOENT;

	for (enum dp_map_id id = first; id <= last; id++)
		if ((rc = open_pin(dp, id)) != 0)
			goto none;
	dp_pin_path(dp, dp_prog_name(dp->role), path);
	dp->prog_fd = bpf_obj_get(path);
	if (dp->prog_fd < 0)
		goto none;
	if (!fits(dp, o)) {
		if (o->adopt_only)
			rc = -ESTALE;
		else
			tell_beside(dp, o);
		goto none;
	}
	dp->is_adopted = true;
	return 0;
none:
	dp_maps_close(dp);
	return rc == -EPERM || rc == -EACCES || rc == -ESTALE ? rc : -ENOENT;
}

int dp_adopt_only(struct dp *dp, const struct dp_opts *o, struct err *err)
{
	int rc = dp_adopt(dp, o);

	if (rc == 0)
		return 0;
	if (rc == -ENOENT)
		return err_set(err, rc, "nothing of Headgate is loaded (no pins in %s)", dp->dir);
	if (rc == -ESTALE)
		return err_set(err, rc,
			       "what is loaded (pins in %s) is of another version of "
			       "Headgate than this tool",
			       dp->dir);
	return err_set(err, rc, "not allowed to look at the pins in %s: %s%s", dp->dir,
		       strerror(-rc), dp_hint(rc));
}
