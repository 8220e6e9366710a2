"""Stores, and how to open one from a path or URL."""

from __future__ import annotations

from .base import ByteRange, ListableStore, LocalFiles, ReadableStore, SizedStore, Store, VersionedStore, WritableStore
from .cached_store import CachedStore
from .fsspec_store import FsspecStore
from .http_store import HttpStore
from .local import LocalStore
from .memory import MemoryStore
from .object_store import ObjectStore
from .places import Place, place_of
from .places_read import check_apart, places_read
from .resolve import as_store, open_store
from .sharing import why_not_shared
from .traffic import stats
from .zarr_store import ZarrStore
from .zip_store import ZipStore

__all__ = [
    "ByteRange",
    "CachedStore",
    "FsspecStore",
    "HttpStore",
    "ListableStore",
    "LocalFiles",
    "LocalStore",
    "MemoryStore",
    "ObjectStore",
    "Place",
    "ReadableStore",
    "SizedStore",
    "Store",
    "VersionedStore",
    "WritableStore",
    "ZarrStore",
    "ZipStore",
    "as_store",
    "check_apart",
    "open_store",
    "place_of",
    "places_read",
    "stats",
    "why_not_shared",
]
