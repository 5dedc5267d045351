# shellcheck shell=bash
# Runs gathers between two hosts on real shared file systems, and compares every byte. Installs Debian packages.
#
#   scripts/prove filesystems [SYSTEM...] [--gathers N] [--evaluations N] [--ranks N] [--control tcp|markers|both] [--large BYTES]
#
# Systems (default: all): fuse (two FUSE mounts that trust their caches for 30 s), nfs3, nfs4, nfs4-nocto and smb (the kernel's clients in
# virtual machines; SMB_OPTIONS), gluster, ceph, sshfs, sshfs-default (which caches listings for 20 s), s3fs and rclone (a bucket), moosefs,
# juicefs, seaweedfs, bindfs, mergerfs, unionfs. For each system and control plane: N calls in a row (100; 20 in virtual machines,
# whose processors are emulated) by one process for each of 4 ranks, a fifth of them all-gathers, with small payloads that travel inline and
# large ones (1.5 MB) in files; then N/10 gathers by new processes. Prints the number of right results, and the median and maximum time in
# milliseconds; the time of a call is that of its slowest rank. Then N evaluations (5) by ranks on both hosts, which add results by name: one
# rank or all are killed at a random moment, and another number of ranks completes the evaluation and compares all results with those of one
# process. Fails if a result is wrong or if any file is left behind.
beds=$PWD/scripts/beds
state=$(mktemp -d)
# shellcheck source-path=SCRIPTDIR source=beds/two-hosts.sh
. "$beds/two-hosts.sh"
bed=
clean_up() {
  take_down
  rm -rf --one-file-system "$state"
}
trap clean_up EXIT

chosen_gathers= evaluations=5 ranks=4 controls=(tcp) large=1500000 small=1000 chosen=()
while (($#)); do
  case $1 in
    --gathers) value "$@" && number "--gathers" "$2" && chosen_gathers=$2 && shift ;;
    --evaluations) value "$@" && number "--evaluations" "$2" && evaluations=$2 && shift ;;
    --ranks) value "$@" && number "--ranks" "$2" && ranks=$2 && shift ;;
    --large) value "$@" && number "--large" "$2" && large=$2 && shift ;;
    --control)
      value "$@"
      case $2 in
        tcp | markers) controls=("$2") ;;
        both) controls=(tcp markers) ;;
        *) refuse "there is no control plane $2" ;;
      esac
      shift
      ;;
    -*) refuse "there is no option $1" ;;
    *) chosen+=("$1") ;;
  esac
  shift
