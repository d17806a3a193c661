#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Builds the HTTP/2 conformance tester into $1 unless it is there. Needs Go and its module proxy; without
# them the conformance test is skipped and says so.
set -eu
out=$1
[ -x "$out/h2spec" ] && exit 0
if ! command -v go >/dev/null; then
	echo "h2spec: no Go compiler, the HTTP/2 conformance test will be skipped" >&2
	exit 0
fi
mkdir -p "$out"
log=$(mktemp)
if ! GOBIN=$(realpath "$out") GOFLAGS=-modcacherw timeout 300 \
	go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible >"$log" 2>&1; then
	tail -n 5 "$log" >&2
	echo "h2spec: could not be built, the HTTP/2 conformance test will be skipped" >&2
fi
rm -f "$log"
