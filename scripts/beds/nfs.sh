#!/usr/bin/env bash
# Two hosts that share a directory over NFS. The hosts and their server are virtual machines: the kernel's NFS server runs in guest 0, and
# guests 1 and 2 mount its export at /shared with the kernel's client.
#
#   nfs.sh install               installs Debian packages
#   nfs.sh up [PROGRAM...]       starts the guests; each PROGRAM is in their directory /host
#   nfs.sh exec GUEST SCRIPT     runs a shell script there, and returns its exit status
#   nfs.sh link GUEST down|up    cuts the guest's network, or restores it: packets vanish
#   nfs.sh stop|cont GUEST       freezes or resumes the whole guest
#   nfs.sh down                  ends the guests and removes everything
#
# BED_STATE      directory for the state of this bed (default: below $TMPDIR); each running bed needs its own
# NFS_VERSION    3, 4.0, 4.1 or 4.2 (default: 4.2)
# NFS_OPTIONS    more mount options, such as nocto
# NFS_SIZE_MB    size of the export (default: 256)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=${NFS_VERSION:-4.2}
kind=nfs size_mb=${NFS_SIZE_MB:-256}
packages=(nfs-kernel-server rpcbind)
programs=(rpc.mountd rpc.nfsd exportfs rpcbind)
# shellcheck source-path=SCRIPTDIR source=qemu.sh
. "$here/qemu.sh"

add_files() {
    mkdir -p "$1/etc/exports.d"
    echo '_rpc:x:101:65534::/run/rpcbind:/bin/false' >>"$1/etc/passwd"
    cp /etc/{netconfig,protocols,services,rpc} "$1/etc/"
}

server_script() {
    cat <<'END'
mkdir -p /var/lib/nfs/v4recovery /var/lib/nfs/rpc_pipefs /run/rpcbind
modprobe nfsd
mount -t nfsd nfsd /proc/fs/nfsd
mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
rpcbind -w -i 2>/run/rpcbind.log
echo 15 >/proc/fs/nfsd/nfsv4leasetime
: >/var/lib/nfs/etab
exportfs -i -o rw,sync,no_subtree_check,no_root_squash,fsid=0,insecure 10.77.0.0/24:/shared
rpc.mountd -p 20048
rpc.nfsd 4
# A new server has no clients to wait for; without this the first opens would take as long as the grace period.
echo Y >/proc/fs/nfsd/v4_end_grace
END
}

mount_in() {
    local server options source type=nfs4
    server=$(address 0)
    options=proto=tcp,port=2049,addr=$server source=$server:/
    if [ "$version" = 3 ]; then
        options+=,mountport=20048,mountproto=tcp,mountaddr=$server,nolock
        source=$server:/shared type=nfs
    else
        options+=,clientaddr=$(address "$1")
    fi
    run_in "$1" "modprobe nfsv${version%%.*}
        mount -i -t $type -o 'vers=$version,$options${NFS_OPTIONS:+,$NFS_OPTIONS}' $source /shared"
}

guests "$@"
