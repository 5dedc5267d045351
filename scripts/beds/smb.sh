#!/usr/bin/env bash
# Two hosts that share a directory over SMB. The hosts and their server are virtual machines: Samba runs in guest 0, and guests 1 and 2 mount
# its share at /shared with the kernel's client (cifs). The commands are those of nfs.sh.
#
# BED_STATE      directory for the state of this bed (default: below $TMPDIR); each running bed needs its own
# SMB_OPTIONS    mount options (default: those that fsgather needs: file_mode=0600,dir_mode=0700,nolease,hard)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
kind=smb size_mb=256
packages=(samba samba-common-bin)
programs=(smbd smbpasswd)
# shellcheck source-path=SCRIPTDIR source=qemu.sh
. "$here/qemu.sh"

add_files() {
    mkdir -p "$1/etc/samba"
    cat >"$1/etc/samba/smb.conf" <<'END'
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
  path = /shared
  read only = no
END
}

server_script() {
    cat <<'END'
mkdir -p /run/samba/private
printf 'bed\nbed\n' | smbpasswd -a -s root >/run/samba/smbpasswd.log 2>&1
smbd -D
END
}

mount_in() {
    local server options=${SMB_OPTIONS-file_mode=0600,dir_mode=0700,nolease,hard}
    server=$(address 0)
    run_in "$1" "modprobe cifs
        mount -i -t cifs -o 'ip=$server,vers=3.1.1,username=root,password=bed${options:+,$options}' //$server/share /shared"
}

guests "$@"
