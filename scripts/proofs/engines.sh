# shellcheck shell=bash
# Runs one job with four ranks in each engine that starts ranks from Python.
#
#   scripts/prove engines [ENGINE...]   mpi4py (over MPICH), dask, dask_hosts (two hosts), ray, ray_train, spark, jax; all by default
#
# Each engine is installed from PyPI into a temporary directory (at most 1.5 GB) and removed again. FSGATHER_ENGINES_CACHE=DIR keeps them.
# Needs 4 GiB of memory, Java 17 for spark, and root for dask_hosts; engines that lack something are reported as ignored.

# needed_by ENGINE: a name for its environment, which some share, and the packages in it.
needed_by() {
    case $1 in
    ray | ray_train) echo "ray ray[train]" ;;
    dask | dask_hosts) echo "dask distributed" ;;
    spark) echo "spark pyspark" ;;
    jax) echo "jax jax" ;;
    mpi4py) echo "mpi4py mpi4py mpich" ;;
    *) refuse "there is no engine $1" ;;
    esac
}

# lacking ENGINE: prints why it cannot run here.
lacking() {
    case $1 in
    spark) command -v java >/dev/null || echo "there is no java" ;;
    dask_hosts) [ "$(id -u)" = 0 ] && unshare --net --uts --mount true 2>/dev/null || echo "namespaces of hosts cannot be made" ;;
    esac
}

[ $# -gt 0 ] || set -- mpi4py dask dask_hosts ray ray_train spark jax
for engine in "$@"; do needed_by "$engine" >/dev/null; done
ready
cargo build --quiet --workspace --lib
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cache=${FSGATHER_ENGINES_CACHE:-}
# Ranks warn about variables that they do not know.
unset FSGATHER_ENGINES_CACHE
place=${cache:-$stage/environments}
mkdir -p "$place" "$stage/package"
cp -r crates/fsgather-python/python/. "$stage/package"
cp "${CARGO_TARGET_DIR:-target}/debug/lib_fsgather.so" "$stage/package/fsgather/_fsgather.abi3.so"
export PYTHONPATH=$stage/package:$PWD/crates/fsgather-python/tests/engines PYTHONDONTWRITEBYTECODE=1

failed=0 ignored=0
for engine in "$@"; do
    why=$(lacking "$engine")
    read -r name needed <<<"$(needed_by "$engine")"
    environment=$place/$name
    if [ -z "$why" ] && [ ! -e "$environment/complete" ]; then
        [ -n "$cache" ] || rm -rf "${place:?}"/*
        # shellcheck disable=SC2086
        if "${PYTHON:-python3}" -m venv "$environment" &&
            timeout 600 "$environment/bin/python" -m pip install --quiet --disable-pip-version-check $needed numpy; then
            touch "$environment/complete"
        else
            why="$needed cannot be installed"
        fi
    fi
    if [ -n "$why" ]; then
        echo "$engine: ignored: $why"
        ignored=$((ignored + 1))
        continue
    fi
    timeout 600 "$environment/bin/python" crates/fsgather-python/tests/engines/prove.py "$engine" || failed=$((failed + 1))
done
echo "failed: $failed of $#, ignored: $ignored"
[ "$ignored" != $# ] || exit 77
[ "$failed" = 0 ]
