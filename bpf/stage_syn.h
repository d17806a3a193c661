/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stage syn: SYNs of a service that come too fast are answered here by cookies. Of services of this host's L7 tier,
 * what then comes for a listener and is no cookie's answer is dropped before the kernel would answer it with
 * a reset, and packets of connections that the kernel has pass as they are. Those of services whose listeners are elsewhere
 * go there as ever, and agents judge them. One function after the other, and only numbers between them: the
 * stack is for all of a chain.
 */
#ifndef HG_BPF_STAGE_SYN_H
#define HG_BPF_STAGE_SYN_H

#include "bpf/capture.h"
#include "bpf/csum.h"
#include "bpf/maps.h"
#include "bpf/maps_common.h"
#include "bpf/stage_icmp.h"
#include "bpf/syn_check.h"

/* By service id; a miss: no cookies for it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct hg_syn_service);
} syn_services SEC(".maps");

/* The packet in one number. SYN_MARK, without NAT_MARK, tells it from an XDP action and from what NAT has to do. */
#define SYN_SERVICE(w)	((u32)(w) & 0xffff)
#define SYN_L3_LEN(w)	((u32)((w) >> 16) & 0xffff)
#define SYN_L4_OFF(w)	((u32)((w) >> 32) & 0xfff)
#define SYN_TYPE_OFF(w) ((u32)((w) >> 44) & 31)
#define SYN_V6		(1ull << 49)
#define SYN_BEGINS	(1ull << 50)
#define SYN_TAP		(1ull << 51)
#define SYN_AWAY	(1ull << 52) /* of a service whose listeners are elsewhere */
#define SYN_TUNNEL	(1ull << 53) /* and whose packets go there in a tunnel */
#define SYN_MARK	(1ull << 62)

INLINE u64 syn_what(const struct pkt *p, bool v6)
{
	return (u64)(p->svc->id & 0xffff) | (u64)(p->l3_len & 0xffff) << 16 |
	       (u64)(p->l4_off & 0xfff) << 32 | (u64)p->type_off << 44 | (v6 ? SYN_V6 : 0) |
	       (p->syn ? SYN_BEGINS : 0) | (p->tap ? SYN_TAP : 0) |
	       (p->svc->mode == HG_MODE_LOCAL ? 0 : SYN_AWAY) |
	       (p->svc->mode == HG_MODE_L2 ? 0 : SYN_TUNNEL) | SYN_MARK;
}

/* What became of it. */
enum syn_result {
	SYN_PASS, /* the kernel's business */
	SYN_ANSWERED,
	SYN_VALID, /* the kernel gets it, and syn_tc the connection */
	SYN_INVALID
};

#define LISTENS 10 /* BPF_TCP_LISTEN */
/* For the steady path: is it worth syn_packet()? */
INLINE bool syn_asks(const struct pkt *p)
{
	u32 zero = 0;
	const struct hg_syn_control *c = bpf_map_lookup_elem(&syn_control, &zero);

	if (unlikely(!c) || p->proto != IPPROTO_TCP ||
	    p->odd & (ODD_DEFECT | ODD_FRAGMENT | ODD_NO_PORTS))
		return false;
	if (p->syn)
		return READ_ONCE(c->mode) != HG_SYN_OFF;
	return unlikely(bpf_jiffies64() < READ_ONCE(c->check_until) || c->mode == HG_SYN_ON);
}

/* --- switching on and off ------------------------------------------------------------------------------- */

/* One SYN more. Two CPUs that open a window at once may lose one. */
INLINE u32 syn_count(struct hg_syn_service *s, u64 window)
{
	u64 w = READ_ONCE(s->window);

	if (w >> 32 == (u32)window)
		return (u32)__sync_fetch_and_add(&s->window, 1) + 1;
	*(volatile u64 *)&s->window = window << 32 | 1;
	return 1;
}

