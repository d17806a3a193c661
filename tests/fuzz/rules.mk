# SPDX-License-Identifier: BSD-2-Clause
# fuzz_h1_llhttp compares with llhttp, whose generated C sources Debian ships in node-llhttp. They are
# compiled as they are, strict, without the sanitizers: only our side is under test.

LLHTTP_SRC := $(wildcard /usr/share/llhttp/api.c /usr/share/llhttp/http.c /usr/share/llhttp/llhttp.c)
LLHTTP_OBJ := $(LLHTTP_SRC:/usr/share/llhttp/%.c=build/fuzz/llhttp/%.o)

build/fuzz/llhttp/%.o: /usr/share/llhttp/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CLANG) -O2 -g -w -DLLHTTP_STRICT_MODE=1 -I/usr/share/include/llhttp -c $< -o $@

build/fuzz/lib/llhttp.a: $(LLHTTP_OBJ)
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D) && rm -f $@ && ar rcs $@ $^

build/fuzz/bin/fuzz_h1_llhttp: CPPFLAGS += -I/usr/share/include/llhttp

# fuzz_packet drives the real BPF programs with what the packet tests have for it.
FUZZ_PACKET_OBJ := $(PACKET_LIB:tests/packet/%.c=build/fuzz/packet/%.o)

build/fuzz/packet/%.o: tests/packet/%.c
	$(call say,CC,$@)
	$(Q)mkdir -p $(@D) && $(CLANG) $(CPPFLAGS) $(CFLAGS) -Itests -Wno-missing-prototypes -MMD -MP -c $< -o $@

$(FUZZ_PACKET_OBJ): | $(BPF_SKEL)

build/fuzz/lib/packet.a: $(FUZZ_PACKET_OBJ)
	$(call say,AR,$@)
	$(Q)mkdir -p $(@D) && rm -f $@ && ar rcs $@ $^

-include $(wildcard build/fuzz/packet/*.d)
