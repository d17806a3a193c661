/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SYN cookies on a backend: the balancers have answered a client's SYN, its next packet comes through the tunnel, and the
 * program at tc gives the connection to the listener. Needs no process: the program derives its keys itself.
 * Command-line tool.
 */
#include <errno.h>
#include <net/if.h>
#include <string.h>

#include "dp/dp_priv.h"
#include "syn_tc.skel.h"

/* Beside the balancer's: a host may be both. */
static const struct dp_tc_slot slot = { HG_SYN_TC_PRIO, HG_SYN_AGENT_TC_HANDLE, "syn_" };

void dp_agent_syn_detach(unsigned ifindex)
{
	dp_tc_detach(&slot, ifindex, BPF_TC_INGRESS);
}

uint32_t dp_agent_syn_keys(const struct dp *dp)
{
	const struct hg_syn_control *c = dp->maps[DP_MAP_SYN_CONTROL].mem;

	return c ? c->n_secrets : 0;
}

/* What the balancers promise their clients has to be so here. */
static int check_host(struct err *err)
{
	struct dp_syn_sysctls s;
	const char *off;
	int rc;

	if (!dp_syn_kernel_takes())
		return err_set(err, -EOPNOTSUPP,
			       "--syn-cookie-keys needs Linux 6.9 or newer on this host: this "
			       "kernel gives no connections to listeners from programs "
			       "(bpf_sk_assign_tcp_reqsk)");
	rc = dp_syn_sysctls(&s, "--syn-cookie-keys", err);
	if (rc != 0)
		return rc;
	off = !s.timestamps	  ? "tcp_timestamps"
	      : !s.sack		  ? "tcp_sack"
	      : !s.window_scaling ? "tcp_window_scaling"
				  : NULL;
	if (off)
		return err_set(err, -ENOTSUP,
			       "--syn-cookie-keys needs the sysctl net.ipv4.%s = 1, as on the "
			       "other servers: balancers promise it to clients",
			       off);
	return 0;
}

static bool is_on_any(void)
{
	struct if_nameindex *ifs = if_nameindex();
	bool found = false;

	for (struct if_nameindex *i = ifs; i && i->if_index && !found; i++)
		found = dp_tc_prog(&slot, i->if_index, BPF_TC_INGRESS) != 0;
	if (ifs)
		if_freenameindex(ifs);
	return found;
}

/* The last interface switches them off for the host: else the second chance would know cookies that nobody takes. */
static void switch_off(struct hg_syn_control *c, unsigned ifindex)
{
	struct conf_syn_keys none = { .n = 0 };

	dp_agent_syn_detach(ifindex);
	if (is_on_any())
		return;
	c->mode = HG_SYN_OFF;
	dp_syn_set_secrets(c, &none);
}

int dp_agent_syn(struct dp *dp, const char *ifname, const struct conf_syn_keys *keys,
		 struct err *err)
{
	struct hg_syn_control *c = dp->maps[DP_MAP_SYN_CONTROL].mem;
	unsigned ifindex = if_nametoindex(ifname);
	struct syn_tc_bpf *skel;
	uint32_t hz = jiffies_hz();
	int rc;

	if (!c || dp->role != HG_ROLE_BACKEND)
		return err_set(err, -EINVAL, "this is not the agent's datapath");
	if (!keys->n) {
		switch_off(c, ifindex);
		return 0;
	}
	rc = check_host(err);
	if (rc == 0)
		rc = dp_syn_load(dp, &skel, err);
	if (rc != 0)
		return rc;
	c->flags = HG_SYN_OWN | HG_SYN_OPTIONS | HG_SYN_FLEET | HG_SYN_AGENT;
	c->valid = DP_SYN_VALID_S * hz;
	c->tick = hz;
	c->rcv_wscale = HG_SYN_FLEET_WSCALE;
	dp_syn_set_secrets(c, keys);
	c->mode = HG_SYN_ON;
	rc = dp_tc_attach(&slot, ifindex, BPF_TC_INGRESS, skel->progs.syn_take, err);
	syn_tc_bpf__destroy(skel); /* what is attached stays */
	return rc;
}
