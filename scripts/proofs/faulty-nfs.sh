# shellcheck shell=bash
# Gathers over the kernel's NFS while the export fills up, the server hangs, or a host's network is cut. Installs Debian packages.
#
#   scripts/prove faulty-nfs [all|space|hang|cut]... [--control tcp|markers]   all and tcp by default
#
#   space   the export has no space for the payloads and reports that when they are synced: every rank exits with 12 and prints the same
#           error, which names the path; only the records of its last calls remain
#   hang    the server freezes for 10 s in the middle of 40 calls: all results are right
#   cut     a host loses its network for 20 s, to the server and to the other ranks: all results are right
beds=$PWD/scripts/beds
state=$(mktemp -d)
control=tcp
# shellcheck source-path=SCRIPTDIR source=beds/two-hosts.sh
. "$beds/two-hosts.sh"

bed=
clean_up() {
  take_down
  rm -rf --one-file-system "$state"
}
trap clean_up EXIT

chosen=()
while (($#)); do
  case $1 in
    all) chosen=(space hang cut) ;;
    space | hang | cut) chosen+=("$1") ;;
    --control)
      value "$@"
      control=$2 && shift
      case $control in tcp | markers) ;; *) refuse "there is no control plane $control" ;; esac
      ;;
    *) refuse "unexpected argument: $1" ;;
  esac
  shift
done
((${#chosen[@]})) || chosen=(space hang cut)
ready

failed=0

# verdict NAME COMMAND...
verdict() {
  local name=$1
  shift
  if "$@"; then
    echo "ok: $name"
  else
    failed=$((failed + 1))
    echo "FAILED: $name"
    grep -H . "$state"/rank.* | grep -v ':call ' || true
  fi
}

expect_empty() {
  local left
  left=$(left_behind) || return 1
  [ -z "$left" ] && return
  echo "$left"
  return 1
}

# Every rank prints the same error once, and exits with 12.
all_exit_alike() {
  local rank
  for rank in $(seq 0 $((ranks - 1))); do
    grep -qx 'exit 12' "$state/rank.$rank" || return 1
    grep ': cannot ' "$state/rank.$rank"
  done | sort | uniq -c | tee "$state/errors"
  [ "$(wc -l <"$state/errors")" = 1 ] && grep -q "^ *$ranks fsgather gather: .*$SHARED/all_gather_via_filesys/.*o space left" "$state/errors"
}

test_space() {
  NFS_SIZE_MB=16 take_up nfs4
  # Space for one payload, not for four. The client caches 3 MB without asking the server.
  on 1 "head -c 7000000 /dev/zero >$SHARED/filler && sync"
  everywhere "yes part | head -c 3000000 >$OWN/part.\$FSGATHER_RANK
    FSGATHER_TRANSPORT=filesys $FSGATHER gather $OWN/part.\$FSGATHER_RANK --concat=$OWN/all; echo exit \$?" || true
  verdict "full export: all ranks report it" all_exit_alike
  verdict "the error came when the payload was synced" grep -q ': cannot sync ' "$state/errors"
  verdict "no output was made" on 1 "rm $SHARED/filler && [ ! -e $OWN/all ]"
  verdict "the last calls of each rank can be read" last_calls_are_readable
  verdict "clean removes them, and nothing else is left behind" expect_empty_once_cleaned
}

# A failed job leaves records of the last calls of its ranks, even where there is hardly any space.
last_calls_are_readable() {
  on 1 "$FSGATHER trace $SHARED" >"$state/trace" 2>&1 || { cat "$state/trace" && return 1; }
  cat "$state/trace"
  grep -q "$ranks ranks on 2 hosts" "$state/trace" && grep -q 'gather.* has failed' "$state/trace"
}

# Each host knows that its own ranks are gone.
expect_empty_once_cleaned() {
  local host
  for host in 1 2; do on "$host" "$FSGATHER clean $SHARED --execute"; done
  expect_empty
}

# Enough for the faults to come in the middle, although emulated processors are slow.
calls=40

# during COMMAND...: runs it after the first calls. Fails if any call is wrong, or if none took 5 s.
during() {
  # The loop below must not read the output of the last test.
  rm -f "$state"/rank.*
  everywhere "exec $ROUNDS $calls 1000 1500000" &
  local ranks_pid=$! rank right
  until grep -q '^call 10 ' "$state/rank.0" 2>/dev/null; do
    kill -0 "$ranks_pid" || return 1
    sleep 0.05
  done
  "$@"
  wait "$ranks_pid" || return 1
  for rank in $(seq 0 $((ranks - 1))); do
    right=$(grep -c '^call ' "$state/rank.$rank")
    [ "$right" = "$calls" ] || return 1
  done
  awk '$1 == "call" && $4 > slowest { slowest = $4 } END { print "slowest call: " slowest " ms"; exit slowest < 5000 }' \
    "$state"/rank.*
}

frozen_server() {
  "${bed:?}" stop 0
  sleep 10
  "${bed:?}" cont 0
}

cut_link() {
  "${bed:?}" link 2 down
  sleep 20
  "${bed:?}" link 2 up
}

test_hang() {
  take_up nfs4
  verdict "a server that hangs for 10 s: all $calls calls are right" during frozen_server
  verdict "nothing is left behind" expect_empty
}

test_cut() {
  take_up nfs4
  verdict "a host that is cut off for 20 s: all $calls calls are right" during cut_link
  verdict "nothing is left behind" expect_empty
}

build_programs
for name in "${chosen[@]}"; do
  "test_$name"
  take_down
done
((failed == 0))
