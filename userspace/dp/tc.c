/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs of ours at tc: one place per kind on an interface, by priority and handle. What an earlier process
 * left there is replaced; what is of others is never touched.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <unistd.h>

#include "dp/dp_priv.h"

uint32_t dp_tc_prog(const struct dp_tc_slot *slot, unsigned ifindex, enum bpf_tc_attach_point point)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)ifindex, .attach_point = point);
	LIBBPF_OPTS(bpf_tc_opts, o, .handle = slot->handle, .priority = slot->prio);
	struct bpf_prog_info info = { 0 };
	uint32_t len = sizeof(info);
	int fd;

	if (bpf_tc_query(&hook, &o) != 0)
		return 0;
	fd = bpf_prog_get_fd_by_id(o.prog_id);
	if (fd < 0)
		return 0;
	if (bpf_obj_get_info_by_fd(fd, &info, &len) != 0 ||
	    strncmp(info.name, slot->prefix, strlen(slot->prefix)) != 0)
		o.prog_id = 0;
	close(fd);
	return o.prog_id;
}

void dp_tc_detach(const struct dp_tc_slot *slot, unsigned ifindex, enum bpf_tc_attach_point point)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)ifindex, .attach_point = point);
	LIBBPF_OPTS(bpf_tc_opts, o, .handle = slot->handle, .priority = slot->prio);

	if (dp_tc_prog(slot, ifindex, point))
		(void)bpf_tc_detach(&hook,
				    &o); /* fails when the interface is gone, and all with it */
}

int dp_tc_attach(const struct dp_tc_slot *slot, unsigned ifindex, enum bpf_tc_attach_point point,
		 const struct bpf_program *prog, struct err *err)
{
	LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = (int)ifindex, .attach_point = point);
	LIBBPF_OPTS(bpf_tc_opts, o, .handle = slot->handle, .priority = slot->prio,
		    .prog_fd = bpf_program__fd(prog), .flags = BPF_TC_F_REPLACE);
	char name[IF_NAMESIZE] = "?";
	int rc = bpf_tc_hook_create(&hook);

	if (rc == 0 || rc == -EEXIST)
		rc = bpf_tc_attach(&hook, &o);
	if (rc == 0)
		return 0;
	(void)if_indextoname(ifindex, name);
	return err_set(err, rc, "%s: cannot attach to tc (clsact): %s%s", name, strerror(-rc),
		       rc == -ENOENT || rc == -EOPNOTSUPP
			       ? " (the kernel needs CONFIG_NET_CLS_BPF and CONFIG_NET_SCH_INGRESS)"
			       : "");
}
