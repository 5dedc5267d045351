"""What an agent of torchrun asks: :class:`DirectoryRendezvous`."""

from __future__ import annotations

import atexit
import ipaddress
import json
import os
import secrets
import signal
import socket
import threading
import time
from datetime import timedelta
from pickle import UnpicklingError
from typing import Any, Callable, Optional, TypeVar

from torch.distributed import PrefixStore, Store, TCPStore
from torch.distributed.elastic.rendezvous.api import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    RendezvousStoreInfo,
)
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend, create_handler

from fsgather import _fsgather
from fsgather._torchrun import state
from fsgather._torchrun.directory import Directory, Unusable

__all__ = ["DirectoryRendezvous", "create"]

R = TypeVar("R")

_LOOK_EVERY = 0.05
_PATIENCE = 60.0
"""How long one agent waits for what another one does next, and for a file server that fails, in seconds."""
_REACH = 3.0
"""How long an address may take to answer, in seconds."""


def create(params: RendezvousParameters) -> RendezvousHandler:
    """The handler that torchrun asks for by ``--rdzv-backend=fsgather``."""
    return DirectoryRendezvous(params)


class DirectoryRendezvous(RendezvousHandler):
    """A rendezvous of agents that know nothing of each other but a directory."""

    def __init__(self, params: RendezvousParameters) -> None:
        place = params.endpoint.removeprefix("file://") or os.environ.get("FSGATHER_DIR", "")
        if not os.path.isabs(place):
            raise ValueError(f"--rdzv-endpoint={params.endpoint} is not the path of a directory that all hosts share, such as /shared/scratch")
        # Its store of keys is the one that ranks use as well.
        os.environ.pop("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", None)
        self._addresses = [params.local_addr] if params.local_addr else _fsgather.own_addresses(os.environ.get("FSGATHER_INTERFACE", ""))
        params.local_addr = self._addresses[0]
        _name_interface(self._addresses[0])
        self._directory = _tried(lambda: Directory(place, _job(params.run_id)))
        # An agent that is ended by a signal does not close the rendezvous, since another one may take its place.
        self._process = os.getpid()
        atexit.register(self._leave)
        _before_termination(self._leave)
        self._backend = _DirectoryBackend(self._directory)
        self._inner: Any = create_handler(_Values(self._directory, self._backend), self._backend, params)

    def get_backend(self) -> str:
        return "fsgather"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        # Else an agent goes on with the address of one that is gone.
        self._inner._bootstrap_store_info = None
        info = self._inner.next_rendezvous()
        port = info.bootstrap_store_info.master_port
        address, store = self._meet(info.store, info.rank, info.world_size, port)
        return RendezvousInfo(store, info.rank, info.world_size, RendezvousStoreInfo(address, port))

    def _meet(self, values: Store, rank: int, world_size: int, port: int) -> tuple[str, Store]:
        """The address of the first agent that all can reach, and a connection to its store."""
        if rank == 0:
            nonce = secrets.token_hex(16)
            store = TCPStore(self._addresses[0], port, is_master=False)
            store.set("fsgather/nonce", nonce)
            values.set("addresses", json.dumps([self._addresses, nonce]))
            reached = [set(json.loads(store.get(f"fsgather/reached/{other}"))) for other in range(1, world_size)]
            common = [address for address in self._addresses if all(address in one for one in reached)]
            # Where there is none, each uses its own.
            store.set("fsgather/master", common[0] if common else "")
        else:
            addresses, nonce = json.loads(values.get("addresses"))
            stores = {}
            for address in addresses:
                found = _connect(address, port, nonce)
                if found is not None:
                    stores[address] = found
            if not stores:
                raise RendezvousConnectionError(
                    f"this host reaches the first agent at none of {', '.join(addresses)} (port {port}); name the network that all hosts "
                    "share by FSGATHER_INTERFACE, or the address of each host by --local-addr"
                )
            store = next(iter(stores.values()))
            store.set(f"fsgather/reached/{rank}", json.dumps(list(stores)))
        address = store.get("fsgather/master").decode() or (self._addresses[0] if rank == 0 else next(iter(stores)))
        return address, PrefixStore("fsgather/agents", store)

    def is_closed(self) -> bool:
        closed: bool = self._inner.is_closed()
        return closed

    def set_closed(self) -> None:
        self._inner.set_closed()

    def num_nodes_waiting(self) -> int:
        waiting: int = self._inner.num_nodes_waiting()
        return waiting

    def get_run_id(self) -> str:
        run_id: str = self._inner.get_run_id()
        return run_id

    def shutdown(self) -> bool:
        is_shut: bool = self._inner.shutdown()
        self._leave()
        return is_shut

    def _leave(self) -> None:
        atexit.unregister(self._leave)
        if os.getpid() != self._process:
            # A forked child has no part of its own.
            return
        try:
            self._directory.leave()
        except OSError:
            # What stays is removed by `fsgather clean`.
            pass