/* Does this service's SYN get a cookie? Notes until when cookies may come back. */
GLOBAL u32 syn_is_on(u32 service)
{
	u32 zero = 0;
	struct hg_syn_control *c = bpf_map_lookup_elem(&syn_control, &zero);
	struct hg_syn_service *s = bpf_map_lookup_elem(&syn_services, &service);
	u64 now = bpf_jiffies64(), until;

	if (!c || !s || c->mode == HG_SYN_OFF)
		return 0;
	if (c->mode == HG_SYN_AUTO) {
		bool on = now < READ_ONCE(s->on_until);
		u32 n = syn_count(s, now >> (c->window_shift & 31));

		if (n >= (on ? c->keep_syns : c->on_syns)) {
			if (READ_ONCE(s->on_until) != now + c->hold)
				*(volatile u64 *)&s->on_until = now + c->hold;
		} else if (!on) {
			return 0;
		}
	}
	until = now + c->valid;
	if (READ_ONCE(s->check_until) + c->tick < until)
		*(volatile u64 *)&s->check_until = until;
	if (READ_ONCE(c->check_until) + c->tick < until)
		*(volatile u64 *)&c->check_until = until;
	return 1;
}

INLINE bool syn_may_return(const struct hg_syn_control *c, u32 service)
{
	const struct hg_syn_service *s = bpf_map_lookup_elem(&syn_services, &service);

	return c->mode == HG_SYN_ON || (s && bpf_jiffies64() < READ_ONCE(s->check_until));
}

/* --- what the packet says ------------------------------------------------------------------------------- */

/* The IP header with its fixed part, or NULL. */
INLINE void *syn_l3(struct xdp_md *ctx, u64 what, bool v6)
{
	void *l3 = (void *)(long)ctx->data + SYN_TYPE_OFF(what) + 2;
	void *end = (void *)(long)ctx->data_end;

	return l3 + (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) > end ? NULL : l3;
}

/* The TCP header, or NULL. `l3` is what syn_l3() gave. */
INLINE struct tcphdr *syn_tcp(struct xdp_md *ctx, u64 what, void *l3)
{
	struct tcphdr *th = l3 + SYN_L4_OFF(what);

	return SYN_L4_OFF(what) && (void *)(th + 1) <= (void *)(long)ctx->data_end ? th : NULL;
}

/* Of a SYN: [has sack:1][has wscale:1][has stamp:1] from bit 56, wscale from 48, mss from 32, timestamp. */
GLOBAL u64 syn_options(struct xdp_md *ctx, u32 at, u32 len)
{
	struct options o = {};

	read_all_options(ctx, at, len, &o);
	return (u64)o.has_sack << 58 | (u64)o.has_wscale << 57 | (u64)o.has_stamp << 56 |
	       (u64)o.wscale << 48 | (u64)o.mss << 32 | o.value;
}
#define SYN_HAS_STAMP  (1ull << 56)
#define SYN_HAS_WSCALE (1ull << 57)
#define SYN_HAS_SACK   (1ull << 58)

/* --- what the kernel says ------------------------------------------------------------------------------- */

INLINE struct bpf_sock *syn_lookup(struct xdp_md *ctx, u64 what, bool v6)
{
	struct bpf_sock_tuple t;
	struct tcphdr *th;
	void *l3 = syn_l3(ctx, what, v6);

	if (!l3)
		return NULL;
	th = syn_tcp(ctx, what, l3);
	if (!th)
		return NULL;
	if (v6) {
		__builtin_memcpy(t.ipv6.saddr, l3 + 8, 16);
		__builtin_memcpy(t.ipv6.daddr, l3 + 24, 16);
		t.ipv6.sport = th->source;
		t.ipv6.dport = th->dest;
		return bpf_skc_lookup_tcp(ctx, &t, sizeof(t.ipv6), BPF_F_CURRENT_NETNS, 0);
	}
	t.ipv4.saddr = *(u32a *)(l3 + 12);
	t.ipv4.daddr = *(u32a *)(l3 + 16);
	t.ipv4.sport = th->source;
	t.ipv4.dport = th->dest;
	return bpf_skc_lookup_tcp(ctx, &t, sizeof(t.ipv4), BPF_F_CURRENT_NETNS, 0);
}

/* Nothing has this packet's connection, and somebody listens. */
GLOBAL u32 syn_is_for_listener(struct xdp_md *ctx, u64 what)
{
	struct bpf_sock *sk = what & SYN_V6 ? syn_lookup(ctx, what, true)
					    : syn_lookup(ctx, what, false);
	u32 state;

	if (!sk)
		return 0;
	state = sk->state;
	bpf_sk_release(sk);
	return state == LISTENS;
}

