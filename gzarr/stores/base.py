"""The store interface of the Zarr specification, as small protocols: only what is called is required.

Source: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#abstract-store-interface. Keys are relative,
``/``-separated, without ``.`` or ``..`` segments; a prefix is empty or ends in ``/``. An absent key is None (reads) or
silence (erasures); every other failure is a :class:`gzarr.errors.StoreError` that names the store and the key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from typing_extensions import Buffer

#: Keys and prefixes. (Named here because ``list`` means the method inside a store class.)
Listing: TypeAlias = "tuple[list[str], list[str]]"


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Part of a value.

    ``offset >= 0``: ``length`` bytes from there (to the end if None). ``offset < 0``: the last ``-offset`` bytes, all
    of them (``length`` must be None).
    """

    offset: int = 0
    length: int | None = None


@runtime_checkable
class ReadableStore(Protocol):
    """What reading needs."""

    def get(self, key: str) -> bytes | None:
        """Return the value of ``key``, or None if the store has no such key."""

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]]) -> list[bytes | None]:
        """Return parts of values, in order; None for each absent key.

        Raises
        ------
        StoreError
            If a range does not lie within the value.
        """


@runtime_checkable
class ListableStore(Protocol):
    """What walking a hierarchy needs."""

    def list(self) -> Iterator[str]:
        """Yield all keys."""

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield all keys that start with ``prefix``."""

    def list_dir(self, prefix: str) -> Listing:
        """Return the keys and the prefixes directly under ``prefix``, both sorted and in full from the store's root."""


@runtime_checkable
class WritableStore(Protocol):
    """What writing needs."""

    read_only: bool

    def set(self, key: str, value: bytes) -> None:
        """Store ``value`` under ``key``: readers see the old value or the new one, whole."""

    def set_partial_values(self, key_start_values: Iterable[tuple[str, int, bytes]]) -> None:
        """Write parts of values: (key, offset in bytes, bytes). Writers of one key at a time can undo each other's."""

    def erase(self, key: str) -> None:
        """Erase ``key``."""

    def erase_values(self, keys: Iterable[str]) -> None:
        """Erase several keys."""

    def erase_prefix(self, prefix: str) -> None:
        """Erase all keys that start with ``prefix``."""


class Store(ReadableStore, ListableStore, WritableStore, Protocol):
    """The whole interface."""


@runtime_checkable
class LocalFiles(Protocol):
    """A store whose values are plain files, so that an engine may read them itself."""

    def file_root(self) -> bytes | None:
        """Return the absolute path where ``key`` is the file ``root/key``, or None if engines must use ``get``."""


@runtime_checkable
class DirectoryStore(Protocol):
    """A store whose values are files of one directory, whoever reads them: two such stores may hold the same value."""

    def directory(self) -> bytes:
        """Return the absolute path of the directory: ``key`` is the file ``directory/key``."""


class FileWriter(Protocol):
    """What an engine needs to write files of a store itself.

    Each file is written under a temporary name in its own folder, and renamed when it is complete.

    Attributes
    ----------
    root
        Absolute path: ``key`` is the file ``root/key``.
    durable
        Whether files and folders must reach the disk.
    """

    root: bytes
    durable: bool

    def temporary_prefix(self) -> str:
        """Return the beginning of temporary names; the caller makes the rest unique."""

    def make_folder(self, folder: str) -> None:
        """Make a folder and those above it, durably if that is asked for; raise OSError where that fails."""

    def flush_folder(self, folder: str) -> None:
        """Have the names in a folder reach the disk; a folder that is gone is none of this writer's."""

    def clean_folders(self, folders: Sequence[str], written: str | None) -> None:
        """Remove what killed writers left in some folders; ``written`` is a file written just now, if there is one."""


@runtime_checkable
class WritableFiles(Protocol):
    """A store into which an engine may write files itself, instead of calling ``set``."""

    def file_writer(self) -> FileWriter | None:
        """Return how, or None if engines must use ``set``."""


@runtime_checkable
class PresenceStore(Protocol):
    """A store that can tell cheaply, and for certain, which values there are."""

    def contains(self, keys: Collection[str]) -> list[bool]:
        """Return whether there is a value of each key, in order."""


@runtime_checkable
class GatheringStore(Protocol):
    """A store that takes a value in parts (a shard's chunks and its index), so that nobody has to join them."""

    def set_parts(self, key: str, parts: Sequence[Buffer]) -> None:
        """Store some buffers, one after the other, as the value of ``key``; as :meth:`WritableStore.set`."""


@runtime_checkable
class ExclusiveStore(Protocol):
    """A store in which of several processes that make one key, one succeeds."""

    def create(self, key: str, value: bytes) -> bool:
        """Store ``value`` under ``key`` if there is no such key; return whether it was stored."""


@runtime_checkable
class LockingStore(Protocol):
    """A store whose writers can take turns, in threads and in processes."""

    def lock(self, *keys: str, below: str = "") -> AbstractContextManager[None]:
        """Keep others that ask for some of the same keys of the node at the prefix ``below`` waiting.

        Without keys: for the node itself, a lock of its own. A thread takes that one first, and all keys at once.
        """


@runtime_checkable
class SizedStore(Protocol):
    """A store that knows how large its values are without reading them. Optional: for ``gzarr info`` and for limits."""

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield all keys that start with ``prefix``, each with the size of its value in bytes."""

    def get_small_values(self, keys: Sequence[str], max_nbytes: int) -> list[bytes | None]:
        """Return whole values, in order; None for each absent key.

        Raises
        ------
        StoreError
            If a value has more than ``max_nbytes`` bytes; it is then not read.
        """


@runtime_checkable
class VersionedStore(Protocol):
    """A store that can tell cheaply whether a value is still the one that was read before."""

    def version(self, key: str) -> Hashable | None:
        """Return what changes whenever the value of ``key`` does; None for an absent key or where it is unknown."""


def versions_of(store: VersionedStore, keys: Collection[str]) -> list[Hashable | None]:
    """Return the versions of some values, in order."""
    if knows_of(store, "versions", "version"):
        return store.versions(keys)  # type: ignore[attr-defined, no-any-return]
    return [store.version(key) for key in keys]


def knows_of(store: object, faster: str, method: str) -> bool:
    """Return whether a store has a method ``faster`` that does what its ``method`` does.

    A class of somebody's may change one method, and inherit the other from a class that does not know of the change.
    """
    for kind in type(store).__mro__:
        if faster in vars(kind):
            return True
        if method in vars(kind):
            return False
    return hasattr(store, faster)
