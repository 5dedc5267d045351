# The Python package as it would be installed, for the scripts beside this, which read it from the root of the repository: `$stage` is a place of
# their own that is removed at their end, and `$python` the environment of scripts/test-torch.sh with the package in its path.

python=${FSGATHER_TORCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fsgather/torch}/bin/python

# stage_package: builds and lays it out.
stage_package() {
    local package=crates/fsgather-python
    # All libraries, as other commands build them: for one package alone they would be built once more, with other features.
    cargo build --quiet --workspace --lib
    stage=$(mktemp -d)
    trap 'rm -rf "$stage"' EXIT
    cp -r "$package/python/." "$stage"
    cp "${CARGO_TARGET_DIR:-target}/debug/lib_fsgather.so" "$stage/fsgather/_fsgather.abi3.so"
    # What an installed package tells of itself: by this torch and torchrun find it.
    mkdir "$stage/fsgather-0.dist-info"
    printf 'Metadata-Version: 2.1\nName: fsgather\nVersion: 0\n' >"$stage/fsgather-0.dist-info/METADATA"
    "$python" "$package/tests/switch/entry_points.py" "$package/pyproject.toml" >"$stage/fsgather-0.dist-info/entry_points.txt"
    export PYTHONPATH=$stage PYTHONDONTWRITEBYTECODE=1
}