done
((${#chosen[@]})) || chosen=("${BEDS[@]}")
for system in "${chosen[@]}"; do script_of "$system" >/dev/null; done
ready

# figures NAME EXPECTED: reads the times of the right calls, one for each line.
figures() {
  sort -n | awk -v name="$1" -v wanted="$2" '
    { t[NR] = $1 }
    END {
      median = NR ? t[int((NR + 1) / 2)] : "-"
      printf "%-32s %4d/%-4d right   median %8s ms   slowest %8s ms\n", name, NR, wanted, median, NR ? t[NR] : "-"
      exit NR != wanted
    }'
}

# Prints the time of the slowest rank for each call that is right on all ranks.
times_of_calls() {
  awk -v ranks="$ranks" '
    $1 == "call" { seen[$2]++; if ($4 > slowest[$2]) slowest[$2] = $4 }
    END { for (i in seen) if (seen[i] == ranks) print slowest[i] }' "$state"/rank.*
}

# other_lines WORD: prints the output of all ranks, except lines that begin with this word.
other_lines() {
  awk -v word="$1" '$1 != word { sub(".*/", "", FILENAME); print FILENAME ": " $0 }' "$state"/rank.*
}

# No warning is expected, especially none about files that could not be removed.
warnings() {
  grep -hi warn "$state"/rank.* || true
}

# Prints the lines that it reads. If there are any, this run has failed.
complain() {
  local lines
  lines=$(cat)
  [ -n "$lines" ] || return 0
  echo "    ${lines//$'\n'/$'\n'    }"
  touch "$state/failed"
}

long_lived() {
  everywhere "FSGATHER_JOB=calls exec $ROUNDS $gathers $small $large" || other_lines call | complain
  times_of_calls | figures "$system $control calls" "$gathers" || touch "$state/failed"
  warnings | complain
  awk '$1 == "joined" { print $2 }' "$state"/rank.* | figures "$system $control meeting" "$ranks" || touch "$state/failed"
}

# Rank 0 knows the payloads of all ranks. /proc/uptime is the only clock that guests have with fractions of a second.
fresh() {
  local runs=$((gathers / 10))
  # shellcheck disable=SC2016
  everywhere '
    part() { yes "gather $1 of rank $2" | head -c $(($1 % 2 ? '"$large"' : '"$small"')); }
    now() { read -r up _ </proc/uptime; echo "${up%.*}${up#*.}0"; }
    for i in $(seq '"$runs"'); do
      part $i $FSGATHER_RANK >'"$OWN"'/part.$FSGATHER_RANK
      began=$(now)
      FSGATHER_JOB=fresh '"$FSGATHER"' gather '"$OWN"'/part.$FSGATHER_RANK --concat='"$OWN"'/all --force || exit
      took=$(($(now) - began))
      [ $FSGATHER_RANK != 0 ] || {
        for rank in $(seq 0 $((FSGATHER_WORLD_SIZE - 1))); do part $i $rank; done | cmp - '"$OWN"'/all || exit
        echo "fresh $took"
        rm '"$OWN"'/all
      }
    done
    rm '"$OWN/part.\$FSGATHER_RANK" || other_lines fresh | complain
  warnings | complain
  awk '$1 == "fresh" { print $2 }' "$state"/rank.* | figures "$system $control fresh processes" "$runs" || touch "$state/failed"
}

# Each result of a first attempt takes 20 ms.
evaluations_survive() {
  local most=$ranks ranks number victim after directory all=400 right=0 kept=0
  for number in $(seq "$evaluations"); do
    directory=$SHARED/evaluation-$number
    ranks=$most victim=$((number % 2 ? RANDOM % most : -1)) after=$((RANDOM % (all * 2 / most)))
    everywhere "
      $SAMPLES $directory $all 20 >$OWN/samples.\$FSGATHER_RANK 2>&1 &
      [ $victim = -1 ] || [ $victim = \$FSGATHER_RANK ] || { wait \$!; exit 0; }
      for try in \$(seq 600); do
        ! grep -q 'missing\|rror' $OWN/samples.\$FSGATHER_RANK || break
        sleep 0.1
      done
      sleep $((after / 100)).$(printf %02d $((after % 100)))
      kill -9 \$!" || true
    ranks=$((1 + RANDOM % most))
    rm -f "$state"/rank.*
    everywhere "exec $SAMPLES $directory $all" || other_lines right: | complain
    on 2 "$FSGATHER samples $directory" >"$state/seen"
    if grep -q "^right: $all of $all samples" "$state/rank.0" && grep -q "$all of $all samples" "$state/seen"; then
      right=$((right + 1)) kept=$((kept + all - $(awk '/missing$/ { print $3 }' "$state/rank.0")))
      on 1 "rm -r $directory"
    else
      { cat "$state/seen" && other_lines none; } | complain
    fi
  done
  for number in 1 2; do on "$number" "$FSGATHER clean $SHARED --execute" >/dev/null; done
  printf '%-32s %4d/%-4d right   %d%% of the results by killed attempts\n' "$system $control evaluations" "$right" "$evaluations" \
    "$((evaluations ? 100 * kept / (all * evaluations) : 0))"
  ((right == evaluations)) || touch "$state/failed"
}

build_programs
for system in "${chosen[@]}"; do
  take_up "$system"
  case $system in nfs* | smb) gathers=${chosen_gathers:-20} ;; *) gathers=${chosen_gathers:-100} ;; esac
  for control in "${controls[@]}"; do
    long_lived
    fresh
    left_behind | complain
    evaluations_survive
  done
  take_down
done
if [ -e "$state/failed" ]; then
  echo "failed"
  exit 1
fi
echo "all right, nothing left behind"
