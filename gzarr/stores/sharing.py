"""Which stores other processes can read and change: those whose values are not in this process's memory."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from .base import BufferedStore
from .fsspec_calls import innermost, is_a, protocols_of
from .fsspec_store import FsspecStore
from .memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .base import ReadableStore

#: A process. Machines, and containers, may have processes with the same number.
Process: TypeAlias = tuple[str, int]

_BEGUN: Final = uuid.uuid4().hex


def why_not_shared(store: ReadableStore) -> str | None:
    """Return why what another process writes to its (pickled) copy of a store would be lost, or None if it is not.

    Parameters
    ----------
    store
        Any store. Those of other packages are trusted to refuse to be pickled if need be.
    """
    for seen in _with_wrapped(store):
        if (fs := _filesystem_of(seen)) is not None:
            if _is_in_memory(fs):
                return "its files are in the memory of this process"
        elif isinstance(seen, MemoryStore) or "Memory" in type(seen).__name__:
            return "its values are in the memory of this process"
        elif isinstance(seen, BufferedStore):
            return "only one process can write to an archive"
        elif getattr(seen, "documents_first", False) and not getattr(seen, "read_only", True):
            # A fork of a session can be pickled: what is written to it is lost unless somebody merges it.
            return "what they write in Icechunk would not become part of its session"
    return None


def home_of(store: ReadableStore) -> Process | None:
    """Return this process if a pickled copy of a store has no values anywhere else, or None if it has.

    So it is with fsspec's files in memory; other stores in memory take their values along.
    """
    filesystems = (_filesystem_of(seen) for seen in _with_wrapped(store))
    if any(fs is not None and _is_in_memory(fs) for fs in filesystems):
        return _BEGUN, os.getpid()
    return None


def _with_wrapped(store: Any) -> Iterator[Any]:
    """Yield a store, and what it wraps: caches of gzarr's have a ``store``, wrappers of zarr-python a ``_store``."""
    seen = None
    while store is not None and store is not seen:
        yield store
        seen = store
        if isinstance(seen, FsspecStore):
            return
        wrapped = getattr(seen, "store", None)
        store = getattr(seen, "_store", None) if wrapped is None else wrapped


def _filesystem_of(store: Any) -> Any:
    """Return the filesystem of a store of fsspec, of gzarr or (in a wrapper) of zarr-python; None for others."""
    if isinstance(store, FsspecStore):
        return store.filesystem()[0]
    return store.fs if is_a(store, "zarr.storage", "FsspecStore") else None


def _is_in_memory(fs: Any) -> bool:
    return "memory" in protocols_of(innermost(fs)[0])
