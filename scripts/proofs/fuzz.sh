# shellcheck shell=bash
# Feeds fuzzed bytes to one of the readers of data from outside, under AddressSanitizer, beginning with the corpus of tests/fuzz.
#
#   scripts/prove fuzz TARGET [SECONDS]   600 s by default; new inputs go to target/fuzz/TARGET, crashes to target/fuzz/crash-...
#   scripts/prove fuzz plain [SECONDS]    the codec of the Python package, in Python; its extension must be built
#   scripts/prove fuzz --keep TARGET      copies the smallest new inputs to tests/fuzz/corpus/TARGET, for the ordinary tests
#   scripts/prove fuzz --list             lists the targets
#
# `cargo fuzz` understands tests/fuzz as well.
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
    value "$@"
    target=$2
    [ -d "$corpus/$target" ] || refuse "there is no target $target"
    ready
    build "$target"
    merged=$(mktemp -d)
    trap 'rm -rf "$merged"' EXIT
    "$(program "$target")" -merge=1 "$merged" "$corpus/$target" "$found/$target" 2>/dev/null
    # What was put there by hand stays.
    find "$merged" -type f -size -3k -printf '%s %p\n' | sort -n | head -n 60 | cut -d' ' -f2- |
        xargs -r cp --update=none -t "$corpus/$target"
    ;;
plain)
    python3 tests/fuzz/plain.py "${2:-600}"
    ;;
'') refuse "a target is missing" ;;
-*) refuse "there is no option $1" ;;
*)
    target=$1
    [ -d "$corpus/$target" ] || refuse "there is no target $target"
    number "the number of seconds" "${2:-600}"
    ready
    build "$target"
    mkdir -p "$found/$target"
    # Errors of allocation are findings: a frame has 8 MiB, and may take 128 times as much.
    "$(program "$target")" -max_total_time="${2:-600}" -rss_limit_mb=2048 -timeout=10 -max_len=65536 \
        -print_final_stats=1 -artifact_prefix="$found/" "$found/$target" "$corpus/$target"
    ;;
esac
