"""One rank of a job of a project: ``rank.py PROJECT CASE``.

It evaluates twice, and is measured. In a case of harm it evaluates once more, and rank 2 is killed or falls silent in the midst of
its share; the others write what they were told, and when. All goes to ``$PROJECT_OUTPUT``.
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

VICTIM = 2
RANK = int(os.environ["RANK"])
OUTPUT = Path(os.environ["PROJECT_OUTPUT"])
PATIENCE = datetime.timedelta(seconds=float(os.environ["PROJECT_PATIENCE"]))


def nothing() -> None:
    """In the midst of a share that ends well."""


def killed() -> None:
    """The end of this rank."""
    mark()
    os.kill(os.getpid(), signal.SIGKILL)


def silent() -> None:
    """Does not come back while anybody waits."""
    mark()
    time.sleep(600)


def mark() -> None:
    """Says when harm was done."""
    write("harmed", time.time())


def write(name: str, what: Any) -> None:
    """A file that is whole as soon as it is there."""
    draft = OUTPUT / f"draft-{RANK}"
    draft.write_text(json.dumps(what, default=repr))
    draft.rename(OUTPUT / name)


def memory(line: str) -> float:
    """This process's, in MiB."""
    for found in Path("/proc/self/status").read_text().splitlines():
        if found.startswith(line + ":"):
            return int(found.split()[1]) / 1024
    raise AssertionError(line)


def measured(project: Any) -> dict[str, Any]:
    """What an evaluation finds, how long a second one takes, and how much memory both need at the peak, beside what there was before."""
    Path("/proc/self/clear_refs").write_text("5")
    before = memory("VmRSS")
    project.evaluate(nothing)
    began = time.monotonic()
    result = project.evaluate(nothing)
    took = time.monotonic() - began
    return {"result": result, "seconds": took, "mib": memory("VmHWM") - before}


def told_by(call: Any, *arguments: Any) -> None:
    """Writes what comes of it."""
    began = time.time()
    try:
        told = {"kind": "", "text": repr(call(*arguments))}
    except BaseException as error:
        told = {"kind": type(error).__name__, "text": str(error)}
    try:
        began = json.loads((OUTPUT / "harmed").read_text())
    except FileNotFoundError:
        pass
    write(f"told-{RANK}", {**told, "seconds": time.time() - began})
    # A group that has failed may take long to end.
    sys.stderr.flush()
    os._exit(0)


def main() -> None:
    """Runs the case."""
    project = importlib.import_module(f"of_{sys.argv[1]}")
    case = sys.argv[2]
    project.begin(PATIENCE)
    if case in ("own", "resume"):
        told_by(getattr(project, case))
    write(f"measured-{RANK}", measured(project))
    if case == "well":
        project.end()
    else:
        told_by(project.evaluate, {"killed": killed, "silent": silent}[case] if RANK == VICTIM else nothing)


if __name__ == "__main__":
    main()
