#!/bin/bash
# SPDX-License-Identifier: BSD-2-Clause
# The demo needs root: it makes namespaces and loads XDP programs.
set -eu
here=$(dirname "$(readlink -f "$0")")
if [ "$(id -u)" != 0 ]; then
	echo "headgate: the demo makes network namespaces and attaches XDP programs: run it as root (sudo make demo)" >&2
	exit 1
fi
exec /usr/bin/python3 "$here/demo.py" "$@"
