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

from fsgather import _errors as _fsgather_errors
from fsgather import _fsgather
from fsgather._logging import logger
from fsgather._slowness import told_if_slow
from fsgather._torchrun import state
from fsgather._torchrun.directory import Directory, Unusable

__all__ = ["DirectoryRendezvous", "create"]

R = TypeVar("R")

_LOOK_EVERY = 0.05
_PATIENCE = 60.0
"""How long one agent waits for what another one does next, and for a file server that fails, in seconds."""
_MOMENT = 3.0
"""How long the main thread has to handle a signal, in seconds."""
_REACH = 3.0
"""How long an address may take to answer, in seconds."""


class _Gone(Exception):
    """An agent that this one waits for is gone."""


def create(params: RendezvousParameters) -> RendezvousHandler:
    """The handler that torchrun asks for by ``--rdzv-backend=fsgather``."""
    return DirectoryRendezvous(params)


class DirectoryRendezvous(RendezvousHandler):
    """A rendezvous of agents that know nothing of each other but a directory."""

    def __init__(self, params: RendezvousParameters) -> None:
        place = params.endpoint.removeprefix("file://")
        if not place and os.environ.get("FSGATHER_DIR"):
            place = os.path.abspath(os.environ["FSGATHER_DIR"])
        if not os.path.isabs(place):
            raise ValueError(f"--rdzv-endpoint={params.endpoint} is not the path of a directory that all hosts share, such as /shared/scratch")
        # Its store of keys is the one that ranks use as well.
        os.environ.pop("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", None)
        self._addresses = [params.local_addr] if params.local_addr else _fsgather.own_addresses(os.environ.get("FSGATHER_INTERFACE", ""))
        params.local_addr = self._addresses[0]
        _name_interface(self._addresses[0])
        try:
            self._directory = _tried(lambda: Directory(place, _job(params.run_id)))
        except _fsgather_errors.StorageError as error:
            # Whoever starts torchrun has named it so.
            raise ValueError(str(error).replace("FSGATHER_DIR", "--rdzv-endpoint")) from error
        # An agent that is ended by a signal does not close the rendezvous, since another one may take its place.
        self._process = os.getpid()
        atexit.register(self._leave)
        _before_termination(self._leave)
        self._backend = _DirectoryBackend(self._directory)
        values = _Values(self._directory, self._backend, lambda: self._check_is_here(0))
        self._inner: Any = create_handler(values, self._backend, params)

    def get_backend(self) -> str:
        return "fsgather"

    @property
    def use_agent_store(self) -> bool:
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        while True:
            # Else an agent goes on with the address of one that is gone.
            self._inner._bootstrap_store_info = None
            try:
                with told_if_slow(self._how_it_stands):
                    info = self._inner.next_rendezvous()
                    port = info.bootstrap_store_info.master_port
                    address, store = self._meet(info.store, info.rank, info.world_size, port)
                return RendezvousInfo(store, info.rank, info.world_size, RendezvousStoreInfo(address, port))
            except _Gone as gone:
                logger().warning("%s; the rendezvous begins anew", gone)

    def _meet(self, values: Store, rank: int, world_size: int, port: int) -> tuple[str, Store]:
        """The address of the first agent that all can reach, and a connection to its store."""
        if rank == 0:
            nonce = secrets.token_hex(16)
            store = TCPStore(self._addresses[0], port, is_master=False)
            store.set("fsgather/nonce", nonce)
            values.set("addresses", json.dumps([self._addresses, nonce]))
            others = range(1, world_size)
            reached = [set(json.loads(self._word(store, f"fsgather/{nonce}/reached/{other}", other))) for other in others]
            common = [address for address in self._addresses if all(address in one for one in reached)]
            # Where there is none, each uses its own.
            store.set(f"fsgather/{nonce}/master", common[0] if common else "")
        else:
            addresses, nonce = json.loads(values.get("addresses"))
            stores = {}
            for address in addresses:
                found = _connect(address, port, nonce)
                if found is not None:
                    stores[address] = found
            if not stores:
                self._wait_until_gone(0)
                raise RendezvousConnectionError(
                    f"this host reaches the first agent at none of {', '.join(addresses)} (port {port}); name the network that all hosts "
                    "share by FSGATHER_INTERFACE, or the address of each host by --local-addr"
                )
            store = next(iter(stores.values()))
            store.set(f"fsgather/{nonce}/reached/{rank}", json.dumps(list(stores)))
        master = self._word(store, f"fsgather/{nonce}/master", 0)
        address = master.decode() or (self._addresses[0] if rank == 0 else next(iter(stores)))
        return address, PrefixStore("fsgather/agents", store)

    def _word(self, store: Store, key: str, rank: int) -> bytes:
        """What the agent of a rank says to all in the first one's store."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                store.wait([key], timedelta(seconds=1))
                return bytes(store.get(key))
            except RuntimeError as error:
                # It has not said it yet, or the first agent, which has the store, is gone.
                for awaited in {0, rank}:
                    self._check_is_here(awaited)
                if time.monotonic() > deadline:
                    raise RendezvousConnectionError(f"the agent of rank {rank} has not said {key} within {_PATIENCE:.0f} s") from error
                time.sleep(_LOOK_EVERY)

    def _check_is_here(self, rank: int) -> None:
        """Whether the agent of a rank still takes part, as this one has last heard.

        Raises:
            _Gone: it was lost, or has left for another round.
        """
        if rank not in self._inner._state_holder.state.participants.values():
            raise _Gone(f"{self._directory.path}: the agent of rank {rank} is gone")

    def _wait_until_gone(self, rank: int) -> None:
        """Waits as long as it may take until all know that an agent was lost."""
        settings = self._inner._settings
        deadline = time.monotonic() + (settings.keep_alive_interval * (settings.keep_alive_max_attempt + 2)).total_seconds()
        while time.monotonic() < deadline:
            self._check_is_here(rank)
            time.sleep(_LOOK_EVERY)

    def _how_it_stands(self) -> str:
        state, settings = self._inner._state_holder.state, self._inner._settings
        wanted = f"{settings.min_nodes}" if settings.min_nodes == settings.max_nodes else f"{settings.min_nodes} to {settings.max_nodes}"
        waiting = f", and {len(state.wait_list)} wait for the next round" if state.wait_list else ""
        return f"agents in the rendezvous {self._directory.path}: {len(state.participants)} of {wanted} take part{waiting}"

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

    def __init__(self, directory: Directory, backend: _DirectoryBackend, check: Callable[[], None]) -> None:
        super().__init__()
        self._directory = directory
        self._backend = backend
        self._check_first = check

    def set(self, key: str, value: Any) -> None:
        content = value.encode() if isinstance(value, str) else bytes(value)
        _tried(lambda: self._directory.tell(self._key(key), content))

    def get(self, key: str) -> bytes:
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            value = _tried(lambda: self._directory.told(self._key(key)))
            if value is not None:
                return value
            self._check_first()
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
    """Does something before SIGTERM ends this process, and has Ctrl-C end it while torch connects.

    Only where nobody else has said what these signals do: torch does so once it has workers.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    is_handled = threading.Event()

    def terminate(number: int, frame: Any) -> None:
        is_handled.set()
        act()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        # The first process of a container is not ended by that.
        os._exit(128 + number)

    def interrupt(number: int, frame: Any) -> None:
        is_handled.set()
        signal.default_int_handler(number, frame)

    handlers: dict[int, Any] = {signal.SIGTERM: terminate}
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        handlers[signal.SIGINT] = interrupt
    for number, handler in handlers.items():
        signal.signal(number, handler)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    other = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if other != -1:
        signal.set_wakeup_fd(other)
        return

    def watch() -> None:
        while True:
            (number,) = os.read(reading, 1)
            if number not in handlers or signal.getsignal(number) is not handlers[number]:
                continue
            # The main thread handles no signal while torch connects, and that lasts until its time-out.
            if not is_handled.wait(_MOMENT):
                act()
                os._exit(128 + number)
            is_handled.clear()

    threading.Thread(target=watch, name="fsgather-signals", daemon=True).start()


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
            gone = error.filename or "the directory of the rendezvous"
            raise RendezvousClosedError(f"{gone} is gone: the rendezvous has ended") from error
        except OSError as error:
            if time.monotonic() > deadline:
                raise RendezvousConnectionError(f"the directory of the rendezvous cannot be used: {error}") from error
            time.sleep(1)
