/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a frame says, read by a parser of its own: the programs' must agree with it, so it shares nothing
 * with theirs but the RFCs.
 */
#ifndef PACKET_JUDGE_H
#define PACKET_JUDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "packet/pktbuild.h"

struct view {
	bool is_ip; /* by its Ethernet type, behind at most two tags */
	bool is_whole; /* the fixed IP header is in the frame */
	bool v6;
	bool has_defect; /* lengths that contradict each other or the frame, or headers cut short */
	bool is_deep; /* more extension headers than a balancer needs to follow */
	bool is_fragment, is_later;
	bool has_ports;
	bool is_syn;
	size_t type_off, l3, l4; /* l4 0: none */
	size_t l3_len; /* by the header, at most what the frame has */
	uint8_t proto, ttl, tos;
	uint8_t src[16], dst[16]; /* IPv4 mapped */
	uint16_t sport, dport;
};

void view_read(struct view *v, const struct pktbuf *p);
/* The same for an IP header at `l3` in the frame. */
void view_read_ip(struct view *v, const struct pktbuf *p, size_t l3, bool v6);

static inline uint16_t get16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

/* One's complement sums are equal: 0 and 0xffff are the same number. */
bool sums_agree(const uint8_t *a, const uint8_t *b, size_t len);

#endif
