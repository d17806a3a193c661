# SPDX-License-Identifier: BSD-2-Clause
# bench_xdp and the BPF object with its wrappers around the balancer.

$(BUILD)/bench/xdp_bench.bpf.o: tests/bench/xdp_bench.bpf.c
	$(call say,CLANG,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_CFLAGS) -MMD -MP -MT $@ -MF $@.d -c $< -o $@.tmp && $(LLVM_STRIP) -g $@.tmp && mv $@.tmp $@

$(BUILD)/gen/xdp_bench.skel.h: $(BUILD)/bench/xdp_bench.bpf.o
	$(call say,SKEL,$@)
	$(Q)mkdir -p $(@D) && $(BPFTOOL) gen skeleton $< name xdp_bench_bpf > $@

$(BUILD)/bench/bench_xdp: tests/bench/bench_xdp.c $(BUILD)/gen/xdp_bench.skel.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< -lbpf -lm

.PHONY: bench-xdp
bench-xdp: $(BUILD)/bench/bench_xdp ## X of the balancer against a bare XDP program (root)
	$(Q)$(BUILD)/bench/bench_xdp --json $(BUILD)/bench/xdp.json

$(BUILD)/bench/bench_h1: tests/bench/bench_h1.c $(BUILD)/lib/http.a $(BUILD)/lib/base.a
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $^

.PHONY: bench-h1
bench-h1: $(BUILD)/bench/bench_h1 ## ns to read and write HTTP/1 heads
	$(Q)$(BUILD)/bench/bench_h1

-include $(wildcard $(BUILD)/bench/*.d)

# TLS handshakes per second of net/ by itself.
$(BUILD)/bench/bench_tls: tests/bench/bench_tls.c $(BUILD)/lib/net.a $(BUILD)/lib/ev.a $(BUILD)/lib/base.a
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< \
		-Wl,--start-group $(BUILD)/lib/net.a $(BUILD)/lib/ev.a $(BUILD)/lib/base.a -Wl,--end-group $(LIBS_net)

$(BUILD)/bench/load: tests/bench/load.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $<

# The yardstick of the HTTP tier: copies bytes between two sockets, parses nothing.
$(BUILD)/bench/relay: tests/bench/relay.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $<

.PHONY: bench-bins
bench-bins: $(BUILD)/bench/relay $(BUILD)/bench/load $(BUILD)/bench/bench_xdp
