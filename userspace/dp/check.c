/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Health checks through the tunnel: two programs at tc on the interfaces towards the servers, loaded when
 * the first check wants them, and a table of whom a mark means. Not pinned: checks end with the daemon, and
 * the programs are taken off when it stops; what a killed one leaves is replaced by the next, or removed by
 * `headgate detach`, and touches nothing but marked packets.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <headgate/check.h>

#include "dp/dp_priv.h"
#include "hc_encap.skel.h"

#define MAX_INTERFACES 64

struct dp_checks {
	struct hc_encap_bpf *skel;
	struct hg_check_target *targets;
	uint32_t n; /* targets in use are 1 to n */
	unsigned ifs[MAX_INTERFACES]; /* with our programs */
	unsigned n_ifs;
};

static const struct dp_tc_slot slot = { HG_CHECK_TC_PRIO, HG_CHECK_TC_HANDLE, "hc_" };

void dp_checks_detach(unsigned ifindex)
{
	dp_tc_detach(&slot, ifindex, BPF_TC_EGRESS);
	dp_tc_detach(&slot, ifindex, BPF_TC_INGRESS);
}

static int checks_attach(struct dp_checks *c, unsigned ifindex, struct err *err)
{
	int rc;

	for (unsigned i = 0; i < c->n_ifs; i++)
		if (c->ifs[i] == ifindex)
			return 0;
	if (c->n_ifs == MAX_INTERFACES)
		return err_set(err, -ENOSPC, "checks leave by more than %d interfaces",
			       MAX_INTERFACES);
	rc = dp_tc_attach(&slot, ifindex, BPF_TC_INGRESS, c->skel->progs.hc_return, err);
	if (rc == 0)
		rc = dp_tc_attach(&slot, ifindex, BPF_TC_EGRESS, c->skel->progs.hc_encap, err);
	if (rc != 0) {
		dp_checks_detach(ifindex);
		return rc;
	}
	c->ifs[c->n_ifs++] = ifindex;
	return 0;
}

int dp_checks_open(struct dp *dp, struct err *err)
{
	struct dp_checks *c;
	int rc;

	if (dp->checks)
		return 0;
	c = mem_zalloc(sizeof(*c));
	if (!c)
		return err_set(err, -ENOMEM, "out of memory");
	c->skel = hc_encap_bpf__open_and_load();
	rc = c->skel ? 0 : -errno;
	if (rc == 0) {
		c->targets = mmap(NULL, HG_CHECK_TARGETS * sizeof(*c->targets),
				  PROT_READ | PROT_WRITE, MAP_SHARED,
				  bpf_map__fd(c->skel->maps.check_targets), 0);
		if (c->targets == MAP_FAILED)
			rc = -errno;
	}
	if (rc != 0) {
		hc_encap_bpf__destroy(c->skel);
		mem_free(c);
		return err_set(err, rc, "cannot load the programs of 'check via tunnel': %s",
			       strerror(-rc));
	}
	dp->checks = c;
	return 0;
}

void dp_checks_close(struct dp *dp)
{
	struct dp_checks *c = dp->checks;

	if (!c)
		return;
	for (unsigned i = 0; i < c->n_ifs; i++)
		dp_checks_detach(c->ifs[i]);
	munmap(c->targets, HG_CHECK_TARGETS * sizeof(*c->targets));
	hc_encap_bpf__destroy(c->skel);
	mem_free(c);
	dp->checks = NULL;
}

/* The row for these three, made when there is none; 0: the table is full. Rows are few and live as long as we. */
static uint32_t target_take(struct dp_checks *c, const struct hg_check_target *want)
{
	struct hg_check_target row = *want;

	for (uint32_t i = 1; i <= c->n; i++)
		if (memcmp(&c->targets[i], want, sizeof(*want)) == 0)
			return i;
	if (c->n + 1 >= HG_CHECK_TARGETS)
		return 0;
	row.method = 0;
	c->targets[++c->n] = row;
	__atomic_store_n(&c->targets[c->n].method, want->method, __ATOMIC_RELEASE);
	return c->n;
}

int dp_check_mark(struct dp *dp, const struct addr *server, const struct addr *vip,
		  enum hg_mode method, uint32_t *ret_mark, struct err *err)
{
	struct hg_check_target want = { .method = (__u8)method };
	unsigned ifindex;
	uint32_t id;
	int rc = dp_checks_open(dp, err);

	if (rc != 0)
		return rc;
	rc = dp_route_ifindex(dp, server, &ifindex);
	if (rc != 0)
		return err_set(err, rc, "no route to the server");
	rc = checks_attach(dp->checks, ifindex, err);
	if (rc != 0)
		return rc;
	addr_to_v6_mapped(vip, (uint8_t *)want.vip);
	addr_to_v6_mapped(server, (uint8_t *)want.addr);
	id = target_take(dp->checks, &want);
	if (!id)
		return err_set(err, -ENOSPC, "too many servers are checked through their tunnels");
	*ret_mark = HG_CHECK_MARK | id;
	return 0;
}
