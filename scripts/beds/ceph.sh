#!/usr/bin/env bash
# Two hosts: two ceph-fuse clients of one real CephFS, served by one monitor, one storage server in memory and one metadata server.
#
#   ceph.sh install                     the Debian packages it needs
#   ceph.sh up                          starts the servers, mounts
#   ceph.sh env                         shell variables: HOST1_DIR, HOST2_DIR
#   ceph.sh server stop|cont NAME       mon, osd or mds freezes, thaws
#   ceph.sh down                        unmounts, ends the servers, removes everything
#
# BED_STATE   a directory for what it needs (below $TMPDIR if not set); one for each bed that is up
# BED_PORT    the monitor listens on this port of loopback (29789); the others on ports from 29800 on
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
BED_STATE=${BED_STATE:-${TMPDIR:-/tmp}/fsgather-bed-ceph}
port=${BED_PORT:-29789}
export CEPH_CONF=$BED_STATE/ceph.conf

configure() {
  cat >"$CEPH_CONF" <<END
[global]
fsid = $(cat /proc/sys/kernel/random/uuid)
mon host = v1:127.0.0.1:$port
public addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
ms bind msgr2 = false
ms bind port min = $((port + 11))
ms bind port max = $((port + 99))
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 4
osd pool default pg autoscale mode = off
mon allow pool size one = true
mon osd min in ratio = 0
osd crush chooseleaf type = 0
osd objectstore = memstore
memstore device bytes = 1073741824
run dir = $BED_STATE
admin socket = $BED_STATE/\$name.\$pid.asok
log file = $BED_STATE/\$name.log
mon data = $BED_STATE/mon
osd data = $BED_STATE/osd
mds data = $BED_STATE/mds
keyring = $BED_STATE/keyring
END
}

answers() {
  timeout 2 ceph --connect-timeout 1 -s
}

is_active() {
  timeout 5 ceph fs status 2>/dev/null | grep -q active || timeout 5 ceph mds stat | grep -q up:active
}

is_mounted() {
  mountpoint -q "$1" && ls "$1"
}

up() {
  need_root
  [ ! -e "$BED_STATE" ] || die "already up, or not taken down: $BED_STATE"
  mkdir -p "$BED_STATE"/{host1,host2,mon,osd,mds}
  down_on_failure
  configure
  ceph-authtool --create-keyring "$BED_STATE/keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
  local fsid
  fsid=$(sed -n 's/^fsid = //p' "$CEPH_CONF")
  monmaptool --create --fsid "$fsid" --addv a "[v1:127.0.0.1:$port]" "$BED_STATE/monmap" >/dev/null
  ceph-mon --mkfs -i a --monmap "$BED_STATE/monmap" --keyring "$BED_STATE/keyring" >/dev/null
  background mon "$BED_STATE/mon.out" ceph-mon -f -i a
  until_true 20 answers || die "the monitor: $(tail -n 5 "$BED_STATE/mon.a.log")"
  local id
  id=$(cat /proc/sys/kernel/random/uuid)
  ceph osd new "$id" 0 >/dev/null
  ceph-osd -i 0 --mkfs --osd-uuid "$id" >/dev/null 2>&1
  background osd "$BED_STATE/osd.out" ceph-osd -f -i 0
  background mds "$BED_STATE/mds.out" ceph-mds -f -i a
  ceph osd pool create metadata 4 >/dev/null 2>&1
  ceph osd pool create data 4 >/dev/null 2>&1
  ceph fs new shared metadata data >/dev/null 2>&1
  until_true 30 is_active || die "the metadata server: $(ceph -s 2>&1)"
  local host
  for host in 1 2; do
    background "host$host" "$BED_STATE/host$host.out" ceph-fuse -f -n client.admin "$BED_STATE/host$host"
  done
  for host in 1 2; do
    until_true 20 is_mounted "$BED_STATE/host$host" || die "host $host: $(tail -n 5 "$BED_STATE/host$host.out")"
  done
}

down() {
  [ -d "$BED_STATE" ] || return 0
  unmount "$BED_STATE/host1"
  unmount "$BED_STATE/host2"
  end_all host1 host2 mds osd mon
  rm -rf --one-file-system "$BED_STATE"
}

case ${1:-} in
  install) install_packages ceph-mon ceph-osd ceph-mds ceph-common ceph-fuse ;;
  up) up ;;
  env) printf 'HOST1_DIR=%q\nHOST2_DIR=%q\n' "$BED_STATE/host1" "$BED_STATE/host2" ;;
  server)
    case ${2:-} in
      stop) signal_one STOP "$3" ;;
      cont) signal_one CONT "$3" ;;
      *) usage ;;
    esac
    ;;
  down) down ;;
  *) usage ;;
esac
