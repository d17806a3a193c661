/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Attaching to interfaces: through libxdp's dispatcher where the kernel allows it, so that other XDP
 * programs can live there too; else (or when asked to) by a pinned bpf_link. Native mode first. What
 * is attached already and ours is replaced in one step, without a packet seeing no program.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xdp/libxdp.h>

#include "dp/dp_priv.h"

static int attach_silent(enum libxdp_print_level level, const char *fmt, va_list ap)
{
	return 0;
}

static void link_path(const char *dir, const char *ifname, char ret[PATH_MAX])
{
	if (snprintf(ret, PATH_MAX, "%s/link_%s", dir, ifname) >= PATH_MAX)
		ret[0] = '\0';
}

static uint32_t prog_id_of(int fd)
{
	struct bpf_prog_info info = { 0 };
	uint32_t len = sizeof(info);

	return bpf_obj_get_info_by_fd(fd, &info, &len) == 0 ? info.id : 0;
}

static bool prog_name_of(uint32_t id, char ret[BPF_OBJ_NAME_LEN])
{
	struct bpf_prog_info info = { 0 };
	uint32_t len = sizeof(info);
	int fd = bpf_prog_get_fd_by_id(id);
	bool ok;

	if (fd < 0)
		return false;
	ok = bpf_obj_get_info_by_fd(fd, &info, &len) == 0;
	close(fd);
	if (ok)
		memcpy(ret, info.name, BPF_OBJ_NAME_LEN);
	return ok;
}

static bool is_our_name(const char *name)
{
	return strcmp(name, "xdp_lb") == 0 || strcmp(name, "xdp_decap") == 0;
}

/* --- by link ---------------------------------------------------------------------------------------- */

/* 0 replaced, -ENOENT no link of ours. */
static int link_replace(struct dp *dp, const char *ifname)
{
	char path[PATH_MAX];
	int fd, rc;

	link_path(dp->dir, ifname, path);
	fd = bpf_obj_get(path);
	if (fd < 0)
		return -ENOENT;
	rc = bpf_link_update(fd, dp->prog_fd, NULL) == 0 ? 0 : -errno;
	close(fd);
	/* The interface was deleted and made again under the same name: the pin is of the old one. */
	if (rc == -ENOLINK || rc == -ENODEV) {
		(void)unlink(path);
		return -ENOENT;
	}
	return rc;
}

static int link_create(struct dp *dp, const char *ifname, unsigned ifindex, uint32_t flags)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts, .flags = flags);
	char path[PATH_MAX];
	int rc, fd = bpf_link_create(dp->prog_fd, (int)ifindex, BPF_XDP, &opts);

	if (fd < 0)
		return -errno;
	link_path(dp->dir, ifname, path);
	(void)unlink(path);
	rc = bpf_obj_pin(fd, path) == 0 ? 0 : -errno;
	close(fd); /* the pin keeps the link */
	return rc;
}

/* --- by dispatcher ------------------------------------------------------------------------------------ */

/* Another program of ours behind the dispatcher of this interface, other than `keep`. */
static void dispatcher_drop_old(unsigned ifindex, enum xdp_attach_mode mode, uint32_t keep)
{
	struct xdp_multiprog *mp = xdp_multiprog__get_from_ifindex((int)ifindex);
	struct xdp_program *prog = NULL;

	if (libxdp_get_error(mp) != 0)
		return;
	while ((prog = xdp_multiprog__next_prog(prog, mp))) {
		if (!is_our_name(xdp_program__name(prog)) || xdp_program__id(prog) == keep)
			continue;
		(void)xdp_program__detach(prog, (int)ifindex, mode, 0);
		break; /* the list changed; there is never more than one old one */
	}
	xdp_multiprog__close(mp);
}

/*
 * 0 attached by dispatcher; -EOPNOTSUPP: the kernel has none (libxdp then attached the bare program,
 * which is taken off again: a link is safer against strangers).
 */
