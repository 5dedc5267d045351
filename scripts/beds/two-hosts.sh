# shellcheck shell=bash
# Two hosts that share a file system; sourced by proofs.
#
# `take_up BED` starts them. After it, `on HOST SCRIPT` runs a shell script on host 1 or 2, $SHARED is the shared directory there, $OWN a
# directory of each host, and $ROUNDS, $SAMPLES and $FSGATHER are programs. `take_down` ends the hosts.
#
# The hosts of nfs and smb are virtual machines. All other file systems are mounted on this machine; their hosts are namespaces with their own
# host names, addresses, boot ids and mounts.
#
# The caller sets $beds, the directory of this file, $state, a directory of its own, $programs (by `build_programs`), and for `everywhere`
# $ranks and $control.
: "${beds:?}" "${state:?}" "${ranks:=4}" "${control:=tcp}"

BEDS=(fuse nfs3 nfs4 nfs4-nocto smb gluster ceph sshfs sshfs-default s3fs rclone moosefs juicefs seaweedfs bindfs mergerfs unionfs)

# script_of BED: prints the path of its script.
script_of() {
  case $1 in
    fuse) echo "$beds/fuse-double.sh" ;;
    gluster | ceph | smb) echo "$beds/$1.sh" ;;
    sshfs | sshfs-default | s3fs | rclone | moosefs | juicefs | seaweedfs | bindfs | mergerfs | unionfs) echo "$beds/fuse-clients.sh" ;;
    nfs*) echo "$beds/nfs.sh" ;;
    *) echo "there is no file system $1; there are: ${BEDS[*]}" >&2 && return 2 ;;
  esac
}

# take_up BED
take_up() {
  bed=$(script_of "$1") || return
  export BED_STATE=$state/file-system CLIENTS=$1
  local up=("$bed" up "$programs/fsgather" "$programs/examples/"{rounds,samples})
  "$bed" install
  # shellcheck disable=SC2034,SC2317,SC2329
  case $1 in
    nfs* | smb)
      case $1 in
        nfs3) NFS_VERSION=3 "${up[@]}" ;;
        nfs4-nocto) NFS_OPTIONS=nocto "${up[@]}" ;;
        *) "${up[@]}" ;;
      esac
      SHARED=/shared OWN=/tmp FSGATHER=/host/fsgather ROUNDS=/host/rounds SAMPLES=/host/samples
      on() { "$bed" exec "$1" "$2"; }
      ;;
    *)
      "$bed" up
      eval "$("$bed" env)"
      "$beds/hosts.sh" install
      # shellcheck disable=SC2153
      BED_STATE=$state/hosts HOST1_DIR=$HOST1_DIR HOST2_DIR=$HOST2_DIR "$beds/hosts.sh" up 2
      SHARED=$state/hosts/shared OWN=$state/hosts/local FSGATHER=$programs/fsgather ROUNDS=$programs/examples/rounds
      SAMPLES=$programs/examples/samples
      on() { BED_STATE=$state/hosts "$beds/hosts.sh" exec "node$1" sh -c "$2"; }
      ;;
  esac
}

take_down() {
  [ ! -d "$state/hosts" ] || BED_STATE=$state/hosts "$beds/hosts.sh" down
  [ ! -d "$state/file-system" ] || BED_STATE=$state/file-system "$bed" down
}

# everywhere SCRIPT: runs it on all ranks at the same time, half of them on each host, with the variables that a rank needs. The output is
# in $state/rank.N. Fails if one fails.
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

# Prints the files that either host sees in the shared directory, except the rendezvous directory itself. Asks again for a while, because a
# host may cache listings.
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
