#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The device check: the example programs on the real NVIDIA card of this machine and on a software card. Both must be right.
# Exits 77 where there is no real card. Argument: the build folder (default: build, made if it is missing).
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}

[ $# -gt 0 ] || ./do build
if [ ! -e /dev/nvidiactl ] && ! nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then
	echo "no NVIDIA card here (no /dev/nvidiactl, and nvidia-smi lists none): skipped, needs a GPU"
	exit 77
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || true

bad=0
for program in saxpy matmul reduce histogram; do
	for card in real software; do
		printf '%-9s ' "$card"
		if [ "$card" = real ]; then
			"$build/examples/$program" || bad=1
		else
			"$build/src/cli/aliquot" soft -- "$build/examples/$program" || bad=1
		fi
	done
done
[ "$bad" = 0 ] || echo "the cards differ, or one of them failed"
exit "$bad"
