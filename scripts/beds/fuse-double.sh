#!/usr/bin/env bash
# Two hosts: two FUSE mounts of one directory, each with the kernel caches of an NFS client, and faults on demand.
#
#   fuse-double.sh install             the Debian packages it needs
#   fuse-double.sh up                  mounts
#   fuse-double.sh env                 shell variables: HOST1_DIR, HOST2_DIR, BACKING_DIR
#   fuse-double.sh rules HOST RULES    faults that HOST (1 or 2) meets from now on, see cachefs.c; none when empty
#   fuse-double.sh stop|cont|kill HOST freezes, thaws or kills the file server behind the mount of HOST
#   fuse-double.sh down                unmounts, removes everything
#
# BED_STATE     a directory for what it needs (below $TMPDIR if not set); one for each bed that is up
# FUSE_CACHE    seconds for which names, attributes and absences are trusted (30)
# FUSE_OPTIONS  options of cachefs for both hosts; FUSE_OPTIONS1, FUSE_OPTIONS2 for one
# FUSE_SIZE_MB  puts the directory on a file system of its own of that size
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$here/lib.sh"
BED_STATE=${BED_STATE:-${TMPDIR:-/tmp}/fsgather-bed-fuse}
cache=${FUSE_CACHE:-30}

build() {
  local flags
  flags=$(pkg-config --cflags --libs fuse3)
  # shellcheck disable=SC2086
  cc -O2 -Wall -Wextra -o "$BED_STATE/cachefs" "$here/cachefs.c" $flags
}

up() {
  need_root
  [ ! -e "$BED_STATE" ] || die "already up, or not taken down: $BED_STATE"
  mkdir -p "$BED_STATE"/{back,host1,host2}
  down_on_failure
  build
  if [ -n "${FUSE_SIZE_MB:-}" ]; then
    truncate -s "${FUSE_SIZE_MB}M" "$BED_STATE/image"
    mkfs.ext4 -q -F "$BED_STATE/image"
    mount -o loop "$BED_STATE/image" "$BED_STATE/back"
  fi
  local host own
  for host in 1 2; do
    : >"$BED_STATE/rules$host"
    own=FUSE_OPTIONS$host
    # shellcheck disable=SC2086
    background "host$host" "$BED_STATE/log$host" "$BED_STATE/cachefs" --root="$BED_STATE/back" \
      --rules="$BED_STATE/rules$host" ${FUSE_OPTIONS:-} ${!own:-} -f \
      -o "entry_timeout=$cache,attr_timeout=$cache,negative_timeout=$cache,allow_other,fsname=cachefs$host" \
      "$BED_STATE/host$host"
  done
  for host in 1 2; do
    until_true 5 mountpoint -q "$BED_STATE/host$host" || die "host $host: $(cat "$BED_STATE/log$host")"
  done
}

down() {
  [ -d "$BED_STATE" ] || return 0
  local host
  for host in 1 2; do
    # A request that hangs because of a rule ends with the rule.
    : >"$BED_STATE/rules$host"
    unmount "$BED_STATE/host$host"
  done
  end_all host1 host2
  unmount "$BED_STATE/back"
  rm -rf --one-file-system "$BED_STATE"
}

case ${1:-} in
  install) install_packages fuse3 libfuse3-dev pkg-config gcc libc6-dev e2fsprogs ;;
  up) up ;;
  env)
    printf 'HOST1_DIR=%q\nHOST2_DIR=%q\nBACKING_DIR=%q\n' \
      "$BED_STATE/host1" "$BED_STATE/host2" "$BED_STATE/back"
    ;;
  rules)
    printf '%s\n' "$3" >"$BED_STATE/rules$2.new"
    mv "$BED_STATE/rules$2.new" "$BED_STATE/rules$2"
    ;;
  stop) signal_one STOP "host$2" ;;
  cont) signal_one CONT "host$2" ;;
  kill) signal_one KILL "host$2" ;;
  down) down ;;
  *) usage ;;
esac
