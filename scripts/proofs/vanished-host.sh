# shellcheck shell=bash
# A host that vanishes is noticed by the others within about 30 seconds, and the other way round. Two network namespaces stand for two hosts;
# the link between them goes down in the middle of a gather.
at_most 0 "$@"
ready

build_programs
fsgather=$programs/fsgather
work=$(mktemp -d)
one=fsgather-one-$$
two=fsgather-two-$$
pids=()

clean_up() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  ip netns del "$one" 2>/dev/null || true
  ip netns del "$two" 2>/dev/null || true
  rm -rf "$work"
}
trap clean_up EXIT

ip netns add "$one"
ip netns add "$two"
ip link add one netns "$one" type veth peer name two netns "$two"
ip -n "$one" addr add 10.99.0.1/24 dev one
ip -n "$two" addr add 10.99.0.2/24 dev two
for ns in "$one" "$two"; do ip -n "$ns" link set lo up; done
ip -n "$one" link set one up
ip -n "$two" link set two up

export FSGATHER_WORLD_SIZE=2 FSGATHER_DIR=$work FSGATHER_JOB=vanished-host
mkfifo "$work/input"
echo payload >"$work/payload"
FSGATHER_RANK=0 ip netns exec "$one" "$fsgather" gather --timeout 5m "$work/payload" --concat="$work/all" \
  2>"$work/rank0" &
pids+=($!)
FSGATHER_RANK=1 ip netns exec "$two" "$fsgather" gather --timeout 5m - <"$work/input" 2>"$work/rank1" &
pids+=($!)
exec 9>"$work/input"
# Rank 1 has joined and publishes once it has taken more than a pipe holds.
head -c 5000000 /dev/zero >&9

ip -n "$one" link set one down
SECONDS=0
code=0
wait "${pids[0]}" || code=$?
echo "rank 0 ended with $code after $SECONDS s: $(cat "$work/rank0")"
[ "$code" = 11 ] && [ "$SECONDS" -le 35 ]
grep -q 'rank 1 on .* was lost' "$work/rank0"
exec 9>&-
code=0
wait "${pids[1]}" || code=$?
echo "rank 1 ended with $code after $SECONDS s: $(cat "$work/rank1")"
[ "$code" = 11 ] && [ "$SECONDS" -le 40 ]
grep -q 'rank 0 on .* was lost' "$work/rank1"
echo "2 passed, 0 failed"
