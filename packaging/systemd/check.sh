#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The unit file, judged by systemd itself: no complaint, and hardened.
set -eu
command -v systemd-analyze >/dev/null || { echo "unit-check: systemd-analyze is not there" >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# The programs it names need not be installed here.
sed -e 's,=/usr/sbin/headgated,=/bin/true,' packaging/systemd/headgate.service >"$dir/headgate.service"
out=$(systemd-analyze verify --man=no "$dir/headgate.service" 2>&1 | grep -F headgate.service || true)
if [ -n "$out" ]; then
	echo "$out" >&2
	exit 1
fi
score=$(systemd-analyze security --offline=true "$dir/headgate.service" 2>/dev/null |
	sed -n 's/.*Overall exposure level.*: \([0-9.]*\) .*/\1/p')
echo "unit-check: exposure ${score:-unknown}"
awk -v s="${score:-10}" 'BEGIN { exit !(s < 5.0) }' || { echo "unit-check: exposure $score is not below 5" >&2; exit 1; }
