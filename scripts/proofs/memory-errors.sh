# shellcheck shell=bash
# Runs the tests of the Python package with the extension module under AddressSanitizer and CPython's debug allocator. Most of the time is
# building, into target/memory-errors. Leaks are not looked for: an interpreter that ends keeps much. Two tests are left out:
# - one starts programs without this script's environment, in which they would not find the sanitizer;
# - one measures memory, and the sanitizer keeps freed memory.
at_most 0 "$@"
ready
root=$PWD target=${CARGO_TARGET_DIR:-$PWD/target}
host=$(rustc -vV | sed -n 's/^host: //p')

# Tests that pass without the sanitizer show that it finds what fails with it.
scripts/python-tests.sh -k test_arguments
python=$(scripts/python-tests.sh --prepare)

# The option that turns the sanitizer on is unstable.
RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address -Cforce-frame-pointers=yes" CARGO_TARGET_DIR=$target/memory-errors CARGO_INCREMENTAL=0 \
    CARGO_PROFILE_DEV_DEBUG=1 CARGO_PROFILE_DEV_OPT_LEVEL=1 cargo build --quiet --target "$host" -p fsgather-python --lib

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cp -r crates/fsgather-python/python/. "$place"
cp "$target/memory-errors/$host/debug/lib_fsgather.so" "$place/fsgather/_fsgather.abi3.so"
sanitized() {
    env PYTHONPATH="$place" PYTHONDONTWRITEBYTECODE=1 PYTHONMALLOC=debug HYPOTHESIS_STORAGE_DIRECTORY="$place/hypothesis" \
        LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)" \
        ASAN_OPTIONS="detect_leaks=0:halt_on_error=1:exitcode=66:log_path=$place/found" "$python" "$@"
}

# It must find a mistake made on purpose.
if sanitized -c 'import ctypes, fsgather
c = ctypes.CDLL(None)
c.malloc.restype = ctypes.c_void_p
ctypes.memset(c.malloc(8), 0, 9)' 2>"$place/mistake"; then
    echo "the sanitizer has not noticed a byte written behind its memory" >&2
    exit 1
fi
grep -q heap-buffer-overflow "$place"/found.* || { cat "$place/mistake" && exit 1; }
rm -f "$place"/found.*

ended=0
(cd crates/fsgather-python && sanitized -m pytest -q -p no:cacheprovider -n "$(nproc)" --ignore tests/test_types.py --deselect tests/test_workers.py::test_ranks_that_a_program_starts_itself \
    --deselect tests/test_buffers.py::test_memory_lives_as_long_as_a_view_of_a_part) || ended=1
# Errors of processes whose output no test reads are here as well.
if compgen -G "$place/found.*" >/dev/null; then
    cat "$place"/found.*
    ended=1
fi
[ "$ended" = 0 ] && echo "no memory error was found"
exit "$ended"
