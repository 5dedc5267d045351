#!/usr/bin/env bash
# Feeds one of the readers of others' bytes what a fuzzer makes up, with the checks of memory of AddressSanitizer, and
# begins with what is kept. Needs a nightly toolchain, and nothing else; `cargo fuzz` understands `tests/fuzz` as well.
#
#   scripts/fuzz.sh TARGET [SECONDS]        600 seconds if not said; what it finds worth keeping is in target/fuzz/TARGET
#   scripts/fuzz.sh plain [SECONDS]         the codec of the Python package, in Python: needs its extension built
#   scripts/fuzz.sh --keep TARGET           keeps the smallest of that in tests/fuzz/corpus/TARGET, for ordinary tests
#   scripts/fuzz.sh --list
#
# Exit code 0: nothing found. What breaks a promise lies in target/fuzz/ as crash-..., and is printed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/arguments.sh
explain "$@"
corpus=tests/fuzz/corpus
found=$PWD/target/fuzz

build() {
    # As cargo-fuzz does it.
    local flags="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4"
    flags+=" -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
    flags+=" -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Cdebug-assertions -Coverflow-checks"
    # With a target named, the flags are not for what runs while building.
    RUSTFLAGS=$flags cargo +nightly build --quiet --release --manifest-path tests/fuzz/Cargo.toml \
        --target x86_64-unknown-linux-gnu --target-dir target/fuzz/build --bin "$1"
}

program() { echo "target/fuzz/build/x86_64-unknown-linux-gnu/release/$1"; }

case ${1:-} in
--list)
    ls "$corpus"
    ;;
--keep)
    target=$2
    build "$target"
    merged=$(mktemp -d)
    trap 'rm -rf "$merged"' EXIT
    "$(program "$target")" -merge=1 "$merged" "$corpus/$target" "$found/$target" 2>/dev/null
    # What was put there by hand stays.
    find "$merged" -type f -size -3k -printf '%s %p\n' | sort -n | head -n 60 | cut -d' ' -f2- |
        xargs -r cp --update=none -t "$corpus/$target"
    ;;
plain)
    exec python3 tests/fuzz/plain.py "${2:-600}"
    ;;
'' | -*) refuse "which reader is to be fed?" ;;
*)
    target=$1
    build "$target"
    mkdir -p "$found/$target"
    # Errors of allocation are findings: a frame has 8 MiB, and may take 128 times as much.
    "$(program "$target")" -max_total_time="${2:-600}" -rss_limit_mb=2048 -timeout=10 -max_len=65536 \
        -print_final_stats=1 -artifact_prefix="$found/" "$found/$target" "$corpus/$target"
    ;;
esac
