/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SYN cookies: secrets, thresholds, and the program at tc that takes connections from cookies of our own. Where
 * the kernel lets no program do that (before Linux 6.9), the listeners' own cookies are asked for, which XDP
 * can do alone. See include/headgate/syn.h. Control thread; what both roles need also in the command-line tool.
 */
#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "dp/dp_priv.h"
#include "syn_tc.skel.h"

/* A window in which SYNs are counted is at least that part of a second. */
#define WINDOWS_PER_S 16
/* After the last window with half of what switched them on. */
#define HOLD_S 5
/* Until nobody brings a cookie back any more, from when none are made. */
#define DRAIN_S (DP_SYN_VALID_S + 5)

struct dp_syn {
	struct syn_tc_bpf *skel; /* NULL: the kernel has not what it needs, or nobody wants it */
	uint64_t off_ns; /* since when no cookies are made */
	unsigned ifs[HG_MAX_PORTS]; /* with the program */
	unsigned n_ifs;
	struct dp_syn_sysctls sysctls; /* as last read: behind a chroot they cannot be */
};

static const struct dp_tc_slot slot = { HG_SYN_TC_PRIO, HG_SYN_TC_HANDLE, "syn_" };

/* --- what the kernel says ------------------------------------------------------------------------------- */

/* The `nth` number of the file, from 0. */
static int read_sysctl(const char *path, unsigned nth, long *ret)
{
	char text[128], *at = text;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	int rc = n < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	if (rc != 0)
		return rc;
	text[n] = '\0';
	for (unsigned i = 0; i < nth; i++) {
		at += strcspn(at, " \t");
		at += strspn(at, " \t");
	}
	return sscanf(at, "%ld", ret) == 1 ? 0 : -EINVAL;
}

int dp_syn_sysctls(struct dp_syn_sysctls *s, const char *what, struct err *err)
{
	const struct {
		const char *path;
		unsigned nth;
		long *to;
	} rows[] = {
		{ "/proc/sys/net/ipv4/tcp_syncookies", 0, &s->syncookies },
		{ "/proc/sys/net/ipv4/tcp_timestamps", 0, &s->timestamps },
		{ "/proc/sys/net/ipv4/tcp_sack", 0, &s->sack },
		{ "/proc/sys/net/ipv4/tcp_window_scaling", 0, &s->window_scaling },
		{ "/proc/sys/net/ipv4/tcp_ecn", 0, &s->ecn },
		{ "/proc/sys/net/ipv4/tcp_rmem", 1, &s->rmem },
		{ "/proc/sys/net/ipv4/tcp_rmem", 2, &s->rmem_most },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(rows); i++) {
		int rc = read_sysctl(rows[i].path, rows[i].nth, rows[i].to);

		if (rc != 0)
			return err_set(err, rc, "%s: cannot read %s: %s", what, rows[i].path,
				       strerror(-rc));
	}
	/* Not in every network namespace. */
	if (read_sysctl("/proc/sys/net/core/rmem_max", 0, &s->core_rmem_max) != 0)
		s->core_rmem_max = 0;
	if (!s->syncookies)
		return err_set(err, -ENOTSUP,
			       "%s needs the sysctl net.ipv4.tcp_syncookies = 1 or 2: with 0 the "
			       "kernel takes no connection that comes with a cookie",
			       what);
	return 0;
}

/* As tcp_select_initial_window() has them for a listener without limits of its own. */
static uint8_t wscale_of(const struct dp_syn_sysctls *s)
{
	uint64_t space = s->rmem_most > s->core_rmem_max ? (uint64_t)s->rmem_most
							 : (uint64_t)s->core_rmem_max;
	uint8_t scale = 0;

	while (scale < 14 && space >> (scale + 16))
		scale++;
	return scale;
}

static uint16_t window_of(const struct dp_syn_sysctls *s)
{
	long half = s->rmem / 2;

	return half > 0xffff ? 0xffff : half < 4096 ? 4096 : (uint16_t)half;
}

