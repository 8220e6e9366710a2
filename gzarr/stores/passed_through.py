"""Parts of the store interface that a wrapper passes through to its store.

A wrapper has a part exactly if its store has it, because callers look at what a store has (:mod:`gzarr.stores.base`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from .base import (
    ConditionalStore,
    DirectoryStore,
    ExclusiveStore,
    GuardedErasing,
    ListableStore,
    LockingStore,
    PagedListing,
    PresenceStore,
    Request,
    SizedStore,
    VersionedListing,
    VersionedStore,
    WritableStore,
    knows_of,
)
from .buffers import store_value

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from .base import Listing as _Listed

W = TypeVar("W")


class Listing:
    """Keys, listed."""

    store: Any

    def list(self) -> Iterator[str]:
        """Yield all keys."""
        yield from self.store.list()

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield all keys that start with ``prefix``."""
        yield from self.store.list_prefix(prefix)

    def list_dir(self, prefix: str) -> _Listed:
        """Return the keys and the prefixes directly under ``prefix``, in full from the root, each sorted."""
        keys, prefixes = self.store.list_dir(prefix)
        return keys, prefixes


class Pages:
    """Keys, listed by pages."""

    store: Any

    def list_page(self, prefix: str) -> tuple[list[str], bool]:
        """Return the first keys that start with ``prefix``, and whether these are all; one request."""
        keys, are_all = self.store.list_page(prefix)
        return keys, are_all


class Uncertain:
    """Whether keys can be listed, from a store of a class of which only some can."""

    store: Any

    def can_list(self) -> bool:
        """Return whether the store can list its keys."""
        return bool(self.store.can_list())


class Incomplete:
    """Whether all keys are listed, from a store of a class of which only some do."""

    store: Any

    def lists_all(self) -> bool:
        """Return whether a key that the store does not list is absent."""
        return bool(self.store.lists_all())


class Sizes:
    """Sizes of values, and values of limited size."""

    store: Any
    _values: Callable[[Sequence[Request]], list[bytes | None]]

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield all keys that start with ``prefix``, each with the size of its value in bytes."""
        yield from self.store.list_sizes(prefix)

    def get_small_values(self, keys: Sequence[str], max_nbytes: int) -> list[bytes | None]:
        """Return whole values as they are now, in order; None for an absent key; an error if one is too large."""
        return self._values([Request(key, most_nbytes=max_nbytes) for key in keys])


class Presence:
    """Whether values exist."""

    store: Any

    def contains(self, keys: Collection[str]) -> list[bool]:
        """Return whether each key has a value, in order."""
        return [bool(found) for found in self.store.contains(keys)]


class Versions:
    """Versions of values."""

    store: Any

    def version(self, key: str) -> Hashable | None:
        """Return a token that changes whenever the value of ``key`` does; None if it is absent, or if unknown."""
        version: Hashable | None = self.store.version(key)
        return version


class ListedVersions:
    """Keys with versions that mean the same in all processes."""

    store: Any

    def list_versions(self, prefix: str) -> Iterator[tuple[str, str | None]]:
        """Yield all keys that start with ``prefix``, each with a text that changes whenever its value does."""
        yield from self.store.list_versions(prefix)


class Locks:
    """Locks."""

    store: Any

    def lock(self, *keys: str, below: str = "") -> AbstractContextManager[None]:
        """Lock some keys of the node at the prefix ``below``; without keys, lock the node itself."""
        locked: AbstractContextManager[None] = self.store.lock(*keys, below=below)
        return locked


class Directory:
    """The directory of values that are files."""

    store: Any

    def directory(self) -> bytes:
        """Return the absolute path of the directory of the store's values."""
        return bytes(self.store.directory())


class Creation:
    """Exclusive creation."""

    store: Any

    def create(self, key: str, value: bytes) -> bool:
        """Store ``value`` under ``key`` unless the key exists; return whether it was stored."""
        return bool(self.store.create(key, value))


