# shellcheck shell=bash
# Jobs of torch, MMEngine and others, unmodified, under a real torchrun with 4 ranks.
#
#   scripts/prove torch [PROOF...] [-PROOF...]   those of crates/fsgather-python/tests/switch/prove.py; -PROOF leaves one out
#
# --install puts torch and the libraries, 5 GB, into ${FSGATHER_TORCH_CACHE:-${XDG_CACHE_HOME:-~/.cache}/fsgather/torch}.
# FSGATHER_OLD_PYTHON=/usr/bin/python3, or another Python with a torch before 2.5, is tried as well.
for word in "$@"; do
    grep -q "^def ${word#-}(directory" crates/fsgather-python/tests/switch/prove.py || refuse "there is no proof ${word#-}"
done
ready
stage_package
nice "$python" crates/fsgather-python/tests/switch/prove.py "$@"
