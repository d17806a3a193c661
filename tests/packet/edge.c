/* SPDX-License-Identifier: BSD-2-Clause */
#include "packet/edge.h"

#include <stdio.h>

struct lb lb;
const uint16_t edge_ids[5] = { 1, 2, 3, 4, 5 };

int edge_setup(void **state)
{
	lb_load(&lb);
	return 0;
}

int edge_teardown(void **state)
{
	lb_unload(&lb);
	return 0;
}

const char *edge_backend(unsigned id)
{
	static char text[16];

	snprintf(text, sizeof(text), "10.0.0.%u", 20 + id);
	return text;
}

void edge_five_backends(void)
{
	lb_clear(&lb);
	for (uint32_t id = 1; id <= 5; id++)
		LB_BACKEND(&lb, .id = id, .addr = edge_backend(id), .src = EDGE4);
}

uint64_t edge_hash(const char *src, const char *dst, uint16_t sport, uint16_t dport, uint8_t proto)
{
	struct hg_flow_key k = { .sport = hg_be16(sport), .dport = hg_be16(dport), .proto = proto };

	addr_of(k.src, src);
	addr_of(k.dst, dst);
	return hg_flow_hash(&k, LB_SEED);
}