class Conditions:
    """Changes of values on conditions, past any cache."""

    store: Any
    _drop: Callable[[str], None]

    def get_with_tokens(self, keys: Sequence[str], max_nbytes: int) -> list[tuple[bytes | None, Hashable | None]]:
        """Return whole values, each with a token for :meth:`replace`; None and None for an absent key."""
        return list(self.store.get_with_tokens(keys, max_nbytes))

    def replace(self, key: str, value: bytes, token: Hashable | None) -> bool:
        """Store ``value`` under ``key`` unless its value was changed since it had this token; return whether it was."""
        replaced = bool(self.store.replace(key, value, token))
        self._drop(key)
        return replaced


class Writing:
    """Changes of values; what a cache has of them is dropped, to free the space."""

    store: Any
    _drop: Callable[[str], None]

    @property
    def read_only(self) -> bool:
        """Whether every change is refused."""
        return bool(self.store.read_only)

    def set(self, key: str, value: bytes) -> None:
        """Store ``value`` under ``key``. Readers see either the whole old value or the whole new one."""
        self.store.set(key, value)
        self._drop(key)

    def set_parts(self, key: str, parts: Sequence[Any]) -> None:
        """Store the concatenation of some buffers under ``key``, like :meth:`set`."""
        store_value(self.store, key, parts or [b""])
        self._drop(key)

    def set_partial_values(self, key_start_values: Iterable[tuple[str, int, bytes]]) -> None:
        """Write parts of values: (key, offset in bytes, bytes). Concurrent writers of one key can undo each other."""
        self.store.set_partial_values(key_start_values)

    def erase(self, key: str) -> None:
        """Erase ``key``."""
        self.store.erase(key)
        self._drop(key)

    def erase_values(self, keys: Iterable[str]) -> None:
        """Erase several keys."""
        self.store.erase_values(keys)

    def erase_prefix(self, prefix: str) -> None:
        """Erase all keys that start with ``prefix``."""
        self.store.erase_prefix(prefix)


class ErasingChecks:
    """Whether what is to be erased can be erased."""

    store: Any

    def check_erasable(self, prefix: str) -> None:
        """Raise :class:`gzarr.errors.StoreError` if not all keys that start with ``prefix`` can be erased."""
        self.store.check_erasable(prefix)


# What a store must have for a part. Faster methods come before those that they match (knows_of).
_PARTS: dict[type, Any] = {
    Creation: ExclusiveStore,
    Conditions: ConditionalStore,
    Writing: WritableStore,
    ErasingChecks: GuardedErasing,
    Pages: PagedListing,
    Listing: ListableStore,
    Sizes: SizedStore,
    Presence: PresenceStore,
    Versions: VersionedStore,
    ListedVersions: VersionedListing,
    Locks: LockingStore,
    Directory: DirectoryStore,
}


def class_for(wrapper: type[W], store: Any) -> type[W]:
    """Return the subclass of a wrapper's class that has the parts of the interface that a store has.

    The wrapper has its store as ``store``, and the methods ``_values`` (answers requests for values) and ``_drop``
    (forgets the value of a key).
    """
    parts = tuple(part for part, protocol in _PARTS.items() if isinstance(store, protocol))
    for part, faster, method in (
        (Creation, "create", "set"),
        (Conditions, "replace", "set"),
        (Conditions, "get_with_tokens", "get"),
        (Pages, "list_page", "list_prefix"),
    ):
        if part in parts and not knows_of(store, faster, method):
            parts = tuple(one for one in parts if one is not part)
    if Listing in parts:
        optional = (Uncertain, "can_list"), (Incomplete, "lists_all")
        parts = (*parts, *(part for part, method in optional if hasattr(store, method)))
    # The class of another wrapper has parts already.
    own: Any = getattr(wrapper, "without_parts", wrapper)
    made: type[W] = _made(own, parts)
    return made


@lru_cache(maxsize=256)
def _made(wrapper: Any, parts: tuple[type, ...]) -> Any:
    described = {"__doc__": wrapper.__doc__, "__module__": wrapper.__module__, "without_parts": wrapper}
    return type(wrapper.__name__, (*parts, wrapper), described)
