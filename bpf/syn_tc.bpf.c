/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * At tc ingress, behind XDP: the packet that brings a SYN cookie of ours back becomes its listener's connection, with
 * the options that the cookie says, as if the kernel had seen the SYN. Linux 6.9. On a balancer XDP has judged it already
 * and dropped what is no answer to a cookie; here it is checked again, because nothing that everybody's drivers
 * keep can go with a packet from there to here. On a backend, where the agent has taken the tunnel off, it is judged
 * here only.
 */
#include <linux/pkt_cls.h>

#include "bpf/maps_common.h"
#include "bpf/syn_cookie.h"

/* Whole only in the kernel; libbpf compares the kinds of types, so a mere declaration is not enough. */
struct sock {
	u8 opaque;
};

/* As the kernel has it; bytes that it does not know have to be 0. */
struct bpf_tcp_req_attrs {
	u32 rcv_tsval, rcv_tsecr;
	u16 mss;
	u8 rcv_wscale, snd_wscale;
	u8 ecn_ok, wscale_ok, sack_ok, tstamp_ok, usec_ts_ok;
	u8 reserved[3];
};

extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *skb, struct sock *sk,
				   struct bpf_tcp_req_attrs *attrs, int attrs__sz) __ksym;

#define L3	((u32)sizeof(struct ethhdr))
#define LISTENS 10 /* BPF_TCP_LISTEN */
#define WAITS	6 /* BPF_TCP_TIME_WAIT */

/* Of the TCP flags SYN, RST and ACK, ACK alone. */
INLINE bool is_ack(const void *th)
{
	return (((const u8 *)th)[13] & 0x16) == 0x10;
}

INLINE void take_options(struct __sk_buff *skb, u32 at, u32 len, struct options *o)
{
	u8 b[OPTIONS_ROOM] __attribute__((aligned(8))) = {};

	len--;
	asm volatile("" : "+r"(len));
	if (len >= OPTIONS_MAX)
		return;
	len++;
	if (!bpf_skb_load_bytes(skb, at, b, len))
		read_options(b, len, o);
}

/* As nearly all senders place them: padding, and timestamps alone. False: look for them. */
INLINE bool take_stamps(const void *options, u32 len, const void *end, struct options *o)
{
	const u32a *w = options;

	if (len != 12 || (void *)(w + 3) > end ||
	    w[0] != hg_be32(TCPOPT_NOP << 24 | TCPOPT_NOP << 16 | TCPOPT_STAMP << 8 | 10))
		return false;
	o->value = __builtin_bswap32(w[1]);
	o->echo = __builtin_bswap32(w[2]);
	o->has_stamp = true;
	return true;
}

INLINE struct bpf_tcp_req_attrs attrs_of(const struct hg_syn_control *c, const struct options *o,
					 u32 cookie, bool v6)
{
	struct bpf_tcp_req_attrs a = { .mss = mss_value(cookie, v6) };
	u32 wscale = o->echo & 15;

	if (!o->has_stamp)
		return a;
	a.tstamp_ok = 1;
	a.rcv_tsval = o->value;
	a.rcv_tsecr = o->echo;
	a.sack_ok = o->echo >> 4 & 1;
	a.ecn_ok = o->echo >> 5 & 1;
	if (wscale != HG_SYN_NO_WSCALE) {
		a.wscale_ok = 1;
		a.snd_wscale = wscale;
		a.rcv_wscale = c->rcv_wscale;
	}
	return a;
}

/* Answers to cookies may come from now on, and for how long. */
INLINE void expect_more(struct hg_syn_control *c)
{
	u64 until = bpf_jiffies64() + c->valid;

	if (READ_ONCE(c->check_until) + c->tick < until)
		*(volatile u64 *)&c->check_until = until;
}

/*
 * The connection to whoever listens; of a packet that an existing connection has, nothing is done. But in TIME_WAIT it is the
 * client's next one from the same port: the kernel would answer for the one before, and begin to wait anew. Dropped, it comes again.
 */
INLINE int hand_over(struct __sk_buff *skb, struct hg_syn_control *c, struct bpf_sock_tuple *t,
		     u32 len, struct bpf_tcp_req_attrs *a)
{
	struct bpf_sock *sk = bpf_skc_lookup_tcp(skb, t, len, BPF_F_CURRENT_NETNS, 0);
	int action = TC_ACT_UNSPEC;
	struct sock *listener;

	if (!sk)
		return action;
	if (sk->state == LISTENS) {
		listener = (struct sock *)bpf_skc_to_tcp_sock(sk);
		/* Dropped where the kernel does not take it: the listener would answer with a reset. */
		if (!listener || bpf_sk_assign_tcp_reqsk(skb, listener, a, sizeof(*a)))
			action = TC_ACT_SHOT;
	} else if (sk->state == WAITS && c->flags & HG_SYN_AGENT) {
		action = TC_ACT_SHOT;
	}
	if (action == TC_ACT_SHOT)
		count_event(HG_EVENT_COOKIE_LOST);
	else if (c->flags & HG_SYN_AGENT && sk->state == LISTENS)
		count_event(HG_EVENT_COOKIE_TAKEN);
	bpf_sk_release(sk);
	if (c->flags & HG_SYN_AGENT)
		expect_more(c);
	return action;
}

/* The kernel's own cookie brings it: its queue was full while no balancer sent cookies. */
INLINE bool is_kernels_cookie(void *l3, struct tcphdr *th, bool v6)
{
	return v6 ? !bpf_tcp_raw_check_syncookie_ipv6(l3, th)
		  : !bpf_tcp_raw_check_syncookie_ipv4(l3, th);
}

