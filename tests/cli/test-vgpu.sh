#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The verbs about vgpus as a user meets them: statuses, messages, signals, and that nothing is left behind. TAP on stdout.
# Arguments: the aliquot command, an example program (saxpy). Starts itself again on a private software card.
set -u

aliquot=$1
saxpy=$2
if [ -z "${AQ_VGPU_WORK:-}" ]; then
	work=$(mktemp -d)
	AQ_VGPU_WORK=$work XDG_RUNTIME_DIR=$work ALIQUOT_DAEMON='' "$aliquot" soft --profile card-1g --cards 2 -- "$0" "$@"
	status=$?
	rm -rf "$work"
	exit $status
fi
work=$AQ_VGPU_WORK
n=0
failed=0

report() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		failed=1
		echo "not ok $n - $2"
		sed 's/^/# /' "$work/out" "$work/err" 2>/dev/null
	fi
}

# run STATUS COMMAND...: whether it ends with this status; output in $work/out, $work/err
run() {
	want=$1
	shift
	"$@" >"$work/out" 2>"$work/err" </dev/null
	got=$?
	[ "$got" = "$want" ] || {
		echo "# status $got, want $want: $*"
		return 1
	}
}

says() {
	grep -q -e "$1" "$work/err" || {
		echo "# stderr lacks: $1"
		return 1
	}
}

prints() {
	grep -q -e "$1" "$work/out" || {
		echo "# stdout lacks: $1"
		return 1
	}
}

silent() {
	[ ! -s "$work/err" ]
}

# No daemon of ours is left.
gone() {
	[ ! -e "$work/aliquot" ]
}

clean() {
	gone || {
		echo "# left: $(find "$work/aliquot")"
		return 1
	}
}

wait_for() {
	tries=0
	until eval "$1"; do
		tries=$((tries + 1))
		[ "$tries" -lt 200 ] || return 1
		sleep 0.05
	done
}

# The daemon's process, as itself says.
daemon_pid() {
	"$aliquot" report | python3 -c 'import json, sys; print(json.load(sys.stdin)["daemon"]["version"]["pid"])'
}

echo "1..39"

run 0 "$aliquot" run --mem 300MiB -- "$saxpy" 10000 && prints right && silent && clean
report $? "a program in a vgpu of its own"

# shellcheck disable=SC2016 # for the inner shell
run 0 "$aliquot" run --mem 300MiB -- sh -c 'test -d "$ALIQUOT_VGPU_DIR" && stat -c %a "$ALIQUOT_VGPU_DIR/.."' &&
	prints '^7[05][05]$'
report $? "the program finds its vgpu"

run 1 "$aliquot" run --mem 1MiB -- "$saxpy" 10000 && says CUDA_ERROR_OUT_OF_MEMORY && clean
report $? "a limit that no context fits in"

run 7 "$aliquot" run --mem 1MiB -- sh -c 'exit 7' && silent && clean
report $? "the program's status"

# shellcheck disable=SC2016 # for the inner shell
run 143 "$aliquot" run --mem 1MiB -- sh -c 'kill -TERM $$' && clean
report $? "a program ended by a signal"

run 127 "$aliquot" run --mem 1MiB -- "$work/nothing-here" && says 'run: cannot run' && clean
report $? "a program that is not there"

: >"$work/plain"
run 126 "$aliquot" run --mem 1MiB -- "$work/plain" && says 'run: cannot run' && clean
report $? "a file that is not executable"

run 125 "$aliquot" run -- true && says 'no limit given: --mem SIZE'
report $? "run without a limit"

run 125 "$aliquot" run --mem 1MiB && says 'no program given'
report $? "run without a program"

run 125 "$aliquot" run --mem 4GB -- true && says '--mem: .*4GB' && says 'GiB'
report $? "a size that people read differently"

run 125 "$aliquot" run --mem 0 -- true && says '--mem: a limit of 0'
report $? "a limit of nothing"

run 125 "$aliquot" run --mem 1 --compute 101 -- true && says '--compute: .*101'
report $? "more than the whole GPU"

run 125 "$aliquot" run --mem 1 --priority urgent -- true && says '--priority is "urgent"; it is low, normal or high'
report $? "an unknown priority"

run 125 "$aliquot" run --mem 1 --colour -- true && says 'run: unknown option --colour'
report $? "an unknown option"

run 125 "$aliquot" run --mem 1 --card 7 -- true && says 'GPU 7' && clean
report $? "a GPU that is not there"

run 125 "$aliquot" run --mem 1 --card 0 --cards 2 -- true && says '--cards 2 and --card 0'
report $? "a number of GPUs and a GPU"

run 125 "$aliquot" run --vgpu nobody -- true && says 'no daemon runs'
report $? "a vgpu that is not there, without a daemon"

run 0 "$aliquot" run --mem 1 --compute 30 --priority high -- true && says '--compute 30 is recorded' &&
	says '--priority high is recorded'
report $? "what is not enforced is said"

run 1 "$aliquot" ps && says 'no daemon runs' && says 'ALIQUOT_GPUD is set'
report $? "ps without a daemon"

run 125 env ALIQUOT_DAEMON="$work/nobody.sock" "$aliquot" run --mem 1 -- true && says 'ALIQUOT_DAEMON: no daemon answers at'
report $? "ALIQUOT_DAEMON names nobody"

