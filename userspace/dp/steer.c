/* SPDX-License-Identifier: BSD-2-Clause */
/* `xdp steer`: which CPUs take packets for the L7 tier. Control thread. */
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "dp/dp_priv.h"

#define ONLINE "/sys/devices/system/cpu/online"

static bool cpus_online(struct conf_xdp_steer *ret)
{
	char text[512];
	int fd = open(ONLINE, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));

	if (fd >= 0)
		close(fd);
	return n > 0 && conf_cpus_parse(str_trim((struct str){ text, (size_t)n }), ret) == 0;
}

static bool has_cpu(const struct conf_xdp_steer *s, uint32_t cpu)
{
	return s->cpus[cpu / 64] >> cpu % 64 & 1;
}

/* What is no longer asked for leaves the map last: packets that are on their way to it still arrive. */
static void drop_others(const struct dp *dp, const struct conf_xdp_steer *want)
{
	for (uint32_t cpu = 0; cpu < dp->n_cpus && cpu < HG_STEER_MAX; cpu++)
		if (!has_cpu(want, cpu))
			(void)bpf_map_delete_elem(dp->maps[DP_MAP_STEER_CPUS].fd, &cpu);
}

int dp_steer_configure(struct dp *dp, const struct conf *c, struct err *err)
{
	struct hg_steer *row = dp->maps[DP_MAP_STEER].mem;
	struct conf_xdp_steer want = c->global.xdp_steer;
	uint32_t size = HG_STEER_QUEUE, n = 0, list[HG_STEER_MAX];
	int fd = dp->maps[DP_MAP_STEER_CPUS].fd;

	if (!row)
		return 0; /* stats_only */
	if (want.mode == CONF_STEER_AUTO && !cpus_online(&want)) {
		if (row->n)
			return 0; /* behind a chroot: as it was */
		return err_set(err, -ENOENT, "'xdp steer auto': cannot read " ONLINE);
	}
	for (uint32_t cpu = 0; want.mode != CONF_STEER_OFF && cpu < HG_STEER_MAX; cpu++) {
		uint32_t had;

		if (!has_cpu(&want, cpu))
			continue;
		/* One that is there keeps its queue: an update would make another and flush the old one. */
		if (bpf_map_lookup_elem(fd, &cpu, &had) != 0 &&
		    bpf_map_update_elem(fd, &cpu, &size, BPF_ANY) != 0)
			return err_set(err, -errno, "'xdp steer': CPU %u cannot take packets: %s",
				       cpu,
				       errno == E2BIG || errno == ENODEV ? "it is not online"
									 : strerror(errno));
		list[n++] = cpu;
	}
	/* Fewer first, so that no reader ever finds a number behind the end of the list. */
	if (n < row->n)
		__atomic_store_n(&row->n, n, __ATOMIC_RELEASE);
	memcpy(row->cpu, list, n * sizeof(*list));
	__atomic_store_n(&row->n, n, __ATOMIC_RELEASE);
	if (want.mode == CONF_STEER_OFF)
		memset(want.cpus, 0, sizeof(want.cpus));
	drop_others(dp, &want);
	return 0;
}
