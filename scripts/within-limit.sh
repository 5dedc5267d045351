#!/bin/sh
# Cargo starts programs with this script (.cargo/config.toml). Test programs run for at most TEST_LIMIT (30 minutes); they print the tests
# that take long.
case $1 in
*/deps/* | */rustdoctest*)
    if command -v timeout >/dev/null; then
        exec timeout --foreground --kill-after=10 "${TEST_LIMIT:-30m}" "$@"
    fi
    ;;
esac
exec "$@"
