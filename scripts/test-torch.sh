#!/usr/bin/env bash
# Existing jobs of torch, MMEngine and others, without a change in them, under a real torchrun with 4 ranks.
# Installs torch and the libraries once, 5 GB, into ${FSGATHER_TORCH_CACHE:-${XDG_CACHE_HOME:-~/.cache}/fsgather/torch}.
# `install` as the only argument does no more than that. Other arguments name some of the proofs in crates/fsgather-python/tests/switch/prove.py, or, as -NAME, those to leave out.
# With FSGATHER_OLD_PYTHON=/usr/bin/python3, or another Python with a torch before 2.5, that is tried as well.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
explain "$@"

environment=${FSGATHER_TORCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fsgather/torch}
python=$environment/bin/python
needed=(torch numpy mmengine torchmetrics accelerate expecttest)
if ! "$python" -c "import importlib.util as u; assert all(map(u.find_spec, '${needed[*]}'.split()))" 2>/dev/null; then
    if ! "${PYTHON:-python3}" -m venv "$environment" || ! "$python" -m pip install --quiet "${needed[@]}"; then
        echo "SKIPPED: torch: ${needed[*]} cannot be installed into $environment"
        exit 0
    fi
fi

if [ "${1-}" = install ]; then exit 0; fi

# All libraries, as other commands build them: for one package alone they would be built once more, with other features.
cargo build --workspace --lib
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
package=crates/fsgather-python
cp -r "$package/python/." "$stage"
cp "${CARGO_TARGET_DIR:-target}/debug/lib_fsgather.so" "$stage/fsgather/_fsgather.abi3.so"
# What an installed package tells of itself: by this torch finds it.
about=$stage/fsgather-0.dist-info
mkdir "$about"
printf 'Metadata-Version: 2.1\nName: fsgather\nVersion: 0\n' >"$about/METADATA"
"$python" "$package/tests/switch/entry_points.py" "$package/pyproject.toml" >"$about/entry_points.txt"

PYTHONPATH=$stage PYTHONDONTWRITEBYTECODE=1 nice "$python" "$package/tests/switch/prove.py" "$@"
