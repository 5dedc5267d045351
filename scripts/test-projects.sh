#!/usr/bin/env bash
# Evaluations of real projects, unmodified, on three ranks with tiny random models: the same result without fsgather and with FSGATHER_PATCH, how
# long it takes and how much memory, and what the other ranks are told of one that is killed, or alive and silent. 15 minutes for all.
# Installs into the environment of scripts/test-torch.sh what is missing. Arguments name some of the projects (crates/fsgather-python/tests/projects/of_NAME.py).
# With --table what was found, now and since `cargo clean`, becomes the tables of docs/works-with.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/arguments.sh
explain "$@"
for word in "$@"; do
    [ "$word" = --table ] || [ -e "crates/fsgather-python/tests/projects/of_$word.py" ] || refuse "there is no project $word"
done

scripts/test-torch.sh install
. scripts/staged.sh
for package in lm-eval lightning transformers sentence-transformers evaluate datasets; do
    # One that cannot be had is skipped.
    "$python" -c "import importlib.metadata as m; m.version('$package')" 2>/dev/null ||
        timeout 600 "$python" -m pip install --quiet --disable-pip-version-check "$package" || true
done

stage_package
nice "$python" crates/fsgather-python/tests/projects/prove.py --kept "${CARGO_TARGET_DIR:-target}/projects.json" "$@"
