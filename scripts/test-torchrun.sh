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
. scripts/staged.sh
if ! "$python" -c "import torch" 2>/dev/null; then
    echo "SKIPPED: torchrun: torch cannot be installed"
    exit 0
fi
stage_package
"$python" crates/fsgather-python/tests/torchrun/prove.py "$@"
