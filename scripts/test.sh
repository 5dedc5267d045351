#!/usr/bin/env bash
# Runs the quick tests, the full tests, or both. No failure stops it; the end lists all failures, each with the command that repeats it.
#
#   scripts/test.sh [quick|full]
#
# CONTRIBUTING.md describes the tiers. Exit code 1: a test failed. 77: no test failed, but some were ignored because a requirement is
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
    "TEST_TIER=full cargo test --workspace --no-fail-fast --test jobs --test over_markers --test errors"
    # Quick programs that try more cases.
    "TEST_TIER=full cargo test --workspace --no-fail-fast --test promises --test lying_files --test simulation --test mesh --test exchange_conformance --test exchange_over_mailboxes --test exchange_over_markers --test in_one_process --test damage"
    "scripts/python-tests.sh"
)

steps=()
[ "${1:-quick}" != quick ] || steps+=("${QUICK[@]}")
[ "${1:-full}" != full ] || steps+=("${FULL[@]}")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# failed_tests STEP LOG: for each failed test of cargo, the command that runs it alone; nothing for other failures.
failed_tests() {
    local environment=''
    case $1 in *=*" cargo "*) environment=${1%%cargo *} ;; esac
    awk -v environment="$environment" '
        /^     Running unittests src\/main/ { target = "--bins" }
        /^     Running unittests src\/lib/ { target = "--lib" }
        /^     Running tests\// { target = $NF; sub(/^.*\//, "", target); sub(/-[0-9a-f]+\)$/, "", target); target = "--test " target }
        /^   Doc-tests / { target = "--doc" }
        /^test .* FAILED$/ {
            name = $0
            sub(/^test /, "", name)
            sub(/( - should panic)? \.\.\. FAILED$/, "", name)
            if (name ~ / /) name = "\047" name "\047"
            print environment "cargo test --workspace " target " " name
        }' "$2"
}

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
    # Failures of pytest, and of the build.
    grep -aE '^(FAILED |ERROR |error\[|error: (could not compile|test failed|doctest failed))' "$work/$i" | head -n 50 | sed 's/^/    /' || true
    repeat=$(failed_tests "${steps[i]}" "$work/$i")
    sed 's/^/    to repeat: /' <<<"${repeat:-${steps[i]}}"
done
[ ${#ignored[@]} = 0 ] || printf '%s\n' "${ignored[@]}"
[ ${#failed[@]} = 0 ] || exit 1
[ ${#ignored[@]} = 0 ] || exit 77
echo "all tests have passed"
