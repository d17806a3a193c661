#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Installs the Debian packages that the build and the tests need and that are not there yet.
# Does nothing, quickly, when all are. HG_NO_DEPS=1 turns it off (other distributions).
set -eu
[ "${HG_NO_DEPS:-0}" = 1 ] && exit 0
packages=(
	# build
	gcc libc6-dev clang-19 llvm-19 lld-19 libclang-rt-19-dev clang-format-19 pkg-config bpftool
	libbpf-dev libxdp-dev libelf-dev libssl-dev libnghttp2-dev libpcre2-dev libc-ares-dev libmnl-dev
	libcap-ng-dev libseccomp-dev libncurses-dev zlib1g-dev libxxhash-dev
	# tests, benchmarks, demo
	libcmocka-dev python3 python3-pytest iproute2 iputils-ping procps util-linux curl openssl nginx-light
	haproxy hatop socat groff-base nghttp2-client wrk iperf3 tcpdump dnsmasq-base bind9-dnsutils ethtool shellcheck jq
	python3-grpcio python3-h2 python3-pip python3-certifi python3-cryptography python3-openssl
)
have=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
	awk '$2 == "installed" { print $1 }' || true)
missing=()
for p in "${packages[@]}"; do
	grep -qx "$p" <<<"$have" || missing+=("$p")
done
[ ${#missing[@]} = 0 ] && exit 0

if [ "$(id -u)" != 0 ]; then
	echo "headgate: these packages are missing: ${missing[*]}" >&2
	echo "headgate: run 'sudo make deps' once, or install them by hand" >&2
	exit 1
fi
echo "  APT      ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# Servers that come as test peers must not start by themselves: policy-rc.d says no while we install.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
	trap 'rm -f "$policy"' EXIT
fi
log=$(mktemp)
if ! { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
	tail -n 30 "$log" >&2
	echo "headgate: apt-get could not install: ${missing[*]}" >&2
	exit 1
fi
rm -f "$log"
