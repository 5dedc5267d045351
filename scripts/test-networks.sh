#!/usr/bin/env bash
# Networks as they are far from laboratories: 200 ms, 5 % loss, 1 Mbit/s, packets of 576 bytes, cuts of 20 seconds and for good in both
# directions or one, no names, ten thousand strangers; payloads by files and by memory. Prints for each what each rank said, and how long
# it took. IPv6 alone, interfaces that lead nowhere, firewalls: `cargo test --test jobs network_memory`.
#
# Network namespaces stand for hosts; scripts/beds/link.py carries packets between them. Needs root, iproute2, Python 3, and for files
# libfuse (scripts/beds/fuse-double.sh install); what cannot be tried is said to be skipped. Takes eight minutes. An argument chooses
# tests by a part of their name.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/arguments.sh
explain "$@"
cargo test -p fsgather-tests --test bad_networks -- --include-ignored --nocapture --test-threads 1 "$@"
