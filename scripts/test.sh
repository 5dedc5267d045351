#!/usr/bin/env bash
# Builds everything, then runs all unit, documentation and integration tests.
# The same as `cargo test --workspace`, with a word on how it went. Arguments go to cargo test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
explain "$@"

cargo build --workspace --all-targets

output=$(mktemp)
trap 'rm -f "$output"' EXIT
status=0
cargo test --workspace "$@" 2>&1 | tee "$output" || status=$?

results=$(grep '^test result:' "$output" || true)
sum() { awk -v word="$1" '{ for (i = 2; i <= NF; i++) if ($i == word ";") n += $(i - 1) } END { print n + 0 }' <<<"$results"; }
echo "summary: $(sum passed) passed, $(sum failed) failed, $(sum ignored) ignored"
# Last, where it is seen: how the last test program ended, or why cargo stopped.
if ((status)); then tail -n 1 "$output"; else tail -n 1 <<<"$results"; fi
exit "$status"
