# shellcheck shell=bash
# Real launchers start ranks on two hosts that share a directory; only the launcher tells the ranks who they are.
#
#   scripts/prove launchers [slurm|openmpi|mpich|intelmpi|torchrun]...
#
# By default all except intelmpi, which comes from PyPI. The hosts are namespaces with their own host names, addresses, boot ids and mounts;
# each mounts the directory itself, with caches that are trusted for 30 s. Installs Debian packages (150 MB for torchrun).
beds=$PWD/scripts/beds
state=$(mktemp -d)
# shellcheck source-path=SCRIPTDIR source=beds/two-hosts.sh
. "$beds/two-hosts.sh"

bed=
clean_up() {
  [ ! -d "$state/hosts/slurm" ] || BED_STATE=$state/hosts "$beds/slurm.sh" down
  take_down
  rm -rf --one-file-system "$state"
}
trap clean_up EXIT

chosen=("$@")
((${#chosen[@]})) || chosen=(slurm openmpi mpich torchrun)
for launcher in "${chosen[@]}"; do
  case $launcher in slurm | openmpi | mpich | intelmpi | torchrun) ;; *) refuse "there is no launcher $launcher" ;; esac
done
ready

failed=0
ran=0

# check NAME COMMAND...: it has to succeed within 90 seconds, and print what `expect` has put into $state/expected.
check() {
  local name=$1 began=$EPOCHREALTIME verdict=ok pid
  shift
  ran=$((ran + 1))
  "$@" >"$state/got" 2>"$state/said" </dev/null &
  pid=$!
  # The hosts' processes end with the hosts.
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.05
    if ((${EPOCHREALTIME%.*} - ${began%.*} > 90)); then
      verdict="NOT ENDED"
      kill "$pid"
    fi
  done
  wait "$pid" || [ "$verdict" != ok ] || verdict=FAILED
  [ "$verdict" != ok ] || cmp -s "$state/expected" "$state/got" || verdict=WRONG
  printf '%-62s %-6s %5s s\n' "$name" "$verdict" \
    "$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')"
  [ "$verdict" = ok ] && return
  failed=$((failed + 1))
  diff "$state/expected" "$state/got" | head -n 20 || true
  tail -n 20 "$state/said"
}

expect() {
  cat >"$state/expected"
}

# say_parts RANKS [WORD]...: what rank 0 prints after each rank has handed over a line.
say_parts() {
  local ranks=$1 word rank
  shift
  for word in "${@:-part}"; do
    for rank in $(seq 0 $((ranks - 1))); do echo "$word of $rank"; done
  done
}

# What each rank runs: it hands over a line with its rank as the variable RANK_VARIABLE of its launcher has it.
task() {
  echo "echo \"${2:-part} of \$$1\" | \$FSGATHER gather"
}

# Twice in one task, and large payloads through files.
long_task() {
  echo "$(task "$1" first) && $(task "$1" second) && \$ROUNDS 10 1000 1000000 >/dev/null && $(task "$1" third)"
}

hosts_up() {
  take_up fuse
  eval "$(BED_STATE=$state/hosts "$beds/hosts.sh" env)"
  export FSGATHER ROUNDS FSGATHER_DIR=$SHARED_DIR FSGATHER_TRANSPORT=filesys FSGATHER_JOIN_TIMEOUT=1m FSGATHER_TIMEOUT=1m
}

on_head() {
  "$beds/hosts.sh" exec head "$@"
}

# torchrun of torch 1.13 fails under Python 3.11 unless it redirects; what it then tees has marks before each line.
without_marks() {
  "$@" | sed 's/^\[default[0-9]*\]://'
}
torchrun=(torchrun --nnodes 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint node1:29555 --rdzv_id job --redirects 1
  --tee 1 --no_python sh -c)

in_batch() {
  sbatch --quiet --wait -o "$state/batch.out" "$@" || {
    tail -n 20 "$state/batch.out" >&2
    return 1
  }
  cat "$state/batch.out"
}

two_at_once() {
  local one two
  "$@" >"$state/one" &
  one=$!
  "$@" >"$state/two" &
  two=$!
  wait "$one" && wait "$two" && cat "$state/one" "$state/two"
}

array() {
  sbatch --quiet --wait -N2 -n2 --array=3-4 -o "$state/array.%a" "$1" || {
    tail -n 20 "$state"/array.* >&2
    return 1
  }
  cat "$state/array.3" "$state/array.4"
}

# The first attempt is left waiting for a rank that does not come; then the job is requeued, and all come.
requeue() {
  local job
  job=$(sbatch --parsable --requeue --open-mode=append -o "$state/requeue.out" "$1")
  until grep -qx waiting "$state/requeue.out" 2>/dev/null; do sleep 0.1; done
  until compgen -G "$state/file-system/back/all_gather_via_filesys/rendezvous-*" >/dev/null; do sleep 0.1; done
  scontrol requeue "$job"
  until grep -qx ended "$state/requeue.out"; do sleep 0.1; done
  sed -n '/ of /p' "$state/requeue.out"
}

script() {
  cat >"$state/$1.sh"
}

test_slurm() {
  "$beds/slurm.sh" install
  "$beds/slurm.sh" up
  eval "$("$beds/slurm.sh" env)"
  say_parts 4 | expect
  check "srun" srun -N2 -n4 sh -c "$(task SLURM_PROCID)"
  check "srun, in one step with another before it" srun -N2 -n4 sh -c "\$ROUNDS 1 10 10 >/dev/null && $(task SLURM_PROCID)"
  check "srun, its tasks unevenly over the nodes" srun -N2 -n4 --distribution=block --ntasks-per-node=3 \
    sh -c "$(task SLURM_PROCID)"
  say_parts 4 first second third | expect
  check "srun, three gathers and ten calls in each task" srun -N2 -n4 sh -c "$(long_task SLURM_PROCID)"
  say_twice | expect
  check "two jobs at once in one directory" two_at_once srun -N2 -n4 sh -c "$(long_task SLURM_PROCID)"
  script batch <<END
#!/bin/sh
srun sh -c '$(task SLURM_PROCID one)'
srun -n2 --overlap sh -c '$(task SLURM_PROCID two)'
echo alone | \$FSGATHER gather 2>&1 | sed 's/.*so it is \(a world of one\);.*/\1/' | LC_ALL=C sort -r
END
  # The shell that is no task of a step is told so.
  { say_parts 4 one && say_parts 2 two && echo alone && echo "a world of one"; } | expect
  check "sbatch, srun in it, fewer tasks, and the batch shell itself" in_batch -N2 -n4 "$state/batch.sh"
  script array <<END
#!/bin/sh
srun sh -c '$(long_task SLURM_PROCID)'
END
  { say_parts 2 first second third && say_parts 2 first second third; } | expect
  check "an array of two, at once in one directory" array "$state/array.sh"
  script requeue <<END
#!/bin/sh
#SBATCH -N2 -n4
[ -n "\$SLURM_RESTART_COUNT" ] || echo waiting
srun sh -c '[ -n "\$SLURM_RESTART_COUNT" ] || [ \$SLURM_PROCID != 2 ] || exec sleep 60; $(task SLURM_PROCID)'
[ -z "\$SLURM_RESTART_COUNT" ] || echo ended
END
  say_parts 4 | expect
  check "a job that is requeued while its ranks meet" requeue "$state/requeue.sh"
  if command -v mpirun.openmpi >/dev/null; then
    script openmpi <<END
#!/bin/sh
mpirun.openmpi --allow-run-as-root -np 4 sh -c '$(long_task OMPI_COMM_WORLD_RANK)'
END
    say_parts 4 first second third | expect
    check "Open MPI's mpirun in a batch job" in_batch -N2 -n4 --ntasks-per-node=2 "$state/openmpi.sh"
  else
    echo "mpirun in a batch job: ignored: needs Open MPI (name openmpi first)"
  fi
  if command -v mpiexec.hydra >/dev/null; then
    script mpich <<END
#!/bin/sh
mpiexec.hydra -np 4 sh -c '$(long_task PMI_RANK)'
END
    say_parts 4 first second third | expect
    check "MPICH's mpiexec in a batch job" in_batch -N2 -n4 --ntasks-per-node=2 "$state/mpich.sh"
  else
    echo "mpiexec in a batch job: ignored: needs MPICH (name mpich first)"
  fi
  if command -v torchrun >/dev/null; then
    say_parts 4 first second third | expect
    check "torchrun, an agent on each node by srun" without_marks srun -N2 -n2 "${torchrun[@]}" "$(long_task RANK)"
  else
    echo "torchrun by srun: ignored: needs torchrun (name torchrun first)"
  fi
  "$beds/slurm.sh" down
}

# What both of two at once print.
say_twice() {
  say_parts 4 first second third
  say_parts 4 first second third
}

test_openmpi() {
  local version
  version=$(mpirun.openmpi --version | awk 'NR == 1 { print $NF }')
  local run=(on_head mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent "$REMOTE_SHELL" --host "node1:2,node2:2" -np 4
    -x FSGATHER -x ROUNDS -x FSGATHER_DIR -x FSGATHER_TRANSPORT sh -c "$(long_task OMPI_COMM_WORLD_RANK)")
  say_parts 4 first second third | expect
  check "Open MPI $version, two hosts" "${run[@]}"
  say_twice | expect
  check "Open MPI $version, two at once in one directory" two_at_once "${run[@]}"
}

test_mpich() {
  local version run=(on_head mpiexec.hydra)
  version=$(mpiexec.hydra --version | awk '/Version/ { print $2 }')
  run+=(-launcher ssh -launcher-exec "$REMOTE_SHELL" -hosts "node1,node2" -ppn 2 -np 4)
  say_parts 4 first second third | expect
  check "MPICH $version, two hosts" "${run[@]}" sh -c "$(long_task PMI_RANK)"
  # Its ranks have nothing that tells one job from another.
  say_twice | expect
  check "MPICH $version, two at once with FSGATHER_JOB" two_at_once with_own_job "${run[@]}" sh -c "$(long_task PMI_RANK)"
}

with_own_job() {
  FSGATHER_JOB=$BASHPID "$@"
}

test_intelmpi() {
  local python=$state/python run
  python3 -m venv "$python"
  "$python/bin/pip" install --quiet --disable-pip-version-check impi-rt
  run=(on_head "$python/bin/mpiexec.hydra" -launcher ssh -launcher-exec "$REMOTE_SHELL" -hosts "node1,node2" -ppn 2 -np 4)
  say_parts 4 first second third | expect
  check "Intel MPI, two hosts" "${run[@]}" sh -c "$(long_task PMI_RANK)"
  say_twice | expect
  check "Intel MPI, two at once in one directory" two_at_once "${run[@]}" sh -c "$(long_task PMI_RANK)"
}

agents() {
  local node pids=() status=0
  for node in 1 2; do
    "$beds/hosts.sh" exec "node$node" "${torchrun[@]}" "$@" &
    pids+=($!)
  done
  for node in "${pids[@]}"; do wait "$node" || status=1; done
  return "$status"
}

test_torchrun() {
  say_parts 4 first second third | expect
  check "torchrun $(/usr/bin/python3 -c 'import torch; print(torch.__version__)'), two hosts" without_marks \
    agents "$(long_task RANK)"
}

install() {
  # shellcheck source-path=SCRIPTDIR source=beds/lib.sh
  (. "$beds/lib.sh" && install_packages "$@")
}

build_programs
for launcher in "${chosen[@]}"; do
  case $launcher in
    openmpi) install openmpi-bin ;;
    mpich) install mpich ;;
    torchrun) install python3-torch ;;
    intelmpi) install python3-venv ;;
    *) ;;
  esac
done
hosts_up
for launcher in "${chosen[@]}"; do
  "test_$launcher"
  left_behind >"$state/left"
  if [ -s "$state/left" ]; then
    failed=$((failed + 1))
    echo "left behind after $launcher:"
    cat "$state/left"
  fi
done
echo "$((ran - failed)) passed, $failed failed"
((failed == 0))
