# SPDX-License-Identifier: BSD-2-Clause
# What an installation has besides binaries and manual pages, and the Debian package. Included by the Makefile.

SYSCONFDIR ?= /etc
UNITDIR    ?= /lib/systemd/system
DEB_DIR    := $(BUILD)/deb

install: install-service
.PHONY: install-service
install-service: ## unit file, completion, configuration (an existing one is kept)
	$(Q)install -D -m 644 packaging/systemd/headgate.service $(DESTDIR)$(UNITDIR)/headgate.service
	$(Q)install -D -m 644 packaging/systemd/headgate.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/headgate.conf
	$(Q)install -D -m 644 packaging/systemd/headgate.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/headgate.conf
	$(Q)mkdir -p $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(Q)$(BUILD)/headgate completion bash >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/headgate
	$(Q)install -D -m 644 packaging/grafana-dashboard.json $(DESTDIR)$(PREFIX)/share/headgate/grafana-dashboard.json
	$(Q)install -D -m 644 packaging/alerts.yml $(DESTDIR)$(PREFIX)/share/headgate/alerts.yml
	$(Q)test -e $(DESTDIR)$(SYSCONFDIR)/headgate/headgate.cfg || \
		install -D -m 640 packaging/headgate.cfg $(DESTDIR)$(SYSCONFDIR)/headgate/headgate.cfg
	$(Q)test -e $(DESTDIR)$(SYSCONFDIR)/default/headgate || \
		install -D -m 644 packaging/headgate.default $(DESTDIR)$(SYSCONFDIR)/default/headgate

.PHONY: deb test-deb unit-check
deb: build ## a Debian package below build/
	$(Q)BUILD=$(BUILD) VERSION=$(VERSION) packaging/deb/build.sh

test-deb: deb ## installs, uses, removes the package in a fresh Debian (root, debootstrap)
	$(Q)packaging/deb/test.sh $(DEB_DIR)/headgate_$(VERSION)_*.deb

unit-check: ## the unit file without complaints from systemd-analyze
	$(Q)packaging/systemd/check.sh
