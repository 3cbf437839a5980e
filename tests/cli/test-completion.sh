#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The completions know every verb and option of the command, and complete what they should. TAP on stdout.
# Arguments: the aliquot command, the source folder.
set -u

aliquot=$1
source=$2
n=0
failed=0

report() {
	n=$((n + 1))
	if [ "$1" = 0 ]; then
		echo "ok $n - $2"
	else
		failed=1
		echo "not ok $n - $2"
	fi
}

# has FILE WORD...: whether the file has all of them
has() {
	local file=$1 word status=0
	shift
	for word; do
		grep -q -e "$word" "$file" || {
			echo "# $file lacks $word"
			status=1
		}
	done
	return $status
}

# completes "WORD..." WANTED...: what stands for the last word
completes() {
	local wanted got
	# shellcheck disable=SC2206 # words
	COMP_WORDS=($1)
	[ "${1% }" = "$1" ] || COMP_WORDS+=("")
	COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
	shift
	wanted=$*
	_aliquot
	got=${COMPREPLY[*]}
	[ "$got" = "$wanted" ] || {
		echo "# completes \"${COMP_WORDS[*]}\" to \"$got\", not \"$wanted\""
		return 1
	}
}

echo "1..6"
mapfile -t verbs < <("$aliquot" --help | sed -n 's/^  \([a-z]*\)  .*/\1/p')

[ ${#verbs[@]} -gt 10 ] && has "$source/packaging/completions/aliquot" "${verbs[@]}" &&
	has "$source/packaging/completions/_aliquot" "${verbs[@]/#/[\"\']}"
report $? "both know all verbs"

has "$source/docs/man/aliquot.1.scd" "${verbs[@]/%/\\*}"
report $? "the man page knows all verbs"

# shellcheck disable=SC1091 # of the source tree
. "$source/packaging/completions/aliquot"

completes "aliquot do" doctor && completes "aliquot s" set soft && completes "aliquot f" freeze
report $? "verbs"

completes "aliquot run --p" --priority --placement && completes "aliquot run --priority h" high &&
	completes "aliquot create --placement " binpack spread && completes "aliquot rm --f" --force
report $? "options and their values"

completes "aliquot run --mem 512MiB -- /bin/mktem" /bin/mktemp && completes "aliquot soft /bin/mktem" /bin/mktemp
report $? "programs"

work=$(mktemp -d)
# shellcheck disable=SC2016 # for the inner shell
XDG_RUNTIME_DIR=$work ALIQUOT_DAEMON='' "$aliquot" soft --profile card-1g -- bash -c '
	"$1" create first --mem 10 >/dev/null && "$1" create second --mem 10 >/dev/null
	aliquot() { "$aliquot" "$@"; }
	aliquot=$1
	. "$2/packaging/completions/aliquot"
	COMP_WORDS=(aliquot why "") COMP_CWORD=2
	_aliquot
	echo "# ${COMPREPLY[*]}"
	[ "${COMPREPLY[*]}" = "--json first second" ]
	status=$?
	"$1" rm first second
	exit $status' bash "$aliquot" "$source"
report $? "vgpus"
rm -rf "$work"
exit $failed
