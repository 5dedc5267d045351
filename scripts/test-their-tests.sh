#!/usr/bin/env bash
# Tests of others with FSGATHER_PATCH and without: what the packages of torch and accelerate carry of their own. Takes 10 minutes. Arguments name some
# of the suites in crates/fsgather-python/tests/projects/their_tests.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
explain "$@"
suites=crates/fsgather-python/tests/projects/their_tests.py
for word in "$@"; do
    grep -q "^    \"$word\": Suite" "$suites" || refuse "there is no suite $word"
done

scripts/test-torch.sh install
. scripts/staged.sh
stage_package
nice "$python" "$suites" "$@"
