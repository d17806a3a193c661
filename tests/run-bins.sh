#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Runs test binaries one after the other, each in its own process with a time limit, and closes with
# one line that counts the binaries. Each binary prints its own cmocka summary.
set -u
passed=0 failed=0
for t in "$@"; do
	if timeout -k 5 "${HG_TEST_TIMEOUT:-120}" "$t" >"$t.log" 2>&1; then
		passed=$((passed + 1))
		n=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$t.log" | tail -n 1)
		printf '  %-40s %s tests ok\n' "$(basename "$t")" "${n:-?}"
	else
		rc=$?
		failed=$((failed + 1))
		printf '  %-40s FAILED (exit %d)\n' "$(basename "$t")" "$rc"
		tail -n 60 "$t.log"
	fi
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
