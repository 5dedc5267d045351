#!/usr/bin/env bash
# Runs the quick tests, the full tests, or both. No failure stops it; failures are repeated at the end, with the commands that repeat them.
#
#   scripts/test.sh [quick|full]
#
# CONTRIBUTING.md says what each tier has. Exit code 1: something failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
at_most 1 "$@"
case ${1:-} in
'' | quick | full) ;;
*) refuse "there is no tier $1" ;;
esac

QUICK=("cargo test --workspace --no-fail-fast")
FULL=(
    "FSGATHER_TESTS=full cargo test -p fsgather-tests --test jobs --test over_markers --test errors --no-fail-fast"
    "scripts/python-tests.sh"
)

steps=()
[ "${1:-quick}" != quick ] || steps+=("${QUICK[@]}")
[ "${1:-full}" != full ] || steps+=("${FULL[@]}")

failed=()
for step in "${steps[@]}"; do
    printf '\n== %s\n' "$step"
    SECONDS=0
    if bash -c "$step"; then
        echo "ok in $SECONDS s"
    else
        echo "FAILED in $SECONDS s"
        failed+=("$step")
    fi
done
echo
if [ ${#failed[@]} -gt 0 ]; then
    echo "FAILED, to be repeated by:"
    printf '    %s\n' "${failed[@]}"
    exit 1
fi
echo "all tests have passed"
