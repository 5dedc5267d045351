# shellcheck shell=bash
# Builds the MPI example and runs it under mpirun with 4 ranks, once through a directory and once without any.
at_most 0 "$@"
ready
target=${CARGO_TARGET_DIR:-target}/mpi
cargo build --manifest-path crates/fsgather/examples/mpi/Cargo.toml --target-dir "$target"
program=$target/debug/fsgather-mpi-example
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
echo "2 passed, 0 failed"
