#!/usr/bin/env bash
# Objects with tensors on GPUs, with FSGATHER_PATCH and without: on the device, pinned, views, under a default device, beside a forked child; over gloo
# on one GPU, over nccl where there are two. One minute. Says SKIPPED where torch sees no GPU.
# Written from how torch behaves on processors and from its documentation; it has not yet been run on a GPU.
# Needs torch with CUDA, which scripts/test-torch.sh installs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
at_most 0 "$@"

scripts/test-torch.sh install
. scripts/staged.sh
if ! "$python" -c "import torch, sys; sys.exit(not torch.cuda.is_available())" 2>/dev/null; then
    echo "SKIPPED: gpu: torch sees no GPU here"
    exit 0
fi
stage_package
"$python" crates/fsgather-python/tests/switch/prove_gpu.py
