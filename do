#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Build, show and test Aliquot. Needs nothing but a shell to begin with: it says what is missing.
set -eu

cd "$(dirname "$0")"
build=${AQ_BUILD_DIR:-build}

usage() {
	cat <<-TEXT
	usage: ./do VERB [ARGUMENT...]

	  demo    build, then run example programs on a software card of their own
	  test    build everything and run all tests (arguments go to "meson test": a test's name, --suite unit)
	  check   style, borders between folders and static analysis (arguments: names of checks)
	  bench   build and run the measurements
	  build   build only
	  deps    say which packages are missing and install them (arguments: build test check docs)
	  help    this text

	The build lives in "build"; AQ_BUILD_DIR names another folder, AQ_SETUP_ARGS adds arguments for "meson setup".
	TEXT
}

say() {
	printf '== %s\n' "$*"
}

die() {
	printf 'do: %s\n' "$*" >&2
	exit 1
}

# ---- packages ----

is_there() {
	case $1 in
	cmd:*) command -v "${1#cmd:}" >/dev/null 2>&1 ;;
	file:*) test -e "${1#file:}" ;;
	pc:*) pkg-config --exists "${1#pc:}" 2>/dev/null ;;
	*) die "packaging/deps.txt: unknown probe \"$1\"" ;;
	esac
}

# Prints the missing packages of the sections $2..., by Debian's (deb) or Fedora's (rpm) name.
missing() {
	family=$1
	shift
	while read -r section deb rpm probe; do
		case " $* " in
		*" $section "*) ;;
		*) continue ;;
		esac
		is_there "$probe" && continue
		if [ "$family" = deb ]; then
			echo "$deb"
		else
			echo "$rpm"
		fi
	done <packaging/deps.txt | sort -u | tr '\n' ' '
}

may_install() {
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
	[ -t 0 ] || return 0
	printf 'Install them now with apt-get? [Y/n] '
	read -r answer
	case $answer in
	'' | [yY]*) return 0 ;;
	*) return 1 ;;
	esac
}

need_packages() {
	deb=$(missing deb "$@")
	[ -n "$deb" ] || return 0
	say "missing packages: $deb"
	if may_install; then
		export DEBIAN_FRONTEND=noninteractive
		apt-get update -qq
		# shellcheck disable=SC2086 # a list of words
		apt-get install -y -qq --no-install-recommends $deb >/dev/null
		deb=$(missing deb "$@")
		[ -z "$deb" ] || die "still missing after the installation: $deb"
		return 0
	fi
	cat >&2 <<-TEXT
	Install them, then run this again:
	  Debian, Ubuntu:  sudo apt-get install $deb
	  Fedora, RHEL:    sudo dnf install $(missing rpm "$@")
	TEXT
	exit 1
}

# ---- building ----

has_tests() {
	grep -q 'tests/unit/' "$build/build.ninja" 2>/dev/null
}

# $1: whether the tests are wanted too. A build that has them keeps them.
build_tree() {
	if [ ! -e "$build/build.ninja" ]; then
		say "configure $build"
		# shellcheck disable=SC2086 # a list of words
		meson setup "$build" -Dtests="$1" ${AQ_SETUP_ARGS:-} >"$build.setup.log" 2>&1 || {
			cat "$build.setup.log" >&2
			die "meson setup failed"
		}
		rm -f "$build.setup.log"
	elif [ "$1" = true ] && ! has_tests; then
		meson configure "$build" -Dtests=true
	fi
	say "build $build"
	if [ -t 1 ]; then
		ninja -C "$build"
	else
		ninja -C "$build" --quiet
	fi
}

# ---- verbs ----

do_demo() {
	need_packages build
	build_tree false
	exec examples/demo.sh "$build"
}

do_test() {
	need_packages build test
	build_tree true
	say "test"
	status=0
	ALIQUOT_MUST_RUN=1 meson test -C "$build" --no-rebuild --print-errorlogs "$@" || status=$?
	python3 tools/ci-summary.py "$build/meson-logs/testlog.json" || status=1
	exit "$status"
}

do_check() {
	need_packages build test check
	build_tree true
	exec tools/run-checks "$build" "$@"
}

do_bench() {
	need_packages build test
	build_tree true
	exec meson test -C "$build" --no-rebuild --benchmark --verbose "$@"
}

verb=${1:-help}
[ $# -eq 0 ] || shift
case $verb in
demo) do_demo ;;
test) do_test "$@" ;;
check) do_check "$@" ;;
bench) do_bench "$@" ;;
build)
	need_packages build
	build_tree false
	;;
deps)
	[ $# -gt 0 ] || set -- build test check docs
	need_packages "$@"
	echo "nothing missing"
	;;
help | -h | --help) usage ;;
*)
	printf 'do: unknown verb "%s"; ./do help lists them\n' "$verb" >&2
	exit 2
	;;
esac