INLINE u64 listener_cookie(struct xdp_md *ctx, u64 what, struct bpf_sock *sk, bool v6)
{
	u8 b[60] __attribute__((aligned(8))) = {};
	void *l3 = syn_l3(ctx, what, v6);
	struct tcphdr *th;
	__s64 made;
	u32 len;

	if (!l3)
		return 0;
	th = syn_tcp(ctx, what, l3);
	if (!th)
		return 0;
	len = (((u8 *)th)[12] >> 4) * 4;
	len -= sizeof(*th);
	asm volatile("" : "+r"(len));
	if (len > OPTIONS_MAX)
		return 0;
	len += sizeof(*th);
	if (bpf_xdp_load_bytes(ctx, SYN_TYPE_OFF(what) + 2 + SYN_L4_OFF(what), b, len))
		return 0;
	made = bpf_tcp_gen_syncookie(sk, l3, v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr),
				     (struct tcphdr *)b, len);
	return made < 0 ? 0 : (u64)made;
}

/*
 * The listener's own cookie below an MSS, for kernels that take no others. 0: it makes none: something has the
 * connection, or (tcp_syncookies = 1) its queue has room, then the SYN goes there.
 */
GLOBAL u64 syn_listener_cookie(struct xdp_md *ctx, u64 what)
{
	struct bpf_sock *sk = what & SYN_V6 ? syn_lookup(ctx, what, true)
					    : syn_lookup(ctx, what, false);
	u64 made = 0;

	if (!sk)
		return 0;
	if (sk->state == LISTENS)
		made = what & SYN_V6 ? listener_cookie(ctx, what, sk, true)
				     : listener_cookie(ctx, what, sk, false);
	bpf_sk_release(sk);
	return made;
}

/* --- the answer ------------------------------------------------------------------------------------------- */

#define WORD(a, b, c, d) hg_be32((u32)(a) << 24 | (u32)(b) << 16 | (u32)(c) << 8 | (u32)(d))

INLINE u32 word_sum(u32 word)
{
	return (word & 0xffff) + (word >> 16);
}

INLINE u32 addrs_sum(const void *l3, bool v6)
{
	const u32a *w = l3;
	u32 sum = 0;
	int i;

#pragma clang loop unroll(full)
	for (i = v6 ? 2 : 3; i < (v6 ? 10 : 5); i++)
		sum += word_sum(w[i]);
	return sum;
}

INLINE void write_ipv4(struct iphdr *ip, u32 len)
{
	u32a *w = (u32a *)ip;
	u32 sum = addrs_sum(ip, false);
	int i;

	w[0] = WORD(0x45, 0, len >> 8, len & 0xff);
	w[1] = hg_be32(0x4000); /* DF */
	w[2] = WORD(HG_OUTER_TTL, IPPROTO_TCP, 0, 0);
#pragma clang loop unroll(full)
	for (i = 0; i < 3; i++)
		sum += word_sum(w[i]);
	ip->check = ~csum_fold(sum);
}

INLINE void write_ipv6(void *l3, u32 payload)
{
	u32a *w = l3;

	w[0] = hg_be32(0x60000000);
	w[1] = WORD(payload >> 8, payload & 0xff, IPPROTO_TCP, HG_OUTER_TTL);
}

struct answer {
	u32 cookie, ack; /* host order */
	u32 ports; /* of the SYN, as they lie */
	u32 stamp, echo; /* timestamps, with has_stamp */
	u16 mss;
	u16 window;
	u8 wscale; /* HG_SYN_NO_WSCALE: none */
	bool has_stamp, has_sack, has_ecn;
};

INLINE u32 answer_len(const struct answer *a)
{
	return sizeof(struct tcphdr) + (!a->has_stamp			? 4
					: a->wscale == HG_SYN_NO_WSCALE ? 16
									: 20);
}

/* Options in the order in which Linux has them; without timestamps only the MSS. Returns the sum. */
INLINE u32 write_options(u32a *w, const struct answer *a, const void *end)
{
	u32 sum;

	w[0] = WORD(TCPOPT_MSS, 4, a->mss >> 8, a->mss & 0xff);
	sum = word_sum(w[0]);
	if (!a->has_stamp || (void *)(w + 4) > end)
		return sum;
	w[1] = a->has_sack ? WORD(TCPOPT_SACK, 2, TCPOPT_STAMP, 10)
			   : WORD(TCPOPT_NOP, TCPOPT_NOP, TCPOPT_STAMP, 10);
	w[2] = hg_be32(a->stamp);
	w[3] = hg_be32(a->echo);
	sum += word_sum(w[1]) + word_sum(w[2]) + word_sum(w[3]);
	if (a->wscale == HG_SYN_NO_WSCALE || (void *)(w + 5) > end)
		return sum;
	w[4] = WORD(TCPOPT_NOP, TCPOPT_WSCALE, 3, a->wscale);
	return sum + word_sum(w[4]);
}

