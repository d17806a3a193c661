#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# A binary package out of `make install`, by dpkg-deb alone.
set -eu
: "${BUILD:?}" "${VERSION:?}"
root=$BUILD/deb/root
arch=$(dpkg --print-architecture)
rm -rf "$BUILD/deb"
mkdir -p "$root/DEBIAN"
make --no-print-directory BUILD="$BUILD" DESTDIR="$root" install >/dev/null
install -D -m 644 packaging/headgate.logrotate "$root/etc/logrotate.d/headgate"
install -D -m 644 packaging/headgate.rsyslog "$root/etc/rsyslog.d/49-headgate.conf"
install -D -m 644 LICENSE "$root/usr/share/doc/headgate/copyright"
install -D -m 644 README.md "$root/usr/share/doc/headgate/README.md"
gzip -9n <CHANGES.md >"$root/usr/share/doc/headgate/changelog.gz"
find "$root/usr/share/man" -name '*.[158]' -exec gzip -9n {} +
strip --strip-unneeded "$root/usr/sbin/headgated" "$root/usr/bin/headgate"
(cd "$root" && find etc -type f | sed 's,^,/,' | sort) >"$root/DEBIAN/conffiles"
install -m 755 packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm "$root/DEBIAN/"

# The libraries by what the binaries really link (dpkg-shlibdeps wants a source package around it).
mkdir -p "$BUILD/deb/src/debian"
printf 'Source: headgate\n\nPackage: headgate\nArchitecture: any\n' >"$BUILD/deb/src/debian/control"
bin=$(realpath "$root")
depends=$(cd "$BUILD/deb/src" && dpkg-shlibdeps -O "$bin/usr/sbin/headgated" "$bin/usr/bin/headgate" 2>/dev/null |
	sed -n 's/^shlibs:Depends=//p')
cat >"$root/DEBIAN/control" <<CONTROL
Package: headgate
Version: $VERSION
Architecture: $arch
Maintainer: Headgate maintainers <headgate@localhost>
Section: net
Priority: optional
Installed-Size: $(du -sk "$root" | cut -f1)
Depends: $depends, systemd | systemd-standalone-sysusers | adduser
Suggests: bpftool, rsyslog, logrotate
Description: edge load balancer: XDP at layer 4, TLS and HTTP above it
 An XDP program forwards the packets of layer 4 services by consistent
 hashing; a daemon with one pinned worker per core ends TLS and proxies HTTP.
 Both are set up by one file in HAProxy's configuration language.
CONTROL
dpkg-deb --root-owner-group --build "$root" "$BUILD/deb/headgate_${VERSION}_$arch.deb" >/dev/null
echo "$BUILD/deb/headgate_${VERSION}_$arch.deb"
