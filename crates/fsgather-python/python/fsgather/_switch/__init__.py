"""Existing jobs without a change: what ``FSGATHER_PATCH`` selects is replaced by functions with fsgather behind them.

:func:`install` runs at the end of ``import torch`` (see ``fsgather_autoload``), or at the start of the interpreter
where torch is too old for that (see :func:`site_directory`). It changes functions, and says what is wrong with the text;
processes that never call one, as workers that load data, do not notice it.

========================= =====================================================================
``selection``             reads the variable
``finder``                changes modules when they are imported
``groups``                what torch knows about a process group
``world``                 the world of all ranks, made as soon as there is a default group
``own_world``             worlds of groups that cannot be channels of it
``ground``                a world that has formed, and its channels
``introduction``          ranks of a world meet through the store of a process group
``marks``                 what each rank leaves of itself in that store
``stores``                torch's stores, without waiting in them
``membership``            this process's part in one process group
``meeting``               all of these, from the first process group to the end of the process
``blame``                 names the rank that torch's own collectives have lost
``elastic``               what torchrun is told of a rank that ends by an exception
``collectives``           the object functions of torch
``mmengine``, ``mdetr``,  functions of other libraries, and single ones
``torchmetrics``,
``dpr``, ``custom``
``backend``,              the backend ``fsgather`` and ``init_method="fsgather:///directory"``
``rendezvous``
``notices``               what people are told
========================= =====================================================================
"""

from __future__ import annotations

import atexit
import functools
import os
from types import ModuleType
from typing import Optional

__all__ = ["install", "site_directory"]

_installed: Optional[str] = None


def install(selected: str) -> None:
    """Replaces what ``selected``, the text of ``FSGATHER_PATCH``, asks for, now or when it is imported.

    Does not raise for a text that is wrong: that is said on standard error, and raised by the first call of a replaced
    function. Only the first call of this function in a process does anything.
    """
    global _installed
    if _installed is not None or not selected.strip():
        return
    _installed = selected
    from fsgather._switch import blame, collectives, dpr, finder, groups, mdetr, mmengine, notices, selection, torchmetrics

    chosen = selection.parse(selected)
    if chosen.problem:
        notices.at_import(f"{chosen.problem}. Until this is mended object functions raise it as an error")
    # Device meshes make the default group themselves, by a name of their own.
    for name in (groups.C10D, "torch.distributed", "torch.distributed.device_mesh"):
        finder.when_imported(name, functools.partial(collectives.install, chosen))
    finder.when_imported("torch.distributed.rendezvous", _register_scheme)
    finder.when_imported("torch.distributed.c10d_logger", blame.listen)
    families = {"mmengine": mmengine, "torchmetrics": torchmetrics, "sam": mdetr, "dpr": dpr}
    for family in sorted(chosen.families):
        for name in families[family].MODULES:
            finder.when_imported(name, functools.partial(families[family].install, chosen))
    if chosen.functions:
        from fsgather._switch import custom

        for name, function in chosen.functions:
            finder.when_imported(name, functools.partial(custom.install, chosen, function))
    wanted = [*((name,) for name, _ in chosen.functions), *(families[family].MODULES for family in sorted(chosen.named))]
    if wanted:
        atexit.register(_tell_of_never_imported, wanted)


def _tell_of_never_imported(wanted: list[tuple[str, ...]]) -> None:
    from fsgather._switch import meeting

    meeting.tell_of_never_imported(wanted)


def _register_scheme(module: ModuleType) -> None:
    from fsgather._switch import rendezvous

    rendezvous.register(module)


def site_directory() -> str:
    """A directory for ``PYTHONPATH`` that has :func:`install` called at the start of every interpreter.

    For versions of torch before 2.5, and for programs that take functions from their modules before torch is
    imported. A ``sitecustomize`` of the user's, further down the path, runs as before.
    """
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
