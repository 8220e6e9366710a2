"""Stores, and how to open one from a path or URL."""

from __future__ import annotations

from .base import ByteRange, ListableStore, LocalFiles, ReadableStore, SizedStore, Store, VersionedStore, WritableStore
from .local import LocalStore
from .memory import MemoryStore
from .resolve import as_store

__all__ = [
    "ByteRange",
    "ListableStore",
    "LocalFiles",
    "LocalStore",
    "MemoryStore",
    "ReadableStore",
    "SizedStore",
    "Store",
    "VersionedStore",
    "WritableStore",
    "as_store",
]
