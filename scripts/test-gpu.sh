#!/usr/bin/env bash
# Objects with tensors on GPUs, with FSGATHER_PATCH and without: on the device, pinned, views, under a default device, beside a forked child; over gloo
# and beside nccl on one GPU, over nccl where there are two. And fsgather's own functions: what comes of every type of elements, on which side, and that
# others' results take no memory of the GPU. Four minutes. Says SKIPPED where torch sees no GPU.
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