bool dp_syn_kernel_takes(void)
{
	struct btf *btf = btf__load_vmlinux_btf();
	bool takes = btf &&
		     btf__find_by_name_kind(btf, "bpf_sk_assign_tcp_reqsk", BTF_KIND_FUNC) >= 0;

	btf__free(btf);
	return takes;
}

/* --- the program at tc ------------------------------------------------------------------------------------ */

void dp_syn_detach(unsigned ifindex)
{
	dp_tc_detach(&slot, ifindex, BPF_TC_INGRESS);
}

int dp_syn_load(const struct dp *dp, struct syn_tc_bpf **ret, struct err *err)
{
	struct syn_tc_bpf *skel = syn_tc_bpf__open();
	int rc;

	if (!skel)
		return err_set(err, -errno, "cannot open the program of SYN cookies: %m");
	rc = bpf_map__reuse_fd(skel->maps.syn_control, dp->maps[DP_MAP_SYN_CONTROL].fd);
	if (rc == 0)
		rc = bpf_map__reuse_fd(skel->maps.xdp_verdicts, dp->maps[DP_MAP_XDP_VERDICTS].fd);
	if (rc == 0)
		rc = syn_tc_bpf__load(skel);
	if (rc != 0) {
		syn_tc_bpf__destroy(skel);
		return err_set(err, rc, "cannot load the program of SYN cookies: %s",
			       strerror(-rc));
	}
	*ret = skel;
	return 0;
}

static int syn_attach(struct dp_syn *y, const struct conf *c, struct err *err)
{
	struct list *l;

	list_for_each(l, &c->global.xdp_interfaces) {
		const struct conf_xdp_interface *x = list_entry(l, struct conf_xdp_interface, link);
		unsigned ifindex = if_nametoindex(x->name), i = 0;
		int rc;

		while (i < y->n_ifs && y->ifs[i] != ifindex)
			i++;
		if (!ifindex || i == ARRAY_SIZE(y->ifs))
			continue; /* dp_attach() has said so */
		rc = dp_tc_attach(&slot, ifindex, BPF_TC_INGRESS, y->skel->progs.syn_take, err);
		if (rc != 0)
			return rc;
		if (i == y->n_ifs)
			y->ifs[y->n_ifs++] = ifindex;
	}
	return 0;
}

void dp_syn_close(struct dp *dp)
{
	if (!dp->syn)
		return;
	syn_tc_bpf__destroy(dp->syn->skel); /* what is attached stays */
	mem_free(dp->syn);
	dp->syn = NULL;
}

/* --- secrets ---------------------------------------------------------------------------------------------- */

/* The programs have no other clock that goes with the wall's. They differ by whole seconds. */
static int64_t wall_less_tai(void)
{
	struct timespec wall, tai;
	int64_t ns;

	clock_gettime(CLOCK_REALTIME, &wall);
	clock_gettime(CLOCK_TAI, &tai);
	ns = (wall.tv_sec - tai.tv_sec) * 1000000000ll + (wall.tv_nsec - tai.tv_nsec);
	return (ns + (ns < 0 ? -500000000 : 500000000)) / 1000000000 * 1000000000;
}

/* After any change: the programs derive their keys again. */
static void syn_renew(struct hg_syn_control *c)
{
	__atomic_store_n(&c->generation, c->generation + 1, __ATOMIC_RELEASE);
}

void dp_syn_set_secrets(struct hg_syn_control *c, const struct conf_syn_keys *keys)
{
	uint32_t n = keys->n;
	/* The last but one: hosts that do not know the newest yet have it, in the last place. */
	uint32_t make = n > 1 ? n - 2 : 0;
	int64_t wall = wall_less_tai();

	if (c->n_secrets == n && c->make == make && c->wall_ns == wall &&
	    memcmp(c->secrets, keys->secrets, sizeof(c->secrets)) == 0)
		return;
	memcpy(c->secrets, keys->secrets, sizeof(c->secrets));
	c->wall_ns = wall;
	__atomic_store_n(&c->make, make, __ATOMIC_RELEASE);
	__atomic_store_n(&c->n_secrets, n, __ATOMIC_RELEASE);
	syn_renew(c);
}

