# SPDX-License-Identifier: BSD-2-Clause
#
# Headgate's build. `make help` lists the targets; everything is built below $(BUILD).
# A variant is the same tree with other flags and its own directory:
#     make BUILD=build/asan SAN=address,undefined

BUILD   ?= build
SAN     ?=
V       ?= 0
PREFIX  ?= /usr
DESTDIR ?=

CC        ?= gcc
CLANG     ?= clang-19
LLVM_STRIP ?= llvm-strip-19
BPFTOOL   ?= $(firstword $(wildcard /usr/sbin/bpftool /usr/bin/bpftool) bpftool)
PYTEST    ?= /usr/bin/python3 -m pytest
ifeq ($(origin CC),default)
CC := gcc
endif

# First goal of a fresh machine: nothing but git and make is there, so these goals install the rest
# and start over in a second make that can see compilers and pkg-config.
VERSION := $(shell cat VERSION)

Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-8s %s\n' '$(1)' '$(2)')

# gcc says of each fence that ThreadSanitizer does not see it; ours stand in readers that throw away what they tore.
SANFLAGS := $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -fno-sanitize-recover=all) \
	    $(if $(filter thread,$(SAN)),-Wno-tsan)
OPT      ?= -O2
CPPFLAGS += -Iuserspace -Itools -Iinclude -I$(BUILD)/gen -D_GNU_SOURCE -DHG_VERSION='"$(VERSION)"'
CFLAGS   += -std=gnu11 $(OPT) -g -fno-strict-aliasing -Wall -Wextra -Werror -Wshadow -Wvla \
	    -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wno-unused-parameter \
	    -fstack-protector-strong -pthread $(SANFLAGS)
LDFLAGS  += -pthread $(SANFLAGS)
LIBS_net  := -lssl -lcrypto
LIBS_expr := -lpcre2-8 -lcrypt -lcrypto
LIBS_http := $(if $(wildcard userspace/http/h2.c),-lnghttp2) -lz
LIBS_dp   := -lxdp -lbpf -lmnl
LIBS_ctl  := -lcares -lcap-ng -lcrypt -lseccomp
LIBS_packet := -lbpf -lcmocka

