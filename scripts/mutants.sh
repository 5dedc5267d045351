#!/usr/bin/env bash
# Asks whether the tests of a part notice when its code is wrong: cargo-mutants changes one thing at a time, and scripts/quick-tests.sh has
# to fail. Prints what nobody noticed, and fails where that is more than one in twenty. What cannot be noticed stands in .cargo/mutants.toml.
#   scripts/mutants.sh [OPTION...] [PART...]    parts as of scripts/quick-tests.sh; all where none is named
#     --sample N      so many mutants of each part, or all where there are fewer (150)
#     --seed S        which ones (1); a mutant stays in its sample as long as its function is there
#     --in-diff FILE  only those in code that this diff touches
#     --since COMMIT  the same, of what has changed since
#     --last-change   the same, since the merge base with main or, on main, the commit before
#     --minutes M     begins no others after so long
#     --spare N       so many more may go unnoticed: a few mutants say little of a share (0)
#     --prepare       installs cargo-mutants where it is missing, builds, and tries nothing
# Ends with 1 where too many were missed, and with 3 where it could not be asked.
# A mutant takes some seconds more than the quick tests: 150 of a part half an hour to an hour on two cores. It works on a copy below the
# target directory, so that files can be edited meanwhile.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
. scripts/quick-tests.sh
explain "$@"

version=27.1.0
sample=150 seed=1 minutes=100000 spare=0 prepare='' diff='' since='' parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --sample) value "$@" && number "a sample" "$2" && sample=$2 && shift ;;
    --seed) value "$@" && seed=$2 && shift ;;
    --in-diff)
        value "$@"
        [ -f "$2" ] || refuse "there is no file $2"
        diff=$(realpath "$2") && shift
        ;;
    --since)
        value "$@"
        since=$(git rev-parse --verify --quiet "$2^{commit}") || refuse "there is no commit $2"
        shift
        ;;
    --last-change)
        since=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null || true)
        if [ -z "$since" ] || [ "$since" = "$(git rev-parse HEAD)" ]; then
            since=$(git rev-parse --verify --quiet HEAD^) || { echo "SKIPPED: there is no commit before this one"; exit 0; }
        fi
        ;;
    --minutes) value "$@" && number "the minutes that it may take" "$2" && minutes=$2 && shift ;;
    --spare) value "$@" && number "what may go unnoticed" "$2" && spare=$2 && shift ;;
    --prepare) prepare=1 ;;
    -*) refuse "there is no option $1" ;;
    *) quick_tests "$1" && parts+=("$1") ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=("${quick_parts[@]}")

quick_environment
# Lints that are denied would make mutants look impossible.
unset RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS
work=${CARGO_TARGET_DIR:-$PWD/target}/mutants tree=${CARGO_TARGET_DIR:-$PWD/target}/mutants/tree
export CARGO_TARGET_DIR=$work/build PATH=$work/tool/bin:$PATH
mkdir -p "$tree"

if [ -n "$since" ]; then
    diff=$work/diff
    git diff "$since" -- crates >"$diff"
fi

if ! cargo mutants --version >/dev/null 2>&1; then
    # Nothing is installed where no code of a part has changed.
    if [ -n "$diff" ] && ! grep -qE "^\+\+\+ b/crates/fsgather(-core|-control|-store)?/src/" "$diff"; then
        echo "the change touches no code of ${quick_parts[*]}"
        exit 0
    fi
    # Building it takes longer than anything that it does itself, which is to wait for cargo.
    CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$work/tool-build timeout 900 cargo install cargo-mutants --quiet --locked --debug \
        --version "$version" --root "$work/tool" || { echo "SKIPPED: cargo-mutants cannot be installed"; exit 0; }
    rm -rf "$work/tool-build"
fi

