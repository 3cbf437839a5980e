#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The command as a user meets it: statuses, messages, signals, and that nothing is left behind. TAP on stdout.
# Arguments: the aliquot command, an example program (saxpy).
set -u

aliquot=$1
saxpy=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Its private folders go here, so that we see whether they go away.
export TMPDIR="$work"
unset XDG_RUNTIME_DIR ALIQUOT_GPUD
n=0

report() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
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

clean() {
	[ -z "$(find "$work" -name 'aliquot-*' 2>/dev/null)" ]
}

wait_for() {
	tries=0
	until eval "$1"; do
		tries=$((tries + 1))
		[ "$tries" -lt 200 ] || return 1
		sleep 0.05
	done
}

echo "1..20"

run 0 "$aliquot" --version && prints '^aliquot [0-9]' && prints '^commit ' && prints '^compiler '
report $? "--version"

run 2 "$aliquot" frobnicate && says 'unknown verb "frobnicate"'
report $? "an unknown verb"

run 2 "$aliquot" gpus --colour && says 'gpus: unknown option --colour'
report $? "an unknown option"

run 1 "$aliquot" && says 'no GPU server is running'
report $? "bare, without a server"

run 0 "$aliquot" soft --coverage && prints '^modelled: [1-9]' && prints '^accepted without effect: ' &&
	prints '^refused: ' && prints ' cuInit$'
report $? "--coverage prints three lists"

run 2 "$aliquot" soft --coverage -- true && says 'runs no program'
report $? "--coverage with a program"

run 125 "$aliquot" soft && says 'no program given'
report $? "soft without a program"

run 125 "$aliquot" soft --profile && says 'option --profile needs a value'
report $? "an option without its value"

run 125 "$aliquot" soft --profile nonsense -- true && says 'nonsense' && clean
report $? "an unknown profile"

run 125 "$aliquot" soft --cards 0 -- true && clean
report $? "no cards"

run 127 "$aliquot" soft -- "$work/nothing-here" && says 'cannot run' && clean
report $? "a program that is not there"

: >"$work/plain"
run 126 "$aliquot" soft -- "$work/plain" && says 'cannot run' && clean
report $? "a file that is not executable"

run 7 "$aliquot" soft -- sh -c 'exit 7' && clean
report $? "the program's status"

# shellcheck disable=SC2016 # for the inner shell
run 143 "$aliquot" soft -- sh -c 'kill -TERM $$' && clean
report $? "a program ended by a signal"

# shellcheck disable=SC2016 # for the inner shell
run 0 "$aliquot" soft --cards 2 -- sh -c 'test -S "$ALIQUOT_GPUD" && stat -c %a "$(dirname "$ALIQUOT_GPUD")"' &&
	prints '^700$' && clean
report $? "the socket lies in a private folder"

run 0 "$aliquot" soft --cards 2 --profile card-1g -- "$aliquot" gpus && prints '^  0 ' && prints '^  1 ' &&
	prints '(software)' && prints '1 GiB'
report $? "gpus lists the cards"

run 0 "$aliquot" soft --cards 2 -- "$aliquot" gpus --json && python3 - "$work/out" <<-'PYTHON'
	import json, sys
	gpus = json.load(open(sys.argv[1]))["gpus"]
	assert [g["index"] for g in gpus] == [0, 1]
	for g in gpus:
	    assert g["name"].endswith("(software)") and g["uuid"].startswith("GPU-") and len(g["uuid"]) == 40
	    assert g["memory_used_bytes"] + g["memory_free_bytes"] <= g["memory_total_bytes"]
	    assert g["processes"] == []
	assert gpus[0]["uuid"] != gpus[1]["uuid"] and gpus[0]["pci"] != gpus[1]["pci"]
PYTHON
report $? "gpus --json"

# A signal to us reaches the program, and its answer is our status.
# shellcheck disable=SC2016 # for the inner shell
"$aliquot" soft -- sh -c 'trap "exit 9" TERM; touch "$0"; while :; do sleep 0.05; done' "$work/ready" 2>"$work/err" &
pid=$!
wait_for "test -e '$work/ready'" && kill -TERM "$pid"
wait "$pid"
[ $? = 9 ] && clean
report $? "signals are passed on"

"$aliquot" soft serve --socket "$work/own.sock" >"$work/env" 2>"$work/err" &
pid=$!
wait_for "grep -q ALIQUOT_GPUD '$work/env'" &&
	(
		# shellcheck disable=SC1091 # made above
		. "$work/env"
		run 0 "$saxpy" 1000 && prints 'right' && run 0 "$saxpy" 2000 && prints 'right'
	)
served=$?
kill -TERM "$pid"
wait "$pid" && [ "$served" = 0 ] && [ ! -e "$work/own.sock" ]
report $? "serve keeps a card for several programs"

# child_of PID NAME: the process of this name whose parent is PID
child_of() {
	for stat in /proc/[0-9]*/stat; do
		{ read -r child comm _ parent _ <"$stat"; } 2>/dev/null || continue
		[ "$parent" = "$1" ] && [ "$comm" = "($2)" ] && echo "$child"
	done
}

# Killed without a chance to clean up: the server must not live on.
# shellcheck disable=SC2016 # for the inner shell
"$aliquot" soft -- sh -c 'echo $$ >"$0.new"; mv "$0.new" "$0"; exec sleep 30' "$work/running" 2>"$work/err" &
pid=$!
wait_for "test -e '$work/running'"
server=$(child_of "$pid" aliquot-gpud)
kill -KILL "$pid"
wait "$pid" 2>/dev/null
[ -n "$server" ] && wait_for "! kill -0 '$server' 2>/dev/null"
report $? "the server ends with us"
kill "$(cat "$work/running")"
