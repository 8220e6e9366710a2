"""obstore in this process: after a fork, a second copy of it.

obstore has one runtime for a process, and a forked child has none of its threads: every request would hang there, and
making a store there can hang the parent. So a child loads another copy of the extension module, which has a runtime of
its own, and makes its stores anew. The exception classes of a copy are other classes with the same names, hence
exceptions are told apart by name.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import pickle
import sys
import tempfile
import weakref
from typing import TYPE_CHECKING, Any, Final

from ..errors import ArgumentError
from ..guarded import Lock
from ..installing import COMMANDS
from ..reasons import pass_on
from .temporary_files import temporary_files

if TYPE_CHECKING:
    from types import ModuleType

#: Number of stores that are kept, with their connections.
KEEP_STORES: Final = 32
_VARIABLES: Final = ("AWS_", "AZURE_", "GOOGLE_", "GCS_", "HTTP", "http", "SSL_")

_lock = Lock()
_stores: dict[Any, Any] = {}
# Number of forks between the process that imported obstore and this one, as far as the runtime was in use before.
_generation = 0
_copy: ModuleType | None = None
_owners: weakref.WeakSet[Any] = weakref.WeakSet()
# What was made by the copies of parents: to release it here would need their threads.
_kept: list[Any] = []


def generation() -> int:
    """Return a number that changes when stores have to be made anew, because this process was forked."""
    return _generation


def module() -> Any:
    """Return the functions of obstore (``get``, ``put``, ``list``, ...), and its stores under ``_store``.

    Raises
    ------
    ArgumentError
        If obstore is not installed.
    """
    global _copy
    if _copy is None:
        # One copy: the functions of one do not take the stores of another.
        with _lock:
            if _copy is None:
                try:
                    import obstore._obstore as original
                except ImportError as error:
                    raise ArgumentError(
                        f"remote stores need the package obstore ({COMMANDS['object']}): {error}"
                    ) from error
                _copy = original if not _generation else _load_copy(original.__file__)
    return _copy


def make(kind: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """Return a store of obstore; equal arguments give the same one, with its open connections.

    Parameters
    ----------
    kind
        Name of its class.
    arguments, keywords
        Arguments of its class. Environment variables are read too, for those that are missing.
    """
    try:
        recipe = pickle.dumps((kind, arguments, sorted(keywords.items())))
    # Credential providers may be any functions.
    except Exception as error:
        pass_on(error)
        recipe = None
    key = (recipe, tuple(sorted(item for item in os.environ.items() if item[0].startswith(_VARIABLES))))
    found = None if recipe is None else _stores.get(key)
    if found is None:
        found = getattr(module()._store, kind)(*arguments, **keywords)
        if recipe is not None:
            _stores[key] = found
            while len(_stores) > KEEP_STORES:
                with contextlib.suppress(KeyError, StopIteration, RuntimeError):
                    del _stores[next(iter(_stores))]
    return found


def register(owner: Any) -> None:
    """Register an object whose attribute ``made`` is of obstore: a forked child keeps that alive for ever."""
    _owners.add(owner)


def _load_copy(file: str) -> ModuleType:
    """Load another copy of an extension module: from memory where the system can, else from a copied file."""
    name = f"gzarr_obstore_{os.getpid()}._obstore"
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("obstore")
        with open(file, "rb") as source:  # noqa: PTH123
            size = os.fstat(source.fileno()).st_size
            sent = 0
            while sent < size:
                sent += os.sendfile(fd, source.fileno(), sent, size - sent)
        path = f"/proc/self/fd/{fd}"
        return _load(name, path)
    with temporary_files("a copy of obstore, which a forked process needs,"), tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, os.path.basename(file))  # noqa: PTH118, PTH119
        with open(file, "rb") as source, open(path, "wb") as target:  # noqa: PTH123
            target.write(source.read())
        return _load(name, path)


def _load(name: str, path: str) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    loader.exec_module(made)
    sys.modules[name] = made
    return made


def _after_fork() -> None:
    global _generation, _copy, _lock
    _lock = Lock()
    if _copy is not None:
        _kept.extend([_copy, list(_stores.values()), *(owner.made for owner in _owners)])
        _stores.clear()
        _generation += 1
        _copy = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
