# shellcheck shell=bash
# Plays jobs over a model of file systems that lie (tests/tests/lying_files) and reports its progress. A failing seed prints how to play it
# again; LYING_TRACE=1 shows each call.
#
#   scripts/prove lying-files [SEEDS [SEED]]   a million seeds by default, beginning with SEED (1)
#
# LYING_PROFILE=local|nfs3|nfs4|nfs-nocto|gluster|fuse|worst and LYING_FAULTS=none|survivable|any restrict it.
at_most 2 "$@"
number "the number of seeds" "${1:-1}"
number "the first seed" "${2:-1}"
ready

seeds=${1:-1000000}
seed=${2:-1}
test_program() {
    nice -n 15 cargo test --quiet --release --workspace --test lying_files -- --nocapture all_promises_are_kept
}

cargo test --quiet --release --workspace --test lying_files --no-run
last=$((seed + seeds))
failed=0
began=$SECONDS
while [ "$seed" -lt "$last" ]; do
    # A process that was ended where it stood has not given its memory back, so each round has its own.
    round=$((last - seed < 5000 ? last - seed : 5000))
    said=$(LYING_SEED=$seed LYING_SEEDS=$round test_program 2>&1) || {
        failed=$((failed + 1))
        printf '%s\n' "$said" | grep -v '^stack backtrace\|^ *[0-9]*: \|^ *at '
    }
    [ -z "${LYING_TRACE:-}" ] || printf '%s\n' "$said"
    seed=$((seed + round))
    [ "$seeds" -eq 1 ] || echo "up to seed $((seed - 1)) in $((SECONDS - began)) s, rounds of 5000 that failed: $failed"
done
[ "$failed" -eq 0 ]
