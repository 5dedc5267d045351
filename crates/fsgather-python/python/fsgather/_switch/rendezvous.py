"""``init_method="fsgather:///shared/directory"``: ranks find each other in a directory, and torch gets a store of its own.

Rank 0 opens torch's TCP store at any free port and tells the others where through a short-lived world of ours.
"""

from __future__ import annotations

import datetime
import importlib
import secrets
import socket
from types import ModuleType
from typing import Any, Iterator, NamedTuple, Optional
from urllib.parse import parse_qs, unquote, urlparse

from fsgather import _errors
from fsgather._switch import marks

__all__ = ["register"]

SCHEME = "fsgather"

_KEY = "fsgather/v1/store"
_TIMEOUT = datetime.timedelta(minutes=30)
_SECONDS_PER_ADDRESS = 5.0


class _Address(NamedTuple):
    """Where rank 0's store is."""

    hosts: list[str]
    port: int
    boot_id: str
    """Which run of which machine rank 0 is on: its loopback addresses mean something else elsewhere."""
    nonce: str
    """What the store holds, to tell it from others at the same address."""


def register(module: Optional[ModuleType] = None) -> None:
    """Makes the scheme known to torch; ``module`` is its ``torch.distributed.rendezvous``, if that is at hand."""
    if module is None:
        # By its full name: `torch.distributed.rendezvous` is a function where one asks for the attribute.
        module = importlib.import_module("torch.distributed.rendezvous")
    try:
        module.register_rendezvous_handler(SCHEME, _handle)
    except RuntimeError:
        # It is known already.
        pass


def _handle(url: str, timeout: datetime.timedelta = _TIMEOUT, **_named: Any) -> Iterator[tuple[Any, int, int]]:
    from fsgather import Communicator

    parsed = urlparse(url)
    directory = unquote(parsed.path)
    if parsed.netloc or not directory.startswith("/"):
        raise _errors.ConfigError(f"init_method={url!r} does not name a directory; right is fsgather:///shared/directory")
    query = {name: values[-1] for name, values in parse_qs(parsed.query).items()}
    settings: dict[str, Any] = {name: _number(url, name, query[name]) for name in ("rank", "world_size") if name in query}
    communicator = Communicator(rendezvous=f"file://{directory}", join_timeout=timeout.total_seconds(), **settings)
    rank, world_size = communicator.rank, communicator.world_size
    try:
        if rank == 0:
            store, address = _open(world_size, timeout)
            communicator.broadcast_object(tuple(address), 0)
        else:
            found: Any = communicator.broadcast_object(None, 0)
            store = _connect(_Address(*found), world_size, timeout)
        # All are connected before anybody goes on, or all are told that one is not.
        communicator.close()
    except BaseException as error:
        communicator.fail(error)
        raise
    yield store, rank, world_size
    raise RuntimeError("a group that has met by fsgather:// cannot meet once more")


def _number(url: str, name: str, text: str) -> int:
    if not text.isdecimal():
        raise _errors.ConfigError(f"init_method={url!r}: {name}={text!r} is no number; right is for example {name}=4")
    return int(text)


def _open(world_size: int, timeout: datetime.timedelta) -> tuple[Any, _Address]:
    from torch.distributed import TCPStore

    store = TCPStore("localhost", 0, world_size, True, timeout, wait_for_workers=False)
    nonce = secrets.token_hex(8)
    store.set(_KEY, nonce)
    return store, _Address(_own_addresses(), store.port, _host_id(), nonce)


def _connect(address: _Address, world_size: int, timeout: datetime.timedelta) -> Any:
    from torch.distributed import TCPStore

    hosts = list(address.hosts)
    if address.boot_id == _host_id():
        hosts.append("127.0.0.1")
    tried = []
    for host in hosts:
        try:
            # Before torch does: it would try each for the whole time-out.
            socket.create_connection((host, address.port), _SECONDS_PER_ADDRESS).close()
            store = TCPStore(host, address.port, world_size, False, timeout, wait_for_workers=False)
            if bytes(store.get(_KEY)) == address.nonce.encode():
                return store
            tried.append(f"{host} (another store)")
        except (OSError, RuntimeError) as error:
            tried.append(f"{host} ({error})")
    raise _errors.RendezvousError(
        f"this rank met the others in the directory, but cannot reach torch's store on rank 0, port {address.port}: tried "
        f"{', '.join(tried) or 'nothing, as it has no address'}; open ports between the hosts"
    )


def _own_addresses() -> list[str]:
    """Addresses of this host at which others may reach it, likely ones first."""
    found = [_source_address(socket.AF_INET, "192.0.2.1"), _source_address(socket.AF_INET6, "2001:db8::1")]
    try:
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)]
    except OSError:
        # A host that does not know its own name.
        pass
    usable = [host for host in found if host and not host.startswith("127.") and host != "::1" and "%" not in host]
    return list(dict.fromkeys(usable))


def _source_address(family: int, destination: str) -> Optional[str]:
    """What this host would send from; nothing is sent."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((destination, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None


def _host_id() -> str:
    return marks.boot() or socket.gethostname()
