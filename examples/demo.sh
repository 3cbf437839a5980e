#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ./do demo: the example programs on a software card of their own, then two at once on one card, then two with a limit each.
# Argument: the build folder.
set -eu

build=$(cd "$1" && pwd)
aliquot=$build/src/cli/aliquot

step() {
	printf '\n%s\n' "$*"
}

# The programs do not know what kind of card they run on: they load libcuda.so.1, and this command gives them ours.
if [ -z "${AQ_DEMO_INSIDE:-}" ]; then
	echo "Aliquot's software card: a GPU for CUDA programs on a machine without one."
	echo "Everything below runs on processor cores, in a separate process, aliquot-gpud."
	AQ_DEMO_INSIDE=1 "$aliquot" soft --profile card-1g -- "$0" "$1" || {
		echo "the demo failed with status $?" >&2
		exit 1
	}
	step "Next: run a CUDA driver program of yours with"
	echo "    $1/src/cli/aliquot soft -- PROGRAM"
	echo "or, with a limit, as"
	echo "    $1/src/cli/aliquot soft -- $1/src/cli/aliquot run --mem 512MiB -- PROGRAM"
	if [ -e /dev/nvidiactl ]; then
		echo "This machine has an NVIDIA card. The same examples run on it without Aliquot:"
		echo "    $1/examples/saxpy"
		echo "and tools/check-gpu.sh compares the two cards."
	fi
	exit 0
fi

step "1. The card"
"$aliquot" gpus

step "2. Four CUDA programs, each checked against the processor"
for program in saxpy matmul reduce histogram; do
	"$build/examples/$program"
done

step "3. Two programs at once on one card, and what the card says meanwhile"
"$build/examples/matmul" 256 6 &
first=$!
"$build/examples/histogram" 2097152 8 &
second=$!
sleep 1
"$aliquot" gpus
wait "$first"
wait "$second"

sleep 1
step "4. The card afterwards: everything has been given back"
"$aliquot" gpus

step "5. Two programs, two limits: a vgpu each, made before they start"
"$aliquot" create small --mem 128MiB
"$aliquot" create large --mem 400MiB
"$aliquot"

step "One wants more than its vgpu has and runs out of memory; its neighbour does not notice"
echo '$ aliquot run --vgpu large -- hoard 256 4 &'
"$aliquot" run --vgpu large -- "$build/examples/hoard" 256 4 &
neighbour=$!
sleep 1
echo '$ aliquot run --vgpu small -- hoard 256 2 &'
"$aliquot" run --vgpu small -- "$build/examples/hoard" 256 2 &
greedy=$!
sleep 1
"$aliquot"
printf '\n$ aliquot why small\n'
"$aliquot" why small | sed '1,/^$/d;1,/^$/d'
if wait "$greedy"; then
	echo "hoard got more than its limit" >&2
	exit 1
fi
wait "$neighbour"

step "6. The vgpus afterwards: everything has been given back"
sleep 1
"$aliquot"
"$aliquot" rm small large
