#!/usr/bin/env bash
# Runs the tests of the Python package.
#
#   scripts/python-tests.sh [PYTEST ARGUMENT...]   all tests, or those that the arguments select: -k ctrl_c, tests/test_ends.py, -n 4
#   scripts/python-tests.sh -m bed                 only those that need root, FUSE or other Pythons, which are left out otherwise
#   scripts/python-tests.sh --prepare              only makes the environment and prints the path of its interpreter
#
# The environment has the packages that crates/fsgather-python/tests/requirements.txt lists. It is in target/python-tests, and made again when
# that list or the interpreter changes. PYTHON names another interpreter than python3.
#
# Needs Python 3.9 or later with venv, and a package index for the first run; without them the
# exit code is 77. Otherwise it is pytest's.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
explain "$@"
prepare_only=false
if [ "${1-}" = --prepare ]; then
    [ $# = 1 ] || refuse "--prepare is the only argument then"
    prepare_only=true
fi

package=$PWD/crates/fsgather-python
requirements=$package/tests/requirements.txt
target=$(realpath -m -- "${CARGO_TARGET_DIR:-target}")
place=$target/python-tests
venv=$place/venv
python=$venv/bin/python

ignored() {
    echo "ignored: the tests of the Python package: $1" >&2
    exit 77
}

# Two runs would replace each other's environment and package.
mkdir -p "$place"
exec 9>"$place/lock"
flock --nonblock 9 || { echo "waiting for another run of scripts/python-tests.sh" >&2 && flock 9; }

base=${PYTHON:-python3}
interpreter=$("$base" -c 'import sys; print(sys.executable, sys.version.replace("\n", "")); sys.exit(sys.version_info < (3, 9))' 9>&-) ||
    ignored "$base is missing, or older than Python 3.9${interpreter:+: $interpreter}"
wanted=$interpreter$'\n'$(<"$requirements")
if [ ! -x "$python" ] || [ "$(cat "$place/complete" 2>/dev/null)" != "$wanted" ]; then
    rm -f "$place/complete"
    "$base" -m venv --clear "$venv" >&2 9>&- || ignored "$base -m venv cannot make $venv"
    "$python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements" >&2 9>&- ||
        ignored "pip cannot install $requirements"
    printf '%s\n' "$wanted" >"$place/complete"
fi
if $prepare_only; then
    echo "$python"
    exit
fi

# A test program beside the libraries selects the same features of dependencies as `cargo test --workspace` does, so that nothing is built twice.
cargo build --quiet --workspace --lib --test architecture 9>&-

# The package as it would be installed.
stage=$place/package
rm -rf "$stage"
cp -rp "$package/python" "$stage"
cp "$target/debug/lib_fsgather.so" "$stage/fsgather/_fsgather.abi3.so"

# Most tests wait for other processes most of the time. Dask's cluster is started once, because its tests are one group.
workers=$((4 * $(nproc)))
# Hundreds of short processes load the same modules.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPATH=$stage PYTHONPYCACHEPREFIX=$place/bytecode HYPOTHESIS_STORAGE_DIRECTORY=$place/hypothesis
cd "$package"
status=0
"$python" -m pytest -q -rs -p no:cacheprovider -n "$workers" --dist loadgroup "$@" 9>&- || status=$?
exit "$status"
