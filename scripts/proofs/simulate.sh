# shellcheck shell=bash
# Runs the state machines of the control plane through simulated worlds and reports its progress. Scripts that break a promise are kept in a file.
#
#   scripts/prove simulate [SCRIPTS [SEED]]      random scripts, five million by default
#   scripts/prove simulate --replay FILE         the scripts that a file has kept
#   scripts/prove simulate --schedules [WORDS]   every schedule of small worlds, or of those with WORDS in their name, such as
#                                                "calls, 3 ranks"; takes hours, and prints the number of states
case ${1:-} in
--replay) value "$@" && { [ -f "$2" ] || refuse "there is no file $2"; } ;;
--schedules) at_most 1 "${@:2}" ;;
*)
    at_most 2 "$@"
    number "the number of scripts" "${1:-1}"
    number "the seed" "${2:-1}"
    ;;
esac

ready
test_program() {
    cargo test --quiet --release -p fsgather-control --test simulation "$@"
}

if [ "${1:-}" = --replay ]; then
    SIMULATION_REPLAY=$(realpath "$2") test_program scripts_that_once_failed
    exit
fi

if [ "${1:-}" = --schedules ]; then
    # It takes hours: nothing ends it.
    asked=${2:-all}
    said=$(mktemp)
    trap 'rm -f "$said"' EXIT
    TEST_LIMIT=0 SCHEDULES=$asked test_program schedules -- --nocapture | tee "$said"
    [ "$asked" = all ] || grep -qF -- "$asked" "$said" || refuse "no worlds are called \"$asked\""
    exit
fi

scripts=${1:-5000000}
seed=${2:-$(date +%s)}
# Three of the eleven properties are called p7.
properties=(p1_ p2_ p3_ p4_ p5_ p6_ p7_ p8_ p9_)
count=11
each=$(((scripts + count - 1) / count))
[ "$each" -lt 10000 ] || each=10000
kept=${SIMULATION_KEPT:-target/simulation-failures.txt}
mkdir -p "$(dirname "$kept")"

test_program --no-run
done_so_far=0
failed=0
began=$SECONDS
while [ "$done_so_far" -lt "$scripts" ]; do
    said=$(SIMULATION_SCRIPTS=$each PROPTEST_RNG_SEED=$seed PROPTEST_DISABLE_FAILURE_PERSISTENCE=1 \
        nice -n 10 cargo test --quiet --release -p fsgather-control --test simulation -- "${properties[@]}" 2>&1) || {
        failed=$((failed + 1))
        {
            echo "# seed $seed, $each scripts of each property"
            grep -v '^stack backtrace\|^ *[0-9]*: \|^ *at ' <<<"$said"
        } >>"$kept"
    }
    done_so_far=$((done_so_far + each * count))
    echo "$done_so_far of $scripts scripts in $((SECONDS - began)) s, seed $seed, rounds that failed: $failed"
    seed=$((seed + 1))
done
if [ "$failed" -gt 0 ]; then
    echo "the failures are in $kept: scripts/prove simulate --replay $kept" >&2
    exit 1
fi
