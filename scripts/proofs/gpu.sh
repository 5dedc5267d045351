# shellcheck shell=bash
# Objects with tensors on GPUs, with FSGATHER_PATCH and without: on the device, pinned, views, under a default device, beside a forked child;
# over gloo and beside nccl on one GPU, over nccl on two. And fsgather's own functions: the result of every type of elements, its device, and
# that results of other ranks take no memory of the GPU.
at_most 0 "$@"
ready
stage_package
"$python" crates/fsgather-python/tests/switch/prove_gpu.py
