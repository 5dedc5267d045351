#!/usr/bin/env bash
# What other users of a host may try in a directory that they share with a job: each attack is played, and has to fail.
#
# A user runs jobs while another one, of the same group, renames, plants and exchanges what the directory lets them. Needs root (for two
# users), python3 and half a minute; one line for each attack. BED_PROGRAMS is where the programs are (target/debug, built otherwise).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
at_most 0 "$@"

if [ "$(id -u)" != 0 ]; then
  echo "SKIPPED: only root can be two users"
  exit 0
fi
if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
  echo "SKIPPED: needs Python 3.9 or later"
  exit 0
fi
if [ -z "${BED_PROGRAMS:-}" ]; then
  cargo build --quiet --workspace --bin fsgather --example rank
  BED_PROGRAMS=${CARGO_TARGET_DIR:-$PWD/target}/debug
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
# Where the other user may start them.
cp "$BED_PROGRAMS/fsgather" "$BED_PROGRAMS/examples/rank" "$work/"
timeout -k 5 120 python3 scripts/hostile_users.py "$work"
