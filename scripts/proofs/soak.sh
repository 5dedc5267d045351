# shellcheck shell=bash
# Random jobs with random harm, each of whose outcomes must be right. Arguments go to scripts/soak, which has its own --help:
#
#   scripts/prove soak [--minutes 5] [--seed S] [--only SEED] [--jobs 2] [--python PYTHON] [--keep DIRECTORY]
#
# A failing round prints its seed; --only SEED plays it again. Some jobs have ranks in Python if --python names an interpreter with the package.
python3 scripts/soak --only-parse "$@"
ready
build_programs
python3 scripts/soak --rank "$programs/examples/rank" --fsgather "$programs/fsgather" "$@"
