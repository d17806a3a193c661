# SPDX-License-Identifier: BSD-2-Clause
# bench_xdp and the BPF object with its wrappers around the balancer.

$(BUILD)/bench/xdp_bench.bpf.o: tests/bench/xdp_bench.bpf.c
	$(call say,CLANG,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_CFLAGS) -Itests -MMD -MP -MT $@ -MF $@.d -c $< -o $@.tmp && $(LLVM_STRIP) -g $@.tmp && mv $@.tmp $@

$(BUILD)/gen/xdp_bench.skel.h: $(BUILD)/bench/xdp_bench.bpf.o
	$(call say,SKEL,$@)
	$(Q)mkdir -p $(@D) && $(BPFTOOL) gen skeleton $< name xdp_bench_bpf > $@

$(BUILD)/bench/bench_xdp $(BUILD)/bench/bench_veth: $(BUILD)/bench/%: tests/bench/%.c tests/bench/bench_lb.c \
		$(BUILD)/gen/xdp_bench.skel.h
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) -Itests $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< tests/bench/bench_lb.c -lbpf -lm

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

.PHONY: bench-reload
bench-reload: build ## three minutes: reloads, upgrades and deaths under load, large configurations, against their goals (root)
	$(Q)mkdir -p $(BUILD)/bench
	$(Q)HG_BUILD=$(abspath $(BUILD)) /usr/bin/python3 tests/bench/operation.py --json $(BUILD)/bench/operation.json

.PHONY: bench-bins
bench-bins: $(BUILD)/bench/relay $(BUILD)/bench/load $(BUILD)/bench/bench_xdp $(BUILD)/bench/bench_veth $(BUILD)/bench/bench_maglev

LOOKUP_LIBS := lb net conf expr http ev base
$(BUILD)/bench/bench_lookup: tests/bench/bench_lookup.c $(LOOKUP_LIBS:%=$(BUILD)/lib/%.a)
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< \
		-Wl,--start-group $(LOOKUP_LIBS:%=$(BUILD)/lib/%.a) -Wl,--end-group \
		$(LIBS_net) $(LIBS_expr) $(LIBS_http) -lm

.PHONY: bench-lookup
bench-lookup: $(BUILD)/bench/bench_lookup ## ns per update of a stick table and per lookup in a map, by size
	$(Q)$(BUILD)/bench/bench_lookup

# The control thread's walk over remembered flows.
$(BUILD)/bench/bench_walk: tests/bench/bench_walk.c $(BUILD)/lib/dp.a $(BUILD)/lib/lb.a $(BUILD)/lib/base.a
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< \
		-Wl,--start-group $(foreach m,dp lb net conf expr http ev base,$(BUILD)/lib/$(m).a) -Wl,--end-group \
		$(LIBS_dp) $(LIBS_net) $(LIBS_expr) $(LIBS_http)

.PHONY: bench-walk
bench-walk: $(BUILD)/bench/bench_walk ## the walk over 4 million remembered flows
	$(Q)$(BUILD)/bench/bench_walk

$(BUILD)/bench/bench_maglev: tests/bench/bench_maglev.c $(BUILD)/lib/lb.a $(BUILD)/lib/base.a
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $^

.PHONY: bench-l4
bench-l4: build ## the kernel tier: X of every path, packets over veth, Maglev tables, 10,000 services (root)
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD) bench-bins
	$(Q)HG_BUILD=$(abspath $(BUILD)) /usr/bin/python3 tests/bench/l4.py

.PHONY: bench-l7
bench-l7: build ## rules, two workers, 1,000 connections, latency at half load, against haproxy with the same file; L7_CASES="rules many"
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD) HG_NO_DEPS=1 $(BUILD)/bench/load
	$(Q)HG_BUILD=$(abspath $(BUILD)) /usr/bin/python3 tests/bench/l7.py $(L7_CASES)

# TLS against others.

$(BUILD)/bench/tls_load $(BUILD)/bench/make_certs: $(BUILD)/bench/%: tests/bench/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $< -lssl -lcrypto

.PHONY: bench-tls
bench-tls: build ## TLS and HTTP/2 against haproxy and nginx by processor time; TLS_CASES="full h2"
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD) HG_NO_DEPS=1 $(BUILD)/bench/tls_load $(BUILD)/bench/make_certs
	$(Q)HG_BUILD=$(abspath $(BUILD)) /usr/bin/python3 tests/bench/tls.py $(TLS_CASES)

# A flood of forged SYNs.

.PHONY: bench-flood
bench-flood: build $(BUILD)/e2e/synflood ## what clients have of a flood of forged SYNs, with cookies and without (root)
	$(Q)HG_BUILD=$(abspath $(BUILD)) /usr/bin/python3 tests/bench/flood.py

# Which worker a connection goes to.

$(BUILD)/bench/connect: tests/bench/connect.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -MMD -MP -MF $@.d -o $@ $<

.PHONY: bench-steer
bench-steer: build $(BUILD)/bench/connect ## processor time of a new connection with sk-steer off, cpu and least (root)
	$(Q)HG_BUILD=$(abspath $(BUILD)) /usr/bin/python3 tests/bench/steer.py
