/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looking at packets: what a capture gets to see, when it is off, on, filtered, left alone by its tool;
 * and what the recorder of drops knows.
 * links:
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <bpf/libbpf.h>
#include <cmocka.h>

#include "packet/run.h"
#include "xdp_lb.skel.h"

#define VIP    "192.0.2.10"
#define VIP6   "2001:db8::10"
#define CLIENT "203.0.113.7"
#define SVC    5
#define SVC6   6
#define LOCAL  7
#define BE     3

static struct lb lb;
static struct ring_buffer *ring;

#define MAX_FRAMES 64
static struct {
	struct hg_frame head;
	uint8_t bytes[256];
} frames[MAX_FRAMES];
static unsigned n_frames;

static int on_frame(void *ctx, void *data, size_t size)
{
	const struct hg_frame *f = data;

	assert_true(size >= sizeof(*f) + f->cap_len);
	if (n_frames < MAX_FRAMES) {
		frames[n_frames].head = *f;
		memcpy(frames[n_frames].bytes, f + 1, f->cap_len < 256 ? f->cap_len : 256);
	}
	n_frames++;
	return 0;
}

/* Frames since the last call. */
static unsigned drain(void)
{
	n_frames = 0;
	assert_true(ring_buffer__consume(ring) >= 0);
	return n_frames;
}

static int setup(void **state)
{
	lb_load(&lb);
	ring = ring_buffer__new(bpf_map__fd(lb.skel->maps.capture_ring), on_frame, NULL, NULL);
	return ring ? 0 : -1;
}

static int teardown(void **state)
{
	ring_buffer__free(ring);
	lb_unload(&lb);
	return 0;
}

static int rows(void **state)
{
	static const uint16_t ids[] = { BE };

	lb_clear(&lb);
	lb_tokens(&lb, true);
	LB_BACKEND(&lb, .id = BE, .addr = "10.0.0.21", .src = "10.0.0.1");
	LB_SERVICE(&lb, .addr = VIP, .port = 80, .id = SVC, .slots = 13, .backends = ids, .n = 1);
	LB_SERVICE(&lb, .addr = VIP6, .port = 80, .id = SVC6, .slots = 13, .backends = ids, .n = 1);
	LB_SERVICE(&lb, .addr = VIP, .port = 443, .id = LOCAL, .mode = HG_MODE_LOCAL);
	(void)drain();
	return 0;
}

/* Everything of every service, whole. */
static void capture_on(uint32_t flags)
{
	struct hg_capture *c = lb.capture;

	c->chance = UINT32_MAX;
	c->snaplen = HG_SNAPLEN_MAX;
	c->flags = flags;
	c->drops = UINT32_MAX;
	c->all_backends = 1;
	memset(c->services, 0xff, sizeof(c->services));
	c->renewed++;
	lb.control->capture = 1;
}

static void packet(struct pktbuf *p, uint16_t port, uint8_t ttl)
{
	PKT(p, ETH(), IP4(.src = CLIENT, .dst = VIP, .ttl = ttl),
	    TCP(.sport = 40000, .dport = port, .flags = TCP_ACK), DATA(100));
}

static void run(const struct pktbuf *in, struct pktbuf *out, int action)
{
	assert_int_equal(prog_run(lb.prog, in, out), action);
}

static void test_off_is_silent(void **state)
{
	struct pktbuf in, out;

	capture_on(HG_CAPTURE_IN | HG_CAPTURE_OUT);
	lb.control->capture = 0;
	packet(&in, 80, 64);
	run(&in, &out, XDP_TX);
	assert_int_equal(drain(), 0);
}

static void test_before_and_after(void **state)
{
	struct pktbuf in, out;

	capture_on(HG_CAPTURE_IN | HG_CAPTURE_OUT);
	packet(&in, 80, 64);
	run(&in, &out, XDP_TX);
	assert_int_equal(drain(), 2);
	assert_int_equal(frames[0].head.point, HG_CAPTURE_IN);
	assert_int_equal(frames[0].head.frame_len, in.len);
	assert_int_equal(frames[0].head.cap_len, in.len);
	assert_memory_equal(frames[0].bytes, in.data, in.len);
	assert_int_equal(frames[0].head.verdict, HG_VERDICT_COUNT);
	assert_int_equal(frames[1].head.point, HG_CAPTURE_OUT);
	assert_int_equal(frames[1].head.frame_len, in.len + 20);
	assert_memory_equal(frames[1].bytes, out.data, out.len);
	assert_int_equal(frames[1].head.verdict, HG_VERDICT_TX);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(frames[i].head.service, SVC);
		assert_int_equal(frames[i].head.backend, BE);
		assert_int_equal(frames[i].head.ifindex, IFINDEX_IN);
		assert_int_equal(frames[i].head.drop, HG_DROP_NONE);
	}
	assert_int_equal(frames[0].head.id, frames[1].head.id);
	assert_true(frames[0].head.time_ns <= frames[1].head.time_ns && frames[0].head.time_ns);
}

