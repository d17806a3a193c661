/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loads programs and maps, pins them, or has adopt.c take what an earlier process pinned. The directory of the
 * pins is also the lock: one process at a time owns it (flock ends with the process, however it ends).
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include "dp/dp_priv.h"
#include "stats.skel.h"
#include "xdp_decap.skel.h"
#include "xdp_lb.skel.h"

#define BPF_FS_MAGIC_NUMBER 0xcafe4a11

/* What libbpf had to say, kept for the error message: the verifier's last words are the useful ones. */
static char libbpf_said[400];

static int loader_print(enum libbpf_print_level level, const char *fmt, va_list ap)
{
	if (level == LIBBPF_WARN)
		vsnprintf(libbpf_said, sizeof(libbpf_said), fmt, ap);
	return 0;
}

const char *dp_bpffs(const char *configured)
{
	return configured ? configured : DP_BPFFS;
}

const char *dp_prog_name(enum hg_role role)
{
	return role == HG_ROLE_BACKEND ? "xdp_decap" : "xdp_lb";
}

void dp_pin_dir(const char *bpffs, enum hg_role role, char ret[PATH_MAX])
{
	snprintf(ret, PATH_MAX, "%s/" HG_PIN_DIR "%s", dp_bpffs(bpffs),
		 role == HG_ROLE_BACKEND ? "/agent" : "");
}

void dp_pin_path(const struct dp *dp, const char *name, char ret[PATH_MAX])
{
	if (snprintf(ret, PATH_MAX, "%s/%s", dp->dir, name) >= PATH_MAX)
		ret[0] = '\0'; /* an open of "" fails with ENOENT */
}

const char *dp_hint(int err)
{
	if (err == -EPERM || err == -EACCES)
		return geteuid() == 0 ? " (the kernel forbids it: lockdown, or a container without "
					"CAP_BPF and CAP_NET_ADMIN?)"
				      : " (run it as root, or with CAP_BPF, CAP_NET_ADMIN and "
					"CAP_PERFMON)";
	if (access("/sys/kernel/btf/vmlinux", R_OK) != 0)
		return " (this kernel has no BTF: Headgate needs CONFIG_DEBUG_INFO_BTF and Linux "
		       "6.1 or newer)";
	return "";
}

static int loader_fail(struct err *err, int rc, const char *what)
{
	char *nl = strchr(libbpf_said, '\n');

	if (nl)
		*nl = '\0';
	return err_set(err, rc, "%s: %s%s%s%s", what, strerror(-rc), dp_hint(rc),
		       libbpf_said[0] ? ": " : "", libbpf_said);
}

/* --- directory ------------------------------------------------------------------------------ */

static int loader_mount(const char *bpffs, struct err *err)
{
	struct statfs fs;

	if (statfs(bpffs, &fs) == 0 && (unsigned long)fs.f_type == BPF_FS_MAGIC_NUMBER)
		return 0;
	if (mount("bpf", bpffs, "bpf", 0, "mode=0700") == 0)
		return 0;
	return err_set(err, -errno, "%s is no BPF file system and cannot become one: %m%s", bpffs,
		       dp_hint(-errno));
}

static int loader_make_dir(struct dp *dp, const char *bpffs, struct err *err)
{
	char parent[PATH_MAX];

	dp_pin_dir(bpffs, HG_ROLE_EDGE, parent);
	dp_pin_dir(bpffs, dp->role, dp->dir);
	if ((mkdir(parent, 0700) != 0 && errno != EEXIST) ||
	    (mkdir(dp->dir, 0700) != 0 && errno != EEXIST))
		return err_set(err, -errno, "cannot make %s: %m%s", dp->dir, dp_hint(-errno));
	return 0;
}

/* --- maps ----------------------------------------------------------------------------------------------- */

int dp_map_in(struct dp_map *m, int fd)
{
	struct bpf_map_info info = { 0 };
	uint32_t len = sizeof(info);

	if (bpf_obj_get_info_by_fd(fd, &info, &len) != 0)
		return -errno;
	m->fd = fd;
	m->max_entries = info.max_entries;
	m->value_size = info.value_size;
	if (info.type != BPF_MAP_TYPE_ARRAY)
		return 0;
	m->size = (size_t)((info.value_size + 7) & ~7u) * info.max_entries;
	m->mem = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (m->mem == MAP_FAILED) {
		m->mem = NULL;
		return -errno;
	}
	return 0;
}

