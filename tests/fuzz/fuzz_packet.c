/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sequences of packets through the real XDP programs, by BPF_PROG_TEST_RUN, judged as tests/packet/fuzz.h says.
 * The programs run in the kernel, where libFuzzer cannot see branches: what it is told instead is which
 * verdicts, reasons and events a packet caused, and for which service. Needs root.
 *
 * An input is up to eight packets: [which program:1][length:2, little endian][frame]. New ones come from the
 * generator of valid packets, changes from its damage as well as from libFuzzer.
 */
/* links: packet */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "packet/fuzz.h"
#include "packet/gen.h"

#define MAX_PACKETS 8
#define HEAD	    3
#define MIN_FRAME   14 /* of BPF_PROG_TEST_RUN */
#define FEATURES    4096

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);

/* libFuzzer takes bytes of this section as coverage. */
__attribute__((section("__libfuzzer_extra_counters"))) static uint8_t features[FEATURES];

static struct fuzz fuzz;

struct sequence {
	unsigned n;
	struct {
		bool to_agent;
		struct pktbuf frame;
	} packet[MAX_PACKETS];
};

/* Whatever the bytes are, they are a sequence; what is too short for a frame is left out. */
static void sequence_read(struct sequence *q, const uint8_t *data, size_t size)
{
	q->n = 0;
	while (size >= HEAD + MIN_FRAME && q->n < MAX_PACKETS) {
		size_t len = data[1] | (size_t)data[2] << 8;

		q->packet[q->n].to_agent = data[0] & 1;
		data += HEAD;
		size -= HEAD;
		if (len > size)
			len = size;
		if (len >= MIN_FRAME && len <= PKT_MAX) {
			memcpy(q->packet[q->n].frame.data, data, len);
			q->packet[q->n++].frame.len = len;
		}
		data += len;
		size -= len;
	}
}

static size_t sequence_write(const struct sequence *q, uint8_t *data, size_t max_size)
{
	size_t at = 0;

	for (unsigned i = 0; i < q->n; i++) {
		size_t len = q->packet[i].frame.len;

		if (at + HEAD + len > max_size)
			break;
		data[at] = q->packet[i].to_agent;
		data[at + 1] = (uint8_t)len;
		data[at + 2] = (uint8_t)(len >> 8);
		memcpy(data + at + HEAD, q->packet[i].frame.data, len);
		at += HEAD + len;
	}
	return at;
}

static void feature(unsigned kind, unsigned what, unsigned more)
{
	uint64_t h = hg_mix64(kind << 16 | what, more);

	features[h % FEATURES] = 1;
}

/* Each combination of what happened and to whom is something new to libFuzzer. */
static void show_features(const struct deltas *d, unsigned position)
{
	unsigned service = FUZZ_SERVICES, verdict = 0;

	for (unsigned i = 0; i < FUZZ_SERVICES; i++)
		if (d->svc[i].packets)
			service = i;
	for (unsigned i = 0; i < HG_VERDICT_COUNT; i++)
		if (d->all.verdict[i])
			verdict = i;
	feature(0, verdict, service << 8 | position);
	for (unsigned i = 0; i < HG_DROP_COUNT; i++)
		if (d->all.drop[i])
			feature(1, i, service);
	for (unsigned i = 0; i < HG_EVENT_COUNT; i++)
		if (d->all.event[i])
			feature(2, i, service << 8 | verdict);
	for (unsigned i = 0; i < FUZZ_BACKENDS; i++)
		if (d->be[i].packets)
			feature(3, i, service);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_open(&fuzz);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct sequence q;
	struct deltas d;

	sequence_read(&q, data, size);
	fuzz_forget(&fuzz);
	for (unsigned i = 0; i < q.n; i++) {
		const char *wrong = (q.packet[i].to_agent ? fuzz_agent : fuzz_balancer)(
			&fuzz, &q.packet[i].frame, &d);

		if (wrong)
			abort();
		show_features(&d, i);
	}
	return 0;
}

static void new_packet(struct sequence *q, unsigned i, uint64_t *state)
{
	bool to_agent = rnd(state) % 4 == 0;

	q->packet[i].to_agent = to_agent;
	(to_agent ? gen_tunnel_packet : gen_client_packet)(&q->packet[i].frame, state);
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed)
{
	static struct sequence q;
	uint64_t state = seed;
	struct pktbuf *p;
	unsigned i;

	sequence_read(&q, data, size);
	if (!q.n || (q.n < MAX_PACKETS && rnd(&state) % 4 == 0))
		new_packet(&q, q.n++, &state);
	i = (unsigned)(rnd(&state) % q.n);
	p = &q.packet[i].frame;
	switch (rnd(&state) % 6) {
	case 0:
		new_packet(&q, i, &state);
		break;
	case 1: /* once more: what was remembered is met again */
		q.packet[q.n < MAX_PACKETS ? q.n++ : 0] = q.packet[i];
		break;
	case 2:
		p->len = LLVMFuzzerMutate(p->data, p->len, 1600);
		if (p->len < MIN_FRAME)
			p->len = MIN_FRAME;
		break;
	default:
		gen_damage(p, &state);
	}
	return sequence_write(&q, data, max_size);
}