/*
 * Of no cookie of ours. While cookies come, what a listener would answer with a reset is dropped: a flood's, or of a
 * connection whose first packet was lost or is behind, and which the reset would end.
 */
INLINE int judge(struct __sk_buff *skb, const struct hg_syn_control *c, struct bpf_sock_tuple *t,
		 u32 len, void *l3, struct tcphdr *th, bool v6)
{
	int action = TC_ACT_UNSPEC;
	struct bpf_sock *sk;

	if (likely(!(c->flags & HG_SYN_AGENT) || bpf_jiffies64() >= READ_ONCE(c->check_until)))
		return action;
	sk = bpf_skc_lookup_tcp(skb, t, len, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return action;
	if (sk->state == LISTENS && !is_kernels_cookie(l3, th, v6)) {
		count_event(HG_EVENT_COOKIE_STRAY);
		action = TC_ACT_SHOT;
	}
	bpf_sk_release(sk);
	return action;
}

INLINE u32 read_tuple(struct bpf_sock_tuple *t, const void *l3, u32 ports, bool v6)
{
	if (v6) {
		__builtin_memcpy(t->ipv6.saddr, l3 + 8, 16);
		__builtin_memcpy(t->ipv6.daddr, l3 + 24, 16);
		t->ipv6.sport = (__be16)ports;
		t->ipv6.dport = ports >> 16;
		return sizeof(t->ipv6);
	}
	t->ipv4.saddr = *(u32a *)(l3 + 12);
	t->ipv4.daddr = *(u32a *)(l3 + 16);
	t->ipv4.sport = (__be16)ports;
	t->ipv4.dport = ports >> 16;
	return sizeof(t->ipv4);
}

INLINE int take_tcp(struct __sk_buff *skb, struct hg_syn_control *c, u32 l4_off, bool v6)
{
	void *l3 = (void *)(long)skb->data + L3, *end = (void *)(long)skb->data_end;
	u32 head = v6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr), cookie, len, tuple_len;
	struct tcphdr *th = l3 + l4_off;
	struct bpf_tcp_req_attrs a;
	struct bpf_sock_tuple t;
	struct cookie_of of;
	struct options o = {};

	if ((void *)(th + 1) > end || l3 + head > end || !is_ack(th))
		return TC_ACT_UNSPEC;
	cookie = __builtin_bswap32(th->ack_seq) - 1;
	of.ports = *(u32a *)th;
	of.isn = __builtin_bswap32(th->seq) - 1;
	len = (((u8 *)th)[12] >> 4) * 4 - sizeof(*th);
	if (len && !take_stamps(th + 1, len, end, &o))
		take_options(skb, L3 + l4_off + sizeof(*th), len, &o);
	of.options = cookie_options(o.has_stamp, o.echo);
	tuple_len = read_tuple(&t, l3, of.ports, v6);
	if (likely(!cookie_is_ours(c, cookie, l3, v6, &of)))
		return judge(skb, c, &t, tuple_len, l3, th, v6);
	a = attrs_of(c, &o, cookie, v6);
	return hand_over(skb, c, &t, tuple_len, &a);
}

/* Headers that the driver left in a page come to where they can be read. */
INLINE bool pull(struct __sk_buff *skb, u32 len)
{
	return (void *)(long)skb->data + len <= (void *)(long)skb->data_end ||
	       !bpf_skb_pull_data(skb, len);
}

INLINE int take_ipv4(struct __sk_buff *skb, struct hg_syn_control *c)
{
	struct iphdr *ip;
	u32 hlen;

	if (!pull(skb, L3 + sizeof(struct iphdr) + sizeof(struct tcphdr)))
		return TC_ACT_UNSPEC;
	ip = (void *)(long)skb->data + L3;
	if ((void *)(ip + 1) > (void *)(long)skb->data_end || ip->protocol != IPPROTO_TCP ||
	    ip->frag_off & hg_be16(0x3fff))
		return TC_ACT_UNSPEC;
	hlen = (*(u8 *)ip & 0x0f) * 4;
	if (hlen < sizeof(*ip) || !pull(skb, L3 + hlen + sizeof(struct tcphdr)))
		return TC_ACT_UNSPEC;
	return take_tcp(skb, c, hlen, false);
}

INLINE int take_ipv6(struct __sk_buff *skb, struct hg_syn_control *c)
{
	struct ipv6hdr *ip;

	if (!pull(skb, L3 + sizeof(struct ipv6hdr) + sizeof(struct tcphdr)))
		return TC_ACT_UNSPEC;
	ip = (void *)(long)skb->data + L3;
	if ((void *)(ip + 1) > (void *)(long)skb->data_end || ip->nexthdr != IPPROTO_TCP)
		return TC_ACT_UNSPEC;
	return take_tcp(skb, c, sizeof(*ip), true);
}

SEC("tc")
int syn_take(struct __sk_buff *skb)
{
	u32 zero = 0;
	struct hg_syn_control *c = bpf_map_lookup_elem(&syn_control, &zero);

	if (!c || (!(c->flags & HG_SYN_FLEET) && bpf_jiffies64() >= READ_ONCE(c->check_until)))
		return TC_ACT_UNSPEC;
	syn_keys(c);
	if (skb->protocol == hg_be16(ETH_P_IP))
		return take_ipv4(skb, c);
	if (skb->protocol == hg_be16(ETH_P_IPV6))
		return take_ipv6(skb, c);
	return TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