MODULES := base ev http expr conf net lb dp proxy ctl
define module
SRC_$(1) := $$(wildcard userspace/$(1)/*.c)
OBJ_$(1) := $$(SRC_$(1):userspace/%.c=$(BUILD)/obj/%.o)
$(BUILD)/lib/$(1).a: $$(OBJ_$(1))
	$$(call say,AR,$$@)
	$(Q)mkdir -p $$(@D) && rm -f $$@ && ar rcs $$@ $$^
endef
$(foreach m,$(MODULES),$(eval $(call module,$(m))))

BPF_SRC  := $(wildcard bpf/*.bpf.c)
BPF_SKEL := $(BPF_SRC:bpf/%.bpf.c=$(BUILD)/gen/%.skel.h)

.DELETE_ON_ERROR:
.PHONY: all help deps lint unit packet e2e test test-asan test-tsan fuzz bench bench-quick demo \
	demo-shell clean install build bpf format check-format

all: build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

deps: ## install what is missing, from Debian's packages
	$(Q)tools/deps.sh

build: deps ## headgated, headgate and the BPF objects
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD) SAN=$(SAN) binaries

.PHONY: binaries
binaries: $(BUILD)/headgated $(BUILD)/headgate bpf

bpf: $(BPF_SRC:bpf/%.bpf.c=$(BUILD)/bpf/%.bpf.o)

# --- BPF -----------------------------------------------------------------------------------------

BPF_ARCH   := $(subst x86_64,x86,$(subst aarch64,arm64,$(shell uname -m)))
BPF_SYSINC := -idirafter /usr/include/$(shell uname -m)-linux-gnu
BPF_CFLAGS := -target bpf -mcpu=v3 -O2 -g -std=gnu11 -Wall -Wextra -Werror -Wno-unused-parameter \
	      -D__TARGET_ARCH_$(BPF_ARCH) -Iinclude -I. $(BPF_SYSINC)

$(BUILD)/bpf/%.bpf.o: bpf/%.bpf.c
	$(call say,CLANG,$@)
	$(Q)mkdir -p $(@D)
	$(Q)$(CLANG) $(BPF_CFLAGS) -MMD -MP -MF $@.d -MT $@ -c $< -o $@.tmp && $(LLVM_STRIP) -g $@.tmp && mv $@.tmp $@

$(BUILD)/gen/%.skel.h: $(BUILD)/bpf/%.bpf.o
	$(call say,SKEL,$@)
	$(Q)mkdir -p $(@D) && $(BPFTOOL) gen skeleton $< name $(subst -,_,$*)_bpf > $@

# --- userspace -----------------------------------------------------------------------------------

$(BUILD)/obj/%.o: userspace/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(BUILD)/obj/tools/%.o: tools/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

# The loader embeds the BPF objects, so it is the one module that waits for the skeletons.
$(OBJ_dp): | $(BPF_SKEL)

ALL_LIBS := $(MODULES:%=$(BUILD)/lib/%.a)

$(BUILD)/headgated: $(BUILD)/obj/main.o $(ALL_LIBS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $< -Wl,--start-group $(ALL_LIBS) -Wl,--end-group \
		$(LIBS_net) $(LIBS_expr) $(LIBS_http) $(LIBS_dp) $(LIBS_ctl) -lm

TOOL_SRC := $(wildcard tools/headgate*.c)
$(BUILD)/headgate: $(TOOL_SRC:tools/%.c=$(BUILD)/obj/tools/%.o) $(ALL_LIBS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(ALL_LIBS) -Wl,--end-group \
		$(LIBS_net) $(LIBS_expr) $(LIBS_http) $(LIBS_dp) $(LIBS_ctl) -lncurses -ltinfo -lm

# --- tests ---------------------------------------------------------------------------------------
#
# A unit test names the modules it links in a comment of its own, `links: http base`: what it does
# not name it cannot reach, so the layering is checked by the linker too.

links = $(shell sed -n 's,^.*links: *\([a-z ]*\).*,\1,p' $(1))

UNIT_SRC := $(wildcard tests/unit/test_*.c)
PACKET_SRC := $(wildcard tests/packet/test_*.c)
PACKET_LIB := $(filter-out $(PACKET_SRC),$(wildcard tests/packet/*.c))
UNIT_BIN := $(UNIT_SRC:tests/unit/%.c=$(BUILD)/unit/%)
PACKET_BIN := $(PACKET_SRC:tests/packet/%.c=$(BUILD)/packet/%)
TEST_LIBS = $(foreach m,$(call links,$(1)),$(BUILD)/lib/$(m).a)
TEST_SYSLIBS = $(sort $(foreach m,$(call links,$(1)),$(LIBS_$(m))))

$(BUILD)/testobj/%.o: tests/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CC) $(CPPFLAGS) $(CFLAGS) -Itests -Wno-missing-prototypes -MMD -MP -c $< -o $@

define test_rule # (source, binary, further objects)
$(2): $(1:tests/%.c=$(BUILD)/testobj/%.o) $(3) $(call TEST_LIBS,$(1))
	$$(call say,TEST,$$@)
	$(Q)mkdir -p $$(@D) && $$(CC) $$(LDFLAGS) -o $$@ $(1:tests/%.c=$(BUILD)/testobj/%.o) $(3) \
		-Wl,--start-group $(call TEST_LIBS,$(1)) -Wl,--end-group \
		$(call TEST_SYSLIBS,$(1)) $(if $(3),-lxdp -lbpf) -lcmocka -lm
endef
PACKET_OBJ := $(PACKET_LIB:tests/%.c=$(BUILD)/testobj/%.o)
$(foreach t,$(UNIT_SRC),$(eval $(call test_rule,$(t),$(t:tests/unit/%.c=$(BUILD)/unit/%),)))
$(foreach t,$(PACKET_SRC),$(eval $(call test_rule,$(t),$(t:tests/packet/%.c=$(BUILD)/packet/%),$(PACKET_OBJ))))
# What includes a generated skeleton waits for it; packet tests embed the objects: another object is another test.
$(UNIT_SRC:tests/%.c=$(BUILD)/testobj/%.o): | $(BPF_SKEL)
$(PACKET_OBJ) $(PACKET_SRC:tests/%.c=$(BUILD)/testobj/%.o): $(BPF_SKEL) | bpf

.PHONY: unit-bins packet-bins
unit-bins: $(UNIT_BIN)
packet-bins: $(PACKET_BIN)

unit: deps ## unit tests (cmocka)
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD) SAN=$(SAN) unit-bins
	$(Q)tests/run-bins.sh $(UNIT_BIN)

packet: deps ## packet tests: the real programs through BPF_PROG_TEST_RUN (root)
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD) SAN=$(SAN) packet-bins
	$(Q)tests/run-bins.sh $(PACKET_BIN)

e2e: build ## end-to-end tests in network namespaces (root)
	$(Q)tools/h2spec.sh build/tools
	$(Q)tools/quic.sh build/tools
	$(Q)HG_BUILD=$(abspath $(BUILD)) tests/run-e2e.sh $(PYTEST) -q tests/e2e $(E2E)

lint: deps ## layering, sizes, forbidden calls, formatting
	$(Q)tools/lint.sh

test: ## lint, unit, packet and end-to-end tests
	$(Q)$(MAKE) --no-print-directory deps
	$(Q)$(MAKE) --no-print-directory lint
	$(Q)$(MAKE) --no-print-directory unit
	$(Q)$(MAKE) --no-print-directory packet
	$(Q)$(MAKE) --no-print-directory docs-check man-check
	$(Q)$(MAKE) --no-print-directory e2e

test-asan: ## unit and end-to-end tests under AddressSanitizer and UBSan
	$(Q)$(MAKE) --no-print-directory BUILD=build/asan SAN=address,undefined OPT=-O1 unit
	$(Q)$(MAKE) --no-print-directory BUILD=build/asan SAN=address,undefined OPT=-O1 e2e

test-tsan: ## unit and end-to-end tests under ThreadSanitizer
	$(Q)$(MAKE) --no-print-directory BUILD=build/tsan SAN=thread OPT=-O1 unit
	$(Q)$(MAKE) --no-print-directory BUILD=build/tsan SAN=thread OPT=-O1 e2e

# --- fuzzing -------------------------------------------------------------------------------------

FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
FUZZ_BIN := $(FUZZ_SRC:tests/fuzz/%.c=build/fuzz/bin/%)
FUZZ_SECONDS ?= 60
fuzz: deps ## libFuzzer targets, FUZZ_SECONDS each
	$(Q)for t in $(FUZZ_SRC:tests/fuzz/%.c=%); do \
		$(MAKE) --no-print-directory CC=$(CLANG) BUILD=build/fuzz SAN=address,undefined,fuzzer-no-link \
			build/fuzz/bin/$$t || exit 1; \
		tests/fuzz/run.sh build/fuzz/bin/$$t $(FUZZ_SECONDS) || exit 1; done

define fuzz_rule
build/fuzz/bin/$(notdir $(1:.c=)): $(1) $(foreach m,$(call links,$(1)),build/fuzz/lib/$(m).a)
	$$(call say,FUZZ,$$@)
	$(Q)mkdir -p $$(@D) && $$(CLANG) $$(CPPFLAGS) -std=gnu11 -O1 -g -fsanitize=address,undefined,fuzzer -Itests \
		-o $$@ $(1) -Wl,--start-group $(foreach m,$(call links,$(1)),build/fuzz/lib/$(m).a) -Wl,--end-group \
		$(sort $(foreach m,$(call links,$(1)),$(LIBS_$(m)))) -lm
endef
$(foreach t,$(FUZZ_SRC),$(eval $(call fuzz_rule,$(t))))

# --- benchmarks, demo, installation --------------------------------------------------------------

bench-quick: build ## five minutes: L7 against haproxy, nginx and a bare relay; X of the XDP program
	$(Q)HG_BUILD=$(abspath $(BUILD)) tests/bench/quick.sh

BENCHES := bench-quick bench-h1 bench-lookup bench-walk bench-l4 bench-l7 bench-tls bench-flood bench-reload
bench: build ## every benchmark, one after the other: most of an hour (root)
	$(Q)for b in $(BENCHES); do echo "== $$b"; $(MAKE) --no-print-directory $$b || failed="$$failed $$b"; done; \
		[ -z "$$failed" ] || { echo "missed a goal or failed:$$failed"; exit 1; }

demo: build ## a small network of namespaces with real traffic through both tiers (root)
	$(Q)HG_BUILD=$(abspath $(BUILD)) tools/lab/demo.sh

demo-shell: build ## the same network, left up, and a shell in the client
	$(Q)HG_BUILD=$(abspath $(BUILD)) tools/lab/demo.sh --shell

format: ## clang-format over the tree
	$(Q)clang-format-19 -i $$(git ls-files -co --exclude-standard '*.c' '*.h')

install: build ## into $(DESTDIR)$(PREFIX)
	install -D -m 755 $(BUILD)/headgated $(DESTDIR)$(PREFIX)/sbin/headgated
	install -D -m 755 $(BUILD)/headgate $(DESTDIR)$(PREFIX)/bin/headgate

clean: ## remove build/
	rm -rf build

-include $(wildcard tools/rules.mk packaging/rules.mk)
-include $(wildcard tests/*/rules.mk)
-include $(shell find $(BUILD)/obj $(BUILD)/testobj $(BUILD)/bpf -name '*.d' 2>/dev/null)
