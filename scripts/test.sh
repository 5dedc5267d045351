#!/usr/bin/env bash
# Runs the quick tests, the full tests, or both. No failure stops it; failures are repeated at the end, with the commands that repeat them.
#
#   scripts/test.sh [quick|full]
#
# CONTRIBUTING.md says what each tier has. Exit code 1: a test failed. 77: all tests passed that ran, but some need something that is
# missing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
at_most 1 "$@"
case ${1:-} in
'' | quick | full) ;;
*) refuse "there is no tier $1" ;;
esac

# Each line is one step, and the command that repeats it.
QUICK=("cargo test --workspace --no-fail-fast")
FULL=(
    "FSGATHER_TESTS=full cargo test --workspace --no-fail-fast --test jobs --test over_markers --test errors --test machine_code"
    # Quick programs that try more cases.
    "FSGATHER_TESTS=full cargo test --workspace --no-fail-fast --test promises --test lying_files --test simulation --test mesh --test exchange_conformance --test exchange_over_mailboxes --test exchange_over_markers --test in_one_process --test damage"
    "scripts/python-tests.sh"
)

steps=()
[ "${1:-quick}" != quick ] || steps+=("${QUICK[@]}")
[ "${1:-full}" != full ] || steps+=("${FULL[@]}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=() ignored=()
for i in "${!steps[@]}"; do
    printf '\n== %s\n' "${steps[i]}"
    SECONDS=0
    code=0
    bash -c "${steps[i]}" 2>&1 | tee "$work/$i" || code=$?
    case $code in
    0) echo "ok in $SECONDS s" ;;
    77)
        echo "ignored after $SECONDS s"
        ignored+=("$(tail -n 1 "$work/$i")")
        ;;
    *)
        echo "FAILED after $SECONDS s"
        failed+=("$i")
        ;;
    esac
done

echo
for i in "${failed[@]}"; do
    echo "FAILED: ${steps[i]}"
    # Names of tests, as cargo and pytest print them, and what cargo says about programs.
    grep -aE '^(test .* FAILED|FAILED .*|ERROR .*|error.*)$' "$work/$i" | head -n 50 | sed 's/^/    /' || true
    echo "    to repeat: ${steps[i]}"
done
[ ${#ignored[@]} = 0 ] || printf '%s\n' "${ignored[@]}"
[ ${#failed[@]} = 0 ] || exit 1
[ ${#ignored[@]} = 0 ] || exit 77
echo "all tests have passed"
