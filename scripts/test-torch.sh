#!/usr/bin/env bash
# Existing jobs of torch, MMEngine and others, without a change in them, under a real torchrun with 4 ranks.
# Installs torch and the libraries once, 5 GB, into ${FSGATHER_TORCH_CACHE:-${XDG_CACHE_HOME:-~/.cache}/fsgather/torch}.
# `install` as the only argument does no more than that. Other arguments name some of the proofs in crates/fsgather-python/tests/switch/prove.py, or, as -NAME, those to leave out.
# With FSGATHER_OLD_PYTHON=/usr/bin/python3, or another Python with a torch before 2.5, that is tried as well.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
explain "$@"

. scripts/staged.sh
environment=${python%/bin/python}
needed=(torch numpy mmengine torchmetrics accelerate expecttest)
if ! "$python" -c "import importlib.util as u; assert all(map(u.find_spec, '${needed[*]}'.split()))" 2>/dev/null; then
    if ! "${PYTHON:-python3}" -m venv "$environment" || ! "$python" -m pip install --quiet "${needed[@]}"; then
        echo "SKIPPED: torch: ${needed[*]} cannot be installed into $environment"
        exit 0
    fi
fi

if [ "${1-}" = install ]; then exit 0; fi

stage_package
nice "$python" crates/fsgather-python/tests/switch/prove.py "$@"
