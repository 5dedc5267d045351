#!/usr/bin/env bash
# Links between hosts that are cut while payloads go over them directly: twenty seconds are survived, a host that stays away is
# named by all within about 30 seconds, and two ranks that do not reach each other any more are named when time is up.
#
# Network namespaces stand for hosts. Needs root and iproute2; takes four minutes. Traffic stays inside the namespaces.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/arguments.sh
explain "$@"

if [ "$(id -u)" != 0 ]; then
  echo "SKIPPED: only root can make namespaces"
  exit 0
fi
cargo test -p fsgather-tests --test cut_links -- --ignored --test-threads 1 "$@"
