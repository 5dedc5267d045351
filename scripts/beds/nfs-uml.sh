#!/usr/bin/env bash
# Real NFS between virtual machines: guest 0 runs the kernel's NFS server, guests 1, 2, ... mount its export with the kernel's
# client, each with caches of its own. The guests are user-mode Linux; their network is a namespace that nobody else is in.
#
#   nfs-uml.sh install                   the Debian packages it needs
#   nfs-uml.sh up [N]                    starts the server and N clients (2), mounts
#   nfs-uml.sh exec GUEST SCRIPT         runs a shell script there, and returns its exit status
#   nfs-uml.sh put FILE                  makes FILE, a static program, appear as /host/FILE in every guest
#   nfs-uml.sh link GUEST down|up        cuts the guest's network, or mends it: packets vanish
#   nfs-uml.sh delay GUEST TIME|none     what the guest sends takes that much longer, such as 20ms
#   nfs-uml.sh stop|cont|kill GUEST      freezes, thaws or kills the whole guest
#   nfs-uml.sh env                       shell variables: BED_KIND=guest, SHARED_DIR, HOST1_IP, ..., and HOST_FILES, the
#                                        directory that guests see as /host
#   nfs-uml.sh down                      ends the guests, removes everything
#
# BED_STATE      a directory for what it needs (below $TMPDIR if not set); one for each bed that is up
# NFS_VERSION    3, 4.0, 4.1 or 4.2 (4.2)
# NFS_OPTIONS    more mount options, such as nocto
# NFS_SIZE_MB    size of the export (256)
# GUEST_MEMORY   memory of a guest (192M)
# EXEC_TIMEOUT   seconds after which exec gives up (300)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
BED_STATE=${BED_STATE:-${TMPDIR:-/tmp}/fsgather-bed-nfs}
version=${NFS_VERSION:-4.2}
network=10.77.0
server=$network.10

address() {
  echo "$network.$((10 + $1))"
}

# Runs a command in the network that the guests are on.
inside() {
  nsenter -t "$(recall network)" --net "$@"
}

# Programs of this machine that the server guest needs, with their shared libraries.
copy_programs() {
  local root=$1 name program library
  for name in rpc.mountd rpc.nfsd exportfs rpcbind tc; do
    program=$(PATH=$PATH:/usr/sbin:/sbin command -v "$name") || die "$name is missing: nfs-uml.sh install"
    cp -L "$program" "$root/usr/sbin/"
    while read -r library; do
      mkdir -p "$root${library%/*}"
      [ -e "$root$library" ] || cp -L "$library" "$root$library"
    done < <(ldd "$program" | grep -o '/[^ )]*')
  done
}

copy_modules() {
  local root=$1 from to part
  from=$(echo /usr/lib/uml/modules/*)
  [ -d "$from" ] || die "there is no one kernel in /usr/lib/uml/modules"
  to=$root/lib/modules/${from##*/}
  mkdir -p "$to"
  cp "$from"/modules.* "$to/"
  for part in fs/nfs fs/nfsd fs/nfs_common fs/lockd fs/fscache fs/netfs net/sunrpc net/dns_resolver net/sched crypto lib; do
    [ -e "$from/kernel/$part" ] || continue
    mkdir -p "$to/kernel/$part"
    cp -r "$from/kernel/$part/." "$to/kernel/$part/"
  done
}

write_agent() {
  # It runs what it is sent up to the end mark, and says the exit status last.
  cat <<'END'
#!/bin/sh
export PATH=/bin:/sbin:/usr/sbin
script=/tmp/script.$$
: >$script
while IFS= read -r line; do
  [ "$line" = "#__END__" ] && break
  printf '%s\n' "$line" >>$script
done
sh $script </dev/null 2>&1
status=$?
rm -f $script
printf '\n__STATUS=%s\n' $status
END
}

