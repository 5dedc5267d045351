# shellcheck shell=bash
# The Python package as if it was installed, beside torch; for scripts that read this from the root of the repository.
# $python is the interpreter of the environment with torch, which is kept.

python=${FSGATHER_TORCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/fsgather/torch}/bin/python
with_torch=(torch numpy mmengine torchmetrics accelerate expecttest pytest hypothesis)

has_torch() {
    "$python" -c "import importlib.util as u; assert all(map(u.find_spec, '${with_torch[*]}'.split()))" 2>/dev/null
}

# install_torch: 5 GB from PyPI; fails if that is not possible.
install_torch() {
    has_torch && return
    "${PYTHON:-python3}" -m venv "${python%/bin/python}" && "$python" -m pip install --quiet --disable-pip-version-check "${with_torch[@]}"
}

# stage_package: builds the package and puts it into PYTHONPATH; removed when the script ends.
stage_package() {
    local package=crates/fsgather-python
    # A test program beside the libraries selects the same features of dependencies as `cargo test --workspace` does, so that nothing is built twice.
    cargo build --quiet --workspace --lib --test architecture
    stage=$(mktemp -d)
    trap 'rm -rf "$stage"' EXIT
    cp -r "$package/python/." "$stage"
    cp "${CARGO_TARGET_DIR:-target}/debug/lib_fsgather.so" "$stage/fsgather/_fsgather.abi3.so"
    # Torch and torchrun find the package by its metadata.
    mkdir "$stage/fsgather-0.dist-info"
    printf 'Metadata-Version: 2.1\nName: fsgather\nVersion: 0\n' >"$stage/fsgather-0.dist-info/METADATA"
    "$python" "$package/tests/switch/entry_points.py" "$package/pyproject.toml" >"$stage/fsgather-0.dist-info/entry_points.txt"
    export PYTHONPATH=$stage PYTHONDONTWRITEBYTECODE=1
}
