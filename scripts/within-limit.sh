#!/bin/sh
# Cargo runs programs by this (.cargo/config.toml): those of tests for at most TEST_LIMIT, 30 minutes, all others as they are.
# The test program says which test has been running for long.
case $1 in
*/deps/* | */rustdoctest*)
    if command -v timeout >/dev/null; then
        exec timeout --foreground --kill-after=10 "${TEST_LIMIT:-30m}" "$@"
    fi
    ;;
esac
exec "$@"
