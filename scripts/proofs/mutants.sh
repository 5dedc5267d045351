# shellcheck shell=bash
# Whether the quick tests of a crate notice when its code is wrong: cargo-mutants changes one place at a time, and the tests must fail. Prints the
# mutants that no test notices, and fails if they are more than one in twenty. .cargo/mutants.toml lists those that no test can notice.
#
#   scripts/prove mutants [OPTION...] [PART...]   core, control, store, fsgather; all by default
#     --sample N      number of mutants of each part (150)
#     --seed S        chooses them (1); a mutant stays in its sample as long as its function exists
#     --in-diff FILE  only mutants in code that this diff touches
#     --since COMMIT  the same for the changes since a commit
#     --last-change   the same since the merge base with main or, on main, since the commit before
#     --minutes M     starts no part after so many minutes
#     --spare N       number of unnoticed mutants that do not count, for small samples (0)
#     --prepare       installs cargo-mutants and builds, but tries no mutant
#
# Exit code 1: too many were missed. 3: the tests fail, or take too long, without a change. A mutant takes some seconds more than the tests:
# 150 of a part take half an hour to an hour on two cores. They are tried on a copy below the target directory.

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
            since=$(git rev-parse --verify --quiet HEAD^) || ignore "there is no commit before this one"
        fi
        ;;
    --minutes) value "$@" && number "the minutes that it may take" "$2" && minutes=$2 && shift ;;
    --spare) value "$@" && number "what may go unnoticed" "$2" && spare=$2 && shift ;;
    --prepare) prepare=1 ;;
    -*) refuse "there is no option $1" ;;
    core | control | store | fsgather) parts+=("$1") ;;
    *) refuse "there is no part $1" ;;
    esac
    shift
done
[ ${#parts[@]} -gt 0 ] || parts=(core control store fsgather)
ready

export CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=1 SIMULATION_SCRIPTS=30
# Denied lints would make mutants look impossible.
unset RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS
work=${CARGO_TARGET_DIR:-$PWD/target}/mutants tree=${CARGO_TARGET_DIR:-$PWD/target}/mutants/tree
export CARGO_TARGET_DIR=$work/build PATH=$work/tool/bin:$PATH
mkdir -p "$tree"

if [ -n "$since" ]; then
    diff=$work/diff
    git diff "$since" -- crates >"$diff"
fi

if ! cargo mutants --version >/dev/null 2>&1; then
    # Nothing is installed if no code of a part has changed.
    if [ -n "$diff" ] && ! grep -qE "^\+\+\+ b/crates/fsgather(-core|-control|-store)?/src/" "$diff"; then
        echo "the change touches no code of ${parts[*]}"
        exit 0
    fi
    # A debug build: the tool mostly waits for cargo.
    CARGO_INCREMENTAL=0 CARGO_TARGET_DIR=$work/tool-build timeout 900 cargo install cargo-mutants --quiet --locked --debug \
        --version "$version" --root "$work/tool" || ignore "needs cargo-mutants, which cannot be installed"
    rm -rf "$work/tool-build"
fi

# Equal files keep their times, so that little is built again.
git ls-files --cached --others --exclude-standard | LC_ALL=C sort >"$work/files"
while IFS= read -r file; do
    if [ -f "$file" ] && ! cmp -s "$file" "$tree/$file"; then
        mkdir -p "$tree/$(dirname "$file")"
        cp "$file" "$tree/$file"
        touch "$tree/$file"
    fi
done <"$work/files"
(cd "$tree" && find . -type f | cut -c3- | LC_ALL=C sort | LC_ALL=C comm -23 - "$work/files" | tr '\n' '\0' | xargs -0 rm -f)

# count LIST: how many of the sample it has; cargo-mutants tries some mutants outside the sample.
count() { grep -cxFf "$work/$part/sample" "$work/$part/mutants.out/$1.txt" || true; }

# try_part PART: adds its numbers to viable_all and missed_all.
try_part() {
    local out=$work/$1 package=fsgather-$1 targets=(--tests) chosen=()
    case $1 in
    # Tests of full disks are ignored otherwise; they mount a tmpfs, as root.
    store) targets+=(--features zstd) && [ "$(id -u)" != 0 ] || chosen=(--include-ignored) ;;
    fsgather) package=fsgather targets+=(--features zstd) ;;
    esac
    mkdir -p "$out"
    local list=(cargo mutants --dir "$tree" --package "$package" --list)
    [ -z "$diff" ] || list+=(--in-diff "$diff")
    # Sorted by a hash of the seed and of the mutant's name without its place.
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
    # Exit code 2: some were missed; 3: some took too long.
    local ended=0
    timeout --signal=INT --kill-after=30 "$left" cargo mutants --dir "$tree" --in-place --package "$package" --output "$out" --timeout 60 \
        --build-timeout 300 --no-shuffle --no-times --colors never "${choice[@]}" -- -- "${chosen[@]}" >"$out/log" 2>&1 || ended=$?
    case $ended in
    0 | 2 | 3 | 124 | 137) ;;
    *)
        tail -n 60 "$out/log"
        echo "$1: cargo-mutants ended with $ended; without a change the tests must pass, within a minute"
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
for part in "${parts[@]}"; do try_part "$part"; done
[ -z "$prepare" ] || exit 0
echo "in all: $missed_all of $viable_all were missed"
if [ ${#below[@]} -gt 0 ]; then
    echo "too many are missed in: ${below[*]}"
    exit 1
fi