write_init() {
  cat <<'END'
#!/bin/sh
export PATH=/bin:/sbin:/usr/sbin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
for d in tmp run var; do mount -t tmpfs tmpfs /$d; done
mkdir -p /var/lib/nfs/v4recovery /var/lib/nfs/rpc_pipefs /var/lib/nfs/sm /var/lib/nfs/sm.bak /run/rpcbind
ln -s /run /var/run
mount -t hostfs -o "$FILES" none /host
echo /bin/modprobe >/proc/sys/kernel/modprobe
hostname "host$GUEST"
ip link set lo up
ip link set vec0 up
ip addr add "$ADDRESS/24" dev vec0
mount -t tmpfs tmpfs /mnt
mkdir -p /mnt/nfs
if [ "$GUEST" = 0 ]; then
  mount -t ext4 /dev/ubda /export
  modprobe nfsd
  mount -t nfsd nfsd /proc/fs/nfsd
  mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
  rpcbind -w -i 2>/run/rpcbind.log
  echo 5 >/proc/fs/nfsd/nfsv4gracetime
  echo 15 >/proc/fs/nfsd/nfsv4leasetime
  mkdir -p /etc/exports.d
  : >/var/lib/nfs/etab
  exportfs -i -o rw,sync,no_subtree_check,no_root_squash,fsid=0,insecure "$NETWORK:/export"
  rpc.mountd -p 20048
  rpc.nfsd 4
  # A fresh server has no clients to wait for; the first opens would hang for the grace period.
  echo Y >/proc/fs/nfsd/v4_end_grace
fi
nc -ll -p 9000 -e /agent
END
}

write_root() {
  local root=$BED_STATE/root applet
  mkdir -p "$root"/{bin,sbin,usr/sbin,lib,proc,sys,dev,tmp,run,var,mnt,etc,export,host} "$BED_STATE/files"
  cp "$(command -v busybox)" "$root/bin/busybox"
  for applet in $("$root/bin/busybox" --list); do
    [ "$applet" = busybox ] || ln -sf busybox "$root/bin/$applet"
  done
  copy_modules "$root"
  copy_programs "$root"
  printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n_rpc:x:101:65534::/run/rpcbind:/bin/false\n' \
    >"$root/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
  local table
  for table in netconfig protocols services rpc; do
    [ ! -e "/etc/$table" ] || cp "/etc/$table" "$root/etc/"
  done
  for table in passwd group hosts protocols services rpc netgroup; do echo "$table: files"; done >"$root/etc/nsswitch.conf"
  write_agent >"$root/agent"
  write_init >"$root/init"
  chmod 755 "$root/agent" "$root/init"
}

make_network() {
  background network "$BED_STATE/network.log" unshare --net sleep infinity
  until_true 5 has_own_network || die "cannot make a network namespace: $(cat "$BED_STATE/network.log")"
  inside ip link set lo up
  inside ip link add bridge0 type bridge
  inside ip address add "$network.1/24" dev bridge0
  inside ip link set bridge0 up
}

has_own_network() {
  [ "$(readlink "/proc/$(recall network)/ns/net")" != "$(readlink /proc/self/ns/net)" ]
}

boot() {
  local guest=$1 disk=()
  inside ip tuntap add "tap$guest" mode tap
  inside ip link set "tap$guest" master bridge0 up
  [ "$guest" != 0 ] || disk=("ubd0=$BED_STATE/export")
  background "guest$guest" "$BED_STATE/console.$guest" nsenter -t "$(recall network)" --net \
    env TMPDIR="$BED_STATE/memory" linux.uml "mem=${GUEST_MEMORY:-192M}" "uml_dir=$BED_STATE/sockets/" "umid=guest$guest" \
    root=/dev/root rootfstype=hostfs "rootflags=$BED_STATE/root" rw init=/init "${disk[@]}" \
    "vec0:transport=tap,ifname=tap$guest,depth=64,gro=1" "GUEST=$guest" "ADDRESS=$(address "$guest")" \
    "NETWORK=$network.0/24" "FILES=$BED_STATE/files" con=null con0=null,fd:1 quiet
}

