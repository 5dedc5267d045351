#!/usr/bin/env bash
# Real SMB between virtual machines: guest 0 runs Samba, guests 1, 2, ... mount its share with the kernel's client (cifs),
# each with caches of its own. The guests are user-mode Linux; their network is a namespace that nobody else is in.
#
#   smb-uml.sh install                   the Debian packages it needs
#   smb-uml.sh up [N]                    starts the server and N clients (2), mounts
#   smb-uml.sh exec GUEST SCRIPT         runs a shell script there, and returns its exit status
#   smb-uml.sh put FILE                  makes FILE, a static program, appear as /host/FILE in every guest
#   smb-uml.sh link GUEST down|up        cuts the guest's network, or mends it: packets vanish
#   smb-uml.sh delay GUEST TIME|none     what the guest sends takes that much longer, such as 20ms
#   smb-uml.sh stop|cont|kill GUEST      freezes, thaws or kills the whole guest
#   smb-uml.sh env                       shell variables: BED_KIND=guest, SHARED_DIR, HOST1_IP, ..., and HOST_FILES, the
#                                        directory that guests see as /host
#   smb-uml.sh down                      ends the guests, removes everything
#
# BED_STATE      a directory for what it needs (below $TMPDIR if not set); one for each bed that is up
# SMB_VERSION    the protocol: 3.1.1, 3.0, 2.1 (3.1.1)
# SMB_OPTIONS    more mount options; if not set, what fsgather wants: file_mode=0600,dir_mode=0700,nolease,hard
# SMB_SHARE      lines for the share in smb.conf, such as 'oplocks = no'
# SMB_SIZE_MB    size of the share (256)
# GUEST_MEMORY   memory of a guest (192M)
# EXEC_TIMEOUT   seconds after which exec gives up (300)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
options=${SMB_OPTIONS-file_mode=0600,dir_mode=0700,nolease,hard}
kind=smb size_mb=${SMB_SIZE_MB:-256}
packages=(samba samba-common-bin)
programs=(smbd smbpasswd)
modules=(fs/smb fs/cifs fs/smbfs_common fs/netfs fs/fscache fs/nls net/dns_resolver)
# shellcheck source-path=SCRIPTDIR source=uml.sh
. "$here/uml.sh"

furnish() {
  mkdir -p "$1/etc/samba"
  write_configuration >"$1/etc/samba/smb.conf"
}

write_configuration() {
  cat <<END
[global]
  server role = standalone server
  disable netbios = yes
  smb ports = 445
  disable spoolss = yes
  load printers = no
  passdb backend = smbpasswd:/run/samba/private/smbpasswd
  private dir = /run/samba/private
  state directory = /run/samba
  cache directory = /run/samba
  lock directory = /run/samba
  pid directory = /run/samba
  ncalrpc dir = /run/samba/ncalrpc
  log file = /run/samba/log
[share]
  path = /export
  read only = no
${SMB_SHARE:+  $SMB_SHARE}
END
}

write_server() {
  cat <<'END'
mkdir -p /run/samba/private
printf 'bed\nbed\n' | smbpasswd -a -s root >/run/samba/smbpasswd.log 2>&1
smbd -D
END
}

mount_in() {
  local server
  server=$(address 0)
  run_in "$1" "modprobe cifs
    mount -i -t cifs -o 'ip=$server,vers=${SMB_VERSION:-3.1.1},username=root,password=bed${options:+,$options}' \
      //$server/share /mnt/smb"
}

uml_bed "$@"
