"""Stores that answer without waiting for anybody: files, and values in this process.

Displays may ask these for what is not in metadata. Others are never asked: the ``repr`` of an array must not cost
requests, and must not hang.
"""

from __future__ import annotations

import itertools
import os
import stat
from typing import TYPE_CHECKING, TypeAlias, TypeGuard

from .local import LocalStore
from .memory import MemoryStore
from .zip_store import ZipStore

if TYPE_CHECKING:
    from collections.abc import Sequence

AtHand: TypeAlias = LocalStore | MemoryStore | ZipStore

#: Keys that a store without directories may have in all, for each name that may be below a prefix.
_KEYS_PER_NAME = 100


def is_at_hand(store: object) -> TypeGuard[AtHand]:
    """Return whether a store answers at once. Derived classes may do anything, so they do not count."""
    if type(store) is MemoryStore:
        return type(store.mapping) is dict
    return type(store) in (LocalStore, ZipStore)


def sizes_of(store: AtHand, keys: Sequence[str]) -> list[int | None]:
    """Return the sizes of some values in bytes, in order; None for each absent key.

    Raises
    ------
    OSError, StoreError, TypeError
        If a file cannot be looked at, an archive cannot be read, or a value is not bytes-like.
    """
    if isinstance(store, LocalStore):
        return [_file_size(store, key) for key in keys]
    if isinstance(store, ZipStore):
        return store._sizes(keys)
    values = (store.mapping.get(key) for key in keys)
    return [None if value is None else memoryview(value).nbytes for value in values]


def _file_size(store: LocalStore, key: str) -> int | None:
    try:
        status = store._tree.stat(key.split("/"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def has_few_names(store: AtHand, prefix: str, most: int) -> bool:
    """Return whether it is sure that at most ``most`` names are directly under a prefix, without looking at more.

    Raises
    ------
    OSError, StoreError
        If a directory or an archive cannot be read.
    """
    if isinstance(store, LocalStore):
        try:
            with os.scandir(store.root / prefix) as entries:
                return sum(1 for _ in itertools.islice(entries, most + 1)) <= most
        except (FileNotFoundError, NotADirectoryError):
            return True
    if isinstance(store, ZipStore):
        return store._count() <= most * _KEYS_PER_NAME
    return len(store.mapping) <= most * _KEYS_PER_NAME