void dp_maps_close(struct dp *dp)
{
	for (unsigned i = 0; i < DP_MAP_COUNT; i++) {
		struct dp_map *m = &dp->maps[i];

		if (m->mem)
			munmap(m->mem, m->size);
		if (m->fd >= 0)
			close(m->fd);
		*m = (struct dp_map){ .fd = -1 };
	}
	if (dp->prog_fd >= 0)
		close(dp->prog_fd);
	dp->prog_fd = -1;
}

/* Takes a map of an object over: a descriptor of our own, mapped, and pinned under its name. */
static int loader_take_map(struct dp *dp, struct bpf_object *obj, enum dp_map_id id,
			   struct err *err)
{
	struct bpf_map *map = bpf_object__find_map_by_name(obj, dp_map_name(id));
	char path[PATH_MAX];
	int fd, rc;

	if (!map)
		return err_set(err, -ENOENT, "the BPF object has no map %s", dp_map_name(id));
	fd = fcntl(bpf_map__fd(map), F_DUPFD_CLOEXEC, 3);
	rc = fd < 0 ? -errno : dp_map_in(&dp->maps[id], fd);
	if (rc != 0)
		return loader_fail(err, rc, dp_map_name(id));
	if (dp->is_private)
		return 0;
	dp_pin_path(dp, dp_map_name(id), path);
	(void)unlink(path);
	if (bpf_obj_pin(fd, path) != 0)
		return err_set(err, -errno, "cannot pin %s: %m", path);
	return 0;
}

static int loader_take_maps(struct dp *dp, struct bpf_object *obj, enum dp_map_id first,
			    enum dp_map_id last, struct err *err)
{
	for (enum dp_map_id id = first; id <= last; id++) {
		int rc = loader_take_map(dp, obj, id, err);

		if (rc != 0)
			return rc;
	}
	return 0;
}

static int loader_pin_prog(struct dp *dp, struct bpf_program *prog, struct err *err)
{
	char path[PATH_MAX];

	dp->prog_fd = fcntl(bpf_program__fd(prog), F_DUPFD_CLOEXEC, 3);
	if (dp->prog_fd < 0)
		return err_set(err, -errno, "cannot keep the program: %m");
	dp_pin_path(dp, dp_prog_name(dp->role), path);
	(void)unlink(path);
	if (bpf_obj_pin(dp->prog_fd, path) != 0)
		return err_set(err, -errno, "cannot pin %s: %m", path);
	return 0;
}

