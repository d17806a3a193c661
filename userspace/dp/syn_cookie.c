/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SYN cookies: keys, thresholds, and the program at tc that takes connections from cookies of our own. Where
 * the kernel lets no program do that (before Linux 6.9), the listeners' own cookies are asked for, which XDP
 * can do alone. See include/headgate/syn.h. Control thread.
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
#define DRAIN_S (2 * HG_SYN_KEY_S + 5)

struct sysctls {
	long syncookies, timestamps, sack, window_scaling, ecn;
	long rmem, rmem_most; /* net.ipv4.tcp_rmem, second and last */
	long core_rmem_max;
};

struct dp_syn {
	struct syn_tc_bpf *skel; /* NULL: the kernel has not what it needs, or nobody wants it */
	uint64_t rotated_ns; /* the last new key */
	uint64_t off_ns; /* since when no cookies are made */
	unsigned ifs[HG_MAX_PORTS]; /* with the program */
	unsigned n_ifs;
	struct sysctls sysctls; /* as last read: behind a chroot they cannot be */
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

static int read_sysctls(struct sysctls *s, struct err *err)
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
			return err_set(err, rc, "'xdp guard syn-cookies': cannot read %s: %s",
				       rows[i].path, strerror(-rc));
	}
	/* Not in every network namespace. */
	if (read_sysctl("/proc/sys/net/core/rmem_max", 0, &s->core_rmem_max) != 0)
		s->core_rmem_max = 0;
	if (!s->syncookies)
		return err_set(
			err, -ENOTSUP,
			"'xdp guard syn-cookies' needs the sysctl net.ipv4.tcp_syncookies = 1 "
			"or 2: with 0 the kernel takes no connection that comes with a cookie");
	return 0;
}

/* As tcp_select_initial_window() has them for a listener without limits of its own. */
static uint8_t wscale_of(const struct sysctls *s)
{
	uint64_t space = s->rmem_most > s->core_rmem_max ? (uint64_t)s->rmem_most
							 : (uint64_t)s->core_rmem_max;
	uint8_t scale = 0;

	while (scale < 14 && space >> (scale + 16))
		scale++;
	return scale;
}

static uint16_t window_of(const struct sysctls *s)
{
	long half = s->rmem / 2;

	return half > 0xffff ? 0xffff : half < 4096 ? 4096 : (uint16_t)half;
}

/* Can programs at tc give connections to listeners? Linux 6.9. */
static bool kernel_takes_ours(void)
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

static int syn_load(struct dp *dp, struct dp_syn *y, struct err *err)
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
	y->skel = skel;
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

/* --- keys ------------------------------------------------------------------------------------------------- */

/* A new key over the older one. A reader of the older one in this moment takes its cookie for a wrong one. */
static void syn_rotate(struct hg_syn_control *c)
{
	uint32_t next = 1 - (c->key & 1);
	struct hg_syn_key key;

	if (getrandom(&key, sizeof(key), 0) != (ssize_t)sizeof(key))
		return; /* the old ones go on */
	c->keys[next] = key;
	__atomic_store_n(&c->key, next, __ATOMIC_RELEASE);
}

static bool has_keys(const struct hg_syn_control *c)
{
	return c->keys[0].k[0] | c->keys[0].k[1] | c->keys[1].k[0] | c->keys[1].k[1];
}

void dp_syn_carry(struct dp *dp)
{
	const struct hg_syn_control *from = dp->before ? dp->before->maps[DP_MAP_SYN_CONTROL].mem
						       : NULL;
	struct hg_syn_control *to = dp->maps[DP_MAP_SYN_CONTROL].mem;

	if (!from || !to || !has_keys(from))
		return;
	memcpy(to->keys, from->keys, sizeof(to->keys));
	to->key = from->key;
	to->check_until = from->check_until;
	if (dp->maps[DP_MAP_SYN_SERVICES].mem)
		memcpy(dp->maps[DP_MAP_SYN_SERVICES].mem, dp->before->maps[DP_MAP_SYN_SERVICES].mem,
		       dp->before->maps[DP_MAP_SYN_SERVICES].size);
}