/* Turns the frame round and makes it the answer. False: as it was. */
INLINE bool write_answer(struct xdp_md *ctx, u64 what, const struct answer *a, bool v6)
{
	u32 head = v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr), tcp_len = answer_len(a);
	u32 l3_off = SYN_TYPE_OFF(what) + 2, len = l3_off + head + tcp_len;
	void *data, *end, *l3;
	u32a *w;
	u32 sum;

	if (bpf_xdp_adjust_tail(
		    ctx, (int)((len < ETH_ZLEN ? ETH_ZLEN : len) - (u32)bpf_xdp_get_buff_len(ctx))))
		return false;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	l3 = data + l3_off;
	w = l3 + head;
	if (data + 2 * ETH_ALEN > end || (void *)(w + 6) > end)
		return false; /* cannot be: it has just been made so long */
	swap_macs(data);
	swap_addrs(l3, v6);
	if (v6)
		write_ipv6(l3, tcp_len);
	else
		write_ipv4(l3, head + tcp_len);
	w[0] = a->ports >> 16 | a->ports << 16;
	w[1] = hg_be32(a->cookie);
	w[2] = hg_be32(a->ack);
	w[3] = hg_be32((tcp_len / 4) << 28 |
		       (TCP_TH_SYN | TCP_TH_ACK | (a->has_ecn ? TCP_TH_ECE : 0)) << 16 | a->window);
	w[4] = 0;
	sum = word_sum(w[0]) + word_sum(w[1]) + word_sum(w[2]) + word_sum(w[3]);
	sum += write_options(w + 5, a, end);
	sum += addrs_sum(l3, v6) + hg_be16(IPPROTO_TCP) + hg_be16((u16)tcp_len);
	*(u16a *)(w + 4) = ~csum_fold(sum);
	/* The least Ethernet frame has two bytes more than the least answer: they were the SYN's. */
	if (!v6 && !a->has_stamp && (void *)(w + 6) + 2 <= end)
		*(u16a *)(w + 6) = 0;
	return true;
}

/* Own cookie for a SYN; `options` and `mss` as in cookie_make(). The SYN's TCP header is in the frame. */
GLOBAL u32 syn_own_cookie(struct xdp_md *ctx, u64 what, u32 options, u32 mss)
{
	u32 zero = 0, which, make;
	const struct hg_syn_control *c = bpf_map_lookup_elem(&syn_control, &zero);
	struct cookie_of of = { .options = options };
	bool v6 = what & SYN_V6;
	struct tcphdr *th;
	void *l3 = v6 ? syn_l3(ctx, what, true) : syn_l3(ctx, what, false);

	if (!l3 || !c || !c->n_secrets)
		return 0;
	th = syn_tcp(ctx, what, l3);
	if (!th)
		return 0;
	which = READ_ONCE(c->keys_of) & (HG_SYN_MINUTES - 1);
	make = READ_ONCE(c->make);
	if (make >= HG_SYN_SECRETS)
		return 0;
	of.ports = *(u32a *)th;
	of.isn = __builtin_bswap32(th->seq);
	mss &= HG_SYN_MSS_MASK;
	if (!v6)
		return cookie_make(&c->keys[make][which], which, l3, false, &of, mss);
	if (l3 + sizeof(struct ipv6hdr) > (void *)(long)ctx->data_end)
		return 0;
	return cookie_make(&c->keys[make][which], which, l3, true, &of, mss);
}

/* Largest segment that fits the interface, as the kernel announces it, and `room` bytes with it. */
INLINE u16 own_mss(struct xdp_md *ctx, u32 room, bool v6)
{
	u32 mtu = 0, heads = sizeof(struct tcphdr) + room +
			     (v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));

	(void)bpf_check_mtu(ctx, 0, &mtu, 0, 0);
	return mtu > heads && mtu - heads <= 0xffff ? mtu - heads : mss_value(0, v6);
}