static void test_one_side_only(void **state)
{
	struct pktbuf in, out;

	packet(&in, 80, 64);
	capture_on(HG_CAPTURE_OUT);
	run(&in, &out, XDP_TX);
	assert_int_equal(drain(), 1);
	assert_int_equal(frames[0].head.frame_len, in.len + 20);
	capture_on(HG_CAPTURE_IN);
	run(&in, &out, XDP_TX);
	assert_int_equal(drain(), 1);
	assert_int_equal(frames[0].head.frame_len, in.len);
}

static void test_snaplen(void **state)
{
	struct pktbuf in, out;

	packet(&in, 80, 64);
	capture_on(HG_CAPTURE_IN);
	lb.capture->snaplen = 60;
	run(&in, &out, XDP_TX);
	assert_int_equal(drain(), 1);
	assert_int_equal(frames[0].head.cap_len, 60);
	assert_int_equal(frames[0].head.frame_len, in.len);
	assert_memory_equal(frames[0].bytes, in.data, 60);
}

static void test_services_and_backends(void **state)
{
	struct pktbuf in, in6, out;

	packet(&in, 80, 64);
	PKT(&in6, ETH(), IP6(.src = "2001:db8:c::7", .dst = VIP6), TCP(.sport = 1, .dport = 80));
	capture_on(HG_CAPTURE_IN);
	memset(lb.capture->services, 0, sizeof(lb.capture->services));
	lb.capture->services[0] = 1ull << SVC6;
	run(&in, &out, XDP_TX);
	assert_int_equal(drain(), 0);
	run(&in6, &out, XDP_TX);
	assert_int_equal(drain(), 1);
	assert_int_equal(frames[0].head.service, SVC6);
	lb.capture->all_backends = 0;
	run(&in6, &out, XDP_TX);
	assert_int_equal(drain(), 0);
	lb.capture->backends[0] = 1ull << BE;
	run(&in6, &out, XDP_TX);
	assert_int_equal(drain(), 1);
}

static void test_local_services_and_strangers(void **state)
{
	struct pktbuf in, out;

	capture_on(HG_CAPTURE_IN | HG_CAPTURE_OUT);
	packet(&in, 443, 64);
	run(&in, &out, XDP_PASS);
	assert_int_equal(drain(), 1);
	assert_int_equal(frames[0].head.verdict, HG_VERDICT_PASS_LOCAL);
	assert_int_equal(frames[0].head.backend, 0);
	packet(&in, 81, 64);
	run(&in, &out, XDP_PASS);
	assert_int_equal(drain(), 0);
}

/* With all packets captured, the drop is a second record of the same packet, with its reason. */
static void test_drop_has_its_reason(void **state)
{
	struct pktbuf in, out;

	packet(&in, 80, 1);
	capture_on(HG_CAPTURE_IN | HG_CAPTURE_OUT);
	run(&in, &out, XDP_DROP);
	assert_int_equal(drain(), 2);
	assert_int_equal(frames[0].head.id, frames[1].head.id);
	assert_int_equal(frames[1].head.verdict, HG_VERDICT_DROP);
	assert_int_equal(frames[1].head.drop, HG_DROP_TTL);
	assert_int_equal(frames[1].head.point, HG_CAPTURE_IN);
	assert_memory_equal(frames[1].bytes, in.data, in.len);
}

static void test_drops_only(void **state)
{
	struct pktbuf in, out;

	capture_on(HG_CAPTURE_DROPS);
	packet(&in, 80, 64);
	run(&in, &out, XDP_TX);
	assert_int_equal(drain(), 0);
	packet(&in, 80, 1);
	run(&in, &out, XDP_DROP);
	assert_int_equal(drain(), 1);
	assert_int_equal(frames[0].head.drop, HG_DROP_TTL);
	lb.capture->drops = 1u << HG_DROP_NO_BACKEND;
	run(&in, &out, XDP_DROP);
	assert_int_equal(drain(), 0);
	lb.backends[BE].flags = 0;
	lb.capture->drops |= 1u << HG_DROP_BAD_BACKEND;
	run(&in, &out, XDP_DROP);
	assert_int_equal(drain(), 1);
	assert_int_equal(frames[0].head.drop, HG_DROP_BAD_BACKEND);
	assert_int_equal(frames[0].head.backend, 0);
}

