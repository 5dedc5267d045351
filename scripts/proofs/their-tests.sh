# shellcheck shell=bash
# Runs the tests that the packages of torch and accelerate contain, with FSGATHER_PATCH and without.
#
#   scripts/prove their-tests [SUITE...]   of crates/fsgather-python/tests/projects/their_tests.py
suites=crates/fsgather-python/tests/projects/their_tests.py
for word in "$@"; do
    grep -q "^    \"$word\": Suite" "$suites" || refuse "there is no suite $word"
done
ready
stage_package
nice "$python" "$suites" "$@"