static void loader_write_meta(struct dp *dp, const struct hg_rodata *ro)
{
	struct hg_meta *meta = dp->maps[DP_MAP_META].mem;
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	meta->role = dp->role;
	meta->started_ns = (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
	meta->ro = *ro;
	snprintf(meta->version, sizeof(meta->version), "%s", HG_VERSION);
	/* Last: an interrupted start leaves no number that says "adopt me". */
	__atomic_store_n(&meta->abi, HG_ABI_VERSION, __ATOMIC_RELEASE);
}

static uint32_t round_up_pow2(uint32_t v)
{
	uint32_t p = 64;

	while (p < v)
		p *= 2;
	return p;
}

static uint32_t round_up_lines(uint64_t entries)
{
	uint32_t lines = HG_FLOW_LINES_MIN;

	while ((uint64_t)lines * HG_LINE_WAYS < entries && lines < HG_FLOW_LINES_MAX)
		lines *= 2;
	return lines;
}

/* Sizes with room for what reloads may add; see docs/DATAPATH.md for what they cost. */
void dp_size(const struct dp_opts *o, struct hg_rodata *ro, uint32_t *ret_blocks)
{
	uint32_t services = round_up_pow2(o->n_services * 2 + 32);
	uint32_t backends = round_up_pow2(o->n_backends * 2 + 64);
	uint64_t slots = (uint64_t)o->n_slots + o->n_slots / 8 + HG_SLOTS_SPARE;

	ro->max_services = services > HG_MAX_SERVICES ? HG_MAX_SERVICES : services;
	ro->max_backends = backends > HG_MAX_BACKENDS ? HG_MAX_BACKENDS : backends;
	ro->service_mask = (ro->max_services * 4 > HG_SERVICE_BUCKETS_MAX ? HG_SERVICE_BUCKETS_MAX
									  : ro->max_services * 4) -
			   1;
	ro->n_cpus = (uint32_t)libbpf_num_possible_cpus();
	ro->hash_seed = o->hash_seed;
	ro->flow_mask = (o->n_flows ? round_up_lines(o->n_flows) : HG_FLOW_LINES_DEFAULT) - 1;
	ro->fragment_mask = HG_FRAGMENT_LINES_DEFAULT - 1;
	ro->deny_mask = dp_deny_lines(o->n_deny) - 1;
	ro->tick_shift = hg_tick_shift(jiffies_hz());
	ro->fragment_ticks = HG_RODATA_DEFAULT_FRAGMENT_TICKS;
	ro->flow_idle_ticks = HG_RODATA_DEFAULT_FLOW_IDLE;
	if (o->learn_window_s > ro->flow_idle_ticks) /* a tick is at least a second */
		ro->flow_idle_ticks = o->learn_window_s;
	ro->learn_per_jiffy = HG_RODATA_DEFAULT_LEARN;
	ro->icmp_per_jiffy = HG_RODATA_DEFAULT_ICMP;
	dp_nat_size(o, ro);
	*ret_blocks = (uint32_t)(slots / HG_SLOTS_PER_BLOCK);
}

static int loader_load_edge(struct dp *dp, const struct dp_opts *o, struct err *err)
{
	struct xdp_lb_bpf *skel = xdp_lb_bpf__open();
	struct hg_rodata ro = { 0 };
	uint32_t blocks, quic = HG_QUIC_BLOCKS_DEFAULT + 2 * dp_quic_blocks_of(o->n_quic_ids);
	int rc;

	if (!skel)
		return loader_fail(err, -errno, "cannot open the balancer");
	dp_size(o, &ro, &blocks);
	dp_carry_sizes(dp, &ro, &blocks, &quic);
	rc = dp->before ? bpf_map__reuse_fd(skel->maps.live_sources,
					    dp->before->maps[DP_MAP_LIVE_SOURCES].fd)
			: 0;
	memcpy((void *)&skel->rodata->ro, &ro, sizeof(ro));
	if (rc != 0 ||
	    bpf_map__set_max_entries(skel->maps.services, (ro.service_mask + 1) * 2) != 0 ||
	    bpf_map__set_max_entries(skel->maps.slots, blocks) != 0 ||
	    bpf_map__set_max_entries(skel->maps.backends, ro.max_backends) != 0 ||
	    bpf_map__set_max_entries(skel->maps.xdp_services, ro.max_services * ro.n_cpus) != 0 ||
	    bpf_map__set_max_entries(skel->maps.xdp_backends, ro.max_backends * ro.n_cpus) != 0 ||
	    bpf_map__set_max_entries(skel->maps.xdp_cpus, ro.n_cpus) != 0 ||
	    bpf_map__set_max_entries(skel->maps.drop_events, ro.n_cpus * HG_DROP_EVENTS) != 0 ||
	    bpf_map__set_max_entries(skel->maps.flows, ro.flow_mask + 1) != 0 ||
	    bpf_map__set_max_entries(skel->maps.fragments, ro.fragment_mask + 1) != 0 ||
	    bpf_map__set_max_entries(skel->maps.deny_index, ro.deny_mask + 1) != 0 ||
	    !dp_nat_resize(skel->obj, &ro) ||
	    bpf_map__set_max_entries(skel->maps.syn_services, ro.max_services) != 0 ||
	    bpf_map__set_max_entries(skel->maps.steer_cpus, ro.n_cpus) != 0 ||
	    bpf_map__set_max_entries(skel->maps.quic_ids, quic) != 0 ||
	    bpf_map__set_max_entries(skel->maps.service_guard, ro.max_services) != 0 ||
	    bpf_map__set_max_entries(skel->maps.xdp_verdicts, ro.n_cpus) != 0) {
		xdp_lb_bpf__destroy(skel);
		return err_set(err, -EINVAL, "cannot size the maps");
	}
	rc = xdp_lb_bpf__load(skel);
	if (rc != 0)
		rc = loader_fail(err, rc, "cannot load the balancer");
	if (rc == 0)
		rc = loader_take_maps(dp, skel->obj, DP_MAP_SERVICES, DP_MAP_META, err);
	if (rc == 0)
		rc = loader_pin_prog(dp, skel->progs.xdp_lb, err);
	if (rc == 0)
		loader_write_meta(dp, &ro);
	xdp_lb_bpf__destroy(skel);
	return rc;
}

static int loader_load_agent(struct dp *dp, struct err *err)
{
	struct xdp_decap_bpf *skel = xdp_decap_bpf__open();
	struct hg_rodata ro = { .n_cpus = (uint32_t)libbpf_num_possible_cpus(),
				.role = HG_ROLE_BACKEND };
	int rc;

	if (!skel)
		return loader_fail(err, -errno, "cannot open the agent");
	rc = bpf_map__set_max_entries(skel->maps.xdp_verdicts, ro.n_cpus);
	if (rc == 0)
		rc = xdp_decap_bpf__load(skel);
	if (rc != 0)
		rc = loader_fail(err, rc, "cannot load the agent");
	if (rc == 0)
		rc = loader_take_maps(dp, skel->obj, DP_MAP_SYN_CONTROL, DP_MAP_DECAP_ADDRS, err);
	if (rc == 0)
		rc = loader_pin_prog(dp, skel->progs.xdp_decap, err);
	if (rc == 0)
		loader_write_meta(dp, &ro);
	xdp_decap_bpf__destroy(skel);
	return rc;
}

/* Fresh with every daemon: counters of the L7 tier count from its start. */
static int loader_load_stats(struct dp *dp, const struct dp_opts *o, struct err *err)
{
	struct stats_bpf *skel = stats_bpf__open();
	int rc;

	if (!skel)
		return loader_fail(err, -errno, "cannot open the statistics maps");
	rc = bpf_map__set_max_entries(skel->maps.stats_services, o->n_l7_services * o->n_workers);
	if (rc == 0)
		rc = bpf_map__set_max_entries(skel->maps.stats_backends,
					      o->n_l7_backends * o->n_workers);
	if (rc == 0)
		rc = bpf_map__set_max_entries(skel->maps.stats_workers, o->n_workers);
	if (rc == 0)
		rc = bpf_map__set_max_entries(skel->maps.sk_workers, o->n_workers);
	if (rc == 0)
		rc = stats_bpf__load(skel);
	if (rc != 0)
		rc = loader_fail(err, rc, "cannot make the statistics maps");
	if (rc == 0)
		rc = loader_take_maps(dp, skel->obj, DP_MAP_STATS_SERVICES, DP_MAP_SK_WORKERS, err);
	stats_bpf__destroy(skel);
	return rc;
}

/* --- open and close ------------------------------------------------------------------------------------------ */

void dp_tables_of(const struct dp_map *maps, struct dp_tables *ret)
{
	const struct hg_meta *meta = maps[DP_MAP_META].mem;

	*ret = (struct dp_tables){
		.services = maps[DP_MAP_SERVICES].mem,
		.n_buckets = meta->ro.service_mask + 1,
		.slots = maps[DP_MAP_SLOTS].mem,
		.n_blocks = maps[DP_MAP_SLOTS].max_entries,
		.backends = maps[DP_MAP_BACKENDS].mem,
		.max_backends = meta->ro.max_backends,
		.control = maps[DP_MAP_CONTROL].mem,
		.max_services = meta->ro.max_services,
		.flows = maps[DP_MAP_FLOWS].mem,
		.n_flow_lines = maps[DP_MAP_FLOWS].max_entries,
		.fragments = maps[DP_MAP_FRAGMENTS].mem,
		.n_fragment_lines = maps[DP_MAP_FRAGMENTS].max_entries,
		.quic = maps[DP_MAP_QUIC_IDS].mem,
		.n_quic_blocks = maps[DP_MAP_QUIC_IDS].max_entries,
		.deny = maps[DP_MAP_DENY_INDEX].mem,
		.deny_mask = meta->ro.deny_mask,
		.tick_shift = meta->ro.tick_shift,
		.hz = jiffies_hz(),
	};
}

static void loader_set_tables(struct dp *dp)
{
	const struct hg_meta *meta = dp->maps[DP_MAP_META].mem;

	if (!meta)
		return; /* stats_only */
	dp->n_cpus = meta->ro.n_cpus;
	if (dp->role == HG_ROLE_BACKEND)
		return;
	dp_tables_of(dp->maps, &dp->t);
	dp_nat_open(dp, &meta->ro);
}

static int loader_open(struct dp *dp, const struct dp_opts *o, struct err *err)
{
	const char *bpffs = dp_bpffs(o->bpffs);
	int rc;

	if (o->adopt_only) { /* only looks: makes nothing */
		dp_pin_dir(bpffs, dp->role, dp->dir);
		return dp_adopt_only(dp, o, err);
	}
	rc = loader_mount(bpffs, err);
	if (rc == 0)
		rc = loader_make_dir(dp, bpffs, err);
	if (rc == 0)
		rc = dp_lock(dp, o->lock_fd, err);
	if (rc < 0)
		return rc;
	if (rc == 1) {
		if (!o->stats_only)
			return err_set(err, -EBUSY, "another Headgate process owns %s", dp->dir);
		dp->is_private = true;
	}
	if (o->stats_only)
		return 0;
	rc = dp_adopt(dp, o);
	if (rc == 0)
		return 0;
	return dp->role == HG_ROLE_BACKEND ? loader_load_agent(dp, err)
					   : loader_load_edge(dp, o, err);
}

int dp_open(const struct dp_opts *o, struct dp **ret_dp, struct err *err)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	struct dp *dp = mem_zalloc(sizeof(*dp));
	int rc;

	if (!dp)
		return err_set(err, -ENOMEM, "out of memory");
	*dp = (struct dp){ .role = o->role,
			   .lock_fd = -1,
			   .prog_fd = -1,
			   .ask_fd = -1,
			   .n_workers = o->n_workers,
			   .notice = o->notice,
			   .ctx = o->ctx };
	for (unsigned i = 0; i < DP_MAP_COUNT; i++)
		dp->maps[i].fd = -1;
	list_init(&dp->free_ranges);
	list_init(&dp->free_quic);
	libbpf_set_print(loader_print);
	libbpf_said[0] = '\0';
	/* Kernels before 5.11 charge maps to RLIMIT_MEMLOCK; harmless on newer ones. */
	(void)setrlimit(RLIMIT_MEMLOCK, &unlimited);
	rc = loader_open(dp, o, err);
	dp->deny_lock_fd = open(dp_bpffs(o->bpffs), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (rc == 0) {
		loader_set_tables(dp);
		if (o->n_workers)
			rc = loader_load_stats(dp, o, err);
	}
	if (rc == 0 && dp_has_kernel_tier(dp) && dp->role == HG_ROLE_EDGE &&
	    (rc = dp->before ? dp_carry_rows(dp, &dp->before->t) : dp_tables_adopt(dp)) != 0)
		rc = err_set(err, rc, "out of memory");
	if (rc == 0 && dp_has_kernel_tier(dp) && dp->role == HG_ROLE_EDGE && !o->adopt_only)
		rc = dp_netlink_open(dp, err);
	if (rc == 0 && dp->nat.live_backends && !o->adopt_only)
		rc = dp_share_open(dp, err);
	if (rc != 0) {
		dp_close(dp);
		return rc;
	}
	*ret_dp = dp;
	return 0;
}

void dp_close(struct dp *dp)
{
	if (!dp)
		return;
	dp_checks_close(dp);
	dp_share_close(dp);
	dp_syn_close(dp);
	mem_free(dp->nat.seen_memory);
	dp_netlink_close(dp);
	dp_tables_free(dp);
	dp_carry_end(dp);
	mem_free(dp->deny_files);
	dp_maps_close(dp);
	if (dp->deny_lock_fd >= 0)
		close(dp->deny_lock_fd);
	if (dp->lock_fd >= 0)
		close(dp->lock_fd);
	mem_free(dp);
}

bool dp_is_adopted(const struct dp *dp)
{
	return dp->is_adopted;
}

bool dp_has_kernel_tier(const struct dp *dp)
{
	return dp->prog_fd >= 0;
}

void *dp_stats_memory(struct dp *dp, enum dp_stats which, uint32_t *ret_n_ids)
{
	struct dp_map *m = &dp->maps[DP_MAP_STATS_SERVICES + which];

	*ret_n_ids = dp->n_workers ? m->max_entries / dp->n_workers : 0;
	return m->mem;
}
