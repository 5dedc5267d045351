#!/usr/bin/env bash
# The wheel that others can install: release, for Linux with glibc 2.17 or later (manylinux2014) and CPython 3.9 or later.
# It goes to target/wheels, or where the first argument says. Needs python3 with venv; maturin, and a linker that knows old versions of
# glibc (zig), come with pip.
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
