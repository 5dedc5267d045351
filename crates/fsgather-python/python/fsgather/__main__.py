"""The ``fsgather`` command, also as ``python -m fsgather``."""

from __future__ import annotations

import signal
import sys

from fsgather import _fsgather


def main() -> int:
    """Runs the command with the arguments of this process; what it ends with."""
    # Python ignores it, and children would inherit that: a file over its limit is an error for them too.
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    # The command ends by itself, as it does without an interpreter around it. What is ignored (nohup) stays so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _fsgather.command(sys.argv[1:], [sys.executable, "-m", "fsgather"])


if __name__ == "__main__":
    sys.exit(main())
