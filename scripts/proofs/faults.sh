# shellcheck shell=bash
# A fault at each system call of real processes: errors, errors of calls that were done, short reads and writes, pauses, SIGKILL, SIGSTOP.
# Counts the calls of a good gather in one rank, then runs ranks that fail at the k-th of them, judges what all ranks report, gathers again
# in the same directory, and cleans it. SIGTERM and Ctrl-C end it with a summary. Each case that is wrong prints the command that repeats it.
python3 scripts/faults --only-parse "$@"
ready
build_programs
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
cc -O2 -Wall -Wextra -Werror -o "$built/injector" scripts/faults/injector.c
python3 scripts/faults --programs "$programs" --injector "$built/injector" "$@"
