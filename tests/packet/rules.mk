# SPDX-License-Identifier: BSD-2-Clause
# The long form of tests that the others do in small.

.PHONY: test-counts
test-counts: deps ## 100,000 connections with random ends: all counts are the truth, and end at zero (root)
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD) SAN=$(SAN) $(BUILD)/packet/test_live $(BUILD)/packet/test_counts binaries
	$(Q)HG_LIVE_CONNS=100000 $(BUILD)/packet/test_live
	$(Q)HG_COUNT_CONNS=100000 $(BUILD)/packet/test_counts
	$(Q)HG_E2E_CONNS=20000 HG_BUILD=$(abspath $(BUILD)) $(PYTEST) -q tests/e2e/test_live_counts.py tests/e2e/test_l4_nat.py -k random_ends
