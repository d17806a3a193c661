#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# Five minutes of benchmarks: builds the yardsticks, then runs quick.py.
set -eu
here=$(dirname "$(readlink -f "$0")")
make -s --no-print-directory -C "$here/../.." BUILD="${HG_BUILD:-build}" HG_NO_DEPS=1 bench-bins
exec /usr/bin/python3 "$here/quick.py" "$@"
