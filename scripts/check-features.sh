#!/usr/bin/env bash
# Lints the library without cargo features and with each of them.
#
#   scripts/check-features.sh          all of this
#   scripts/check-features.sh --bare   no feature at all
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
explain "$@"
case ${1:-} in
'' | --bare) ;;
*) refuse "there is no option $1" ;;
esac

# All features but `default`, as the manifest has them.
features=$(awk '/^\[/ { inside = $0 == "[features]" } inside && /^[a-z]/ { print $1 }' crates/fsgather/Cargo.toml |
    grep -vx default)
if [ "${1:-}" = --bare ]; then
    features=
else
    echo "the store's tests without compression"
    cargo test --quiet -p fsgather-store --lib compression
fi

# Clippy stands for the compiler, as with `cargo clippy`, and builds: dependencies that are there from building tests are used again.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
for feature in "" $features; do
    echo "features: ${feature:-none}"
    cargo build --quiet -p fsgather --lib --no-default-features --features "$feature"
done
