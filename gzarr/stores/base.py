"""The store interface of the Zarr specification, as small protocols: callers require only the methods they use.

Source: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html#abstract-store-interface. Keys are relative,
``/``-separated, without ``.`` or ``..`` segments; a prefix is empty or ends in ``/``. Reading an absent key returns
None, and erasing one does nothing; every other failure is a :class:`gzarr.errors.StoreError` that names the store and
the key.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from .capability import Capability

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
    from contextlib import AbstractContextManager

    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer, TypeIs

#: Keys and prefixes. (Defined here because inside a store class, ``list`` is the method.)
Listing: TypeAlias = "tuple[list[str], list[str]]"


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Part of a value.

    Attributes
    ----------
    offset
        First byte; if it is negative, the last ``-offset`` bytes are meant.
    length
        Number of bytes; None for all until the end, which it must be if ``offset`` is negative.
    """

    offset: int = 0
    length: int | None = None


@runtime_checkable
class ReadableStore(Protocol, metaclass=Capability):
    """Methods needed for reading."""

    def get(self, key: str, /) -> bytes | None:
        """Return the value of ``key``, or None if the store has no such key."""

    def get_partial_values(self, key_ranges: Sequence[tuple[str, ByteRange]], /) -> list[bytes | None]:
        """Return parts of values, in order; None for each absent key.

        Parameters
        ----------
        key_ranges
            Pairs of key and range, in any order; keys may be repeated.

        Raises
        ------
        StoreError
            If a range does not lie within the value.
        """


@dataclass(frozen=True, slots=True)
class Request:
    """A value, or part of one, to fetch.

    Attributes
    ----------
    key
        Key of the value.
    byte_range
        Part of the value.
    version
        Version that the value must have, as an earlier answer gave it; None for any.
    most_nbytes
        Most bytes to fetch; a larger value is refused unread. None for no limit.
    unless_version
        Version that the caller already has: a value that still has it need not be sent. None if there is none.
    """

    key: str
    byte_range: ByteRange = ByteRange()
    version: Hashable | None = None
    most_nbytes: int | None = None
    unless_version: Hashable | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a store returned for a :class:`Request`.

    Attributes
    ----------
    value
        Bytes that were asked for; None if the store has no such key, or if the value is unchanged.
    version
        Token of the whole value, which changes whenever the value does; None if the store cannot tell.
    error
        Failure of this request, if any: a :class:`gzarr.errors.ValueReplacedError` if the value has another version.
    size
        Size of the whole value in bytes; None if unknown.
    unchanged
        Whether the value still has the version ``unless_version`` of the request, and so was not sent.
    token
        What a change of the value depends on (:class:`ConditionalStore`); None if unknown.
    """

    value: Buffer | None
    version: Hashable | None = None
    error: Exception | None = None
    size: int | None = None
    unchanged: bool = False
    token: Hashable | None = None


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """How requests to a store should be made.

    Attributes
    ----------
    calls
        Number of calls of ``get_many`` that may run at once.
    each
        Number of requests in a call.
    gap_bytes
        Largest gap between two ranges of a value that are fetched together in any case.
    most_bytes
        Most bytes of a request for several ranges; a larger value may be fetched in parts, side by side.
    streams
        What answers streams of requests, which then should not be sent by ``get_many``; None if nothing does.
    """

    calls: int
    each: int = 1
    gap_bytes: int = 16 << 10
    most_bytes: int = 4 << 20
    streams: Streams | None = None


class RequestStream(Protocol):
    """Requests to a store, one after the other, and what takes their answers.

    Methods are called in threads of the store, several at once; they neither wait nor raise.
    """

    def next_request(self) -> tuple[Any, Request] | None:
        """Return the next request with a token, or None if there is none at present."""

    def answered(self, token: Any, answer: Answer, /) -> None:
        """Take the answer to a request."""

    def has_ended(self) -> bool:
        """Return whether there will be no more requests."""

    def is_given_up(self) -> bool:
        """Return whether nobody waits for answers any more."""


class Streams(Protocol):
    """What keeps many requests in progress in few threads."""

    def answer_each(self, stream: RequestStream, /) -> bool:
        """Answer the requests of a stream from now on, in any order; return whether that is possible."""

    def look_again(self) -> None:
        """Look for requests: a stream that had none has some now."""

    def give_up(self) -> None:
        """Forget streams that are given up; end their requests if these leave no room for others."""


@runtime_checkable
class RemoteValues(Protocol, metaclass=Capability):
    """A store that has to wait for each value, so that many requests should be in progress at once."""

    def get_many(self, requests: Sequence[Request], /) -> list[Answer]:
        """Answer some requests, in order. To be called in I/O threads (:mod:`gzarr.stores.io_threads`)."""

    def request_limits(self) -> RequestLimits:
        """Return how requests to this store should be made."""


@dataclass(frozen=True, slots=True, eq=False)
class Extents:
    """Where some values of a :class:`PackedValues` lie in a value of another store.

    Attributes
    ----------
    store, key
        The other store, and the key of its value.
    version
        Version that this value must have; None if unknown.
    offset, nbytes
        int64 ``(n,)``, the bytes of each value; ``nbytes`` is -1 where there is no such value. (With ``unwrap``, more
        bytes than these.)
    size
        int64 ``(n,)``, sizes of the values in bytes.
    unwrap
        Function of the position of a value and of the bytes at its offset, which checks them and returns the value; it
        raises StoreError. None if the bytes are the value. It is called in several threads.
    """

    store: ReadableStore
    key: str
    version: Hashable | None
    offset: npt.NDArray[np.int64]
    nbytes: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    unwrap: Callable[[int, memoryview], Buffer] | None = None


@runtime_checkable
class PackedValues(Protocol, metaclass=Capability):
    """A store whose values are parts of one value of another store, so that engines can read them from there."""

    def holder(self) -> ReadableStore:
        """Return the other store."""

    def extents(self, keys: Sequence[str], /, *, parts: bool) -> Extents | None:
        """Return where some values are, or None if engines must use ``get`` or ``get_many`` for them.

        Parameters
        ----------
        keys
            Keys, in any order.
        parts
            Whether parts of the values will be read. If so, bytes are the values themselves: ``unwrap`` is None.
        """

    def is_current(self, version: Hashable | None, /) -> bool:
        """Return whether extents of this version are still valid, as far as that can be told without a request."""

    def forget(self, version: Hashable | None, /) -> None:
        """Take extents of this version for invalid: a request for them has failed because they were replaced."""


@runtime_checkable
class ListableStore(Protocol, metaclass=Capability):
    """Methods needed for walking a hierarchy.

    A class of stores of which only some can list has also a method ``can_list() -> bool``, which may send a request. A
    class of which only some list all their keys has a method ``lists_all() -> bool``.
    """

    def list(self) -> Iterator[str]:
        """Yield all keys."""

    def list_prefix(self, prefix: str, /) -> Iterator[str]:
        """Yield all keys that start with ``prefix``."""

    def list_dir(self, prefix: str, /) -> Listing:
        """Return the keys and the prefixes directly under ``prefix``, in full from the store's root, each sorted."""


