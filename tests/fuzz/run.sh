#!/bin/sh
# SPDX-License-Identifier: BSD-2-Clause
# Runs one libFuzzer target: run.sh <binary> <seconds>.
#
# Seeds are tests/fuzz/corpus/<name>, words tests/fuzz/<name>.dict, where the binary is fuzz_<name>; a target
# without its own uses those of the name up to the first underscore. What is found on the way goes to
# build/fuzz/corpus/<name>, crashes to build/fuzz/crash/. Exit status: 0 when nothing was found.
set -eu

if [ $# -ne 2 ]; then
	echo "usage: $0 <binary> <seconds>" >&2
	exit 2
fi
binary=$1
seconds=$2
here=$(dirname "$0")
name=$(basename "$binary")
name=${name#fuzz_}

found=build/fuzz/corpus/$name
crash=build/fuzz/crash
mkdir -p "$found" "$crash"

set -- "-max_total_time=$seconds" "-artifact_prefix=$crash/$name-" -timeout=10 -rss_limit_mb=1024 \
	-print_final_stats=1 "$found"
for n in "$name" "${name%%_*}"; do
	if [ -d "$here/corpus/$n" ]; then
		set -- "$@" "$here/corpus/$n"
		break
	fi
done
for n in "$name" "${name%%_*}"; do
	if [ -f "$here/$n.dict" ]; then
		set -- "-dict=$here/$n.dict" "$@"
		break
	fi
done

log=$found.log
echo "fuzz $name: $seconds s"
if "$binary" "$@" >"$log" 2>&1; then
	grep -E 'number_of_executed_units|new_units_added' "$log" || true
else
	status=$?
	tail -n 60 "$log" >&2
	echo "fuzz $name: FAILED (exit status $status), input in $crash, log in $log" >&2
	exit "$status"
fi
