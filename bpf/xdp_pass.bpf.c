/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lets everything through. Its use is to be there: XDP_TX and redirect into one end of a veth pair
 * deliver nothing unless the other end runs a program in native mode.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp.frags")
int xdp_pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual BSD/GPL";
