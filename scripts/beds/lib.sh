# shellcheck shell=bash
# Functions that all beds use; sourced, not run.
#
# A bed records the processes that it starts in files below $BED_STATE, by pid and start time, so that it never kills another process that got
# the same pid later.

# die REASON: prints it and ends.
die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# ignore REASON: prints what is missing and ends with 77, the exit code of ignored beds.
ignore() {
  echo "${0##*/}: ignored: $1" >&2
  exit 77
}

# Prints the comment at the head of the script that was run.
usage() {
  sed -n '2,/^[^#]/p' "$0" | sed -n 's/^# \{0,1\}//p' >&2
  exit 2
}

need_root() {
  [ "$(id -u)" = 0 ] || ignore "needs root"
}

# install_packages PACKAGE...: installs those Debian packages that are missing.
install_packages() {
  local package missing=()
  for package; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    ignore "needs the Debian packages ${missing[*]}"
  fi
  local install=(env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}")
  "${install[@]}" >/dev/null 2>&1 || { apt-get update -qq && "${install[@]}" >/dev/null; } ||
    ignore "cannot install the Debian packages ${missing[*]}"
}

# until_true SECONDS COMMAND...: runs it every 50 ms until it succeeds; 1 if it never does.
until_true() {
  local tries=$(($1 * 20))
  shift
  until "$@" >/dev/null 2>&1; do
    ((tries-- > 0)) || return 1
    sleep 0.05
  done
}

# start_time PID: prints when the process started, in ticks since boot.
start_time() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # The second field is a name in parentheses and may contain any character.
  awk '{ print $20 }' <<<"${stat##*) }"
}

# remember PID NAME: records a process that was just started.
remember() {
  echo "$1 $(start_time "$1" || echo gone)" >"$BED_STATE/pid.$2"
}

# recall NAME: prints the recorded pid, if that process still runs.
recall() {
  local pid started
  { read -r pid started <"$BED_STATE/pid.$1"; } 2>/dev/null || return 1
  [ "$(start_time "$pid")" = "$started" ] && echo "$pid"
}

# signal_one SIGNAL NAME
signal_one() {
  local pid
  pid=$(recall "$2") || die "$2 does not run"
  kill "-$1" "$pid"
}

is_gone() {
  ! recall "$1" >/dev/null
}

# end_all NAME...: terminates these processes, kills them after 2 seconds, and removes their records.
end_all() {
  local name pid
  for name; do
    if pid=$(recall "$name"); then
      kill -CONT "$pid" 2>/dev/null || true
      kill "$pid" 2>/dev/null || true
    fi
  done
  for name; do
    if ! until_true 2 is_gone "$name" && pid=$(recall "$name"); then
      kill -KILL "$pid" 2>/dev/null || true
    fi
    rm -f "$BED_STATE/pid.$name"
  done
}

# remembered PREFIX: prints the names of recorded processes that begin with it.
remembered() {
  local file
  for file in "$BED_STATE/pid.$1"*; do
    [ -e "$file" ] && echo "${file##*/pid.}"
  done
  return 0
}

# background NAME LOG COMMAND...: starts it in a session of its own and records it.
background() {
  local name=$1 log=$2
  shift 2
  setsid "$@" </dev/null >>"$log" 2>&1 &
  remember $! "$name"
  # The shell does not print a line when it ends.
  disown
}

# unmount PATH: unmounts it, if it is a mount point; processes that use it keep it.
unmount() {
  ! mountpoint -q "$1" 2>/dev/null || umount -l "$1"
}

# Takes the bed down if `up` fails or is interrupted.
down_on_failure() {
  trap leave EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
}

leave() {
  local code=$?
  trap - EXIT
  ((code == 0)) || down
  exit "$code"
}
