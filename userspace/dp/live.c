/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Has the kernel count this host's connections (bpf/live_conns.bpf.c): loads the program that does it, or takes the
 * pinned one, and attaches it to the control group of this process. Link, program and maps are pinned, so that
 * connections which outlive the daemon are given back when they end, and the next daemon finds true counts.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "dp/dp_priv.h"
#include "live_conns.skel.h"

#define PROG_PIN "live_conns"
#define LINK_PIN "live_link_" /* and the id of the control group */

#define CGROUP2_MAGIC 0x63677270

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

/* --- the control group of this process ------------------------------------------------------------------ */

/* Its path below the root of version 2, from "0::/path"; false: it is in none. */
static bool own_cgroup(char *ret, size_t size)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	bool found = false;
	char line[PATH_MAX + 8];

	while (f && !found && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = '\0';
		found = strncmp(line, "0::/", 4) == 0 &&
			snprintf(ret, size, "%s", line + 4) < (int)size;
	}
	if (f)
		fclose(f);
	return found;
}

/* A mount of the hierarchy that is nobody's but ours and has no place in the tree: works wherever there is none. */
static int private_root(void)
{
	int fs = (int)syscall(SYS_fsopen, "cgroup2", 1 /* FSOPEN_CLOEXEC */), fd = -1;

	if (fs < 0)
		return -1;
	if (syscall(SYS_fsconfig, fs, 6 /* FSCONFIG_CMD_CREATE */, NULL, NULL, 0) == 0)
		fd = (int)syscall(SYS_fsmount, fs, 1 /* FSMOUNT_CLOEXEC */, 0);
	close(fs);
	return fd;
}

static int mounted_root(void)
{
	static const char *const places[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };

	for (unsigned i = 0; i < ARRAY_SIZE(places); i++) {
		struct statfs s;

		if (statfs(places[i], &s) == 0 && (unsigned long)s.f_type == CGROUP2_MAGIC)
			return open(places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	}
	return -1;
}

/* Its descriptor and id, or -1 with the reason in dp->live.why_not. */
static int open_cgroup(struct dp *dp, uint64_t *ret_id)
{
	int root = mounted_root(), fd = -1;
	char path[PATH_MAX];
	struct stat st;

	if (root < 0)
		root = private_root();
	if (root < 0 || !own_cgroup(path, sizeof(path))) {
		snprintf(
			dp->live.why_not, sizeof(dp->live.why_not),
			"no control groups of version 2 here (CONFIG_CGROUPS, CONFIG_CGROUP_BPF; a "
			"container must have them, or the right to mount them)");
	} else {
		fd = openat(root, path[0] ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &st) != 0)
			snprintf(dp->live.why_not, sizeof(dp->live.why_not),
				 "control group /%.100s: %s", path, strerror(errno));
		else
			*ret_id = st.st_ino; /* the kernel's own number for it */
	}
	if (root >= 0)
		close(root);
	return fd;
}

/* --- the program ------------------------------------------------------------------------------------------ */

static int fail(struct dp *dp, int rc, const char *what)
{
	snprintf(dp->live.why_not, sizeof(dp->live.why_not), "%s: %s", what, strerror(-rc));
	return rc;
}

static int pin(const struct dp *dp, int fd, const char *name)
{
	char path[PATH_MAX];

	dp_pin_path(dp, name, path);
	(void)unlink(path);
	return bpf_obj_pin(fd, path) == 0 ? 0 : -errno;
}

static int get_pin(const struct dp *dp, const char *name)
{
	char path[PATH_MAX];

	dp_pin_path(dp, name, path);
	return bpf_obj_get(path);
}

static bool share_maps(const struct dp *dp, struct bpf_object *obj)
{
	static const enum dp_map_id shared[] = { DP_MAP_SERVICES, DP_MAP_CONTROL,
						 DP_MAP_LIVE_SOURCES, DP_MAP_LIVE_SERVICES,
						 DP_MAP_XDP_VERDICTS };

	for (unsigned i = 0; i < ARRAY_SIZE(shared); i++) {
		struct bpf_map *map = bpf_object__find_map_by_name(obj, dp_map_name(shared[i]));

		if (!map || bpf_map__reuse_fd(map, dp->maps[shared[i]].fd) != 0)
			return false;
	}
	return true;
}

