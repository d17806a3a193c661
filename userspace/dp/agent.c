/* SPDX-License-Identifier: BSD-2-Clause */
/* The agent's side of the datapath: which addresses of a backend tunnels may be sent to. */
#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>

#include "dp/dp_priv.h"

int dp_each_decap_addr(struct dp *dp, int (*fn)(void *ctx, const struct addr *a, uint32_t flags),
		       void *ctx)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	int fd = dp->maps[DP_MAP_DECAP_ADDRS].fd, rc = 0;
	struct hg_decap_key key, last;
	struct hg_decap_addr value;

	for (const void *from = NULL; rc == 0 && bpf_map_get_next_key(fd, from, &key) == 0;
	     from = &last) {
		struct addr a = { 0 };

		last = key;
		if (bpf_map_lookup_elem(fd, &key, &value) != 0)
			continue;
		if (memcmp(key.addr, mapped, sizeof(mapped)) == 0) {
			a.in.sin_family = AF_INET;
			memcpy(&a.in.sin_addr, &key.addr[3], 4);
		} else {
			a.in6.sin6_family = AF_INET6;
			memcpy(&a.in6.sin6_addr, key.addr, 16);
		}
		rc = fn(ctx, &a, value.flags);
	}
	return rc;
}

int dp_decap_addrs(struct dp *dp, const struct addr *addrs, unsigned n, uint32_t flags,
		   struct err *err)
{
	struct hg_decap_addr value = { .flags = flags };
	int fd = dp->maps[DP_MAP_DECAP_ADDRS].fd;
	struct hg_decap_key key, old;

	if (fd < 0)
		return err_set(err, -EINVAL, "this is not the agent's datapath");
	for (unsigned i = 0; i < n; i++) {
		addr_to_v6_mapped(&addrs[i], (uint8_t *)key.addr);
		if (bpf_map_update_elem(fd, &key, &value, BPF_ANY) != 0)
			return err_set(err, -errno, "cannot add a tunnel address: %m");
	}
	/* What is no longer wanted goes after what is new has come. */
	for (bool again = bpf_map_get_next_key(fd, NULL, &old) == 0; again;) {
		bool keep = false;

		key = old;
		again = bpf_map_get_next_key(fd, &key, &old) == 0;
		for (unsigned i = 0; i < n && !keep; i++) {
			struct hg_decap_key k;

			addr_to_v6_mapped(&addrs[i], (uint8_t *)k.addr);
			keep = memcmp(&k, &key, sizeof(k)) == 0;
		}
		if (!keep)
			(void)bpf_map_delete_elem(fd, &key);
	}
	return 0;
}