run 0 "$aliquot" create one --mem 300MiB --compute 25 && prints '^one$' && run 0 "$aliquot" ps &&
	prints '^one  *0  *300 MiB .* 25% .* ready$'
report $? "create and ps"

run 125 "$aliquot" run --vgpu nobody -- true && says 'there is no vgpu "nobody"; with --mem SIZE'
report $? "a vgpu that is not there"

run 1 "$aliquot" create one --mem 10 && says '"one"'
report $? "a name that is taken"

run 0 "$aliquot" create two --card 0=100MiB --card 1=200MiB --json && python3 - "$work/out" <<-'PYTHON'
	import json, sys
	v = json.load(open(sys.argv[1]))["vgpu"]
	assert v["name"] == "two" and v["state"] == "ready" and v["clients"] == []
	assert [(c["card"], c["limit_bytes"] >> 20) for c in v["cards"]] == [(0, 100), (1, 200)], v["cards"]
PYTHON
report $? "different shares of two GPUs"

run 0 "$aliquot" run --vgpu two -- "$saxpy" 10000 && prints right
report $? "a program in a vgpu that exists"

run 0 "$aliquot" set two --mem 150MiB --card 1 && run 0 "$aliquot" ps two --json && prints '157286400' && prints '104857600'
report $? "set one of two limits"

control=$(echo "$work"/aliquot/daemon-*/control.sock)
run 0 env -u ALIQUOT_GPUD ALIQUOT_DAEMON="$control" "$aliquot" gpus && prints '^GPU  NAME  *MEMORY' && prints '^  1 ' &&
	run 0 env -u ALIQUOT_GPUD ALIQUOT_DAEMON="$control" "$aliquot" gpus --json && prints '"left_bytes"' &&
	run 0 env -u ALIQUOT_GPUD ALIQUOT_DAEMON="$control" "$aliquot" run --vgpu two -- true
report $? "ALIQUOT_DAEMON names one"

run 0 "$aliquot" doctor && prints '^ok  *daemon  *private daemon' && prints '^ok  *cards  *GPU 1' && prints '^ok  *driver .*libcuda' &&
	run 0 "$aliquot" doctor --json && prints '"checks"'
report $? "doctor"

run 0 env ALIQUOT_COLOUR=1 "$aliquot" config && prints '^Daemon at ' && prints '--private' && says 'nobody reads ALIQUOT_COLOUR'
report $? "config"

run 0 "$aliquot" report --output "$work/report" && python3 - "$work/report" <<-'PYTHON' && run 1 "$aliquot" report --output "$work/report" && says 'exists'
	import json, sys
	r = json.load(open(sys.argv[1]))
	assert r["aliquot"]["version"] and r["checks"] and r["system"]["kernel"]
	assert {v["name"] for v in r["daemon"]["list"]["vgpus"]} == {"one", "two"}
	assert "PATH" not in r["environment"]
PYTHON
report $? "report"

run 2 "$aliquot" set two && says 'nothing to set'
report $? "set nothing"

run 2 "$aliquot" rm && says 'an argument is missing: aliquot rm'
report $? "rm without a name"

run 0 "$aliquot" && prints '^GPU  NAME' && prints '^one ' && prints '^two '
report $? "bare: GPUs and vgpus"

run 0 "$aliquot" rm one two && clean
report $? "the private daemon ends with its last vgpu"

# A signal to us reaches the program, and its answer is our status.
# shellcheck disable=SC2016 # for the inner shell
"$aliquot" run --mem 1 -- sh -c 'trap "exit 9" TERM; touch "$0"; while :; do sleep 0.05; done' "$work/ready" 2>"$work/err" &
pid=$!
wait_for "test -e '$work/ready'" && kill -TERM "$pid"
wait "$pid"
[ $? = 9 ] && clean
report $? "signals are passed on"

# Two runs share the daemon, and it ends with the later one.
# shellcheck disable=SC2016 # for the inner shell
"$aliquot" run --mem 100MiB -- sh -c 'touch "$0"; while [ -e "$0" ]; do sleep 0.02; done' "$work/first" 2>"$work/err" &
pid=$!
wait_for "test -e '$work/first'" && run 0 "$aliquot" run --mem 100MiB -- "$aliquot" ps && prints '^vgpu-1 ' && prints '^vgpu-2 '
both=$?
rm -f "$work/first"
wait "$pid" && [ "$both" = 0 ] && clean
report $? "two at once"

# Killed without a chance to clean up: vgpu and daemon go all the same.
# shellcheck disable=SC2016 # for the inner shell
"$aliquot" run --mem 100MiB -- sh -c 'touch "$0"; while [ -e "$0" ]; do sleep 0.02; done' "$work/second" 2>"$work/err" &
pid=$!
wait_for "test -e '$work/second'" && kill -KILL "$pid"
wait "$pid" 2>/dev/null
rm -f "$work/second"
wait_for gone || clean
report $? "run itself is killed"

# Somebody removes the folder: its daemon does not stay for ever.
run 0 "$aliquot" create lost --mem 10
daemon=$(daemon_pid)
rm -rf "$work/aliquot"
[ -n "$daemon" ] && wait_for "! kill -0 $daemon 2>/dev/null" && run 0 "$aliquot" run --mem 10 -- true && clean
report $? "the daemon's folder is removed"

# The GPUs go: so do daemon and vgpus.
run 0 "$aliquot" soft --profile card-1g -- "$aliquot" create lost --mem 10 && wait_for gone
report $? "the GPU server ends"
exit $failed
