"""What agents of a job share in a directory: :class:`Directory`.

In ``all_gather_via_filesys/torchrun-KEY/``, which is private to the user, lie

=================== ==============================================================================================
``state-NUMBER``    a version of the state; the highest number counts, and nobody changes one
``value-KEY``       something that one agent tells the others
``here-NONCE``      an agent that has not left
``draft-NONCE``     what is being written
=================== ==============================================================================================

A file gets its name, once it is whole and synced, by a hard link, which fails where the name is there: so of two agents that follow one version
only one succeeds, on network file systems as well. No locks are needed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import stat
import time
from typing import Iterable, NamedTuple, Optional

from fsgather import _fsgather

__all__ = ["Directory", "Unusable", "Version"]

_MAGIC = b"fsgather torchrun 1\n"
_DIGEST = 32
_KEPT = 64
"""How many versions stay: who looks up an older one than the newest finds out by another look."""
_TRIES = 100
_PAUSE = 0.05
_PASSING = {errno.ESTALE, errno.EIO, errno.EINTR, errno.EAGAIN, errno.ETIMEDOUT, errno.ENOENT}
"""Errors of file servers that may not come again."""


class Unusable(Exception):
    """The directory cannot be used, and why."""


class Version(NamedTuple):
    """A version of the state."""

    number: int
    content: bytes


class Directory:
    """The directory of the job with this name, within one that all its hosts share."""

    def __init__(self, place: str, job: str) -> None:
        # Users who share a place have directories of their own.
        key = hashlib.sha256(f"{os.geteuid()}\0{job}".encode()).hexdigest()[:16]
        self.path = os.path.join(_fsgather.make_rendezvous(place), f"torchrun-{key}")
        self.clock_offset = 0.0
        """How many seconds the clock of the file server is ahead of that of this host."""
        self._uid = os.geteuid()
        """To whom the file server says that files of this user belong."""
        self._here = f"here-{secrets.token_hex(16)}"
        self._enter()

    def read(self) -> Optional[Version]:
        """The newest version of the state, if there is any."""
        for _ in range(_TRIES):
            number = self._newest()
            if number == 0:
                return None
            content = self._read(_state(number))
            if content is not None:
                return Version(number, content)
            time.sleep(_PAUSE)
        raise Unusable(f"{self.path}: version {number} of the state of this rendezvous is damaged or vanishes; remove the directory")

    def follow(self, number: int, content: bytes) -> bool:
        """Writes the version after this one; ``False`` if somebody else has."""
        is_ours = self._write(_state(number + 1), content)
        # Who was stopped for long may have written one that was there long ago, and has been removed: then there are many later
        # ones. A few may have followed ours in this moment.
        is_ours = is_ours and self._newest() <= number + _KEPT
        if is_ours and number % _KEPT == 0:
            self._remove(name for name in self._names() if name.startswith("state-") and _number(name) < number - _KEPT)
        return is_ours

    def tell(self, key: str, content: bytes) -> None:
        """Tells the others something, once for each key."""
        self._write(_value(key), content)

    def told(self, key: str) -> Optional[bytes]:
        """What somebody has told under this key."""
        # No path is opened before a listing has shown that it is there.
        return self._read(_value(key)) if _value(key) in self._names() else None

    def leave(self) -> None:
        """Ends the part of this agent; the last one to leave removes everything."""
        self._remove([self._here])
        with contextlib.suppress(FileNotFoundError):
            names = self._names()
            if not any(name.startswith("here-") for name in names):
                # Who comes in this moment shows that before it reads anything: then the directory stays, for it is not empty.
                self._remove(names)
                with contextlib.suppress(OSError):
                    os.rmdir(self.path)

    def _enter(self) -> None:
        for _ in range(_TRIES):
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
            try:
                self._check(os.geteuid() != 0)
                self._uid = self._make(self._here, b"")
                self._check(True)
                return
            except FileNotFoundError:
                # The last agent of an earlier job is removing it.
                time.sleep(_PAUSE)
        raise Unusable(f"{self.path}: it vanishes as soon as it is made")

    def _check(self, is_known: bool) -> None:
        """Whether the directory is this user's alone. Servers may show files of root as somebody else's: as whose is known once one is there."""
        found = os.lstat(self.path)
        is_own = found.st_uid == self._uid or not is_known
        if not stat.S_ISDIR(found.st_mode) or not is_own or found.st_mode & 0o077:
            with contextlib.suppress(OSError):
                self._remove([self._here])
            raise Unusable(f"{self.path}: it is no directory of this user (uid {self._uid}) alone; remove it, or name another place")

    def _names(self) -> list[str]:
        return _fsgather.list_afresh(self.path)

    def _newest(self) -> int:
        return max((_number(name) for name in self._names() if name.startswith("state-")), default=0)

    def _make(self, name: str, content: bytes) -> int:
        """Makes a file that nobody looks for yet; the uid that it has."""
        descriptor = os.open(os.path.join(self.path, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            whole = _MAGIC + hashlib.sha256(content).digest() + content
            while whole:
                whole = whole[os.write(descriptor, whole) :]
            os.fsync(descriptor)
            made = os.fstat(descriptor)
            self.clock_offset = made.st_mtime - time.time()
            return made.st_uid
        except OSError as error:
            self._remove([name])
            raise OSError(error.errno, error.strerror, os.path.join(self.path, name)) from error
        finally:
            os.close(descriptor)

    def _write(self, name: str, content: bytes) -> bool:
        """Gives a file with this content its name; ``False`` where one has it."""
        draft = f"draft-{secrets.token_hex(16)}"
        path = os.path.join(self.path, draft)
        self._make(draft, content)
        try:
            os.link(path, os.path.join(self.path, name))
        except OSError as error:
            # The reply of a server may have been lost, and the link have been made.
            if os.stat(path).st_nlink > 1:
                return True
            if error.errno == errno.EEXIST:
                return False
            if error.errno in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise Unusable(f"{self.path}: its file system has no hard links; name a place on another one") from error
            raise
        finally:
            self._remove([draft])
        return True

    def _read(self, name: str) -> Optional[bytes]:
        """What is in a file; ``None`` where it is gone, or not whole."""
        try:
            descriptor = os.open(os.path.join(self.path, name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _PASSING:
                return None
            raise
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != self._uid:
                raise Unusable(f"{self.path}/{name}: it is no file of this user (uid {self._uid})")
            with open(descriptor, "rb", closefd=False) as file:
                whole = file.read()
        except OSError as error:
            if error.errno in _PASSING:
                return None
            raise
        finally:
            os.close(descriptor)
        start = len(_MAGIC) + _DIGEST
        content = whole[start:]
        return content if whole[:start] == _MAGIC + hashlib.sha256(content).digest() else None

    def _remove(self, names: Iterable[str]) -> None:
        for name in list(names):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.path, name))


def _state(number: int) -> str:
    return f"state-{number:020}"


def _number(name: str) -> int:
    return int(name.partition("-")[2])


def _value(key: str) -> str:
    return f"value-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
