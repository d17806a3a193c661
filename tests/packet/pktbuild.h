/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets from a list of layers, outermost first, with lengths, protocol numbers and checksums filled
 * in from what follows unless the layer says otherwise:
 *
 *	PKT(&p, ETH(.dst = EDGE_MAC), VLAN(.tci = 100), IP4(.src = "203.0.113.7", .dst = "192.0.2.1"),
 *	    TCP(.sport = 40000, .dport = 80, .flags = TCP_SYN), DATA(64));
 *
 * Shared by all packet tests. Checksums are computed byte by byte, on purpose not as the programs do.
 */
#ifndef PACKET_PKTBUILD_H
#define PACKET_PKTBUILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PKT_MAX 9100 /* a jumbo frame; beyond 3,520 bytes test_run hands it over in several pages */

struct pktbuf {
	size_t len;
	uint8_t data[PKT_MAX];
};

enum layer_type {
	L_END,
	L_ETH,
	L_VLAN,
	L_IP4,
	L_IP6,
	L_EXT,
	L_TCP,
	L_UDP,
	L_ICMP,
	L_ICMP6,
	L_GUE,
	L_DATA,
	L_RAW
};

enum tcp_flags {
	TCP_FIN = 1,
	TCP_SYN = 2,
	TCP_RST = 4,
	TCP_PSH = 8,
	TCP_ACK = 16
};

struct layer {
	enum layer_type type;
	const char *src, *dst; /* addresses or MACs as text */
	uint16_t sport, dport;
	uint16_t tci;
	uint8_t flags; /* TCP */
	uint32_t seq, ack; /* TCP; seq 0: 0x11112222 */
	uint16_t window; /* TCP; 0: 0x4000 */
	const void *options; /* TCP: 4 * opt_words bytes; NULL: NOPs */
	uint8_t ttl, tos; /* ttl 0: 64 */
	uint8_t opt_words; /* IPv4 or TCP options, 4 bytes each, NOPs; GUE optional words */
	uint8_t ext; /* extension header: its number (0, 43, 44, 51, 60) */
	uint8_t gue_variant;
	const char *gue_alt; /* alternative backend in the private data: sets opt_words */
	uint8_t gue_hops;
	uint8_t icmp_type, icmp_code;
	uint32_t icmp_rest; /* second word of ICMP */
	uint16_t frag; /* IPv4: flags and offset as in the header; fragment header: likewise */
	uint32_t id; /* IPv4 id, fragment id, IPv6 flow label */
	uint16_t ethertype; /* 0: from the next layer */
	int proto; /* 0: from the next layer; -1: really 0 */
	int length; /* 0: right; otherwise this value in the length field */
	int ihl; /* 0: right */
	int version; /* 0: right */
	bool bad_csum; /* one off */
	bool no_csum; /* UDP: zero */
	size_t size; /* DATA, RAW: bytes */
	const void *raw; /* RAW */
};

#define ETH(...)	 { .type = L_ETH, __VA_ARGS__ }
#define VLAN(...)	 { .type = L_VLAN, __VA_ARGS__ }
#define IP4(...)	 { .type = L_IP4, __VA_ARGS__ }
#define IP6(...)	 { .type = L_IP6, __VA_ARGS__ }
#define EXT(number, ...) { .type = L_EXT, .ext = (number), __VA_ARGS__ }
#define TCP(...)	 { .type = L_TCP, __VA_ARGS__ }
#define UDP(...)	 { .type = L_UDP, __VA_ARGS__ }
#define ICMP(...)	 { .type = L_ICMP, __VA_ARGS__ }
#define GUE(...)	 { .type = L_GUE, __VA_ARGS__ }
#define ICMP6(...)	 { .type = L_ICMP6, __VA_ARGS__ }
#define DATA(n)		 { .type = L_DATA, .size = (n) }
/* Bytes as they are, of another packet for example. */
#define RAW(p, n) { .type = L_RAW, .raw = (p), .size = (n) }

/* Builds into `p`; a packet that does not fit or an address that does not parse aborts the test. */
void pkt_build(struct pktbuf *p, const struct layer *layers);
#define PKT(p, ...) pkt_build(p, (const struct layer[]){ __VA_ARGS__, { .type = L_END } })

/* Prints both packets with the differing bytes marked, 16 bytes a line. */
void pkt_diff(const uint8_t *want, size_t want_len, const uint8_t *got, size_t got_len);

/* One's complement sum over `len` bytes, complemented, host order; `seed` is a sum to start from. */
uint16_t pkt_checksum(const uint8_t *data, size_t len, uint32_t seed);

#endif