/* A new program on this process's maps, and what it marks sockets with; both pinned. Its descriptor. */
static int load_prog(struct dp *dp)
{
	struct live_conns_bpf *skel = live_conns_bpf__open();
	int rc, fd;

	if (!skel)
		return fail(dp, -errno, "cannot open the program");
	*(uint32_t *)&skel->rodata->service_mask = dp->t.n_buckets - 1;
	rc = share_maps(dp, skel->obj) ? live_conns_bpf__load(skel) : -EINVAL;
	fd = rc == 0 ? fcntl(bpf_program__fd(skel->progs.live_conns), F_DUPFD_CLOEXEC, 3) : -1;
	if (rc == 0 && fd < 0)
		rc = -errno;
	if (rc == 0)
		rc = pin(dp, fd, PROG_PIN);
	if (rc == 0)
		rc = pin(dp, bpf_map__fd(skel->maps.live_marks), dp_map_name(DP_MAP_LIVE_MARKS));
	live_conns_bpf__destroy(skel);
	if (rc == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return fail(dp, rc, "cannot load the program");
}

/* --- links -------------------------------------------------------------------------------------------------- */

static uint64_t link_cgroup(int fd)
{
	struct bpf_link_info info = { 0 };
	uint32_t len = sizeof(info);

	return bpf_obj_get_info_by_fd(fd, &info, &len) == 0 ? info.cgroup.cgroup_id : 0;
}

/*
 * Links of earlier processes, each in its control group, where connections of theirs may still be open: they go on,
 * with our program. A control group that is gone took its link along. True: there is one in ours.
 */
static bool renew_links(struct dp *dp, int prog_fd, uint64_t own_id)
{
	DIR *d = opendir(dp->dir);
	bool has_own = false;
	struct dirent *e;

	while (d && (e = readdir(d))) {
		char path[PATH_MAX];
		uint64_t id;
		int fd;

		if (strncmp(e->d_name, LINK_PIN, strlen(LINK_PIN)) != 0)
			continue;
		dp_pin_path(dp, e->d_name, path);
		fd = bpf_obj_get(path);
		if (fd < 0)
			continue;
		id = link_cgroup(fd);
		if (!id || bpf_link_update(fd, prog_fd, NULL) != 0)
			(void)unlink(path);
		else
			has_own |= id == own_id;
		close(fd);
	}
	if (d)
		closedir(d);
	return has_own;
}

static int make_link(struct dp *dp, int prog_fd, int cgroup_fd, uint64_t id)
{
	char name[64];
	int rc, fd = bpf_link_create(prog_fd, cgroup_fd, BPF_CGROUP_SOCK_OPS, NULL);

	if (fd < 0)
		return fail(dp, -errno, "cannot attach to the control group");
	snprintf(name, sizeof(name), LINK_PIN "%llu", (unsigned long long)id);
	rc = pin(dp, fd, name);
	close(fd); /* the pin keeps it */
	return rc == 0 ? 0 : fail(dp, rc, "cannot pin the link");
}

/* --- start -------------------------------------------------------------------------------------------------- */

/*
 * Larger maps: connections by service were counted in the older ones until now, and their ends are counted in the new
 * ones already. The older counts are final when no run of the older program is left.
 */
static void carry_services(struct dp *dp)
{
	const struct hg_live *old = dp->before->maps[DP_MAP_LIVE_SERVICES].mem;
	uint32_t n = dp->before->maps[DP_MAP_LIVE_SERVICES].max_entries;
	struct timespec grace = { .tv_nsec = DP_GRACE_NS };

	(void)nanosleep(&grace, NULL);
	for (uint32_t id = 0; old && id < n && id < dp->t.max_services; id++)
		if (dp->services[id].is_used && dp->services[id].row.mode == HG_MODE_LOCAL)
			__atomic_add_fetch(&dp->nat.live_services[id].conns, old[id].conns,
					   __ATOMIC_SEQ_CST);
}

static int tell_netns(struct dp *dp)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);
	int rc = fd < 0 || getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) != 0 ? -errno
											   : 0;

	if (fd >= 0)
		close(fd);
	if (rc != 0)
		return fail(dp, rc, "number of the network namespace");
	__atomic_store_n(&dp->t.control->netns_cookie, cookie, __ATOMIC_RELEASE);
	return 0;
}

