/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random packets through both programs, judged one by one (fuzz.h says for what). HG_PACKET_SEED and
 * HG_PACKET_MUTATIONS (packets per program) change the run; tests/fuzz/fuzz_packet.c looks for more with
 * libFuzzer.
 * links:
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "packet/fuzz.h"
#include "packet/gen.h"

static struct fuzz fuzz;

static int setup(void **state)
{
	fuzz_open(&fuzz);
	return 0;
}

static int teardown(void **state)
{
	fuzz_close(&fuzz);
	return 0;
}

static uint64_t env_number(const char *name, uint64_t otherwise)
{
	const char *s = getenv(name);

	return s && *s ? strtoull(s, NULL, 0) : otherwise;
}

/* Every packet has a state of its own that follows from seed and number: one that fails can be run alone. */
static void run(void (*generate)(struct pktbuf *, uint64_t *),
		const char *(*judge)(struct fuzz *, const struct pktbuf *, struct deltas *),
		struct hg_verdict_counters *sum)
{
	uint64_t seed = env_number("HG_PACKET_SEED", 1),
		 n = env_number("HG_PACKET_MUTATIONS", 100000);
	struct deltas d;
	struct pktbuf p;

	print_message("seed %llu, %llu packets\n", (unsigned long long)seed, (unsigned long long)n);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t state = seed << 32 ^ i;
		const char *wrong;

		generate(&p, &state);
		if (rnd(&state) % 3)
			gen_damage(&p, &state);
		wrong = judge(&fuzz, &p, &d);
		if (wrong)
			fail_msg("seed %llu, packet %llu: %s", (unsigned long long)seed,
				 (unsigned long long)i, wrong);
		for (size_t k = 0; k < sizeof(*sum) / sizeof(uint64_t); k++)
			((uint64_t *)sum)[k] += ((const uint64_t *)&d.all)[k];
	}
}

/* The run must have been one: everything that can happen has happened. */
static void test_balancer(void **state)
{
	/*
	 * The last of each: the table judged here has no NAT (test_nat.c), no guard (test_guard.c) and no SYN
	 * cookies (test_syn.c), whose verdicts depend on packets before.
	 */
	static const enum hg_drop never[] = { HG_DROP_NONE,	    HG_DROP_NO_HEADROOM,
					      HG_DROP_INTERNAL,	    HG_DROP_NAT_UNKNOWN,
					      HG_DROP_NAT_FULL,	    HG_DROP_MAXCONN,
					      HG_DROP_DENIED,	    HG_DROP_SOURCE_PACKETS,
					      HG_DROP_SOURCE_SYNS,  HG_DROP_SOURCE_CONNS,
					      HG_DROP_SERVICE_SYNS, HG_DROP_NOT_ALLOWED,
					      HG_DROP_DENIED_RESET, HG_DROP_SYN_COOKIE };
	static const enum hg_event agents[] = { HG_EVENT_SECOND_CHANCE, HG_EVENT_SECOND_KNOWN,
						HG_EVENT_FLOW_FULL,	HG_EVENT_NAT_NEW,
						HG_EVENT_NAT_EARLY,	HG_EVENT_LIVE_FULL,
						HG_EVENT_RESET_SENT,	HG_EVENT_COOKIE_LOST,
						HG_EVENT_COOKIE_TAKEN,	HG_EVENT_COOKIE_STRAY };
	struct hg_verdict_counters sum = { 0 };

	run(gen_client_packet, fuzz_balancer, &sum);
	for (unsigned i = 0; i < HG_VERDICT_COUNT; i++)
		if (i != HG_VERDICT_DECAP && sum.verdict[i] < 20)
			fail_msg("verdict %u was given %llu times", i,
				 (unsigned long long)sum.verdict[i]);
	for (unsigned i = 0; i < HG_DROP_COUNT; i++) {
		bool can = true;

		for (unsigned k = 0; k < sizeof(never) / sizeof(never[0]); k++)
			can &= i != never[k];
		if (can && !sum.drop[i])
			fail_msg("drop reason %u was never given", i);
	}
	for (unsigned i = 0; i < HG_EVENT_COUNT; i++) {
		bool can = true;

		for (unsigned k = 0; k < sizeof(agents) / sizeof(agents[0]); k++)
			can &= i != agents[k];
		if (can && !sum.event[i])
			fail_msg("event %u has never happened", i);
	}
}

static void test_agent(void **state)
{
	struct hg_verdict_counters sum = { 0 };

	run(gen_tunnel_packet, fuzz_agent, &sum);
	assert_true(sum.verdict[HG_VERDICT_PASS_NOT_IP] > 20);
	assert_true(sum.verdict[HG_VERDICT_PASS_NOT_OURS] > 20);
	assert_true(sum.verdict[HG_VERDICT_DECAP] > 20);
	assert_true(sum.verdict[HG_VERDICT_TX] > 20);
	assert_true(sum.drop[HG_DROP_BAD_HEADER] > 20);
	assert_true(sum.event[HG_EVENT_SECOND_CHANCE] > 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_balancer),
		cmocka_unit_test(test_agent),
	};

	return cmocka_run_group_tests_name("fuzz", tests, setup, teardown);
}
