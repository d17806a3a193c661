# SPDX-License-Identifier: BSD-2-Clause
# Packet tests on other kernels, in an emulator.

$(BUILD)/kernels/verify: tests/kernels/verify.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< -lbpf

.PHONY: test-kernels kernel-bins
kernel-bins: packet-bins bpf $(BUILD)/kernels/verify

test-kernels: deps ## packet tests on Debian's kernel (6.1) in qemu, with the verifier's instruction counts
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD) SAN=$(SAN) kernel-bins
	$(Q)tests/kernels/run.sh $(abspath $(BUILD))
