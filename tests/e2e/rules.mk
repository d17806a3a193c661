# SPDX-License-Identifier: BSD-2-Clause
# hold keeps thousands of connections open for the end-to-end tests, and proves that they are whole.

$(BUILD)/e2e/hold: tests/e2e/hold.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $<

# synflood is the hostile crowd: SYNs and ACKs from forged addresses.
$(BUILD)/e2e/synflood: tests/e2e/synflood.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $<

binaries: $(BUILD)/e2e/hold $(BUILD)/e2e/synflood

.PHONY: test-20k
test-20k: build ## 20,000 connections that outlive every change of the kernel tier (root)
	$(Q)HG_BUILD=$(abspath $(BUILD)) HG_CONNECTIONS=20000 $(PYTEST) -q tests/e2e/test_l4_20k.py