def is_listable(store: object, *, ask: bool = True) -> TypeIs[ListableStore]:
    """Return whether a store can list its keys.

    Parameters
    ----------
    store
        The store.
    ask
        Whether to find it out by a request, if need be. Otherwise, a store that must be asked counts as one that
        cannot.

    Raises
    ------
    StoreError
        If the store must be asked and fails to answer.
    """
    if not isinstance(store, ListableStore):
        return False
    can_list: Callable[[], bool] | None = getattr(store, "can_list", None)
    return can_list is None or (ask and can_list())


def lists_all(store: object) -> bool:
    """Return whether a key that a store does not list is absent. Otherwise, it may be that of a chunk that can be read.

    Raises
    ------
    StoreError
        As for :func:`is_listable`.
    """
    if not is_listable(store):
        return False
    method: Callable[[], bool] | None = getattr(store, "lists_all", None)
    return method is None or method()


@runtime_checkable
class WritableStore(Protocol, metaclass=Capability):
    """Methods needed for writing."""

    read_only: bool

    def set(self, key: str, value: bytes, /) -> None:
        """Store ``value`` under ``key``. Readers see either the whole old value or the whole new one."""

    def set_partial_values(self, key_start_values: Iterable[tuple[str, int, bytes]], /) -> None:
        """Write parts of values; concurrent writers of one key can undo each other.

        Parameters
        ----------
        key_start_values
            Triples of key, offset in bytes, and bytes to be written there.
        """

    def erase(self, key: str, /) -> None:
        """Erase ``key``."""

    def erase_values(self, keys: Iterable[str], /) -> None:
        """Erase several ``keys``."""

    def erase_prefix(self, prefix: str, /) -> None:
        """Erase all keys that start with ``prefix``."""