/* What the client asked for and the listener's host has, and the cookie that says so. */
INLINE bool own_answer(struct xdp_md *ctx, u64 what, const struct hg_syn_control *c,
		       u32 options_len, u32 tcp_flags, struct answer *a, bool v6)
{
	u64 o = syn_options(ctx, SYN_TYPE_OFF(what) + 2 + SYN_L4_OFF(what) + sizeof(struct tcphdr),
			    options_len);
	u32 flags = what & SYN_AWAY ? HG_SYN_OPTIONS : c->flags;
	u32 bits = HG_SYN_NO_WSCALE, mss = (u16)(o >> 32);

	a->has_stamp = o & SYN_HAS_STAMP && flags & HG_SYN_TIMESTAMPS;
	a->wscale = HG_SYN_NO_WSCALE;
	if (a->has_stamp) {
		if (o & SYN_HAS_WSCALE && flags & HG_SYN_WSCALE) {
			bits = (u32)(o >> 48) & 15;
			a->wscale = c->rcv_wscale & 15;
		}
		a->has_sack = o & SYN_HAS_SACK && flags & HG_SYN_SACK;
		a->has_ecn = (tcp_flags & (TCP_TH_ECE | TCP_TH_CWR)) == (TCP_TH_ECE | TCP_TH_CWR) &&
			     flags & HG_SYN_ECN;
		bits |= a->has_sack << 4 | a->has_ecn << 5;
		a->stamp = ((u32)bpf_jiffies64() & ~((1u << HG_SYN_STAMP_BITS) - 1)) | bits;
		a->echo = (u32)o;
	}
	a->mss = own_mss(ctx,
			 (what & (SYN_AWAY | SYN_TUNNEL)) == (SYN_AWAY | SYN_TUNNEL)
				 ? HG_SYN_TUNNEL_ROOM
				 : 0,
			 v6);
	a->cookie = syn_own_cookie(ctx, what, cookie_options(a->has_stamp, bits),
				   mss_index(mss, v6));
	return a->cookie;
}

INLINE u32 syn_answer(struct xdp_md *ctx, u64 what, const struct hg_syn_control *c, bool v6)
{
	struct answer a = { .window = c->rcv_wnd, .wscale = HG_SYN_NO_WSCALE };
	void *l3 = syn_l3(ctx, what, v6);
	struct tcphdr *th;
	u64 made;
	u32 tcp_flags, len;

	if (!l3 || !source_is_host(l3, v6))
		return SYN_PASS;
	th = syn_tcp(ctx, what, l3);
	if (!th)
		return SYN_PASS;
	a.ports = *(u32a *)th;
	a.ack = __builtin_bswap32(th->seq) + 1;
	tcp_flags = ((u8 *)th)[13];
	len = (((u8 *)th)[12] >> 4) * 4;
	/* What is no SYN for the kernel is none here. */
	if (tcp_flags & (TCP_TH_RST | TCP_TH_FIN) || len < sizeof(*th))
		return SYN_PASS;
	if (!(what & SYN_AWAY) && !(c->flags & HG_SYN_OWN)) {
		made = syn_listener_cookie(ctx, what);
		a.cookie = (u32)made;
		a.mss = (u16)(made >> 32);
		if (!made)
			return SYN_PASS;
	} else if ((!(what & SYN_AWAY) && !syn_is_for_listener(ctx, what)) ||
		   !own_answer(ctx, what, c, len - sizeof(*th), tcp_flags, &a, v6)) {
		return SYN_PASS;
	}
	return write_answer(ctx, what, &a, v6) ? SYN_ANSWERED : SYN_PASS;
}

/* A SYN: enum syn_result. */
GLOBAL u32 syn_begin(struct xdp_md *ctx, u64 what)
{
	u32 zero = 0;
	const struct hg_syn_control *c = bpf_map_lookup_elem(&syn_control, &zero);

	if (!c || !syn_is_on(SYN_SERVICE(what)))
		return SYN_PASS;
	syn_keys(c);
	return what & SYN_V6 ? syn_answer(ctx, what, c, true) : syn_answer(ctx, what, c, false);
}

/* --- what comes back --------------------------------------------------------------------------------------- */

/* Did the kernel's own cookie bring it? Either tier may have answered the SYN while the other took over. */
INLINE bool is_listeners_cookie(void *l3, struct tcphdr *th, bool v6)
{
	return v6 ? !bpf_tcp_raw_check_syncookie_ipv6(l3, th)
		  : !bpf_tcp_raw_check_syncookie_ipv4(l3, th);
}

INLINE u32 syn_at(u64 what)
{
	return SYN_AT(SYN_TYPE_OFF(what) + 2, SYN_L4_OFF(what), what & SYN_V6);
}

