# shellcheck shell=bash
# Evaluations of real projects, unmodified, on three ranks with tiny random models: whether the result with FSGATHER_PATCH is the same as without,
# how long it takes and how much memory, and what the other ranks report of one that is killed, or alive and silent. With samples, fewer ranks
# complete a killed evaluation.
#
#   scripts/prove projects [--table] [PROJECT...]   crates/fsgather-python/tests/projects/of_PROJECT.py
#
# --table writes the results, of this run and all since `cargo clean`, into docs/works-with.md. Missing projects are installed from PyPI.
for word in "$@"; do
    [ "$word" = --table ] || [ -e "crates/fsgather-python/tests/projects/of_$word.py" ] || refuse "there is no project $word"
done
ready
for package in lm-eval lightning transformers sentence-transformers evaluate datasets; do
    # Projects that cannot be installed are reported as ignored.
    "$python" -c "import importlib.metadata as m; m.version('$package')" 2>/dev/null ||
        timeout 600 "$python" -m pip install --quiet --disable-pip-version-check "$package" || true
done

stage_package
nice "$python" crates/fsgather-python/tests/projects/prove.py --kept "${CARGO_TARGET_DIR:-target}/projects.json" "$@"
