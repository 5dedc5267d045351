#!/usr/bin/env bash
# Builds the MPI example and runs it under mpirun with 4 ranks, once through a directory and once without any.
# Skipped, with a line that says so, where MPI or libclang is missing: on Debian
# `apt-get install libopenmpi-dev openmpi-bin libclang-dev`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
at_most 0 "$@"

if ! missing=$(scripts/check-features.sh --missing-for-mpi); then
    echo "SKIPPED: MPI: $missing"
    exit 0
fi
if ! command -v mpirun >/dev/null; then
    echo "SKIPPED: MPI: there is no mpirun"
    exit 0
fi

cargo build -p fsgather --example mpi --features mpi
program=${CARGO_TARGET_DIR:-target}/debug/examples/mpi
expected="10 of 10 found: 0.0 1.0 1.1 2.0 2.1 2.2 3.0 3.1 3.2 3.3"
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

ranks() {
    local printed
    printed=$(timeout 60 mpirun --allow-run-as-root --oversubscribe -np 4 "$@" "$program")
    echo "$printed"
    [ "$printed" = "$expected" ]
}

ranks -x FSGATHER_DIR="$directory"
[ -z "$(ls -A "$directory/all_gather_via_filesys")" ]
ranks -x FSGATHER_TRANSPORT=memory -x FSGATHER_DIR=/nowhere
echo "summary: 2 passed, 0 failed"
