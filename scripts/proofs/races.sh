# shellcheck shell=bash
# Runs the tests of shared state under ThreadSanitizer: a node with its carriers and mesh, pending calls and their driver, the janitor and
# messages of the store; then real ranks over TCP and over marker files. Nothing is suppressed. Tests that fork are left out, because the
# sanitizer's own thread does not survive a fork. Most of the time is building, into target/races; installs the sources of the toolchain.
at_most 0 "$@"
ready
root=$PWD
host=$(rustc -vV | sed -n 's/^host: //p')
rustup component list --installed --toolchain nightly | grep -q '^rust-src' || rustup component add rust-src --toolchain nightly

export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}/races CARGO_INCREMENTAL=0
export CARGO_PROFILE_DEV_DEBUG=1 CARGO_PROFILE_DEV_OPT_LEVEL=1
export RUSTFLAGS=-Zsanitizer=thread TSAN_OPTIONS="halt_on_error=1 exitcode=66 second_deadlock_stack=1"
# The standard library as well: the order that its locks make is not seen otherwise.
options=(-Zbuild-std --target "$host" --manifest-path "$root/Cargo.toml")

cargo +nightly test "${options[@]}" -p fsgather-control -p fsgather-store -p fsgather --lib -- --skip fork
cargo +nightly test "${options[@]}" -p fsgather-control --test mesh --test exchange_over_mailboxes --test stalls
cargo +nightly build "${options[@]}" -p fsgather-tests --example rounds

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
for control in tcp markers; do
    for transport in filesys memory; do
        # Payloads from memory to memory take connections.
        [ "$control-$transport" != markers-memory ] || continue
        echo "four ranks, $control, $transport"
        ranks=()
        for rank in 0 1 2 3; do
            FSGATHER_RANK=$rank FSGATHER_WORLD_SIZE=4 FSGATHER_JOB=races-$control-$transport FSGATHER_DIR=$place \
                FSGATHER_CONTROL=$control FSGATHER_TRANSPORT=$transport FSGATHER_TIMEOUT=3m \
                "$CARGO_TARGET_DIR/$host/debug/examples/rounds" 30 1000 1500000 >"$place/rank.$rank" 2>&1 &
            ranks+=($!)
        done
        for rank in "${!ranks[@]}"; do
            wait "${ranks[rank]}" || { cat "$place/rank.$rank" && exit 1; }
        done
    done
done
echo "no race was found"
