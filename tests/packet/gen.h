/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Packets for fuzzing: valid ones of every shape the programs know, towards the addresses of the fuzzed
 * set-up (fuzz.h), and small damage done to them where parsers look. All from one random state, so a
 * seed is a test case.
 */
#ifndef PACKET_GEN_H
#define PACKET_GEN_H

#include <stdint.h>

#include "packet/pktbuild.h"

/* From a client to a service, or near it: TCP, UDP, ICMP, fragments, other protocols, tags, options. */
void gen_client_packet(struct pktbuf *p, uint64_t *state);
/* A tunnel towards an agent, or near it, with such a packet inside. */
void gen_tunnel_packet(struct pktbuf *p, uint64_t *state);
/* One to four changes: fields, bits, cuts, padding, tags; half the time lengths and sums are put right again. */
void gen_damage(struct pktbuf *p, uint64_t *state);

#endif
