# shellcheck shell=bash
# Kills evaluations at random moments, restarts each twice with 1 to 6 ranks, and compares the results with those of one undisturbed process.
#
#   scripts/prove samples [--evaluations 100] [--samples 1200] [--seed S] [--directory DIR]
#
# Ranks are killed alone or all at once, terminated, raise an exception, or run out of memory: of their address space, and of a control group in
# which the kernel kills the largest process (left out, with the reason, if no control group can be made). No more than the last second of a
# killed rank may be computed again. DIR is where samples are kept, such as a directory on NFS; by default a temporary one.
count_of() { value "$@" && number "$1" "$2"; }
arguments=("$@")
while (($#)); do
    case $1 in
    --evaluations | --samples | --seed) count_of "$@" && shift ;;
    --directory) value "$@" && shift ;;
    *) refuse "there is no option $1" ;;
    esac
    shift
done
ready
cargo build --quiet --workspace --lib --bins
python=$(scripts/python-tests.sh --prepare)
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp -r crates/fsgather-python/python/. "$stage"
programs=${CARGO_TARGET_DIR:-target}/debug
cp "$programs/lib_fsgather.so" "$stage/fsgather/_fsgather.abi3.so"
PYTHONPATH=$stage "$python" crates/fsgather-python/tests/samples/prove.py "$programs/fsgather" "${arguments[@]}"