@runtime_checkable
class PagedListing(Protocol, metaclass=Capability):
    """A store whose listings come by pages, so that one request shows whether there is little, or nothing."""

    def list_page(self, prefix: str, /) -> tuple[list[str], bool]:
        """Return the first keys that start with ``prefix``, and whether these are all; one request."""


class Store(ReadableStore, ListableStore, WritableStore, Protocol):
    """The whole interface."""


@runtime_checkable
class LocalFiles(Protocol, metaclass=Capability):
    """A store whose values are plain files, which an engine may read directly."""

    def file_root(self) -> bytes | None:
        """Return the absolute ``root`` where ``key`` is the file ``root/key``, or None if engines must use ``get``."""


@runtime_checkable
class DirectoryStore(Protocol, metaclass=Capability):
    """A store whose values are files below one directory, so that two such stores may share values."""

    def directory(self) -> bytes:
        """Return the absolute path of the directory: ``key`` is the file ``directory/key``."""


class FileWriter(Protocol):
    """Functions and settings for an engine that writes the files of a store itself.

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

    def make_folder(self, folder: str, /) -> None:
        """Make a folder and its missing parents, and flush their names if ``durable``; raise OSError on failure."""

    def flush_folder(self, folder: str, /) -> None:
        """Flush the names in a folder to the disk; a folder that another process has erased is ignored."""

    def uncleaned_folders(self, folders: Sequence[str], /) -> list[str]:
        """Return those folders that exist and may hold leftovers of killed writers."""

    def clean_folders(self, folders: Sequence[str], written: str | None, /) -> None:
        """Remove the leftovers of killed writers from folders; ``written`` is a file that was just written, if any."""


@runtime_checkable
class WritableFiles(Protocol, metaclass=Capability):
    """A store into which an engine may write files itself, instead of calling ``set``."""

    def file_writer(self) -> FileWriter | None:
        """Return the file writer, or None if engines must use ``set``."""


@runtime_checkable
class BufferedStore(Protocol, metaclass=Capability):
    """A store whose changes are not stored for good before it is told to (a zip archive)."""

    def flush(self) -> None:
        """Store all changes for good.

        A store that can also forget all changes since the last flush has a method ``discard()``.
        """


@contextlib.contextmanager
def flushing(given: object, store: object, *, flush: bool = True) -> Iterator[None]:
    """Flush ``store`` at the end of a ``with`` block if it was opened for the caller, who gave a path.

    Nobody else could report the failure. If the block fails, changes are discarded, so that an archive stays as it was;
    without ``flush``, that is all.
    """
    if not isinstance(store, BufferedStore) or isinstance(given, ReadableStore):
        yield
        return
    try:
        yield
        if flush:
            store.flush()
    except BaseException:
        discard = getattr(store, "discard", None)
        if discard is not None:
            discard()
        raise


@runtime_checkable
class PresenceStore(Protocol, metaclass=Capability):
    """A store that can tell cheaply and reliably which values exist."""

    def contains(self, keys: Collection[str], /) -> list[bool]:
        """Return whether each key has a value, in order."""


@runtime_checkable
class GatheringStore(Protocol, metaclass=Capability):
    """A store that takes a value in parts (a shard's chunks and its index), so that callers need not join them."""

    def set_parts(self, key: str, parts: Sequence[Buffer], /) -> None:
        """Store the concatenation of some buffers under ``key``, like :meth:`WritableStore.set`."""


@runtime_checkable
class ExclusiveStore(Protocol, metaclass=Capability):
    """A store in which exactly one of several processes that create the same key succeeds."""

    def create(self, key: str, value: bytes, /) -> bool:
        """Store ``value`` under ``key`` unless the key exists; return whether it was stored."""


@runtime_checkable
class SelectiveStore(Protocol, metaclass=Capability):
    """A store that does not take nodes of every format."""

    def refusal(self, documents: Collection[str], /) -> str:
        """Return why nodes cannot be stored, given the names of their documents; empty if they can."""


@runtime_checkable
class GuardedErasing(Protocol, metaclass=Capability):
    """A store that knows before it erases whether the system would keep a part of what is to be erased."""

    def check_erasable(self, prefix: str, /) -> None:
        """Raise :class:`gzarr.errors.StoreError` if not all keys that start with ``prefix`` can be erased."""


class Stage(Protocol):
    """Something that is made aside, and put in place when it is complete.

    Attributes
    ----------
    store
        Store to write to, under the keys that the values will have.
    """

    store: Store

    def put_in_place(self, *, replace: bool) -> bool:
        """Put it in place, in one step where that is possible; return False if something else is there.

        Parameters
        ----------
        replace
            Whether to replace what is there.
        """

    def discard(self) -> str | None:
        """Remove what was made, if it is not in place; return what keeps it from that, and where it is, or None."""


@runtime_checkable
class StagingStore(Protocol, metaclass=Capability):
    """A store in which a node can be made aside, so that what is at its place stays until the new node is complete."""

    def stage(self, prefix: str, /, *, replace: bool) -> Stage | None:
        """Begin to make what is at a prefix aside, or return None if that is not possible.

        Parameters
        ----------
        prefix
            Prefix of the node.
        replace
            Whether everything below the prefix is to be replaced. If not, there must be nothing.
        """


@runtime_checkable
class ConditionalStore(Protocol, metaclass=Capability):
    """A store that can change a value on the condition that nobody else has changed it since it was read."""

    def get_with_tokens(self, keys: Sequence[str], max_nbytes: int, /) -> list[tuple[bytes | None, Hashable | None]]:
        """Return whole values, each with a token for :meth:`replace`; None and None for an absent key.

        Parameters
        ----------
        keys, max_nbytes
            As for :meth:`SizedStore.get_small_values`.
        """

    def replace(self, key: str, value: bytes, token: Hashable | None, /) -> bool:
        """Store ``value`` under ``key`` unless its value was changed since it had this token; return whether it was.

        None stands for an absent key.
        """


@runtime_checkable
class LockingStore(Protocol, metaclass=Capability):
    """A store whose writers can exclude each other, across threads and processes."""

    def lock(self, *keys: str, below: str = "") -> AbstractContextManager[None]:
        """Lock some keys of the node at the prefix ``below``; without keys, lock the node itself.

        The node's lock is separate from the locks of its keys. A thread takes it first, and its keys in one call.
        """


@runtime_checkable
class SizedStore(Protocol, metaclass=Capability):
    """A store that knows the sizes of its values without reading them. Optional: for ``gzarr info`` and for limits."""

    def list_sizes(self, prefix: str, /) -> Iterator[tuple[str, int]]:
        """Yield all keys that start with ``prefix``, each with the size of its value in bytes."""

    def get_small_values(self, keys: Sequence[str], max_nbytes: int, /) -> list[bytes | None]:
        """Return whole values, in order; None for each absent key.

        Parameters
        ----------
        keys
            Keys of the values.
        max_nbytes
            Most bytes that a value may have.

        Raises
        ------
        StoreError
            If a value has more bytes; it is not read.
        """


@runtime_checkable
class VersionedStore(Protocol, metaclass=Capability):
    """A store that can tell cheaply whether a value has changed since it was read."""

    def version(self, key: str, /) -> Hashable | None:
        """Return a token that changes whenever the value of ``key`` does; None if the key is absent, or if unknown."""


@runtime_checkable
class VersionedListing(Protocol, metaclass=Capability):
    """A store that can list its keys with versions that mean the same in all processes."""

    def list_versions(self, prefix: str, /) -> Iterator[tuple[str, str | None]]:
        """Yield all keys that start with ``prefix``, each with a text that changes whenever its value does.

        None if the store cannot tell.
        """


@runtime_checkable
class LocatedStore(Protocol, metaclass=Capability):
    """A store whose place can be named, so that what is known of its values can be kept beyond this process."""

    def location(self) -> str | None:
        """Return a text that names the store's root, the same in all processes, or None if there is none.

        ``f"{location}/{key}"`` names a value: it differs from the names of all values in other stores, and it is the
        same in every store that has this value, whichever its root. It contains no passwords; callers do not show it.
        """


def versions_of(store: VersionedStore, keys: Collection[str]) -> list[Hashable | None]:
    """Return the versions of some values, in order."""
    if knows_of(store, "versions", "version"):
        return store.versions(keys)  # type: ignore[attr-defined, no-any-return]
    return [store.version(key) for key in keys]


def knows_of(store: object, faster: str, method: str) -> bool:
    """Return whether a store has a method ``faster`` that matches its ``method``.

    A third-party class may override one of them and inherit the other, which then does not match.
    """
    for kind in type(store).__mro__:
        if faster in vars(kind):
            return True
        if method in vars(kind):
            return False
    return hasattr(store, faster)
