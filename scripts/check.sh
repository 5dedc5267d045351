#!/usr/bin/env bash
# Everything that must pass before a commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
at_most 0 "$@"

cargo fmt --all --check
cargo clippy --workspace --all-targets -- -D warnings
# Without compression, and with one library alone; the workspace has both.
for features in "" lz4 zstd; do
    cargo clippy -p fsgather-store --all-targets --features "$features" -- -D warnings
done
cargo test -p fsgather-store --lib compression
RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" cargo doc --workspace --no-deps
scripts/test.sh
