# shellcheck shell=bash
# What the beds have in common; sourced by them, not run.
#
# A bed remembers what it started in files below $BED_STATE: a process as its pid and start time, so that a pid which has
# come into other hands since is left alone.

# Prints why and ends.
die() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# Prints the comment at the head of the script that was run.
usage() {
  sed -n '2,/^[^#]/p' "$0" | sed -n 's/^# \{0,1\}//p' >&2
  exit 2
}

need_root() {
  [ "$(id -u)" = 0 ] || die "this needs root"
}

# Installs Debian packages; where all are there already it does nothing.
install_packages() {
  local package missing=()
  for package; do
    dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
  done
  [ ${#missing[@]} = 0 ] && return
  command -v apt-get >/dev/null || die "these Debian packages or what is in them is needed: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || {
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  }
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

# When the process PID started, in ticks since boot.
start_time() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  # The second field is a name in parentheses and may hold anything.
  awk '{ print $20 }' <<<"${stat##*) }"
}

# remember PID NAME: notes a process that was just started.
remember() {
  echo "$1 $(start_time "$1" || echo gone)" >"$BED_STATE/pid.$2"
}

# recall NAME: the pid noted, if it is still that process.
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

# end_all NAME...: asks these processes to end, insists after 2 seconds, forgets them.
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

# The names of remembered processes that begin with PREFIX.
remembered() {
  local file
  for file in "$BED_STATE/pid.$1"*; do
    [ -e "$file" ] && echo "${file##*/pid.}"
  done
  return 0
}

# background NAME LOG COMMAND...: starts it in a session of its own and remembers it.
background() {
  local name=$1 log=$2
  shift 2
  setsid "$@" </dev/null >>"$log" 2>&1 &
  remember $! "$name"
  # Its end is not worth a line on our standard error.
  disown
}

# unmount PATH: if it is one; processes that are still in it keep it to themselves.
unmount() {
  ! mountpoint -q "$1" 2>/dev/null || umount -l "$1"
}

# For `up`: takes down what is half up when a command fails.
down_on_failure() {
  trap leave EXIT
}

leave() {
  local code=$?
  trap - EXIT
  ((code == 0)) || down
  exit "$code"
}