static bool live_begin(struct dp *dp)
{
	uint64_t id = 0;
	int prog_fd = -1, cgroup_fd = open_cgroup(dp, &id);
	bool ok = false;

	if (cgroup_fd < 0)
		return false;
	if (dp->is_adopted)
		prog_fd = get_pin(dp, PROG_PIN);
	if (prog_fd < 0)
		prog_fd = load_prog(dp);
	if (prog_fd >= 0 && tell_netns(dp) == 0)
		ok = renew_links(dp, prog_fd, id) || make_link(dp, prog_fd, cgroup_fd, id) == 0;
	if (prog_fd >= 0)
		close(prog_fd);
	close(cgroup_fd);
	return ok;
}

bool dp_live_start(struct dp *dp)
{
	if (dp->live.is_on || dp->live.has_failed)
		return dp->live.is_on;
	dp->live.is_on = live_begin(dp);
	dp->live.has_failed = !dp->live.is_on;
	if (dp->live.has_failed)
		dp_notice(dp, "connections are not counted by the kernel: %s", dp->live.why_not);
	else if (dp->before)
		carry_services(dp);
	return dp->live.is_on;
}

/* --- reading ------------------------------------------------------------------------------------------------ */

void dp_source_view(const struct dp *dp, struct source_view *ret)
{
	*ret = (struct source_view){ .control = dp->t.control,
				     .live = dp->maps[DP_MAP_LIVE_SOURCES].mem,
				     .seen = dp->maps[DP_MAP_SOURCE_SEEN].mem,
				     .hz = dp->t.hz,
				     .tick_shift = dp->t.tick_shift };
}

int dp_source(struct dp *dp, const struct addr *a, struct dp_source_info *ret)
{
	int64_t facts[3] = { 0 };
	struct source_view v;
	int rc = 0;

	*ret = (struct dp_source_info){ 0 };
	dp_source_view(dp, &v);
	for (unsigned i = 0; i < ARRAY_SIZE(facts) && rc == 0; i++)
		rc = source_ask(&v, a, dp_now_ns(), (enum source_fact)i, &facts[i]);
	if (rc != 0)
		return rc;
	ret->conns = (uint32_t)facts[SOURCE_CONNS];
	ret->syn_rate = (uint32_t)facts[SOURCE_SYN_RATE];
	ret->dropped = (uint32_t)facts[SOURCE_DROPPED];
	ret->max_conns = v.control->source_conns;
	ret->is_watched = v.control->watch;
	return 0;
}

int dp_sources(struct dp *dp, struct dp_sources_summary *ret)
{
	const struct hg_live_line *lines = dp->maps[DP_MAP_LIVE_SOURCES].mem;

	*ret = (struct dp_sources_summary){ 0 };
	if (!lines || !dp->t.control)
		return -ENOENT;
	ret->room = HG_LIVE_LINES * HG_LIVE_WAYS;
	ret->max_conns = dp->t.control->source_conns;
	for (uint32_t i = 0; i < HG_LIVE_LINES; i++) {
		for (unsigned way = 0; way < HG_LIVE_WAYS; way++) {
			uint64_t w = __atomic_load_n(&lines[i].word[way], __ATOMIC_ACQUIRE);
			uint32_t n = (uint32_t)(w & HG_LIVE_COUNT);

			ret->sources += n > 0;
			ret->conns += n;
			if (n > ret->most)
				ret->most = n;
		}
	}
	return 0;
}
