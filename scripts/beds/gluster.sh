#!/usr/bin/env bash
# Two hosts: two clients of one real GlusterFS volume, replicated over two brick servers on this machine's loopback.
#
#   gluster.sh install                            the Debian packages it needs
#   gluster.sh up                                 starts the brick servers, mounts
#   gluster.sh env                                shell variables: HOST1_DIR, HOST2_DIR
#   gluster.sh brick BRICK stop|cont|kill|start   a brick server (1 or 2) freezes, thaws, dies, comes back
#   gluster.sh down                               unmounts, ends the servers, removes everything
#
# BED_STATE         a directory for what it needs (below $TMPDIR if not set); one for each bed that is up
# GLUSTER_PORT      the brick servers listen on the two ports after this one (24107)
# GLUSTER_OPTIONS1, GLUSTER_OPTIONS2   more options for a client, such as --negative-timeout=10
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
BED_STATE=${BED_STATE:-${TMPDIR:-/tmp}/fsgather-bed-gluster}
port=${GLUSTER_PORT:-24107}

brick() {
  background "brick$1" "$BED_STATE/brick$1.out" glusterfsd -N -f "$BED_STATE/brick$1.vol" -l "$BED_STATE/brick$1.log" \
    -p "$BED_STATE/brick$1.own-pid" --xlator-option "brick$1-server.listen-port=$((port + $1))"
}

# The volume files that a management daemon would otherwise write.
write_brick() {
  local id
  id=$(cat /proc/sys/kernel/random/uuid)
  mkdir -p "$BED_STATE/brick$1/data/.glusterfs"
  # A brick finds its volume by this attribute.
  setfattr -n trusted.glusterfs.volume-id -v "0x${id//-/}" "$BED_STATE/brick$1/data"
  cat >"$BED_STATE/brick$1.vol" <<END
volume brick$1-posix
  type storage/posix
  option directory $BED_STATE/brick$1/data
  option volume-id $id
end-volume
volume brick$1-locks
  type features/locks
  subvolumes brick$1-posix
end-volume
volume brick$1-threads
  type performance/io-threads
  option thread-count 4
  subvolumes brick$1-locks
end-volume
volume brick$1-server
  type protocol/server
  option transport-type tcp
  option transport.socket.bind-address 127.0.0.1
  option transport.address-family inet
  option auth.addr.brick$1-threads.allow *
  subvolumes brick$1-threads
end-volume
END
}

write_client() {
  local brick
  for brick in 1 2; do
    cat <<END
volume client$brick
  type protocol/client
  option transport-type tcp
  option transport.address-family inet
  option remote-host 127.0.0.1
  option remote-port $((port + brick))
  option remote-subvolume brick$brick-threads
  option ping-timeout 5
end-volume
END
  done
  cat <<END
volume replicated
  type cluster/replicate
  option afr-pending-xattr volume-client-0,volume-client-1
  subvolumes client1 client2
end-volume
volume distributed
  type cluster/distribute
  subvolumes replicated
end-volume
volume write-behind
  type performance/write-behind
  subvolumes distributed
end-volume
volume md-cache
  type performance/md-cache
  option md-cache-timeout 1
  subvolumes write-behind
end-volume
END
}

listens() {
  (exec 3<>"/dev/tcp/127.0.0.1/$((port + $1))") 2>/dev/null
}

is_mounted() {
  mountpoint -q "$1" && ls "$1"
}

up() {
  need_root
  [ ! -e "$BED_STATE" ] || die "already up, or not taken down: $BED_STATE"
  mkdir -p "$BED_STATE"/{host1,host2}
  down_on_failure
  local brick host own
  for brick in 1 2; do
    write_brick "$brick"
    brick "$brick"
  done
  write_client >"$BED_STATE/client.vol"
  for brick in 1 2; do
    until_true 10 listens "$brick" || die "brick $brick: $(tail -n 5 "$BED_STATE/brick$brick.log")"
  done
  for host in 1 2; do
    own=GLUSTER_OPTIONS$host
    # shellcheck disable=SC2086
    background "host$host" "$BED_STATE/host$host.out" glusterfs -N -f "$BED_STATE/client.vol" \
      -l "$BED_STATE/host$host.log" ${!own:-} "$BED_STATE/host$host"
  done
  for host in 1 2; do
    until_true 15 is_mounted "$BED_STATE/host$host" || die "host $host: $(tail -n 5 "$BED_STATE/host$host.log")"
  done
}

down() {
  [ -d "$BED_STATE" ] || return 0
  unmount "$BED_STATE/host1"
  unmount "$BED_STATE/host2"
  end_all host1 host2 brick1 brick2
  rm -rf --one-file-system "$BED_STATE"
}

case ${1:-} in
  install) install_packages glusterfs-server glusterfs-client attr ;;
  up) up ;;
  env) printf 'HOST1_DIR=%q\nHOST2_DIR=%q\n' "$BED_STATE/host1" "$BED_STATE/host2" ;;
  brick)
    case ${3:-} in
      stop) signal_one STOP "brick$2" ;;
      cont) signal_one CONT "brick$2" ;;
      kill) signal_one KILL "brick$2" ;;
      start) brick "$2" ;;
      *) usage ;;
    esac
    ;;
  down) down ;;
  *) usage ;;
esac
