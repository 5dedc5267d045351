#!/usr/bin/env bash
# What befalls jobs from outside, and what they have too little of: clocks that are set and the year 2040, directories that are removed,
# replaced or made links, mounts that hang for 20 seconds and for ever, 64 descriptors, little memory, a quota. Prints for each what was
# done, what each rank said, and how long it took.
#
# Needs root, and for the mounts libfuse (scripts/beds/fuse-double.sh install); what cannot be tried is said to be skipped. Takes six
# minutes. An argument chooses tests by a part of their name.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/arguments.sh
explain "$@"
cargo test -p fsgather-tests --test bad_luck --test scarcity -- --include-ignored --nocapture --test-threads 1 "$@"
