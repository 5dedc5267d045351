#!/usr/bin/env bash
# Builds the wheel for users: release, for Linux with glibc 2.17 or later (manylinux2014) and CPython 3.9 or later.
#
#   scripts/build-wheel.sh [DIRECTORY]   target/wheels by default
#
# Needs python3 with venv; pip installs maturin and a linker that supports old versions of glibc (zig).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
at_most 1 "$@"

wheels=$(realpath -m "${1:-${CARGO_TARGET_DIR:-target}/wheels}")
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
python3 -m venv "$tools"
"$tools/bin/pip" install --quiet --disable-pip-version-check "maturin>=1.9,<2" ziglang
export PATH=$tools/bin:$PATH
maturin build --release --strip --zig --compatibility manylinux2014 --manifest-path crates/fsgather-python/Cargo.toml --out "$wheels"
