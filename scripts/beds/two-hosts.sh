# shellcheck shell=bash
# Two hosts with a shared file system, whatever makes them; sourced by the tests that use it.
#
# After `take_up BED`: `on HOST SCRIPT` runs a shell script on host 1 or 2, $SHARED is the shared directory there, $OWN a
# directory of the host's own, and $ROUNDS and $FSGATHER are the programs. `take_down` ends it.
#
# The hosts of the nfs and smb beds are virtual machines. All others mount on this machine; their hosts are namespaces that
# have a host name, an address, a boot id and mounts of their own, so that nothing is taken for one host.
#
# The caller sets $beds, the directory of this file, $state, a directory of its own, and for `everywhere` $ranks and $control.
: "${beds:?}" "${state:?}" "${ranks:=4}" "${control:=tcp}"

BEDS=(fuse nfs3 nfs4 nfs4-nocto smb gluster ceph sshfs sshfs-default s3fs rclone moosefs juicefs seaweedfs bindfs mergerfs unionfs)

# build_static_programs: fully static, since guests have no libraries. Where none is a guest, $BED_PROGRAMS may be a directory of
# programs that are there already, such as target/debug.
build_static_programs() {
  if [ -n "${BED_PROGRAMS:-}" ]; then
    built=$(realpath "$BED_PROGRAMS")
    return
  fi
  local target=x86_64-unknown-linux-gnu
  RUSTFLAGS='-C target-feature=+crt-static' cargo build --quiet --release --target "$target" \
    -p fsgather-cli -p fsgather-tests --bins --examples
  built=${CARGO_TARGET_DIR:-target}/$target/release
  [[ $built = /* ]] || built=$PWD/$built
}

# The script of a bed.
script_of() {
  case $1 in
    fuse) echo "$beds/fuse-double.sh" ;;
    gluster | ceph) echo "$beds/$1.sh" ;;
    sshfs | sshfs-default | s3fs | rclone | moosefs | juicefs | seaweedfs | bindfs | mergerfs | unionfs) echo "$beds/fuse-clients.sh" ;;
    nfs*) echo "$beds/nfs-uml.sh" ;;
    smb) echo "$beds/smb-uml.sh" ;;
    *) echo "there is no file system $1; there are: ${BEDS[*]}" >&2 && return 2 ;;
  esac
}

# take_up BED
take_up() {
  bed=$(script_of "$1") || return
  export BED_STATE=$state/file-system CLIENTS=$1
  "$bed" install
  case $1 in
    nfs3) NFS_VERSION=3 "$bed" up ;;
    nfs4) NFS_VERSION=4.2 "$bed" up ;;
    nfs4-nocto) NFS_VERSION=4.2 NFS_OPTIONS=nocto "$bed" up ;;
    *) "$bed" up ;;
  esac
  eval "$("$bed" env)"
  # shellcheck disable=SC2034,SC2317,SC2329
  if [ "$BED_KIND" = guest ]; then
    "$bed" put "$built/fsgather"
    "$bed" put "$built/examples/rounds"
    SHARED=$SHARED_DIR OWN=/tmp FSGATHER=/host/fsgather ROUNDS=/host/rounds
    on() { "$bed" exec "$1" "$2"; }
  else
    "$beds/hosts.sh" install
    # shellcheck disable=SC2153
    BED_STATE=$state/hosts HOST1_DIR=$HOST1_DIR HOST2_DIR=$HOST2_DIR "$beds/hosts.sh" up 2
    SHARED=$state/hosts/shared OWN=$state/hosts/local FSGATHER=$built/fsgather ROUNDS=$built/examples/rounds
    on() { BED_STATE=$state/hosts "$beds/hosts.sh" exec "node$1" sh -c "$2"; }
  fi
}

take_down() {
  [ ! -d "$state/hosts" ] || BED_STATE=$state/hosts "$beds/hosts.sh" down
  [ ! -d "$state/file-system" ] || BED_STATE=$state/file-system "$bed" down
}

# everywhere SCRIPT: runs it once for each rank, all at the same time, half of them on each host, with the variables that a
# rank needs; the outputs are in $state/rank.N. Fails if one fails.
everywhere() {
  local rank host status=0 pids=()
  for rank in $(seq 0 $((ranks - 1))); do
    host=$((rank * 2 / ranks + 1))
    on "$host" "export FSGATHER_RANK=$rank FSGATHER_WORLD_SIZE=$ranks FSGATHER_DIR=$SHARED FSGATHER_TRANSPORT=filesys
      export FSGATHER_CONTROL=$control FSGATHER_TIMEOUT=2m FSGATHER_JOIN_TIMEOUT=2m FSGATHER_PROGRESS=off
      $1" >"$state/rank.$rank" 2>&1 &
    pids+=($!)
  done
  for rank in "${!pids[@]}"; do wait "${pids[rank]}" || status=1; done
  return "$status"
}

# What is in the shared directory beside the rendezvous directory, and in that, as either host sees it. A host that
# remembers listings is asked until it lists anew.
left_behind() {
  local host tries=25
  for host in 1 2; do
    while ((tries-- > 0)) && [ -n "$(listed "$host")" ]; do sleep 1; done
    listed "$host"
  done
}

# listed HOST
listed() {
  on "$1" "cd $SHARED && find . -mindepth 1 ! -name all_gather_via_filesys ! -name lost+found 2>&1 || true" |
    sed "s/^/host $1: /"
}
