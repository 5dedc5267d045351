# shellcheck shell=bash
# Under marker control a host without a sign of life counts as lost after about a minute, and the other way round. Processes in pid
# namespaces stand for hosts, without any network: no other process sees them end.
at_most 0 "$@"
ready
build_programs
FSGATHER=$programs/fsgather

work=$(mktemp -d)
pids=()
clean_up() {
  for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean_up EXIT

export FSGATHER_CONTROL=markers FSGATHER_WORLD_SIZE=3 FSGATHER_DIR=$work FSGATHER_JOB=silent-host

# run VICTIM: kills that rank while rank 1 or 2 has not contributed yet; the others must name it after about a minute.
run() {
  local victim=$1 late=1 rank code
  [ "$victim" = 1 ] && late=2
  pids=()
  rm -f "$work"/rank* "$work"/input
  mkfifo "$work/input"
  echo payload >"$work/payload"
  for rank in 0 1 2; do
    local from=$work/payload
    [ "$rank" = "$late" ] && from=-
    FSGATHER_RANK=$rank unshare --pid --net --fork --kill-child=KILL "$FSGATHER" gather --timeout 5m "$from" \
      --root 0 <"$work/input" >"$work/rank$rank.out" 2>"$work/rank$rank" &
    pids+=($!)
  done
  exec 9>"$work/input"
  # The late rank has joined once it takes more than a pipe holds.
  head -c 5000000 /dev/zero >&9
  kill -KILL "${pids[victim]}"
  SECONDS=0
  for rank in 0 1 2; do
    if [ "$rank" = "$victim" ]; then continue; fi
    code=0
    if [ "$rank" != "$late" ]; then
      wait "${pids[rank]}" || code=$?
      echo "rank $rank ended with $code after $SECONDS s: $(cat "$work/rank$rank")"
      [ "$code" = 11 ] && [ "$SECONDS" -ge 50 ] && [ "$SECONDS" -le 80 ]
      grep -q "rank $victim on .* was lost (its host has shown no sign of life for 1 min)\|rank $victim on .*outcome" \
        "$work/rank$rank"
    fi
  done
  exec 9>&-
  code=0
  wait "${pids[late]}" || code=$?
  echo "rank $late ended with $code after $SECONDS s: $(cat "$work/rank$late")"
  [ "$code" = 11 ]
}

run 2
run 0
echo "2 passed, 0 failed"
