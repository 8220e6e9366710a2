"""Whether two stores are one, in whatever mode each was opened."""

from __future__ import annotations

from typing import Any

from .base import LocatedStore
from .cached_store import CachedStore
from .fsspec_store import FsspecStore
from .memory import MemoryStore
from .object_store import GivenStore
from .zarr_store import ZarrStore


def have_same_values(one: object, other: object) -> bool:
    """Return whether two stores have the same values under the same keys, without a request.

    Unlike ``==`` of stores, this does not ask how they are used: whether they take changes, and flush them to disk.
    """
    if one is other or bool(one == other):
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, CachedStore):
        return have_same_values(one.store, other.store)  # type: ignore[attr-defined]
    root = _root(one)
    return root is not None and bool(root == _root(other))


def _root(store: Any) -> Any:
    """Return what stands for the root among stores of one class; None where nothing but the store does."""
    if isinstance(store, MemoryStore):
        # By identity: two stores with equal values are two stores.
        return id(store.mapping)
    if isinstance(store, GivenStore):
        return id(store._given)
    if isinstance(store, FsspecStore):
        return store.filesystem()
    if isinstance(store, ZarrStore):
        in_memory = getattr(store.store, "_store_dict", None)
        return store.store if in_memory is None else id(in_memory)
    return store.location() if isinstance(store, LocatedStore) else None