static void test_rate(void **state)
{
	struct pktbuf in, out;
	unsigned got;

	packet(&in, 80, 64);
	capture_on(HG_CAPTURE_IN);
	lb.capture->chance = UINT32_MAX / 8;
	for (unsigned i = 0; i < 2000; i++)
		run(&in, &out, XDP_TX);
	got = drain();
	/* 250 are expected; six standard deviations. */
	assert_in_range(got, 160, 340);
}

static void test_full_ring_is_counted(void **state)
{
	struct pktbuf in, out;
	unsigned n;

	PKT(&in, ETH(), IP4(.src = CLIENT, .dst = VIP), TCP(.dport = 80), DATA(1300));
	capture_on(HG_CAPTURE_IN);
	for (n = 0; n < 1000; n++)
		run(&in, &out, XDP_TX);
	assert_true(lb.capture->lost > 0);
	assert_int_equal(drain() + lb.capture->lost, 1000);
}

/* The tool has been killed: nothing stays switched on. */
static void test_a_lease_that_is_not_renewed_ends(void **state)
{
	struct pktbuf in, out;

	packet(&in, 80, 64);
	capture_on(HG_CAPTURE_IN);
	run(&in, &out, XDP_TX);
	assert_int_equal(drain(), 1);
	for (unsigned i = 0; i < 50 && lb.control->capture; i++) {
		usleep(100000);
		run(&in, &out, XDP_TX);
	}
	assert_int_equal(lb.control->capture, 0);
	(void)drain();
	run(&in, &out, XDP_TX);
	assert_int_equal(drain(), 0);
}

static unsigned events_read(struct hg_drop_event *last)
{
	unsigned n = 0;

	for (unsigned i = 0; i < lb.n_cpus * HG_DROP_EVENTS; i++) {
		if (!lb.drop_events[i].seq)
			continue;
		*last = lb.drop_events[i];
		n++;
	}
	return n;
}

static void test_recorder_knows_flow_and_reason(void **state)
{
	struct hg_drop_event e = { 0 };
	struct hg_flow_key want = { .sport = hg_be16(40000), .dport = hg_be16(80), .proto = 6 };
	struct pktbuf in, out;

	addr_of(want.src, CLIENT);
	addr_of(want.dst, VIP);
	packet(&in, 80, 64);
	run(&in, &out, XDP_TX);
	assert_int_equal(events_read(&e), 0);
	packet(&in, 80, 1);
	run(&in, &out, XDP_DROP);
	assert_int_equal(events_read(&e), 1);
	assert_int_equal(e.drop, HG_DROP_TTL);
	assert_int_equal(e.service, SVC);
	assert_int_equal(e.frame_len, in.len);
	assert_int_equal(e.ifindex, IFINDEX_IN);
	assert_memory_equal(&e.flow, &want, sizeof(want));
	assert_true(e.time_ns > 0);
}

static void test_recorder_is_bounded(void **state)
{
	struct hg_drop_event e = { 0 };
	struct pktbuf in, out;
	uint64_t written = 0, skipped = 0;

	packet(&in, 80, 1);
	for (unsigned i = 0; i < 1000; i++)
		run(&in, &out, XDP_DROP);
	for (unsigned cpu = 0; cpu < lb.n_cpus; cpu++) {
		written += lb.cpus[cpu].events_written;
		skipped += lb.cpus[cpu].events_skipped;
	}
	assert_int_equal(written + skipped, 1000);
	assert_true(skipped > 0);
	assert_int_equal(events_read(&e), written < HG_DROP_EVENTS ? written : events_read(&e));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_off_is_silent, rows),
		cmocka_unit_test_setup(test_before_and_after, rows),
		cmocka_unit_test_setup(test_one_side_only, rows),
		cmocka_unit_test_setup(test_snaplen, rows),
		cmocka_unit_test_setup(test_services_and_backends, rows),
		cmocka_unit_test_setup(test_local_services_and_strangers, rows),
		cmocka_unit_test_setup(test_drop_has_its_reason, rows),
		cmocka_unit_test_setup(test_drops_only, rows),
		cmocka_unit_test_setup(test_rate, rows),
		cmocka_unit_test_setup(test_full_ring_is_counted, rows),
		cmocka_unit_test_setup(test_a_lease_that_is_not_renewed_ends, rows),
		cmocka_unit_test_setup(test_recorder_knows_flow_and_reason, rows),
		cmocka_unit_test_setup(test_recorder_is_bounded, rows),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
