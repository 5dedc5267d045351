"""Runs a program with what ``FSGATHER_PATCH`` selects replaced, by default ``torch``.

For versions of torch before 2.5, which do not look for us, where something else starts the ranks:

    torchrun --nproc_per_node 4 -m fsgather.patched train.py --epochs 3
"""

from __future__ import annotations

import os
import runpy
import sys

from fsgather import _switch


def main() -> None:
    """Runs the program that the command line names, as the interpreter itself would."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m fsgather.patched PROGRAM [ARGUMENT ...]")
    if not os.environ.get("FSGATHER_PATCH", "").strip():
        os.environ["FSGATHER_PATCH"] = "torch"
    _switch.install(os.environ["FSGATHER_PATCH"])
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
