# shellcheck shell=bash
# What the beds between virtual machines have in common; sourced by them, not run.
#
# Guest 0 is a file server, guests 1, 2, ... mount what it exports, each with caches of its own. The guests are user-mode
# Linux; their network is a namespace that nobody else is in. Their root is a directory of this machine, which they share.
#
# A bed sets, before it reads this file:
#
#   here        the directory of this file
#   kind        its name: what is shared is /mnt/$kind in the guests
#   packages    Debian packages of the server and of the clients, beside those of this file
#   programs    programs of this machine that go to the guests, with their shared libraries
#   modules     directories of kernel modules that they need, beside those of their network
#   size_mb     the size of the file system that guest 0 has at /export
#
# and defines, before it calls `uml_bed "$@"`:
#
#   furnish ROOT       puts what else they need below ROOT
#   write_server       prints what guest 0 runs when it starts
#   mount_in GUEST     mounts what it exports
: "${here:?}" "${kind:?}" "${size_mb:?}" "${packages[0]:?}" "${programs[0]:?}" "${modules[0]:?}"
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
network=10.77.0

address() {
  echo "$network.$((10 + $1))"
}

# Runs a command in the network that the guests are on.
inside() {
  nsenter -t "$(recall network)" --net "$@"
}

# copy_libraries ROOT FILE...: what these programs and libraries are linked to.
copy_libraries() {
  local root=$1 library
  shift
  while read -r library; do
    mkdir -p "$root${library%/*}"
    [ -e "$root$library" ] || cp -L "$library" "$root$library"
  done < <(ldd "$@" | grep -o '/[^ ):]*\.so[^ ):]*' | sort -u)
}

copy_programs() {
  local root=$1 name program
  shift
  for name; do
    program=$(PATH=$PATH:/usr/sbin:/sbin command -v "$name") || die "$name is missing: ${0##*/} install"
    cp -L "$program" "$root/usr/sbin/"
    copy_libraries "$root" "$program"
  done
}

copy_modules() {
  local root=$1 from to part
  shift
  from=$(echo /usr/lib/uml/modules/*)
  [ -d "$from" ] || die "there is no one kernel in /usr/lib/uml/modules"
  to=$root/lib/modules/${from##*/}
  mkdir -p "$to"
  cp "$from"/modules.* "$to/"
  for part; do
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
for d in tmp run var mnt; do mount -t tmpfs tmpfs /$d; done
ln -s /run /var/run
mount -t hostfs -o "$FILES" none /host
echo /bin/modprobe >/proc/sys/kernel/modprobe
hostname "host$GUEST"
ip link set lo up
ip link set vec0 up
ip addr add "$ADDRESS/24" dev vec0
mkdir "/mnt/$KIND"
if [ "$GUEST" = 0 ]; then
  mount -t ext4 /dev/ubda /export
  . /server
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
  copy_modules "$root" net/sched crypto lib "${modules[@]}"
  copy_programs "$root" tc "${programs[@]}"
  printf 'root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n' >"$root/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
  local table
  for table in passwd group hosts protocols services rpc netgroup; do echo "$table: files"; done >"$root/etc/nsswitch.conf"
  furnish "$root"
  write_agent >"$root/agent"
  write_init >"$root/init"
  write_server >"$root/server"
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
  [ "$guest" != 0 ] || disk=("ubd0=$BED_STATE/memory/export")
  background "guest$guest" "$BED_STATE/console.$guest" nsenter -t "$(recall network)" --net \
    env TMPDIR="$BED_STATE/memory" linux.uml "mem=${GUEST_MEMORY:-192M}" "uml_dir=$BED_STATE/sockets/" "umid=guest$guest" \
    root=/dev/root rootfstype=hostfs "rootflags=$BED_STATE/root" rw init=/init "${disk[@]}" \
    "vec0:transport=tap,ifname=tap$guest,depth=64,gro=1" "GUEST=$guest" "KIND=$kind" "ADDRESS=$(address "$guest")" \
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

up() {
  local count=${1:-2} guest
  need_root
  [ ! -e "$BED_STATE" ] || die "already up, or not taken down: $BED_STATE"
  mkdir -p "$BED_STATE"/{memory,sockets}
  down_on_failure
  echo "$count" >"$BED_STATE/count"
  # The guests' memory is files that they map, and execute. The server's disk is there as well: what else this machine writes would
  # slow it down.
  mount -t tmpfs -o exec,size=4g tmpfs "$BED_STATE/memory"
  write_root
  truncate -s "${size_mb}M" "$BED_STATE/memory/export"
  mkfs.ext4 -q -F -O ^has_journal "$BED_STATE/memory/export"
  make_network
  for guest in $(seq 0 "$count"); do boot "$guest"; done
  for guest in $(seq 0 "$count"); do
    EXEC_TIMEOUT=1 until_true 60 run_in "$guest" true || die "guest $guest: $(tail -n 5 "$BED_STATE/console.$guest")"
  done
  for guest in $(seq "$count"); do mount_in "$guest" || die "guest $guest cannot mount"; done
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
  printf 'BED_KIND=guest\nSHARED_DIR=/mnt/%s\nHOST_FILES=%q\n' "$kind" "$BED_STATE/files"
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
  # By its path: Busybox has a tc of its own, which knows little.
  if [ "$2" = none ]; then
    run_in "$1" "/usr/sbin/tc qdisc del dev vec0 root"
  else
    run_in "$1" "modprobe sch_netem; /usr/sbin/tc qdisc replace dev vec0 root netem delay $2"
  fi
}

# What a user of the bed asks for, as the comment at its head says.
uml_bed() {
  BED_STATE=${BED_STATE:-${TMPDIR:-/tmp}/fsgather-bed-$kind}
  case ${1:-} in
    install) install_packages user-mode-linux busybox-static iproute2 e2fsprogs "${packages[@]}" ;;
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
}