/* Those of the file; or one that nobody else knows, as long as there is one to keep. */
static int syn_secrets(struct hg_syn_control *c, const struct conf_syn_keys *keys, struct err *err)
{
	struct conf_syn_keys own = { .n = 1 };

	if (keys->n)
		dp_syn_set_secrets(c, keys);
	if (keys->n || (c->n_secrets && !(c->flags & HG_SYN_FLEET)))
		return 0;
	if (getrandom(&own.secrets[0], sizeof(own.secrets[0]), 0) !=
	    (ssize_t)sizeof(own.secrets[0]))
		return err_set(err, -EIO, "'xdp guard syn-cookies': no random key: %m");
	dp_syn_set_secrets(c, &own);
	return 0;
}

void dp_syn_carry(struct dp *dp)
{
	const struct hg_syn_control *from = dp->before ? dp->before->maps[DP_MAP_SYN_CONTROL].mem
						       : NULL;
	struct hg_syn_control *to = dp->maps[DP_MAP_SYN_CONTROL].mem;

	if (!from || !to || !from->n_secrets)
		return;
	memcpy(to->secrets, from->secrets, sizeof(to->secrets));
	to->flags = from->flags;
	to->make = from->make;
	to->n_secrets = from->n_secrets;
	to->wall_ns = from->wall_ns;
	to->check_until = from->check_until;
	syn_renew(to);
	if (dp->maps[DP_MAP_SYN_SERVICES].mem)
		memcpy(dp->maps[DP_MAP_SYN_SERVICES].mem, dp->before->maps[DP_MAP_SYN_SERVICES].mem,
		       dp->before->maps[DP_MAP_SYN_SERVICES].size);
}

void dp_syn_tick(struct dp *dp)
{
	struct hg_syn_control *c = dp->maps[DP_MAP_SYN_CONTROL].mem;
	struct dp_syn *y = dp->syn;

	if (!c || !y)
		return;
	if (c->mode != HG_SYN_OFF) {
		int64_t wall = wall_less_tai();

		if (c->wall_ns != wall) { /* somebody has told the kernel of leap seconds */
			c->wall_ns = wall;
			syn_renew(c);
		}
	} else if (dp_clock(dp) - y->off_ns >= DRAIN_S * 1000000000ull) {
		for (unsigned i = 0; i < y->n_ifs; i++)
			dp_syn_detach(y->ifs[i]);
		dp_syn_close(dp);
	}
}

/* --- switching on and off ----------------------------------------------------------------------------------- */

static void syn_off(struct dp *dp, struct hg_syn_control *c, const struct conf *conf)
{
	struct list *l;

	if (c->mode != HG_SYN_OFF && dp->syn)
		dp->syn->off_ns = dp_clock(dp);
	__atomic_store_n(&c->mode, HG_SYN_OFF, __ATOMIC_RELEASE);
	if (dp->syn)
		return; /* see dp_syn_tick() */
	/* What an earlier process has left: its listeners are gone. */
	list_for_each(l, &conf->global.xdp_interfaces)
		dp_syn_detach(if_nametoindex(list_entry(l, struct conf_xdp_interface, link)->name));
}

/* SYNs per window for so many in a second. */
static uint32_t per_window(uint32_t rate, uint32_t shift, uint32_t hz)
{
	uint64_t n = ((uint64_t)rate << shift) / hz;

	return n ? (uint32_t)n : 1;
}

