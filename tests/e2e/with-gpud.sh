#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run a program on cards of its own: with-gpud.sh SERVER LIBRARY_DIR [SERVER_OPTION...] -- PROGRAM [ARGUMENT...]
#
# Starts a private server, waits until it listens, runs the program with our libcuda.so.1 in front, stops the server. The
# exit status is the program's; 99 when the server does not start or does not survive the program.
set -eu

server=$1
libraries=$2
shift 2

dir=$(mktemp -d "${TMPDIR:-/tmp}/aliquot-e2e.XXXXXX")
pid=

# shellcheck disable=SC2317 # called by the trap
finish() {
	if [ -n "$pid" ]; then
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	fi
	rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

options=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
	options="$options $1"
	shift
done
[ $# -gt 1 ] || {
	echo "usage: with-gpud.sh SERVER LIBRARY_DIR [SERVER_OPTION...] -- PROGRAM [ARGUMENT...]" >&2
	exit 2
}
shift

mkfifo "$dir/ready"
# shellcheck disable=SC2086 # options are words
"$server" --socket "$dir/gpud.sock" --ready-fd 3 $options 3>"$dir/ready" &
pid=$!
# The reader sees the byte, or the end when the server has died.
if [ "$(head -c 1 "$dir/ready" | wc -c)" -ne 1 ]; then
	echo "Bail out! the server did not start"
	exit 99
fi

rc=0
ALIQUOT_GPUD="$dir/gpud.sock" AQ_E2E_SERVER="$server" \
	LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$@" || rc=$?

if ! kill -0 "$pid" 2>/dev/null; then
	echo "not ok 9999 - the server survives the program"
	exit 99
fi
exit "$rc"
