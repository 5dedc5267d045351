"""The command that the package brings along."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys


def test_ctrl_c_ends_the_command_as_it_does_without_an_interpreter(tmp_path: pathlib.Path) -> None:
    run = ["run", "-n", "1", "--dir", str(tmp_path), "--", "sh", "-c", "echo ready; exec sleep 1000"]
    command = subprocess.Popen([sys.executable, "-m", "fsgather", *run], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert command.stdout is not None
        assert command.stdout.readline() == "[0] ready\n"
        command.send_signal(signal.SIGINT)
        _, said = command.communicate()
    finally:
        command.kill()
    assert command.returncode == 130
    assert "SIGINT passed on to rank 0" in said
    assert "Traceback" not in said


def test_ctrl_c_ends_a_verb_that_joins_nobody(tmp_path: pathlib.Path) -> None:
    watch = [sys.executable, "-m", "fsgather", "inspect", "--watch", str(tmp_path)]
    command = subprocess.Popen(watch, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert command.stdout is not None
        command.stdout.readline()
        command.send_signal(signal.SIGINT)
        _, said = command.communicate()
    finally:
        command.kill()
    assert command.returncode in (-signal.SIGINT, 130)
    assert said == ""