# What is the same already keeps its time, so that little is built again.
git ls-files --cached --others --exclude-standard | LC_ALL=C sort >"$work/files"
while IFS= read -r file; do
    if [ -f "$file" ] && ! cmp -s "$file" "$tree/$file"; then
        mkdir -p "$tree/$(dirname "$file")"
        cp "$file" "$tree/$file"
        touch "$tree/$file"
    fi
done <"$work/files"
(cd "$tree" && find . -type f | cut -c3- | LC_ALL=C sort | LC_ALL=C comm -23 - "$work/files" | tr '\n' '\0' | xargs -0 rm -f)

# How many of the sample a list has: some mutants are tried whatever was chosen.
count() { grep -cxFf "$work/$part/sample" "$work/$part/mutants.out/$1.txt" || true; }

# Runs part $1; its numbers go to `tried_all`, `missed_all`.
ask() {
    local out=$work/$1
    quick_tests "$1"
    mkdir -p "$out"
    local list=(cargo mutants --dir "$tree" --package "$package" --list)
    [ -z "$diff" ] || list+=(--in-diff "$diff")
    # Sorted by a hash of its name without its place and of the seed.
    "${list[@]}" >"$out/all"
    head -c 1024 <(yes "$seed") >"$out/salt"
    sort --random-sort --random-source="$out/salt" --key=2 "$out/all" >"$out/shuffled"
    head -n "$sample" "$out/shuffled" >"$out/sample"
    local all
    all=$(wc -l <"$out/all")
    if [ "$all" = 0 ]; then
        echo "$1: nothing to change"
        return
    fi
    if [ -n "$prepare" ]; then
        (cd "$tree" && cargo test --quiet --package "$package" "${targets[@]}" --no-run)
        return
    fi
    local choice=() argument
    while IFS= read -r argument; do choice+=(--re "$argument"); done < <(sed 's/[][\.*^$+?(){}|]/\\&/g; s/.*/^&$/' "$out/sample")
    for argument in "${targets[@]}"; do choice+=("--cargo-arg=$argument"); done
    local left=$(((minutes * 60) - SECONDS))
    if [ "$left" -lt 30 ]; then
        echo "$1: no time is left for its $(wc -l <"$out/sample") mutants"
        return
    fi
    rm -rf "$out/mutants.out"
    # It ends with 2 where some were missed, with 3 where some took too long.
    local ended=0
    timeout --signal=INT --kill-after=30 "$left" cargo mutants --dir "$tree" --in-place --package "$package" --output "$out" --timeout 60 \
        --build-timeout 300 --no-shuffle --no-times --colors never "${choice[@]}" -- -- "${chosen[@]}" >"$out/log" 2>&1 || ended=$?
    case $ended in
    0 | 2 | 3 | 124 | 137) ;;
    *)
        tail -n 60 "$out/log"
        echo "$1: cargo-mutants ended with $ended; the tests have to pass, and in a minute, before something is changed"
        exit 3
        ;;
    esac
    local caught missed late unviable
    caught=$(count caught) missed=$(count missed) late=$(count timeout) unviable=$(count unviable)
    local viable=$((caught + missed + late)) in_sample
    in_sample=$(wc -l <"$out/sample")
    echo "$1: $all mutants, $in_sample chosen, $((viable + unviable)) tried: $caught caught, $late not ended in time, $missed missed," \
        "$unviable impossible"
    [ "$((viable + unviable))" = "$in_sample" ] || echo "    the others did not fit into $minutes minutes"
    grep -xFf "$out/sample" "$out/mutants.out/missed.txt" | sed 's/^/    missed: /' || true
    viable_all=$((viable_all + viable)) missed_all=$((missed_all + missed))
    [ $((missed * 20)) -le $((viable + spare * 20)) ] || below+=("$1")
}

viable_all=0 missed_all=0 below=()
for part in "${parts[@]}"; do ask "$part"; done
[ -z "$prepare" ] || exit 0
echo "in all: $missed_all of $viable_all were missed"
if [ ${#below[@]} -gt 0 ]; then
    echo "too many are missed in: ${below[*]}"
    exit 1
fi