void dp_syn_tick(struct dp *dp)
{
	struct hg_syn_control *c = dp->maps[DP_MAP_SYN_CONTROL].mem;
	struct dp_syn *y = dp->syn;
	uint64_t now = dp_clock(dp);

	if (!c || !y)
		return;
	if (c->mode != HG_SYN_OFF) {
		if (now - y->rotated_ns >= HG_SYN_KEY_S * 1000000000ull) {
			y->rotated_ns = now;
			syn_rotate(c);
		}
	} else if (now - y->off_ns >= DRAIN_S * 1000000000ull) {
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
		      const struct sysctls *s, bool is_own, uint32_t hz)
{
	uint32_t shift = hg_tick_shift(hz / WINDOWS_PER_S);

	c->flags = (is_own ? HG_SYN_OWN : 0) | (s->timestamps ? HG_SYN_TIMESTAMPS : 0) |
		   (s->sack ? HG_SYN_SACK : 0) | (s->window_scaling ? HG_SYN_WSCALE : 0) |
		   (s->ecn ? HG_SYN_ECN : 0);
	c->window_shift = shift;
	c->on_syns = per_window(syn->rate, shift, hz);
	c->keep_syns = (c->on_syns + 1) / 2;
	c->hold = HOLD_S * hz;
	c->valid = 2 * HG_SYN_KEY_S * hz;
	c->tick = hz;
	c->rcv_wnd = window_of(s);
	c->rcv_wscale = wscale_of(s);
	if (!has_keys(c)) {
		syn_rotate(c);
		syn_rotate(c);
	}
	__atomic_store_n(&c->mode, syn->mode, __ATOMIC_RELEASE);
}

/* The program at tc loaded and on all interfaces. */
static int syn_on(struct dp *dp, const struct conf *c, struct err *err)
{
	int rc = 0;

	if (!dp->syn->skel)
		rc = syn_load(dp, dp->syn, err);
	return rc == 0 ? syn_attach(dp->syn, c, err) : rc;
}

int dp_syn_configure(struct dp *dp, const struct conf *c, struct err *err)
{
	struct hg_syn_control *row = dp->maps[DP_MAP_SYN_CONTROL].mem;
	const struct conf_xdp_syn *syn = &c->global.xdp_syn;
	struct sysctls s;
	bool is_own;
	int rc;

	if (!row)
		return 0; /* stats_only */
	if (syn->mode == HG_SYN_OFF) {
		syn_off(dp, row, c);
		return 0;
	}
	rc = read_sysctls(&s, err);
	if (rc == -ENOENT && dp->syn && dp->syn->sysctls.syncookies)
		s = dp->syn->sysctls;
	else if (rc != 0)
		return rc;
	if (!dp->syn) {
		dp->syn = mem_zalloc(sizeof(*dp->syn));
		if (!dp->syn)
			return err_set(err, -ENOMEM, "out of memory");
		dp->syn->rotated_ns = dp_clock(dp);
	}
	dp->syn->sysctls = s;
	is_own = dp->syn->skel || kernel_takes_ours();
	rc = is_own ? syn_on(dp, c, err) : 0;
	if (rc != 0)
		return rc;
	if (!is_own)
		dp_notice(dp,
			  "SYN cookies: this kernel gives no connections to listeners from "
			  "programs (Linux 6.9 does): their own cookies are used, without window "
			  "scale and SACK%s",
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

	if (!c || !s || service >= dp->t.max_services || c->mode == HG_SYN_OFF ||
	    dp->services[service].row.mode != HG_MODE_LOCAL ||
	    dp->services[service].row.key.proto != IPPROTO_TCP)
		return false;
	return c->mode == HG_SYN_ON || jiffies_of(dp_now_ns(), dp->t.hz) < s[service].on_until;
}