static int dispatcher_attach(struct dp *dp, unsigned ifindex, enum xdp_attach_mode mode)
{
	struct xdp_program *prog = xdp_program__from_fd(dp->prog_fd);
	struct xdp_multiprog *mp;
	bool is_legacy;
	int rc;

	if (libxdp_get_error(prog) != 0)
		return -EOPNOTSUPP;
	rc = xdp_program__attach(prog, (int)ifindex, mode, 0);
	if (rc == 0) {
		mp = xdp_multiprog__get_from_ifindex((int)ifindex);
		is_legacy = libxdp_get_error(mp) != 0 || xdp_multiprog__is_legacy(mp);
		if (libxdp_get_error(mp) == 0)
			xdp_multiprog__close(mp);
		if (is_legacy) {
			(void)xdp_program__detach(prog, (int)ifindex, mode, 0);
			rc = -EOPNOTSUPP;
		} else {
			dispatcher_drop_old(ifindex, mode, prog_id_of(dp->prog_fd));
		}
	}
	xdp_program__close(prog);
	return rc;
}

/* --- both ------------------------------------------------------------------------------------------------- */

static uint32_t attached_prog(unsigned ifindex, const char **ret_mode)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, q);

	if (bpf_xdp_query((int)ifindex, 0, &q) != 0)
		return 0;
	*ret_mode = q.skb_prog_id && q.prog_id == q.skb_prog_id ? "generic" : "native";
	return q.prog_id ? q.prog_id : q.drv_prog_id ? q.drv_prog_id : q.skb_prog_id;
}

/* Is there a program that is neither ours nor a dispatcher we could join? */
static bool is_foreign(unsigned ifindex, char ret_name[BPF_OBJ_NAME_LEN], uint32_t *ret_id)
{
	const char *mode;

	*ret_id = attached_prog(ifindex, &mode);
	if (!*ret_id)
		return false;
	if (!prog_name_of(*ret_id, ret_name))
		snprintf(ret_name, BPF_OBJ_NAME_LEN, "?");
	return !is_our_name(ret_name);
}

static int attach_one_mode(struct dp *dp, const char *ifname, unsigned ifindex,
			   enum dp_attach_mode mode, bool is_exclusive)
{
	bool native = mode != DP_MODE_GENERIC;
	int rc = -EOPNOTSUPP;

	if (!is_exclusive)
		rc = dispatcher_attach(dp, ifindex, native ? XDP_MODE_NATIVE : XDP_MODE_SKB);
	if (rc == -EBUSY)
		return rc;
	if (rc != 0)
		rc = link_create(dp, ifname, ifindex,
				 native ? XDP_FLAGS_DRV_MODE : XDP_FLAGS_SKB_MODE);
	return rc;
}

static int attach_failed(const char *ifname, unsigned ifindex, int rc, struct err *err)
{
	char name[BPF_OBJ_NAME_LEN];
	uint32_t id;

	if (rc == -EBUSY && is_foreign(ifindex, name, &id))
		return err_set(err, rc,
			       "%s has an XDP program already: '%s' (id %u); detach that first",
			       ifname, name, id);
	if (rc == -EOPNOTSUPP || rc == -EINVAL)
		return err_set(err, rc,
			       "%s: the driver cannot run XDP in this mode (%s); 'mode auto' falls "
			       "back to generic",
			       ifname, strerror(-rc));
	if (rc == -EPERM)
		return err_set(
			err, rc,
			"%s: not permitted to attach XDP programs (CAP_NET_ADMIN and CAP_BPF)",
			ifname);
	return err_set(err, rc, "%s: cannot attach: %s", ifname, strerror(-rc));
}

