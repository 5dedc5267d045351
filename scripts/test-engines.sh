#!/usr/bin/env bash
# Runs one job in each engine that starts ranks from Python (Ray, Dask, Spark, JAX, mpi4py over MPICH), from pip, with four ranks.
#
# Needs python3 with venv, java 17 for Spark, 4 GiB of memory and some minutes. Arguments name some of the engines. Nothing is installed outside target/engines.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/arguments.sh
explain "$@"
environment=$PWD/target/engines
python=$environment/bin/python
if ! "$python" -c "import ray, distributed, jax, pyspark, mpi4py" 2>/dev/null; then
    "${PYTHON:-python3}" -m venv "$environment"
    "$python" -m pip install --quiet --disable-pip-version-check "ray[default]" distributed jax pyspark mpi4py mpich numpy
fi
cargo build --quiet --workspace
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp -r crates/fsgather-python/python/. "$stage"
cp target/debug/lib_fsgather.so "$stage/fsgather/_fsgather.abi3.so"
PYTHONPATH=$stage:$PWD/crates/fsgather-python/tests/engines "$python" crates/fsgather-python/tests/engines/prove.py "$@"
