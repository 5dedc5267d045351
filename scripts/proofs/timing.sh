# shellcheck shell=bash
# Measures each promise in seconds over many rounds, prints the distribution, and fails if the 99th percentile breaks the promise. Nothing
# else may run on the machine. Arguments go to the program: scripts/prove timing -- --help prints its options.
if [ "${1:-}" = -- ]; then shift; fi
ready
cargo test --workspace --test timing -- "$@"