static int attach_mode(struct dp *dp, const char *ifname, enum dp_attach_mode mode,
		       bool is_exclusive, struct err *err)
{
	unsigned ifindex = if_nametoindex(ifname);
	int rc;

	libxdp_set_print(attach_silent);
	if (!ifindex)
		return err_set(err, -ENODEV, "there is no interface '%s' on this host", ifname);
	rc = link_replace(dp, ifname);
	if (rc == 0)
		dp_carry_again(dp);
	if (rc != -ENOENT)
		return rc == 0 ? 0 : attach_failed(ifname, ifindex, rc, err);
	rc = attach_one_mode(dp, ifname, ifindex, mode == DP_MODE_AUTO ? DP_MODE_NATIVE : mode,
			     is_exclusive);
	if (rc != 0 && rc != -EBUSY && mode == DP_MODE_AUTO) {
		int native_rc = rc;

		rc = attach_one_mode(dp, ifname, ifindex, DP_MODE_GENERIC, is_exclusive);
		if (rc == 0)
			dp_notice(dp, "%s: the driver has no native XDP (%s): generic mode, slower",
				  ifname, strerror(-native_rc));
	}
	return rc == 0 ? 0 : attach_failed(ifname, ifindex, rc, err);
}

int dp_attach(struct dp *dp, const char *ifname, enum dp_attach_mode mode, bool is_exclusive,
	      struct err *err)
{
	int rc = attach_mode(dp, ifname, mode, is_exclusive, err);
	const char *attached = "";

	if (rc != 0)
		return rc;
	if (attached_prog(if_nametoindex(ifname), &attached) && strcmp(attached, "native") == 0)
		dp->is_native = true;
	if (dp->backends)
		dp_ports_check(dp);
	return 0;
}

/* --- detach -------------------------------------------------------------------------------------------------- */

static int detach_link(const char *dir, const char *ifname)
{
	char path[PATH_MAX];
	int fd;

	link_path(dir, ifname, path);
	fd = bpf_obj_get(path);
	if (fd < 0)
		return -ENOENT;
	(void)bpf_link_detach(fd); /* fails when the interface is gone: nothing left to do then */
	close(fd);
	return unlink(path) == 0 ? 0 : -errno;
}

static int detach_dispatcher(unsigned ifindex)
{
	struct xdp_multiprog *mp = xdp_multiprog__get_from_ifindex((int)ifindex);
	struct xdp_program *prog = NULL;
	int rc = -ENOENT;

	if (libxdp_get_error(mp) != 0)
		return -ENOENT;
	while (rc == -ENOENT && (prog = xdp_multiprog__next_prog(prog, mp)))
		if (is_our_name(xdp_program__name(prog)))
			rc = xdp_program__detach(prog, (int)ifindex, xdp_multiprog__attach_mode(mp),
						 0);
	xdp_multiprog__close(mp);
	return rc;
}

static int detach_interface(const char *dir, const char *ifname)
{
	unsigned ifindex = if_nametoindex(ifname);
	int rc = detach_link(dir, ifname);

	if (rc == -ENOENT && ifindex)
		rc = detach_dispatcher(ifindex);
	return rc;
}

/* Removes the files of a directory of pins; with_links: the links' too. True when it is empty then. */
static bool remove_pins(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	if (!d)
		return true;
	while ((e = readdir(d))) {
		char path[PATH_MAX];

		if (e->d_name[0] == '.' ||
		    snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) >= PATH_MAX)
			continue;
		(void)unlink(path);
	}
	closedir(d);
	return rmdir(dir) == 0;
}

static int detach_role(const char *bpffs, enum hg_role role, const char *ifname, struct err *err)
{
	struct if_nameindex *ifs = if_nameindex();
	char dir[PATH_MAX];
	int found = 0, rc = 0;

	dp_pin_dir(bpffs, role, dir);
	for (struct if_nameindex *i = ifs; i && i->if_index && rc == 0; i++) {
		int one;

		if (ifname && strcmp(ifname, i->if_name) != 0)
			continue;
		one = detach_interface(dir, i->if_name);
		dp_checks_detach(i->if_index);
		if (role == HG_ROLE_EDGE)
			dp_syn_detach(i->if_index);
		else
			dp_agent_syn_detach(i->if_index);
		if (one == 0)
			found++;
		else if (one != -ENOENT)
			rc = err_set(err, one, "%s: cannot detach: %s", i->if_name, strerror(-one));
	}
	if (ifs)
		if_freenameindex(ifs);
	return rc ? rc : found;
}

