"""Which stores other processes can change: those whose values are not in this process's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import BufferedStore
from .fsspec_store import FsspecStore
from .memory import MemoryStore

if TYPE_CHECKING:
    from .base import ReadableStore


def why_not_shared(store: ReadableStore) -> str | None:
    """Return why what another process writes to its (pickled) copy of a store would be lost, or None if it is not.

    Parameters
    ----------
    store
        Any store. Those of other packages are trusted to refuse to be pickled if need be.
    """
    seen: object = store
    while seen is not None:
        if isinstance(seen, MemoryStore) or (not isinstance(seen, FsspecStore) and "Memory" in type(seen).__name__):
            return "its values are in the memory of this process"
        if isinstance(seen, FsspecStore) and seen.url.startswith("memory:"):
            return "its files are in the memory of this process"
        if isinstance(seen, BufferedStore):
            return "only one process can write to an archive"
        # Of wrappers (caches, stores of zarr-python), what they wrap.
        inner = None if isinstance(seen, FsspecStore) else getattr(seen, "store", None)
        seen = inner if inner is not seen else None
    return None
