# shellcheck shell=bash
# Measures each promise in seconds over many rounds, prints the distribution, and fails if the 99th percentile breaks the promise. Nothing
# else may run on the machine.
#
#   scripts/prove timing [--rounds N] [PROMISE...]   50 rounds of all promises by default
#
# Promises: killed-computing, killed-publishing, killed-in-ring, killed-meeting, killed-over-markers, terminated, interrupted, timed-out,
# stall-warning.
options=("$@")
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) value "$@" && number "the number of rounds" "$2" && shift ;;
    -*) refuse "there is no option $1" ;;
    *) grep -q "^        name: \"$1\"" tests/tests/timing/promises.rs || refuse "there is no promise $1" ;;
    esac
    shift
done
ready
cargo test --workspace --test timing -- "${options[@]}"