run_in() {
  # The inner shell expands what is between these quotes.
  # shellcheck disable=SC2016
  inside timeout "${EXEC_TIMEOUT:-300}" bash -c '
    exec 3<>"/dev/tcp/$0/9000" || exit 255
    printf "%s\n#__END__\n" "$1" >&3
    status=255
    while IFS= read -r line <&3; do
      case $line in __STATUS=*) status=${line#__STATUS=} ;; *) printf "%s\n" "$line" ;; esac
    done
    exit "$status"' "$(address "$1")" "$2" | sed -u '${/^$/d}'
}

mount_in() {
  local options=proto=tcp,port=2049,addr=$server source=$server:/ type=nfs4
  if [ "$version" = 3 ]; then
    options+=,mountport=20048,mountproto=tcp,mountaddr=$server,nolock
    source=$server:/export type=nfs
  else
    options+=,clientaddr=$(address "$1")
  fi
  run_in "$1" "modprobe nfsv${version%%.*}
    mount -i -t $type -o 'vers=$version,$options${NFS_OPTIONS:+,$NFS_OPTIONS}' $source /mnt/nfs" ||
    die "guest $1 cannot mount"
}

up() {
  local count=${1:-2} guest
  need_root
  [ ! -e "$BED_STATE" ] || die "already up, or not taken down: $BED_STATE"
  mkdir -p "$BED_STATE"/{memory,sockets}
  down_on_failure
  echo "$count" >"$BED_STATE/count"
  # The guests' memory is files that they map, and execute.
  mount -t tmpfs -o exec,size=4g tmpfs "$BED_STATE/memory"
  write_root
  truncate -s "${NFS_SIZE_MB:-256}M" "$BED_STATE/export"
  mkfs.ext4 -q -F -O ^has_journal "$BED_STATE/export"
  make_network
  for guest in $(seq 0 "$count"); do boot "$guest"; done
  for guest in $(seq 0 "$count"); do
    EXEC_TIMEOUT=1 until_true 60 run_in "$guest" true || die "guest $guest: $(tail -n 5 "$BED_STATE/console.$guest")"
  done
  for guest in $(seq "$count"); do mount_in "$guest"; done
}

down() {
  [ -d "$BED_STATE" ] || return 0
  local name pid names
  mapfile -t names < <(remembered guest)
  for name in "${names[@]}"; do
    # A guest's threads are processes in the session that was made for it.
    if pid=$(recall "$name"); then kill -KILL -- "-$pid" 2>/dev/null || true; fi
  done
  end_all "${names[@]}" network
  unmount "$BED_STATE/memory"
  rm -rf --one-file-system "$BED_STATE"
}

print_env() {
  local guest
  printf 'BED_KIND=guest\nSHARED_DIR=/mnt/nfs\nHOST_FILES=%q\n' "$BED_STATE/files"
  for guest in $(seq "$(cat "$BED_STATE/count")"); do echo "HOST${guest}_IP=$(address "$guest")"; done
}

put() {
  cp "$1" "$BED_STATE/files/${1##*/}.new"
  chmod 755 "$BED_STATE/files/${1##*/}.new"
  mv "$BED_STATE/files/${1##*/}.new" "$BED_STATE/files/${1##*/}"
}

link() {
  # A guest does not get over its device going down; that it leads nowhere is all the same to it.
  if [ "$2" = down ]; then inside ip link set "tap$1" nomaster; else inside ip link set "tap$1" master bridge0; fi
}

delay() {
  if [ "$2" = none ]; then
    run_in "$1" "tc qdisc del dev vec0 root"
  else
    run_in "$1" "modprobe sch_netem; tc qdisc replace dev vec0 root netem delay $2"
  fi
}

case ${1:-} in
  install) install_packages user-mode-linux busybox-static nfs-kernel-server rpcbind iproute2 e2fsprogs ;;
  up) up "${2:-2}" ;;
  exec) run_in "$2" "$3" ;;
  put) put "$2" ;;
  link) link "$2" "$3" ;;
  delay) delay "$2" "$3" ;;
  stop) signal_one STOP "guest$2" ;;
  cont) signal_one CONT "guest$2" ;;
  kill) kill -KILL -- "-$(recall "guest$2")" ;;
  env) print_env ;;
  down) down ;;
  *) usage ;;
esac
