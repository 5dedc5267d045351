"""Run by the interpreter at its start, where the directory of this file is on ``PYTHONPATH``.

Has fsgather replace what ``FSGATHER_PATCH`` selects, and runs the ``sitecustomize`` that would have run without us.
"""

import os
import sys


def _install() -> None:
    selected = os.environ.get("FSGATHER_PATCH", "")
    if not selected.strip():
        return
    try:
        from fsgather import _switch
    except ImportError as error:
        # Another interpreter, which the job starts for something else. The ranks miss each other if it is not.
        if error.name == "fsgather":
            return
        raise
    _switch.install(selected)


def _run_next() -> None:
    # Out of the path for good: whoever starts further interpreters hands on the variable, not this list.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != here]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
        if ours is not None:
            sys.modules["sitecustomize"] = ours


try:
    _install()
except Exception as error:
    # The interpreter would show a traceback and go on; a line is enough.
    sys.stderr.write(
        "fsgather: FSGATHER_PATCH has no effect in this process: %s: %s\n" % (type(error).__name__, error)
    )
_run_next()
