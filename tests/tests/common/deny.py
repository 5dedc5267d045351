"""Runs a command in which system calls fail, as in a sandbox or on an old kernel: `deny.py ERRNO deny|allow NUMBER... -- COMMAND...`.

`deny` is for the calls that are listed, `allow` for all others. `NUMBER@ARGUMENT` is a call with that first argument.
"""

import ctypes
import errno
import os
import platform
import struct
import sys

separator = sys.argv.index("--")
name, mode, *rules = sys.argv[1:separator]
command = sys.argv[separator + 1 :]

LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
ALLOW, FAIL = 0x7FFF0000, 0x00050000 | getattr(errno, name)
own_architecture = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}[platform.machine()]
listed, others = (FAIL, ALLOW) if mode == "deny" else (ALLOW, FAIL)

program = []


def add(code, value, if_true=0, if_false=0):
    program.append(struct.pack("<HBBI", code, if_true, if_false, value))


add(LOAD, ARCHITECTURE)
add(JUMP_IF_EQUAL, own_architecture, if_true=1)
add(RETURN, ALLOW)
for rule in rules:
    number, _, argument = rule.partition("@")
    add(LOAD, NUMBER)
    if argument:
        add(JUMP_IF_EQUAL, int(number), if_false=3)
        add(LOAD, FIRST_ARGUMENT)
        add(JUMP_IF_EQUAL, int(argument), if_false=1)
    else:
        add(JUMP_IF_EQUAL, int(number), if_false=1)
    add(RETURN, listed)
add(RETURN, others)


class Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
path = next(os.path.join(place, command[0]) for place in ["", *os.environ["PATH"].split(":")] if os.access(os.path.join(place, command[0]), os.X_OK))
filter = Filter(len(program), b"".join(program))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(filter), 0, 0):
    raise OSError(ctypes.get_errno(), "seccomp")
os.execv(path, command)
