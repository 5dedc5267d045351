#!/usr/bin/env bash
# Runs one job in each engine that starts ranks from Python, with four ranks: Ray, Ray Train, Dask, Dask on two hosts, Spark, JAX, mpi4py over MPICH.
# Each engine is installed from PyPI into a temporary place (at most 1.5 GB), and removed again, one after the other: 1 to 3 minutes each.
# Arguments name some of them: ray, ray_train, dask, dask_hosts, spark, jax, mpi4py. With FSGATHER_ENGINES_CACHE=DIR they stay installed in DIR.
#
# Needs python3 with venv, and 4 GiB of memory; java 17 for Spark; root for hosts of namespaces. What cannot be tried is SKIPPED with the reason.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/arguments.sh
explain "$@"

# What has to be installed for an engine: a name for the environment, which some share, and packages.
packages() {
    case $1 in
    ray | ray_train) echo "ray ray[train]" ;;
    dask | dask_hosts) echo "dask distributed" ;;
    spark) echo "spark pyspark" ;;
    jax) echo "jax jax" ;;
    mpi4py) echo "mpi4py mpi4py mpich" ;;
    *) refuse "there is no engine $1" ;;
    esac
}

# Why an engine cannot be tried here; nothing if it can.
lack() {
    case $1 in
    spark) command -v java >/dev/null || echo "there is no java" ;;
    dask_hosts) [ "$(id -u)" = 0 ] && unshare --net --uts --mount true 2>/dev/null || echo "namespaces of hosts cannot be made" ;;
    esac
}

[ $# -gt 0 ] || set -- mpi4py dask dask_hosts ray ray_train spark jax
for engine in "$@"; do packages "$engine" >/dev/null; done
cargo build --quiet --workspace --lib
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cache=${FSGATHER_ENGINES_CACHE:-}
# Ranks would tell that it means nothing to them.
unset FSGATHER_ENGINES_CACHE
place=${cache:-$stage/environments}
mkdir -p "$place" "$stage/package"
cp -r crates/fsgather-python/python/. "$stage/package"
cp "${CARGO_TARGET_DIR:-target}/debug/lib_fsgather.so" "$stage/package/fsgather/_fsgather.abi3.so"
export PYTHONPATH=$stage/package:$PWD/crates/fsgather-python/tests/engines PYTHONDONTWRITEBYTECODE=1

failed=0
for engine in "$@"; do
    why=$(lack "$engine")
    read -r name needed <<<"$(packages "$engine")"
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
        echo "SKIPPED: $engine: $why"
        continue
    fi
    timeout 600 "$environment/bin/python" crates/fsgather-python/tests/engines/prove.py "$engine" || failed=$((failed + 1))
done
echo "failed: $failed of $#"
[ "$failed" = 0 ]
