#!/usr/bin/env bash
# Hosts made of namespaces: node1, node2, ... and head, each with a host name, an address, a boot id, a machine id and mounts
# of its own, on one network that nobody else is on. The file systems are those of this machine.
#
#   hosts.sh install            the Debian packages it needs
#   hosts.sh up [N]             makes N nodes (2) and head
#   hosts.sh exec HOST CMD...   runs CMD on that host, in place of this process
#   hosts.sh link I down|up     pulls the cable of node I, or plugs it in again: packets vanish
#   hosts.sh clear HOST         kills all processes on that host
#   hosts.sh env                shell variables: BED_STATE, HOST1_IP, ..., SHARED_DIR and LOCAL_DIR (see below), REMOTE_SHELL
#   hosts.sh down               kills all processes on the hosts, removes everything
#
# BED_STATE              a directory for what it needs (below $TMPDIR if not set); one for each bed that is up
# HOST1_DIR, HOST2_DIR...   what node I sees at the path $SHARED_DIR, for instance from `fuse-double.sh env`; if not set, a
#                        directory that all share. Take that bed down after this one.
# BED_LINK               a file of settings of link.py, which then connects the nodes, as slow as these say; head is not on
#                        that network, and `link` is of no use
#
# $LOCAL_DIR is one path, and on each host a directory of its own. $REMOTE_SHELL is used as ssh is, by mpirun.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
BED_STATE=${BED_STATE:-${TMPDIR:-/tmp}/fsgather-bed-hosts}
network=10.78.0
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# at HOST CMD...: in place of this process.
at() {
  local pid
  pid=$(recall "host.$1") || die "no host $1: it is not up"
  shift
  exec nsenter -t "$pid" --net --uts --mount --wdns="$PWD" "$@"
}

has_own_namespaces() {
  [ "$(readlink "/proc/$1/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ] && [ "$(cat "/proc/$1/comm")" = sleep ]
}

# make HOST ADDRESS: all of a host but its cable.
make() {
  local host=$1 own=$BED_STATE/host.$1 shared=HOST${1#node}_DIR
  mkdir -p "$own/local"
  cat /proc/sys/kernel/random/uuid >"$own/boot_id"
  tr -d '\n-' <"$own/boot_id" >"$own/machine-id"
  background "host.$host" "$own/log" unshare --net --uts --mount --propagation private sleep infinity
  until_true 5 has_own_namespaces "$!" || die "cannot make namespaces: $(cat "$own/log")"
  # The shell expands what is between these quotes on the host that is being made.
  # shellcheck disable=SC2016
  (at "$host" bash -euc '
    hostname "$1"
    ip link set lo up
    mount --bind "$2/etc-hosts" /etc/hosts
    mount --bind "$3/boot_id" /proc/sys/kernel/random/boot_id
    [ ! -e /etc/machine-id ] || mount --bind "$3/machine-id" /etc/machine-id
    mount --bind "$3/local" "$2/local"
    [ -z "$4" ] || mount --bind "$4" "$2/shared"
  ' - "$host" "$BED_STATE" "$own" "${!shared:-}")
}

# A bridge on head, and a cable from each node to it; or link.py, and a cable from each node to that.
connect() {
  local i
  if [ -n "${BED_LINK:-}" ]; then
    # It runs until its standard input ends.
    background link "$BED_STATE/link.log" nsenter -t "$(recall host.head)" --net sh -c "tail -f /dev/null | exec python3 '$here/link.py' '$BED_LINK' $1"
    until_true 5 grep -qx ready "$BED_STATE/link.log" || die "no link: $(cat "$BED_STATE/link.log")"
    for i in $(seq "$1"); do
      (at head ip link set "cable$i" netns "$(recall "host.node$i")" name eth0)
      plug_in "$i"
    done
    return
  fi
  (at head ip link add bridge0 type bridge)
  (at head ip address add "$network.10/24" dev bridge0)
  (at head ip link set bridge0 up)
  for i in $(seq "$1"); do
    (at head ip link add "port$i" type veth peer name eth0 netns "$(recall "host.node$i")")
    (at head ip link set "port$i" master bridge0 up)
    plug_in "$i"
  done
}

# plug_in I: gives the network card of a node its address.
plug_in() {
  (at "node$1" ip address add "$network.$((10 + $1))/24" dev eth0)
  (at "node$1" ip link set eth0 up)
}

# The calling convention of ssh: options, host, a command line for a shell.
write_remote_shell() {
  cat >"$BED_STATE/bin/remote-shell" <<END
#!/usr/bin/env bash
while [[ \${1:-} == -* ]]; do
  case \$1 in -l | -p | -o | -i | -F) shift 2 ;; *) shift ;; esac
done
host=\${1#*@}
shift
exec env -i HOME="\${HOME:-/root}" PATH=$path BED_STATE='$BED_STATE' '$here/hosts.sh' exec "\$host" bash -c "\$*"
END
  chmod +x "$BED_STATE/bin/remote-shell"
}

up() {
  local count=${1:-2} i
  need_root
  [ ! -e "$BED_STATE" ] || die "already up, or not taken down: $BED_STATE"
  mkdir -p "$BED_STATE"/{bin,local,shared}
  down_on_failure
  echo "$count" >"$BED_STATE/count"
  {
    echo "127.0.0.1 localhost"
    echo "$network.10 head"
    for i in $(seq "$count"); do echo "$network.$((10 + i)) node$i"; done
  } >"$BED_STATE/etc-hosts"
  make head
  for i in $(seq "$count"); do make "node$i"; done
  connect "$count"
  write_remote_shell
}

# The processes on a host, the one that keeps it alive excepted.
processes_on() {
  local keeper namespace process
  keeper=$(recall "host.$1") || return 0
  namespace=$(readlink "/proc/$keeper/ns/uts")
  for process in /proc/[0-9]*; do
    [ "${process#/proc/}" != "$keeper" ] || continue
    [ "$(readlink "$process/ns/uts" 2>/dev/null)" != "$namespace" ] || echo "${process#/proc/}"
  done
}

clear_host() {
  local process
  for process in $(processes_on "$1"); do kill -KILL "$process" 2>/dev/null || true; done
}

# link.py and what feeds it, a session of their own.
clear_link() {
  local link
  link=$(recall link) || return 0
  kill -KILL -- "-$link" 2>/dev/null || true
}

down() {
  [ -d "$BED_STATE" ] || return 0
  local name
  clear_link
  for name in $(remembered host.); do
    clear_host "${name#host.}"
    end_all "$name"
  done
  rm -rf --one-file-system "$BED_STATE"
}

print_env() {
  local i
  printf 'export BED_STATE=%q REMOTE_SHELL=%q\n' "$BED_STATE" "$BED_STATE/bin/remote-shell"
  printf 'SHARED_DIR=%q\nLOCAL_DIR=%q\n' "$BED_STATE/shared" "$BED_STATE/local"
  for i in $(seq "$(cat "$BED_STATE/count")"); do echo "HOST${i}_IP=$network.$((10 + i))"; done
}

case ${1:-} in
  install) install_packages iproute2 util-linux ;;
  up) up "${2:-2}" ;;
  exec)
    host=$2
    shift 2
    at "$host" "$@"
    ;;
  link) (at head ip link set "port$2" "$3") ;;
  clear) clear_host "$2" ;;
  env) print_env ;;
  down) down ;;
  *) usage ;;
esac