int dp_detach(const char *bpffs, const char *ifname, struct err *err)
{
	struct dp_attachment left[64];
	char dir[PATH_MAX];
	int edge, agent, n, ours = 0;

	libxdp_set_print(attach_silent);
	if (ifname && !if_nametoindex(ifname))
		return err_set(err, -ENODEV, "there is no interface '%s' on this host", ifname);
	edge = detach_role(bpffs, HG_ROLE_EDGE, ifname, err);
	if (edge < 0)
		return edge;
	agent = detach_role(bpffs, HG_ROLE_BACKEND, ifname, err);
	if (agent < 0)
		return agent;
	if (ifname && edge + agent == 0) {
		char name[BPF_OBJ_NAME_LEN];
		uint32_t id;

		if (is_foreign(if_nametoindex(ifname), name, &id))
			return err_set(err, -ENOENT,
				       "%s: nothing of Headgate is attached; what is there is '%s' "
				       "(id %u), left alone",
				       ifname, name, id);
		return err_set(err, -ENOENT, "%s: nothing of Headgate is attached", ifname);
	}
	n = dp_attachments(bpffs, left, ARRAY_SIZE(left));
	for (int i = 0; i < n; i++)
		ours += !left[i].is_foreign;
	if (ours == 0) {
		dp_pin_dir(bpffs, HG_ROLE_BACKEND, dir);
		(void)remove_pins(dir);
		dp_pin_dir(bpffs, HG_ROLE_EDGE, dir);
		(void)remove_pins(dir);
	}
	return 0;
}

/* --- looking ---------------------------------------------------------------------------------------------------- */

static bool describe(const struct if_nameindex *i, struct dp_attachment *a)
{
	char name[BPF_OBJ_NAME_LEN] = "?";
	struct xdp_multiprog *mp;
	const char *mode = "";

	*a = (struct dp_attachment){ .ifindex = i->if_index };
	snprintf(a->ifname, sizeof(a->ifname), "%s", i->if_name);
	a->prog_id = attached_prog(i->if_index, &mode);
	if (!a->prog_id)
		return false;
	snprintf(a->mode, sizeof(a->mode), "%s", mode);
	(void)prog_name_of(a->prog_id, name);
	snprintf(a->via, sizeof(a->via), "link");
	a->is_foreign = !is_our_name(name);
	if (a->is_foreign) {
		struct xdp_program *prog = NULL;

		mp = xdp_multiprog__get_from_ifindex((int)i->if_index);
		if (libxdp_get_error(mp) != 0)
			return true;
		while ((prog = xdp_multiprog__next_prog(prog, mp))) {
			if (!is_our_name(xdp_program__name(prog)))
				continue;
			snprintf(name, sizeof(name), "%s", xdp_program__name(prog));
			snprintf(a->via, sizeof(a->via), "dispatcher");
			a->prog_id = xdp_program__id(prog);
			a->is_foreign = false;
			break;
		}
		xdp_multiprog__close(mp);
	}
	a->role = strcmp(name, "xdp_decap") == 0 ? HG_ROLE_BACKEND : HG_ROLE_EDGE;
	return true;
}

int dp_attachments(const char *bpffs, struct dp_attachment *ret, unsigned n)
{
	struct if_nameindex *ifs = if_nameindex();
	unsigned found = 0;

	if (!ifs)
		return -errno;
	libxdp_set_print(attach_silent);
	for (struct if_nameindex *i = ifs; i->if_index && found < n; i++)
		found += describe(i, &ret[found]);
	if_freenameindex(ifs);
	return (int)found;
}
