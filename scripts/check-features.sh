#!/usr/bin/env bash
# Lints the library with each combination of its cargo features that can matter. Combinations with MPI need mpicc and libclang, and are
# reported as ignored without them.
#
#   scripts/check-features.sh                     all combinations
#   scripts/check-features.sh --bare              no feature at all
#   scripts/check-features.sh --missing-for-mpi   prints what is missing for MPI and fails, if anything is
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
explain "$@"
case ${1:-} in
'' | --bare | --missing-for-mpi) ;;
*) refuse "there is no option $1" ;;
esac

missing_for_mpi() {
    if ! command -v mpicc >/dev/null; then
        echo "there is no mpicc"
        return 1
    fi
    if ! echo '#include <mpi.h>' | mpicc -c -o /dev/null -xc - 2>/dev/null; then
        echo "mpicc finds no mpi.h"
        return 1
    fi
    # As bindgen looks for it, roughly.
    local found
    found=$({ ls -d "${LIBCLANG_PATH:-/nowhere}"/libclang* /usr/lib/llvm-*/lib/libclang*.so* /usr/lib*/libclang*.so* \
        /usr/lib/*/libclang*.so* 2>/dev/null || true; } | grep -v libclang-cpp | head -n 1)
    if [ -z "$found" ]; then
        echo "there is no libclang"
        return 1
    fi
}

if [ "${1:-}" = --missing-for-mpi ]; then
    missing_for_mpi
    exit
fi

# All features but `default`, as the manifest has them.
features=$(awk '/^\[/ { inside = $0 == "[features]" } inside && /^[a-z]/ { print $1 }' crates/fsgather/Cargo.toml |
    grep -vx -e default -e mpi)
# Features on which no code of the library itself depends cannot disturb each other here: each alone will do, and all together.
combinations=("")
alone=()
for feature in $features; do
    if grep -rq "cfg(.*feature = \"$feature\"" crates/fsgather/src; then
        for combination in "${combinations[@]}"; do
            combinations+=("$combination${combination:+,}$feature")
        done
    else
        alone+=("$feature")
    fi
done
all=$(tr '\n' , <<<"$features")
combinations+=("${alone[@]}" "${all%,}")
if [ "${1:-}" = --bare ]; then
    combinations=("")
else
    echo "the store's tests without compression"
    cargo test --quiet -p fsgather-store --lib compression
fi

# Clippy stands for the compiler, as with `cargo clippy`, and builds: dependencies that are there from building tests are used again.
export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__
check() {
    echo "features: ${1:-none}"
    cargo build --quiet -p fsgather --lib --no-default-features --features "$1"
}
for combination in "${combinations[@]}"; do
    check "$combination"
done
if missing=$(missing_for_mpi); then
    check mpi
    check "mpi,${all%,}"
else
    echo "feature mpi: ignored: $missing"
fi
