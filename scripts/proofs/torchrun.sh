# shellcheck shell=bash
# torchrun --rdzv-backend=fsgather on hosts made of namespaces, whose names do not resolve and which share only a directory: agents meet, a
# failed worker is restarted, a lost host is replaced, a late one joins, two jobs in one directory do not mix, clocks may differ.
#
#   scripts/prove torchrun [PROOF...]   those of crates/fsgather-python/tests/torchrun/prove.py
for word in "$@"; do
    grep -q "^def $word(" crates/fsgather-python/tests/torchrun/prove.py || refuse "there is no proof $word"
done
ready
stage_package
"$python" crates/fsgather-python/tests/torchrun/prove.py "$@"
