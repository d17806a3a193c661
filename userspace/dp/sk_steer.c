/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * `sk-steer`: the program that chooses which worker's socket gets a new connection (bpf/sk_steer.bpf.c), once for each
 * address. A socket can be in one array of sockets at a time, so nobody holds an array for longer than it takes
 * to fill: the program is the group's and the array the program's. A process that takes the sockets over attaches its own
 * program, by which the older array goes, and fills its own. Control thread.
 */
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "dp/dp_priv.h"
#include "sk_steer.skel.h"

#ifndef SO_ATTACH_REUSEPORT_EBPF
#define SO_ATTACH_REUSEPORT_EBPF 52
#endif
#ifndef SO_DETACH_REUSEPORT_BPF
#define SO_DETACH_REUSEPORT_BPF 68
#endif

void dp_sk_steer_configure(struct dp *dp, enum hg_sk_mode mode, const int *cpus, unsigned n)
{
	struct hg_sk_steer *s = dp->maps[DP_MAP_SK_STEER].mem;
	unsigned at = 0;

	if (!s || mode == s->mode)
		return;
	/* Workers never change their CPU: written once, before the first program is attached. */
	if (s->n_workers == 0) {
		n = n > HG_SK_WORKERS ? HG_SK_WORKERS : n;
		for (int cpu = 0; cpu < HG_STEER_MAX; cpu++) {
			s->cpu[cpu].first = (uint16_t)at;
			for (unsigned i = 0; i < n; i++)
				if (cpus[i] == cpu)
					s->order[at++] = (uint16_t)i;
			s->cpu[cpu].n = (uint16_t)(at - s->cpu[cpu].first);
		}
		__atomic_store_n(&s->n_workers, n, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&s->mode, mode, __ATOMIC_RELEASE);
}

static int sk_load(struct dp *dp, unsigned n, struct sk_steer_bpf **ret_skel, struct err *err)
{
	struct sk_steer_bpf *skel = sk_steer_bpf__open();
	int rc;

	if (!skel)
		return err_set(err, -errno, "cannot open the program: %m");
	rc = bpf_map__reuse_fd(skel->maps.sk_steer, dp->maps[DP_MAP_SK_STEER].fd);
	if (rc == 0)
		rc = bpf_map__reuse_fd(skel->maps.sk_workers, dp->maps[DP_MAP_SK_WORKERS].fd);
	if (rc == 0)
		rc = bpf_map__reuse_fd(skel->maps.stats_workers, dp->maps[DP_MAP_STATS_WORKERS].fd);
	if (rc == 0)
		rc = bpf_map__set_max_entries(skel->maps.sk_sockets, n);
	if (rc == 0)
		rc = sk_steer_bpf__load(skel);
	if (rc != 0) {
		sk_steer_bpf__destroy(skel);
		return err_set(err, rc, "cannot load the program: %s", strerror(-rc));
	}
	*ret_skel = skel;
	return 0;
}

int dp_sk_steer_check(struct dp *dp, struct err *err)
{
	struct sk_steer_bpf *skel;
	int rc = sk_load(dp, 1, &skel, err);

	if (rc == 0)
		sk_steer_bpf__destroy(skel);
	return rc;
}

int dp_sk_steer_attach(struct dp *dp, int fd, unsigned n, int *ret_map_fd, struct err *err)
{
	struct sk_steer_bpf *skel;
	int rc = sk_load(dp, n, &skel, err), prog_fd, map_fd;

	if (rc != 0)
		return rc;
	prog_fd = bpf_program__fd(skel->progs.sk_steer_conn);
	map_fd = fcntl(bpf_map__fd(skel->maps.sk_sockets), F_DUPFD_CLOEXEC, 3);
	if (map_fd < 0)
		rc = err_set(err, -errno, "cannot keep the array of sockets: %m");
	else if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, &prog_fd, sizeof(prog_fd)) !=
		 0)
		rc = err_set(err, -errno, "cannot attach the program to the sockets: %m");
	sk_steer_bpf__destroy(skel);
	if (rc != 0 && map_fd >= 0)
		close(map_fd);
	else if (rc == 0)
		*ret_map_fd = map_fd;
	return rc;
}

int dp_sk_steer_fill(int map_fd, const int *fds, unsigned n, unsigned *at)
{
	for (; *at < n; (*at)++) {
		uint64_t socket_fd = (uint64_t)fds[*at];
		uint32_t key = *at;

		if (bpf_map_update_elem(map_fd, &key, &socket_fd, BPF_ANY) != 0)
			return -errno;
	}
	return 0;
}

int dp_sk_steer_detach(int fd)
{
	int unused = 0;

	if (setsockopt(fd, SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &unused, sizeof(unused)) != 0 &&
	    errno != ENOENT)
		return -errno;
	return 0;
}

const struct hg_sk_worker *dp_sk_steer_rows(const struct dp *dp)
{
	return dp->maps[DP_MAP_SK_WORKERS].mem;
}
