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
version=${NFS_VERSION:-4.2}
kind=nfs size_mb=${NFS_SIZE_MB:-256}
packages=(nfs-kernel-server rpcbind)
programs=(rpc.mountd rpc.nfsd exportfs rpcbind)
modules=(fs/nfs fs/nfsd fs/nfs_common fs/lockd fs/fscache fs/netfs net/sunrpc net/dns_resolver)
# shellcheck source-path=SCRIPTDIR source=uml.sh
. "$here/uml.sh"

furnish() {
  local table
  echo '_rpc:x:101:65534::/run/rpcbind:/bin/false' >>"$1/etc/passwd"
  for table in netconfig protocols services rpc; do
    [ ! -e "/etc/$table" ] || cp "/etc/$table" "$1/etc/"
  done
}

write_server() {
  cat <<'END'
mkdir -p /var/lib/nfs/v4recovery /var/lib/nfs/rpc_pipefs /var/lib/nfs/sm /var/lib/nfs/sm.bak /run/rpcbind
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
END
}

mount_in() {
  local server options source type=nfs4
  server=$(address 0)
  options=proto=tcp,port=2049,addr=$server source=$server:/
  if [ "$version" = 3 ]; then
    options+=,mountport=20048,mountproto=tcp,mountaddr=$server,nolock
    source=$server:/export type=nfs
  else
    options+=,clientaddr=$(address "$1")
  fi
  run_in "$1" "modprobe nfsv${version%%.*}
    mount -i -t $type -o 'vers=$version,$options${NFS_OPTIONS:+,$NFS_OPTIONS}' $source /mnt/nfs"
}

uml_bed "$@"
