# shellcheck shell=bash
# Jobs start and end in one directory, a third of them killed with SIGKILL, while `fsgather clean` without patience runs in a loop.
#
#   scripts/prove clean-live [SECONDS]   300 by default
at_most 1 "$@"
number "the number of seconds" "${1:-300}"
ready

seconds=${1:-300}
build_programs
fsgather=$programs/fsgather
work=$(mktemp -d)
cleaner=
clean_up() {
  if [ -n "$cleaner" ]; then kill "$cleaner" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap clean_up EXIT

mkdir "$work/shared"
head -c 300000 /dev/urandom >"$work/payload"
touch "$work/go"
mkfifo "$work/pipe"
(
  while [ -e "$work/go" ]; do
    "$fsgather" clean --execute --older-than 1ms "$work/shared" >>"$work/cleaned" || echo "clean failed" >>"$work/wrong"
  done
) &
cleaner=$!

SECONDS=0
finished=0 killed=0
while ((SECONDS < seconds)); do
  if ((finished % 3 == 2 && killed * 3 < finished)); then
    # Ranks that have begun to publish wait for more, until all are killed.
    head -c 3000000 /dev/zero >"$work/pipe" &
    writer=$!
    { FSGATHER_JOB=killed-$killed timeout --signal=KILL 1 "$fsgather" run -n 3 --dir "$work/shared" -- \
      sh -c "exec '$fsgather' gather - --all --concat='$work/never.{rank}' <>'$work/pipe'" >/dev/null; } 2>/dev/null || true
    # If no rank was there yet, it still waits for one.
    kill "$writer" 2>/dev/null || true
    wait "$writer" || true
    killed=$((killed + 1))
  else
    FSGATHER_JOB=$finished "$fsgather" run -n 3 --dir "$work/shared" -- \
      "$fsgather" gather "$work/payload" --concat="$work/all" --force
    [ "$(stat -c %s "$work/all")" = 900000 ]
  fi
  finished=$((finished + 1))
done
rm "$work/go"
wait "$cleaner"
cleaner=
removed=$(grep -c '^removed .*/gather-' "$work/cleaned" || true)
echo "$((finished - killed)) jobs finished, $killed killed, $removed gather directories removed"
[ ! -e "$work/wrong" ] && ((removed > 0))
# Probes of killed processes go by age alone.
sleep 3
"$fsgather" clean --execute --older-than 1ms "$work/shared" >/dev/null
[ -z "$(ls -A "$work/shared")" ] || { ls -lR "$work/shared"; exit 1; }
echo "2 passed, 0 failed"
