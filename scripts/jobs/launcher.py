"""Starts the processes of one job, as a launcher does: it is the parent of these processes and of no others.

Reads a list of commands (a document in JSON) from the file that it is given. Prints `started RANK PID` and `ended RANK STATUS TIME` for each,
and kills all that are left when its standard input ends. What the processes read from theirs never comes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time


def main() -> None:
    """Starts them and waits for them."""
    with open(sys.argv[1]) as file:
        commands = json.load(file)
    # A program in the background ignores some signals, and its children inherit that.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    idle, _ = os.pipe()
    ranks: dict[int, int] = {}
    # subprocess waits for a process to which there is no reference.
    processes = []
    for rank, command in enumerate(commands):
        time.sleep(command["delay"])
        with open(command["out"], "w") as out, open(command["err"], "w") as err:
            process = subprocess.Popen(command["arguments"], env=command["environment"], stdin=idle, stdout=out, stderr=err)
        ranks[process.pid] = rank
        processes.append(process)
        print(f"started {rank} {process.pid}", flush=True)

    def watch() -> None:
        os.read(0, 1)
        for pid in list(ranks):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    for _ in commands:
        pid, status = os.wait()
        print(f"ended {ranks[pid]} {os.waitstatus_to_exitcode(status)} {time.monotonic()}", flush=True)


main()
