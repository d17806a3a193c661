#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Puts a QUIC stack for Python into $1/python unless it is there: clients and servers of the tests of QUIC connections.
# It is not among Debian's packages; without the Python package index those tests are skipped and say so.
set -eu
out=$1
[ -d "$out/python/aioquic" ] && exit 0
mkdir -p "$out"
log=$(mktemp)
if ! timeout 120 /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
	--target "$out/python.part" aioquic==0.9.21 >"$log" 2>&1; then
	tail -n 5 "$log" >&2
	echo "aioquic: could not be installed, the tests of QUIC connections will be skipped" >&2
	rm -rf "$out/python.part"
else
	mv "$out/python.part" "$out/python"
fi
rm -f "$log"
