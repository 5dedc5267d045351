"""Changes named modules right after their code has run, before anybody can import a name from them.

Only names given to :func:`when_imported` are looked at: a hook for all modules would sit in every import of a
job that has nothing to do with us.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from types import ModuleType
from typing import Any, Callable, Optional, Sequence

from fsgather._switch import notices

__all__ = ["when_imported"]

Change = Callable[[ModuleType], None]

_lock = threading.RLock()
_changes: dict[str, list[Change]] = {}


def when_imported(name: str, change: Change) -> None:
    """Has ``change(module)`` called when the module ``name`` is imported, or now when it is already."""
    with _lock:
        _changes.setdefault(name, []).append(change)
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
    module = sys.modules.get(name)
    if module is None:
        return
    spec = getattr(module, "__spec__", None)
    if getattr(spec, "_initializing", False):
        # `import torch` stands at the top of the very modules that we wait for, and calls us from there.
        assert spec is not None
        _Running.watch(spec)
    else:
        _apply(change, module)


def _apply(change: Change, module: ModuleType) -> None:
    try:
        change(module)
    except Exception as error:
        # The import of a module of the job must not fail for our sake.
        notices.warn(f"cannot replace functions of {module.__name__}, which are left as they are: {error!r}")


def _apply_all(name: str) -> None:
    # The code of a module may put another one in its place, and a failed import leaves none.
    module = sys.modules.get(name)
    if module is not None:
        for change in list(_changes.get(name, ())):
            _apply(change, module)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds listed modules by asking the other finders, and puts a loader around theirs."""

    def find_spec(
        self,
        fullname: str,
        path: Optional[Sequence[str]] = None,
        target: Optional[ModuleType] = None,
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if fullname not in _changes:
            return None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: Optional[importlib.machinery.ModuleSpec] = find(fullname, path, target)
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    """Another loader, and after it our changes. It is gone when the module's code begins to run."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Optional[ModuleType]:
        module: Optional[ModuleType] = self._inner.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Resources, source and pickled specs are looked up there: it has to be the real one.
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        _apply_all(module.__name__)


class _Running(importlib.machinery.ModuleSpec):
    """The spec of a module whose code is running already: notices when it has run.

    The import system says so by setting ``_initializing`` to ``False``, before anybody else gets the module.
    """

    @classmethod
    def watch(cls, spec: importlib.machinery.ModuleSpec) -> None:
        """Makes this of a spec that is somebody else's; what it holds stays."""
        if type(spec) is importlib.machinery.ModuleSpec:
            spec.__class__ = cls

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__["_initializing"])

    @_initializing.setter
    def _initializing(self, running: bool) -> None:
        self.__dict__["_initializing"] = running
        if not running:
            self.__class__ = importlib.machinery.ModuleSpec  # type: ignore[assignment]
            _apply_all(self.name)
