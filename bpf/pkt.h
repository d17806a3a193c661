/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * struct pkt: the parsed view of one packet and the verdict on it, carried through the stages. It
 * lives on the program's stack; every stage is inlined, so in the object it is mostly registers.
 */
#ifndef HG_BPF_PKT_H
#define HG_BPF_PKT_H

#include <linux/bpf.h>
#include <linux/icmpv6.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>

#include <headgate/backend.h>
#include <headgate/counters.h>
#include <headgate/flow.h>
#include <headgate/limits.h>
#include <headgate/service.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define INLINE	    static __always_inline
/*
 * A function of its own that the verifier looks at once, whatever callers do: external, and only numbers
 * and the context go in (a static one is walked through again for every state of every caller).
 */
#define GLOBAL __attribute__((noinline))

/* A field that userspace changes while packets flow: read it once. */
#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))

/* Packet bytes have no alignment to speak of; eBPF programs may access them unaligned. */
typedef u64 __attribute__((may_alias)) u64a;
typedef u32 __attribute__((may_alias)) u32a;
typedef u16 __attribute__((may_alias)) u16a;

/* ::ffff:0:0/96, third word of an IPv4 address. */
#define V4_MAPPED hg_be32(0xffff)

/* Both versions' common part; <linux/icmp.h> would want a libc of this target. */
struct icmp_head {
	u8 type, code;
	u16 sum;
	u32 rest; /* id and sequence, MTU, pointer */
};

#define ICMP_ECHOREPLY	   0
#define ICMP_DEST_UNREACH  3
#define ICMP_FRAG_NEEDED   4
#define ICMP_ECHO	   8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12

#define VLAN_TAG_LEN  4
#define MAX_VLAN_TAGS 2
#define NO_TAG	      (2 * ETH_ALEN) /* type_off of a frame without tags */

/* What is unusual about a packet: zero for nearly all of them, so one test covers everything. */
#define ODD_DEFECT   0x1fu /* enum hg_drop: why a service that is not local cannot take it */
#define ODD_FRAGMENT 0x20u /* any fragment, the first one too */
#define ODD_NO_PORTS 0x40u /* another protocol, a later fragment, or cut short before the ports */
#define ODD_LATER    0x80u /* fragment, not the first of its datagram */

/*
 * eBPF has ten registers: what can be read again from the packet or the maps is not kept here.
 */
struct pkt {
	struct xdp_md *ctx;
	void *l3; /* IP header, whole fixed part in the frame; invalid once the head has moved */
	const struct hg_control *control; /* of stage service; later stages need not look it up again */
	struct hg_service *svc; /* NULL: not ours */
	struct hg_backend *be; /* NULL: none chosen */
	u64 hash; /* of the flow, see hg_flow_hash() */
	u32 type_off; /* of the Ethernet type in front of the IP header: 12, 16 or 20 */
	u32 l3_len; /* from the IP header on, by its own length field, never more than the frame has */
	u32 l4_off; /* of the transport header from the IP header; 0: none found */
	u32 frag_id; /* with ODD_FRAGMENT, as it lies */
	__be16 sport, dport; /* zero with ODD_NO_PORTS */
	u16 alt; /* backend id of the second chance, 0: none */
	u16 fits; /* with HG_DROP_TOO_BIG: bytes at layer 3 that would */
	u16 known_be; /* backend id of the first fragment, 0: not known */
	u8 proto; /* of the transport */
	u8 odd;
	u32 tap; /* somebody looks, see capture.h */
	bool plain; /* a constant: the steady path, which shows nobody anything */
	bool syn; /* TCP SYN without ACK */
	bool is_judged; /* the guard and stage syn have let it pass already */
	u8 verdict; /* enum hg_verdict */
	u8 drop; /* enum hg_drop */
};

/* Of functions that look at some packets only and else leave them untouched; other values are XDP actions. */
#define NOT_HANDLED (-1)

/* Not a verdict: somebody looks, so the packet starts again on the path that can show it. */
#define VERDICT_AGAIN 255
/* Nor this: stage syn decides, which nobody has the stack for before. */
#define VERDICT_SYN 254

/* Verdict and end of the stages, in one expression. */
INLINE bool pkt_end(struct pkt *p, u8 verdict)
{
	p->verdict = verdict;
	return false;
}

INLINE bool pkt_drop(struct pkt *p, enum hg_drop reason)
{
	p->verdict = HG_VERDICT_DROP;
	p->drop = reason;
	return false;
}

#endif
