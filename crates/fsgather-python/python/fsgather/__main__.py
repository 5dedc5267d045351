"""The ``fsgather`` command, also as ``python -m fsgather``."""

from __future__ import annotations

import sys

from fsgather import _fsgather


def main() -> int:
    """Runs the command with the arguments of this process; what it ends with."""
    return _fsgather.command(sys.argv[1:], [sys.executable, "-m", "fsgather"])


if __name__ == "__main__":
    sys.exit(main())
