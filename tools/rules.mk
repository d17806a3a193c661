# SPDX-License-Identifier: BSD-2-Clause
# How userspace is tuned, and reference documentation out of the programs' own tables. Included by the Makefile.

# Not an instruction set: without it gcc 12 clears and copies structs by `rep stos` and `rep movs`, which take twice as
# long as stores for the few hundred bytes that ours have. docs/PERFORMANCE.md, HTTP tier.
TUNE   ?= $(if $(filter x86_64,$(shell uname -m)),-mtune=skylake)
CFLAGS += $(TUNE)

DOC_PAGES := CONFIG COUNTERS RUNTIME-API
doc_page = $(shell echo $(1) | tr A-Z a-z)

$(BUILD)/gen-docs: $(BUILD)/obj/tools/gen-docs.o $(ALL_LIBS)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) -Wl,--start-group $(ALL_LIBS) -Wl,--end-group \
		$(LIBS_net) $(LIBS_expr) $(LIBS_http) $(LIBS_dp) $(LIBS_ctl) -lm

.PHONY: docs docs-check man-check
docs: deps ## write the generated pages of docs/ again
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD) $(BUILD)/gen-docs
	$(Q)$(foreach p,$(DOC_PAGES),$(BUILD)/gen-docs $(call doc_page,$(p)) >docs/$(p).md &&) true

docs-check: deps ## fails when a generated page is older than the tables it is printed from
	$(Q)$(MAKE) --no-print-directory BUILD=$(BUILD) $(BUILD)/gen-docs
	$(Q)$(foreach p,$(DOC_PAGES),$(BUILD)/gen-docs $(call doc_page,$(p)) | cmp -s - docs/$(p).md || \
		{ echo "docs/$(p).md is stale: run 'make docs'" >&2; exit 1; };) true

man-check: ## manual pages without complaints from groff
	$(Q)for f in docs/man/*.[158]; do \
		out=$$(groff -mandoc -Tutf8 -ww -z "$$f" 2>&1) && [ -z "$$out" ] || { echo "$$out" >&2; exit 1; }; done

.PHONY: screenshots deps-browser
screenshots: build ## pictures of the statistics page, into docs/images (root, 'make deps-browser')
	$(Q)HG_BUILD=$(abspath $(BUILD)) /usr/bin/python3 tools/lab/screenshots.py

deps-browser: ## Chromium (some 400 MB): for 'make screenshots' and the page's test
	$(Q)apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium

install: install-man
.PHONY: install-man
install-man: ## manual pages, into $(DESTDIR)$(PREFIX)
	$(Q)for f in docs/man/*.[158]; do \
		install -D -m 644 "$$f" "$(DESTDIR)$(PREFIX)/share/man/man$${f##*.}/$${f##*/}" || exit 1; done
