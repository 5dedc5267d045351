#!/usr/bin/env bash
# A real Slurm cluster on the hosts of hosts.sh: slurmctld on head, a slurmd on every node, 4 CPUs each.
#
#   slurm.sh install   the Debian packages it needs
#   slurm.sh up        starts it on hosts that are up; returns when all nodes are idle
#   slurm.sh env       shell variables; after that srun, sbatch, squeue, ... act as on head
#   slurm.sh down      ends it; take the hosts down after that
#
# BED_STATE   that of the hosts; what belongs to Slurm is in slurm/ in it
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
hosts=${BED_STATE:-${TMPDIR:-/tmp}/fsgather-bed-hosts}
BED_STATE=$hosts/slurm
log=$BED_STATE/log

on() {
  BED_STATE=$hosts "$here/hosts.sh" exec "$@"
}

# daemon NAME HOST CMD...
daemon() {
  local name=$1 host=$2
  shift 2
  # hosts.sh turns into the daemon, so that the process remembered is the daemon.
  background "$name" "$log/$name.out" env BED_STATE="$hosts" SLURM_CONF="$BED_STATE/slurm.conf" "$here/hosts.sh" exec "$host" "$@"
}

write_configuration() {
  local i
  cat <<END
ClusterName=bed
SlurmctldHost=head
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$BED_STATE/munge.sock,cred_expire=5
CredType=cred/munge
StateSaveLocation=$BED_STATE/control
SlurmdSpoolDir=$BED_STATE/spool.%n
SlurmctldPidFile=$BED_STATE/slurmctld.own-pid
SlurmdPidFile=$BED_STATE/slurmd.%n.own-pid
SlurmctldLogFile=$log/slurmctld.log
SlurmdLogFile=$log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=100000,batch_sched_delay=0,sched_interval=2,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
InactiveLimit=0
KillWait=2
MessageTimeout=10
END
  for i in $(seq "$(cat "$hosts/count")"); do
    echo "NodeName=node$i CPUs=4 RealMemory=1000 State=UNKNOWN"
  done
  echo "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES"
}

# The commands as users know them: on a node as they are, elsewhere on head.
write_commands() {
  local command
  for command in srun sbatch salloc scontrol scancel sinfo squeue; do
    cat >"$hosts/bin/$command" <<END
#!/usr/bin/env bash
export BED_STATE='$hosts' SLURM_CONF='$BED_STATE/slurm.conf'
case \$(uname -n) in
  head | node[0-9]*) exec /usr/bin/$command "\$@" ;;
  *) exec '$here/hosts.sh' exec head /usr/bin/$command "\$@" ;;
esac
END
    chmod +x "$hosts/bin/$command"
  done
}

all_idle() {
  [ "$("$hosts/bin/sinfo" -h -N -o %t | grep -c '^idle$')" = "$(cat "$hosts/count")" ]
}

up() {
  local i
  [ -e "$hosts/count" ] || die "no hosts: hosts.sh up first"
  [ ! -e "$BED_STATE" ] || die "already up, or not taken down: $BED_STATE"
  mkdir -p "$log" "$BED_STATE/control"
  down_on_failure
  (umask 077 && head -c 128 /dev/urandom >"$BED_STATE/munge.key")
  write_configuration >"$BED_STATE/slurm.conf"
  write_commands
  daemon munged head munged --foreground --force --socket="$BED_STATE/munge.sock" --key-file="$BED_STATE/munge.key" \
    --pid-file="$BED_STATE/munged.own-pid" --log-file="$log/munged.log" --seed-file="$BED_STATE/munge.seed"
  until_true 5 test -S "$BED_STATE/munge.sock" || die "munged: $(cat "$log/munged.out")"
  daemon slurmctld head slurmctld -D -c
  for i in $(seq "$(cat "$hosts/count")"); do
    mkdir -p "$BED_STATE/spool.node$i"
    daemon "slurmd$i" "node$i" slurmd -D -N "node$i"
  done
  until_true 30 all_idle || die "not all nodes became idle: $(tail -qn 3 "$log"/*)"
}

down() {
  [ -d "$BED_STATE" ] || return 0
  local names
  mapfile -t names < <(remembered slurmd)
  end_all "${names[@]}" slurmctld munged
  rm -rf --one-file-system "$BED_STATE"
}

case ${1:-} in
  install) install_packages slurmctld slurmd slurm-client munge ;;
  up) up ;;
  env)
    # shellcheck disable=SC2016
    printf 'export PATH=%q:"$PATH" SLURM_CONF=%q\n' "$hosts/bin" "$BED_STATE/slurm.conf"
    ;;
  down) down ;;
  *) usage ;;
esac
