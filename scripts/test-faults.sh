#!/usr/bin/env bash
# A fault at each system call, in real processes: errors, errors of calls that were done, short reads and writes, pauses, SIGKILL and SIGSTOP.
#
# Counts the calls of a good gather in one rank, then runs ranks that fail at the k-th of them, judges what all of them say, gathers again
# in the same directory, and cleans it. Draws cases for 3 minutes; `--all` tries each one (hours: SIGTERM and Ctrl-C have it sum up those so
# far), `--case` repeats one, `--help` has the rest. Needs x86-64, a C compiler, Python 3.9 and ptrace. BED_PROGRAMS is where the programs
# are (target/debug, built otherwise).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ "$(uname -m)" != x86_64 ]; then
  echo "SKIPPED: the injector knows the calls of x86-64 only"
  exit 0
fi
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
  echo "SKIPPED: needs Python 3.9 or later"
  exit 0
fi
# What it does not understand it says before it builds.
python3 scripts/faults --programs . --injector . --only-understand "$@"
for argument in "$@"; do
  case $argument in -h | --help) exit 0 ;; esac
done
if [ -z "${BED_PROGRAMS:-}" ]; then
  cargo build --quiet --workspace --bin fsgather --example rank
  BED_PROGRAMS=${CARGO_TARGET_DIR:-$PWD/target}/debug
fi
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
cc -O2 -Wall -Wextra -Werror -o "$built/injector" scripts/faults/injector.c
if ! "$built/injector" "$built/log" - 0 none / -- true 2>"$built/why"; then
  echo "SKIPPED: cannot trace: $(cat "$built/why")"
  exit 0
fi
python3 scripts/faults --programs "$BED_PROGRAMS" --injector "$built/injector" "$@"
