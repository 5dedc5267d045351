"""What can go wrong with each kind of call, and how a case is written: `SCENARIO:VICTIM:CALL:NTH:ACTION`."""

import errno
import random
from dataclasses import dataclass

# Longer than any pause of a healthy rank, and shorter than the time-out of the calls: ranks go on after it.
HANG_MS = 3000
STOP_MS = 2000
# Longer than others may wait for an answer.
STALL_MS = 30000

SERVER = ["EIO", "ESTALE", "EACCES"]
ROOM = ["ENOSPC", "EDQUOT"]
BROKEN = ["ECONNRESET", "ETIMEDOUT", "EPIPE"]

# Errors instead of a call, on files.
FILE_ERRORS = {
    "openat": SERVER + ROOM + ["EINTR", "EMFILE", "ENOENT"],
    "open": SERVER + ["EINTR", "EMFILE"],
    "mkdirat": SERVER + ROOM,
    "renameat": SERVER + ROOM,
    "linkat": SERVER + ROOM,
    "unlinkat": SERVER + ["EBUSY"],
    "statx": SERVER,
    "newfstatat": SERVER,
    "fstat": ["EIO", "ESTALE"],
    "utimensat": SERVER,
    "fchmod": ["EIO", "EPERM", "ESTALE"],
    "statfs": ["EIO", "ESTALE"],
    "fstatfs": ["EIO", "ESTALE"],
    "readlinkat": SERVER,
    "readlink": SERVER,
    "read": ["EIO", "ESTALE", "EINTR"],
    "pread64": ["EIO", "ESTALE", "EINTR"],
    "readv": ["EIO", "ESTALE", "EINTR"],
    "write": ["EIO", "ESTALE", "EINTR"] + ROOM,
    "writev": ["EIO", "ESTALE", "EINTR"] + ROOM,
    "pwrite64": ["EIO", "ESTALE", "EINTR"] + ROOM,
    "copy_file_range": ["EIO", "EXDEV", "EOPNOTSUPP"] + ROOM,
    "fsync": ["EIO", "ESTALE", "EINTR"] + ROOM,
    "fdatasync": ["EIO", "ESTALE", "EINTR"] + ROOM,
    "ftruncate": ["EIO", "EINTR"] + ROOM,
    "fallocate": ["EOPNOTSUPP", "EINTR"] + ROOM,
    "getdents64": ["EIO", "ESTALE"],
    "lseek": ["EIO"],
    "mmap": ["ENOMEM", "EACCES", "ENODEV"],
}
# Errors although the call was done. A reply that was lost and asked for again says that the thing is there, or gone, already.
FILE_AFTER = {
    "openat": ["EIO", "EEXIST"],
    "mkdirat": ["EIO", "EEXIST"],
    "renameat": ["EIO", "ENOENT"],
    "linkat": ["EIO", "EEXIST"],
    "unlinkat": ["EIO", "ENOENT"],
    "write": ["EIO"],
    "writev": ["EIO"],
    "fsync": ["EIO"],
    "close": ["EIO", "ENOSPC", "EDQUOT", "ESTALE", "EINTR"],
    "utimensat": ["EIO"],
}
SOCKET_ERRORS = {
    "socket": ["EMFILE", "ENOBUFS", "EAFNOSUPPORT"],
    "connect": ["ETIMEDOUT", "ECONNREFUSED", "EHOSTUNREACH"],
    "accept4": ["ECONNABORTED", "EMFILE", "EINTR"],
    "bind": ["EADDRINUSE", "EACCES"],
    "listen": ["EADDRINUSE"],
    "sendto": BROKEN + ["EINTR"],
    "recvfrom": ["ECONNRESET", "ETIMEDOUT", "EINTR"],
    "sendmsg": BROKEN + ["EINTR"],
    "recvmsg": ["ECONNRESET", "EINTR"],
    "write": BROKEN + ["EINTR"],
    "writev": BROKEN + ["EINTR"],
    "read": ["ECONNRESET", "ETIMEDOUT", "EINTR"],
    "shutdown": ["ENOTCONN"],
    "setsockopt": ["EINVAL", "ENOBUFS"],
    "getsockopt": ["ENOBUFS"],
    "getsockname": ["ENOBUFS"],
    "getpeername": ["ENOTCONN"],
}
SOCKET_AFTER = {"sendto": ["ECONNRESET"], "writev": ["ECONNRESET"], "recvfrom": ["ECONNRESET"], "connect": ["ETIMEDOUT"], "close": ["EINTR", "EIO"]}
PROCESS_ERRORS = {
    "clone3": ["EAGAIN"],
    "pidfd_open": ["ENOSYS", "EMFILE", "EPERM"],
    "epoll_create1": ["EMFILE"],
    "epoll_ctl": ["ENOMEM", "ENOSPC"],
    "eventfd2": ["EMFILE"],
    "pipe2": ["EMFILE"],
}
# What may move less than it was asked for. Of a socket that means that there is no more, or no room: the kernel then says when there is,
# which it would not do after a call that was shortened here.
SHORT = {"read", "readv", "pread64", "write", "writev", "pwrite64", "copy_file_range"}


@dataclass(frozen=True, order=True)
class Case:
    """One fault: in which process of which scenario, at which call, and what happens there."""

    scenario: str
    victim: int
    call: str
    nth: int
    action: str

    def __str__(self):
        return f"{self.scenario}:{self.victim}:{self.call}:{self.nth}:{self.action}"

    @staticmethod
    def parse(text):
        scenario, victim, call, nth, action = text.split(":", 4)
        return Case(scenario, int(victim), call, int(nth), action)

    @property
    def kind(self):
        """`error`, `after`, `short`, `hang`, `stall`, `kill` or `stop`."""
        return self.action.partition(":")[0]

    @property
    def injected(self):
        """The action in the words of the injector, which knows errors by number."""
        kind, _, value = self.action.partition(":")
        if kind == "stall":
            return f"hang:{value}"
        return f"{kind}:{getattr(errno, value)}" if kind in ("error", "after") else self.action


def actions(call, is_tool):
    """All that can go wrong with a call."""
    name, place = call.split(".")
    if is_tool and place == "socket":
        # A pair within the process, by which it hears of signals: nobody can break that.
        yield "error:EINTR"
        return
    errors, after = {"file": (FILE_ERRORS, FILE_AFTER), "socket": (SOCKET_ERRORS, SOCKET_AFTER), "process": (PROCESS_ERRORS, {})}[place]
    yield from (f"error:{error}" for error in errors.get(name, []))
    yield from (f"after:{error}" for error in after.get(name, []))
    if name in SHORT and place == "file":
        yield "short"
    yield from (f"hang:{HANG_MS}", "kill", f"stop:{STOP_MS}", f"stall:{STALL_MS}")


def every(counts, tools):
    """All cases; `tools` are the scenarios without ranks, and `counts` is, for a scenario and a victim, how often a good run makes each call."""
    return [
        Case(scenario, victim, call, nth, action)
        for (scenario, victim), calls in sorted(counts.items())
        for call, count in sorted(calls.items())
        for action in actions(call, scenario in tools)
        for nth in range(1, count + 1)
    ]


def sample(cases, seed):
    """The cases in a random order in which each kind of fault of each kind of call comes early."""
    draw = random.Random(seed)
    groups = {}
    for case in cases:
        groups.setdefault((case.scenario, case.victim, case.call, case.action), []).append(case)
    keyed = []
    for group in groups.values():
        draw.shuffle(group)
        keyed += [(turn, draw.random(), case) for turn, case in enumerate(group)]
    return [case for _, _, case in sorted(keyed)]