static void syn_write(struct hg_syn_control *c, const struct conf_xdp_syn *syn,
		      const struct dp_syn_sysctls *s, bool is_own, uint32_t hz)
{
	uint32_t shift = hg_tick_shift(hz / WINDOWS_PER_S);

	c->flags = (is_own ? HG_SYN_OWN : 0) | (s->timestamps ? HG_SYN_TIMESTAMPS : 0) |
		   (s->sack ? HG_SYN_SACK : 0) | (s->window_scaling ? HG_SYN_WSCALE : 0) |
		   (s->ecn ? HG_SYN_ECN : 0) | (syn->keys.n ? HG_SYN_FLEET : 0);
	c->window_shift = shift;
	c->on_syns = per_window(syn->rate, shift, hz);
	c->keep_syns = (c->on_syns + 1) / 2;
	c->hold = HOLD_S * hz;
	c->valid = DP_SYN_VALID_S * hz;
	c->tick = hz;
	c->rcv_wnd = window_of(s);
	c->rcv_wscale = syn->keys.n ? HG_SYN_FLEET_WSCALE : wscale_of(s);
	__atomic_store_n(&c->mode, syn->mode, __ATOMIC_RELEASE);
}

/* The program at tc loaded and on all interfaces. */
static int syn_on(struct dp *dp, const struct conf *c, struct err *err)
{
	int rc = 0;

	if (!dp->syn->skel)
		rc = dp_syn_load(dp, &dp->syn->skel, err);
	return rc == 0 ? syn_attach(dp->syn, c, err) : rc;
}

int dp_syn_configure(struct dp *dp, const struct conf *c, struct err *err)
{
	struct hg_syn_control *row = dp->maps[DP_MAP_SYN_CONTROL].mem;
	const struct conf_xdp_syn *syn = &c->global.xdp_syn;
	struct dp_syn_sysctls s;
	bool is_own;
	int rc;

	if (!row)
		return 0; /* stats_only */
	if (syn->mode == HG_SYN_OFF) {
		syn_off(dp, row, c);
		return 0;
	}
	rc = dp_syn_sysctls(&s, "'xdp guard syn-cookies'", err);
	if (rc == -ENOENT && dp->syn && dp->syn->sysctls.syncookies)
		s = dp->syn->sysctls;
	else if (rc != 0)
		return rc;
	if (!dp->syn) {
		dp->syn = mem_zalloc(sizeof(*dp->syn));
		if (!dp->syn)
			return err_set(err, -ENOMEM, "out of memory");
	}
	dp->syn->sysctls = s;
	is_own = dp->syn->skel || dp_syn_kernel_takes();
	rc = is_own ? syn_on(dp, c, err) : 0;
	if (rc == 0)
		rc = syn_secrets(row, &syn->keys, err);
	if (rc != 0)
		return rc;
	if (!is_own)
		dp_notice(dp,
			  "SYN cookies: this kernel gives no connections to listeners from "
			  "programs (Linux 6.9 does): their own cookies are used for services of "
			  "the L7 tier, without window scale and SACK%s",
			  s.syncookies == 2 ? ""
					    : ", when their queues are full "
					      "(net.ipv4.tcp_syncookies = 2: always)");
	syn_write(row, syn, &s, is_own, dp->t.hz);
	return 0;
}

bool dp_syn_is_on(const struct dp *dp, uint32_t service)
{
	const struct hg_syn_control *c = dp->maps[DP_MAP_SYN_CONTROL].mem;
	const struct hg_syn_service *s = dp->maps[DP_MAP_SYN_SERVICES].mem;

	const struct hg_service *row;

	if (!c || !s || service >= dp->t.max_services || c->mode == HG_SYN_OFF)
		return false;
	row = &dp->services[service].row;
	if ((row->mode != HG_MODE_LOCAL && !(row->flags & HG_SVC_SYN_COOKIES)) ||
	    row->key.proto != IPPROTO_TCP)
		return false;
	return c->mode == HG_SYN_ON || jiffies_of(dp_now_ns(), dp->t.hz) < s[service].on_until;
}
