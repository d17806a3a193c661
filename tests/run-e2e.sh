#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs the end-to-end tests: run-e2e.sh PYTEST-COMMAND...
#
# HG_E2E_AGAIN=N (CI sets it; without it nothing runs twice): up to N tests that failed run once more. These tests
# drive real processes against real clocks, and a shared machine that stands still for a second can fail one of
# hundreds. A test that fails twice fails the run; one that fails once is listed as unsteady, with its first output
# above: it is a bug of the test or of Headgate, to be mended and not to be lived with.
set -u
again=${HG_E2E_AGAIN:-0}
out=$(mktemp) && trap 'rm -f "$out"' EXIT
"$@" 2>&1 | tee "$out"
rc=${PIPESTATUS[0]}
mapfile -t failed < <(sed -n -E 's/^(FAILED|ERROR) (.*::.*)/\2/;T;s/ - .*//;p' "$out" | sort -u)
# 1: tests failed. Everything else (interrupted, internal error, none collected) is no matter of steadiness.
if [ "$rc" != 1 ] || [ ${#failed[@]} = 0 ] || [ ${#failed[@]} -gt "$again" ]; then
	exit "$rc"
fi
echo "second run of:" "${failed[@]}"
# The directory goes away, the tests are named instead.
args=()
for a in "$@"; do
	[ -d "$a" ] || args+=("$a")
done
"${args[@]}" "${failed[@]}" || exit
printf 'UNSTEADY %s\n' "${failed[@]}"