INLINE u32 syn_judge(struct xdp_md *ctx, u64 what, const struct hg_syn_control *c, bool v6)
{
	void *l3 = syn_l3(ctx, what, v6);
	struct tcphdr *th;
	u8 flags;

	if (!l3)
		return SYN_PASS;
	th = syn_tcp(ctx, what, l3);
	if (!th)
		return SYN_PASS;
	flags = ((u8 *)th)[13];
	if ((flags & (TCP_TH_ACK | TCP_TH_RST)) != TCP_TH_ACK || !syn_is_for_listener(ctx, what))
		return SYN_PASS;
	if (flags & TCP_TH_SYN)
		return SYN_INVALID;
	if (c->flags & HG_SYN_OWN && brings_cookie(ctx, syn_at(what)))
		return SYN_VALID;
	return is_listeners_cookie(l3, th, v6) ? SYN_PASS : SYN_INVALID;
}

/* Anything but a SYN, while cookies may come back: enum syn_result. */
GLOBAL u32 syn_returns(struct xdp_md *ctx, u64 what)
{
	u32 zero = 0;
	const struct hg_syn_control *c = bpf_map_lookup_elem(&syn_control, &zero);

	if (!c || !syn_may_return(c, SYN_SERVICE(what)))
		return SYN_PASS;
	syn_keys(c);
	return what & SYN_V6 ? syn_judge(ctx, what, c, true) : syn_judge(ctx, what, c, false);
}

/* Of a service whose listeners are elsewhere: may answers to cookies come? */
GLOBAL u32 syn_may_begin(u32 service)
{
	u32 zero = 0;
	const struct hg_syn_control *c = bpf_map_lookup_elem(&syn_control, &zero);

	if (!c || !syn_may_return(c, service))
		return false;
	syn_keys(c);
	return true;
}

/* The same as report() for what this stage decides. */
GLOBAL int syn_report(struct xdp_md *ctx, u64 what, u32 result)
{
	static const u8 verdicts[] = { [SYN_PASS] = HG_VERDICT_PASS_LOCAL,
				       [SYN_ANSWERED] = HG_VERDICT_REPLY,
				       [SYN_VALID] = HG_VERDICT_PASS_LOCAL,
				       [SYN_INVALID] = HG_VERDICT_DROP };
	u32 cpu = bpf_get_smp_processor_id(), row = SYN_SERVICE(what) * ro.n_cpus + cpu;
	u32 verdict = verdicts[result & 3];
	u32 drop = verdict == HG_VERDICT_DROP ? HG_DROP_SYN_COOKIE : HG_DROP_NONE;
	struct hg_service_counters *s = bpf_map_lookup_elem(&xdp_services, &row);

	count_verdict(cpu, verdict, drop);
	if (s) {
		s->packets++;
		s->bytes += SYN_L3_LEN(what);
		s->syns += !!(what & SYN_BEGINS);
		s->local += verdict == HG_VERDICT_PASS_LOCAL;
		s->answered += verdict == HG_VERDICT_REPLY;
		s->dropped += verdict == HG_VERDICT_DROP;
		s->cookies_sent += result == SYN_ANSWERED;
		s->cookies_valid += result == SYN_VALID;
		s->cookies_invalid += result == SYN_INVALID;
	}
	if (unlikely(what & SYN_TAP))
		capture_packet(
			ctx, CAP_SERVICE(SYN_SERVICE(what)) | CAP_VERDICT(verdict) | CAP_DROP(drop),
			TAP_ASK, verdict == HG_VERDICT_REPLY ? ctx->ingress_ifindex : 0);
	if (verdict == HG_VERDICT_DROP)
		record_drop(ctx, SYN_SERVICE(what), drop);
	return verdict == HG_VERDICT_REPLY  ? XDP_TX
	       : verdict == HG_VERDICT_DROP ? XDP_DROP
					    : XDP_PASS;
}

/* Any packet that syn_what() describes. NOT_HANDLED: a SYN for elsewhere, which goes on. */
INLINE int syn_packet(struct xdp_md *ctx, u64 what)
{
	u32 result = what & SYN_BEGINS ? syn_begin(ctx, what) : syn_returns(ctx, what);

	asm volatile("" : "+r"(result));
	if (what & SYN_AWAY && result == SYN_PASS)
		return NOT_HANDLED;
	return syn_report(ctx, what, result);
}

#endif
