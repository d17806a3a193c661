#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Installs a package in a fresh Debian, uses it, changes a conffile, installs again, removes and purges it.
set -eu
deb=$(realpath "$1")
[ "$(id -u)" = 0 ] || { echo "test-deb: needs root" >&2; exit 1; }
command -v debootstrap >/dev/null || apt-get install -y -q --no-install-recommends debootstrap >/dev/null
mirror=$(apt-cache policy make | sed -n 's/^ *500 \([^ ]*\) .*main.*/\1/p' | head -n 1)
root=$(mktemp -d)
cleanup() {
	umount -l "$root/proc" "$root/sys" 2>/dev/null || true
	rm -rf --one-file-system "$root"
}
trap cleanup EXIT
say() { echo "test-deb: $*"; }
in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

say "a fresh Debian"
debootstrap --variant=minbase --no-check-gpg --include=curl,socat,procps,systemd bookworm "$root" "${mirror%/}" >/dev/null
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --make-rslave "$root/sys" # else taking it off again would take the host's
cp "$deb" "$root/headgate.deb"
[ ! -e /etc/apt/apt.conf.d/proxy ] || cp /etc/apt/apt.conf.d/proxy "$root/etc/apt/apt.conf.d/"
cp /etc/resolv.conf "$root/etc/resolv.conf"

say "install"
in_root apt-get install -y -q --no-install-recommends /headgate.deb >/dev/null
in_root getent passwd headgate >/dev/null
in_root headgate check /etc/headgate/headgate.cfg
in_root test -s /usr/share/man/man8/headgated.8.gz
in_root bash -nc 'source /usr/share/bash-completion/completions/headgate'

say "use"
in_root sh -c 'mkdir -p /run/headgate; headgated -W -D -p /run/headgate/pid -f /etc/headgate/headgate.cfg'
for _ in 1 2 3 4 5 6 7 8 9 10; do
	in_root curl -sf http://127.0.0.1:8404/stats >/dev/null && break
	sleep 0.5
done
in_root curl -sf http://127.0.0.1:8404/metrics | grep -q '^haproxy_process_'
in_root headgate show info | grep -q '^Version: '
in_root headgate reload
in_root sh -c 'kill -TERM $(cat /run/headgate/pid)'
for _ in 1 2 3 4 5 6 7 8 9 10; do
	in_root pgrep -x headgated >/dev/null || break
	sleep 0.5
done
! in_root pgrep -x headgated >/dev/null

say "conffiles are kept"
echo '# mine' >>"$root/etc/headgate/headgate.cfg"
in_root dpkg -i --force-confold /headgate.deb >/dev/null
grep -q '^# mine' "$root/etc/headgate/headgate.cfg"

say "remove, purge"
in_root apt-get remove -y -q headgate >/dev/null
[ ! -e "$root/usr/sbin/headgated" ] && [ -e "$root/etc/headgate/headgate.cfg" ]
in_root apt-get purge -y -q headgate >/dev/null
[ ! -e "$root/etc/headgate" ]
left=$(find "$root" -xdev -name '*headgate*' ! -name headgate.deb ! -path '*/var/lib/*' ! -path '*/var/cache/*' \
	! -path "$root/proc/*" ! -path "$root/sys/*" ! -path '*/run/*' ! -path '*/var/log/*' | head)
[ -z "$left" ] || { say "left behind: $left"; exit 1; }
say "good"
