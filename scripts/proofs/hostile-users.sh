# shellcheck shell=bash
# Plays each attack that other users of a host can try in a directory that they share with a job; each must fail. One user runs jobs, while
# another of the same group renames, plants and exchanges what the directory permits. Prints a line for each attack.
at_most 0 "$@"
ready
build_programs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
# Where the other user may start them.
cp "$programs/fsgather" "$programs/examples/rank" "$work/"
timeout -k 5 120 python3 scripts/proofs/hostile_users.py "$work"
