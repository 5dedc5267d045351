# shellcheck shell=bash
# Jobs on file systems that are full, slow, faulty or mounted twice, and the store's own tests of full disks.
#
#   scripts/prove mounts [TEST...]   those with such a part in their names; all by default
at_most 99 "$@"
ready
failed=0
cargo test --workspace --no-fail-fast --test mounts -- --nocapture --test-threads 1 "$@" || failed=1
cargo test -p fsgather-store --features zstd --lib -- --ignored "$@" || failed=1
exit "$failed"
