#!/usr/bin/env bash
# torchrun --rdzv-backend=fsgather with hosts of namespaces, whose names nobody knows and which share only a directory: that they meet, that a
# failed worker is started again, a lost host replaced, a late one taken in, that two jobs in one directory do not mix, that clocks may differ.
# Takes 6 minutes. Needs root, and torch, which scripts/test-torch.sh installs. Arguments name some of the proofs in
# crates/fsgather-python/tests/torchrun/prove.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
explain "$@"

if ! unshare --net --uts --mount true 2>/dev/null; then
    echo "SKIPPED: torchrun: hosts of namespaces cannot be made"
    exit 0
fi
scripts/test-torch.sh install
python=${FSGATHER_TORCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fsgather/torch}/bin/python
if ! "$python" -c "import torch" 2>/dev/null; then
    echo "SKIPPED: torchrun: torch cannot be installed"
    exit 0
fi
cargo build --quiet --workspace --lib
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
package=crates/fsgather-python
cp -r "$package/python/." "$stage"
cp "${CARGO_TARGET_DIR:-target}/debug/lib_fsgather.so" "$stage/fsgather/_fsgather.abi3.so"
# What an installed package tells of itself: by this torchrun finds it.
mkdir "$stage/fsgather-0.dist-info"
printf 'Metadata-Version: 2.1\nName: fsgather\nVersion: 0\n' >"$stage/fsgather-0.dist-info/METADATA"
"$python" "$package/tests/switch/entry_points.py" "$package/pyproject.toml" >"$stage/fsgather-0.dist-info/entry_points.txt"
PYTHONPATH=$stage PYTHONDONTWRITEBYTECODE=1 "$python" "$package/tests/torchrun/prove.py" "$@"