class _DirectoryBackend(RendezvousBackend):
    """Keeps the state of torch's rendezvous in versions, each preceded by the number of the job under this name that it belongs to.

    A rendezvous that was closed is over, for those who took part; who comes later begins another one in its place.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.job: Optional[int] = None
        self._before = 0
        """The version before the first one of this job."""

    @property
    def name(self) -> str:
        return "fsgather"

    def get_state(self) -> Optional[tuple[bytes, int]]:
        version = _tried(self._directory.read)
        if version is None:
            self.job = self.job or 1
            return None
        job, found = int.from_bytes(version.content[:8], "big"), version.content[8:]
        try:
            if self.job is None:
                self.job = job + state.is_closed(found)
            if job < self.job:
                self._before = version.number
                return None
            if job > self.job:
                raise RendezvousClosedError("the rendezvous has ended, and another job has begun under its name")
            return state.shifted(found, -self._directory.clock_offset), version.number
        except (UnpicklingError, AttributeError, EOFError, ValueError) as error:
            raise RendezvousStateError(f"{self._directory.path}: version {version.number} cannot be read: {error}") from error

    def set_state(self, state_bits: bytes, token: Any = None) -> Optional[tuple[bytes, int, bool]]:
        if self.job is None:
            self.get_state()
        number = self._before if token is None else int(token)
        content = (self.job or 1).to_bytes(8, "big") + state.shifted(state_bits, self._directory.clock_offset)
        if _tried(lambda: self._directory.follow(number, content)):
            return state_bits, number + 1, True
        found = self.get_state()
        return None if found is None else (*found, False)


class _Values(Store):
    """What agents tell each other before they have a store: the port of the first one's, and its addresses."""

    def __init__(self, directory: Directory, backend: _DirectoryBackend) -> None:
        super().__init__()
        self._directory = directory
        self._backend = backend

    def set(self, key: str, value: Any) -> None:
        content = value.encode() if isinstance(value, str) else bytes(value)
        _tried(lambda: self._directory.tell(self._key(key), content))

    def get(self, key: str) -> bytes:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            value = _tried(lambda: self._directory.told(self._key(key)))
            if value is not None:
                return value
            time.sleep(_LOOK_EVERY)
        raise RendezvousConnectionError(f"{self._directory.path}: the first agent has not said {key} within {_PATIENCE:.0f} s")

    def _key(self, key: str) -> str:
        return f"{self._backend.job}/{key}"


def _job(run_id: str) -> str:
    """What tells jobs apart that share a directory."""
    given = [os.environ.get(name) for name in ("FSGATHER_JOB", "SLURM_JOB_ID")]
    own = None if run_id == "none" else run_id
    name = "/".join(part for part in [given[0] or given[1], own] if part)
    if not name:
        raise ValueError("jobs that meet in one directory are told apart by their ids: add --rdzv-id=..., the same on all nodes")
    return name


def _name_interface(address: str) -> None:
    """Has gloo, which looks its host's name up, use the interface of an address where that name leads nowhere else."""
    try:
        found = {ipaddress.ip_address(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None)}
    except (OSError, ValueError):
        found = set()
    interface = _fsgather.interface_of(address)
    if interface is not None and all(one.is_loopback for one in found):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def _before_termination(act: Callable[[], None]) -> None:
    """Does something before SIGTERM ends this process, where nobody else has said what it does: torch does so once it has workers."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def terminate(number: int, frame: Any) -> None:
        act()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, terminate)


def _connect(address: str, port: int, nonce: str) -> Optional[TCPStore]:
    """The store at an address, if it answers, and is the one that is meant."""
    try:
        socket.create_connection((address, port), _REACH).close()
        store = TCPStore(address, port, is_master=False, timeout=timedelta(seconds=_PATIENCE))
        store.wait(["fsgather/nonce"], timedelta(seconds=_REACH))
        return store if store.get("fsgather/nonce").decode() == nonce else None
    except (OSError, RuntimeError):
        return None


def _tried(act: Callable[[], R]) -> R:
    """Does something with files, again if their server fails for a while."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return act()
        except Unusable as error:
            raise RendezvousConnectionError(str(error)) from error
        except FileNotFoundError as error:
            raise RendezvousClosedError(f"{error.filename} is gone: the rendezvous has ended") from error
        except OSError as error:
            if time.monotonic() > deadline:
                raise RendezvousConnectionError(f"the directory of the rendezvous cannot be used: {error}") from error
            time.sleep(1)
