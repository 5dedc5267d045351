#!/bin/sh
# A shell job: no program has to know about fsgather. Start it under any launcher that starts ranks (srun, mpirun, torchrun
# --no-python), or on one machine with
#
#   fsgather run -n 4 -- crates/fsgather/examples/shell_job.sh RESULTS
#
# Every rank runs all of it; a step that fails on one rank ends it on all.
set -eu
results=${1:?name a directory for the results, as in: shell_job.sh RESULTS}
rank=${FSGATHER_RANK:-${SLURM_PROCID:-${OMPI_COMM_WORLD_RANK:-0}}} # only for what it prints
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Rank 0 decides, everybody gets the file. The input of the others is not looked at.
echo "threshold 3" | fsgather broadcast --out "$work/settings.{rank}"
threshold=$(cut -d' ' -f2 "$work"/settings.*)

# Each rank does its share: lines of its own in a file of its own.
for n in 1 2 3 4 5; do
    if [ "$n" -ge "$threshold" ]; then
        echo "rank $rank found $n"
    fi
done >"$work/found"

# One file in rank order on rank 0; it appears whole or not at all.
fsgather gather "$work/found" --concat="$results/found.txt"

# A file from each rank on every rank: DIR/rank-00000, DIR/rank-00001, ...
fsgather gather "$work/found" --all --out "$work/all.{rank}"
echo "rank $rank has the files of $(ls "$work"/all.* | wc -l) ranks"

# Nobody goes on before all have come.
fsgather barrier
if [ "$rank" = 0 ]; then
    echo "$(wc -l <"$results/found.txt") lines in all"
fi
