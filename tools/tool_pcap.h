/* SPDX-License-Identifier: BSD-2-Clause */
/* Writes packet captures: pcapng with comments and directions, or classic pcap with nanoseconds. */
#ifndef TOOLS_PCAP_H
#define TOOLS_PCAP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define PCAP_MAX_INTERFACES 64

struct pcap_writer {
	FILE *out;
	bool is_ng;
	uint32_t snaplen;
	uint32_t ifindex[PCAP_MAX_INTERFACES]; /* pcapng: interfaces described so far */
	unsigned n_interfaces;
};

struct pcap_packet {
	uint64_t time_ns; /* of the Unix clock */
	uint32_t ifindex;
	uint32_t len, cap_len;
	const uint8_t *bytes;
	bool is_out;
	uint32_t id;
	const char *comment; /* NULL or empty: none */
};

/* Headers. 0 or -errno, as below. */
int pcap_begin(struct pcap_writer *w, FILE *out, bool is_ng, uint32_t snaplen);
int pcap_write(struct pcap_writer *w, const struct pcap_packet *p);

#endif
