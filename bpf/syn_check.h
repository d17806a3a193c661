/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * SYN cookies that come back, for the XDP programs: does a packet prove that its sender got our answer? Functions
 * that get numbers only: whoever asks has little stack left.
 */
#ifndef HG_BPF_SYN_CHECK_H
#define HG_BPF_SYN_CHECK_H

#include "bpf/syn_cookie.h"

#define TCP_TH_FIN 0x01
#define TCP_TH_SYN 0x02
#define TCP_TH_RST 0x04
#define TCP_TH_ACK 0x10
#define TCP_TH_ECE 0x40
#define TCP_TH_CWR 0x80

/* Where a packet's headers are, in one number: from the frame's begin, and from the IP header on. */
#define SYN_AT(l3, l4, v6) ((u32)(l3) | (u32)(l4) << 16 | (v6 ? 1u << 31 : 0))
#define SYN_AT_L3(at)	   ((at) & 0xfff)
#define SYN_AT_L4(at)	   ((at) >> 16 & 0xfff)
#define SYN_AT_V6(at)	   ((at) >> 31)

INLINE void read_all_options(struct xdp_md *ctx, u32 at, u32 len, struct options *o)
{
	u8 b[OPTIONS_ROOM] __attribute__((aligned(8))) = {};

	/* From 1 to OPTIONS_MAX, said so that Linux 6.1 sees it. */
	len--;
	asm volatile("" : "+r"(len));
	if (len >= OPTIONS_MAX)
		return;
	len++;
	if (bpf_xdp_load_bytes(ctx, at, b, len))
		return;
	read_options(b, len, o);
}

/* Of an ACK: [has stamp:1] at bit 32, the timestamp that comes back. */
GLOBAL u64 syn_echo(struct xdp_md *ctx, u32 at, u32 len)
{
	struct options o = {};

	read_all_options(ctx, at, len, &o);
	return (u64)o.has_stamp << 32 | o.echo;
}

/* The TCP header, or NULL. */
INLINE struct tcphdr *syn_at_tcp(struct xdp_md *ctx, u32 at)
{
	struct tcphdr *th = (void *)(long)ctx->data + SYN_AT_L3(at) + SYN_AT_L4(at);

	return SYN_AT_L4(at) && (void *)(th + 1) <= (void *)(long)ctx->data_end ? th : NULL;
}

INLINE bool cookie_proves_family(struct xdp_md *ctx, const struct hg_syn_control *c, u32 at,
				 u32 options, bool v6)
{
	void *l3 = (void *)(long)ctx->data + SYN_AT_L3(at);
	struct cookie_of of = { .options = options };
	struct tcphdr *th = syn_at_tcp(ctx, at);

	if (!th ||
	    l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > (void *)(long)ctx->data_end)
		return false;
	of.ports = *(u32a *)th;
	of.isn = __builtin_bswap32(th->seq) - 1;
	return cookie_is_ours(c, __builtin_bswap32(th->ack_seq) - 1, l3, v6, &of);
}

/* `options` as of cookie_options(). */
GLOBAL u32 cookie_proves(struct xdp_md *ctx, u32 at, u32 options)
{
	u32 zero = 0;
	const struct hg_syn_control *c = bpf_map_lookup_elem(&syn_control, &zero);

	if (!c)
		return false;
	return SYN_AT_V6(at) ? cookie_proves_family(ctx, c, at, options, true)
			     : cookie_proves_family(ctx, c, at, options, false);
}

/* The packet with its TCP header there has ACK, no SYN and no RST, and is an answer to a cookie. */
GLOBAL u32 brings_cookie(struct xdp_md *ctx, u32 at)
{
	const struct tcphdr *th = syn_at_tcp(ctx, at);
	u64 echo = 0;
	u32 len;

	if (!th || (((u8 *)th)[13] & (TCP_TH_SYN | TCP_TH_RST | TCP_TH_ACK)) != TCP_TH_ACK)
		return false;
	len = (((u8 *)th)[12] >> 4) * 4;
	if (len > sizeof(*th))
		echo = syn_echo(ctx, SYN_AT_L3(at) + SYN_AT_L4(at) + sizeof(*th),
				len - sizeof(*th));
	return cookie_proves(ctx, at, cookie_options(echo >> 32, (u32)echo));
}

#endif
