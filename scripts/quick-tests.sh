#!/usr/bin/env bash
# The tests of a part that need neither other processes nor long waits: some seconds after the build, on a quiet machine less than 15.
#   scripts/quick-tests.sh [PART...]   core, control, store, fsgather; all where none is named
# They try few cases, and each that waits for something gives it up after 10 s on a quiet machine. scripts/mutants.sh asks whether they
# notice what is wrong. Nothing else is built than what these tests need, with the features that the part itself asks for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

quick_parts=(core control store fsgather)

# quick_tests PART: sets `package`, `targets`, the arguments of cargo that say what is built of it, and `chosen`, those of the test programs.
quick_tests() {
    package=fsgather-$1 targets=(--lib) chosen=()
    case $1 in
    core) ;;
    control)
        local program
        for program in asking deadlines disagreement exchange_conformance exchange_over_mailboxes groups hearsay mesh patience simulation \
            stalls wire_format; do
            targets+=(--test "$program")
        done
        # Schedules by the million; worlds of a thousand ranks; limits of some seconds; and much that is repeated under faults, which another
        # one meets too.
        chosen=(--skip schedules:: --skip p10_ --skip a_rank_that_goes_on_after_a_stop
            --skip a_rank_that_is_stopped_before_there_is_a_link --skip who_gives_a_try_up_and_does_not_come_again
            --skip a_post_with_faults_conforms)
        ;;
    store) targets+=(--features lz4,zstd) ;;
    fsgather)
        package=fsgather
        targets+=(--test in_one_process --features async,lz4,messagepack,ndarray,zstd)
        ;;
    *)
        echo "there is no part $1: ${quick_parts[*]}" >&2
        exit 2
        ;;
    esac
}

# What they all run with.
quick_environment() {
    # Most of them wait for something most of the time.
    export QUICK_TESTS=1 RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) * 3))}
    export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=1
}

# Whether this is run, rather than read by another script.
[ "${BASH_SOURCE[0]}" = "$0" ] || return 0

quick_environment
export TEST_LIMIT=${TEST_LIMIT:-60}
. scripts/arguments.sh
explain "$@"
[ $# -gt 0 ] || set -- "${quick_parts[@]}"
for part in "$@"; do quick_tests "$part"; done
for part; do
    quick_tests "$part"
    cargo test --quiet --package "$package" "${targets[@]}" --no-run
    SECONDS=0
    cargo test --quiet --package "$package" "${targets[@]}" -- "${chosen[@]}"
    echo "$part: $SECONDS s"
done
