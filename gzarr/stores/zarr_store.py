"""Stores of zarr-python (``zarr.abc.store.Store``): Icechunk's, caches, wrappers, and everyone's own.

They are asynchronous, and work in zarr-python's event loop; a batch of requests is one step there. Stores that
zarr-python can call without it (``get_sync``) are called in I/O threads.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from .. import ending
from ..errors import ArgumentError, ReadOnlyError, StoreError
from ..flags import check_flags
from ..reasons import pass_on
from . import io_threads, late_changes, redaction, traffic
from .base import Answer, ByteRange, Request, RequestLimits
from .buffers import as_view
from .byte_ranges import check_range, checked_answer, range_to_ask
from .icechunk_errors import (
    CHUNK,
    GONE,
    NO_ARRAY,
    NO_KEY,
    OTHER_FORMAT,
    is_of_icechunk,
    says,
    says_absent,
    without_trace,
)
from .keys import is_key, split_key, split_prefix
from .timeouts import seconds
from .whole_values import ErasedArrayError, RequestedValues, WholeValues
from .zarr_kinds import check_forked, innermost, is_archive, is_zarr_store, lists_all, reopening, with_wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence

    from typing_extensions import Buffer

    from .base import Listing

#: Seconds after which a request counts as failed, and erasing many keys.
DEFAULT_TIMEOUT_S: Final = 60.0
_ERASING_S: Final = 1200.0
#: Calls of ``get_many`` at a time, and requests in each.
_CALLS, _EACH = 8, 8
#: What is asked for to learn whether there is a value.
_NO_BYTES: Final = ByteRange(0, 0)
#: In place of what stands for an absent key, where there must be one.
_MUST_BE: Final = object()
#: In place of a page, if a prefix is not that of a node; it is not empty.
_NO_NODE: Final = ("no node",)
#: Keys of a page of a listing.
PAGE_KEYS: Final = 1000


class ZarrStore(RequestedValues, WholeValues):
    """The values of a store of zarr-python.

    Parameters
    ----------
    store
        Store of zarr-python 3.
    read_only
        Refuse every change, even if ``store`` takes them.
    timeout
        Seconds after which a request counts as failed.

    Raises
    ------
    ArgumentError
        If ``store`` is not a store of zarr-python, or ``timeout`` is not a positive number.

    Notes
    -----
    Such stores do not tell versions: a shard that is replaced during a read may give chunks of two generations, unless
    the store keeps to a snapshot, as Icechunk does. Some do not work in a forked child (Icechunk): reading there is
    refused at once. Of what zarr-python calls absent, nothing can be told apart: :func:`gzarr.open` therefore does not
    use its ``ObjectStore``, ``FsspecStore`` and ``LocalStore``, but what these stand for.

    Stores of other classes than zarr-python's and Icechunk's, and of derived ones with a ``get`` of their own but
    wrappers, may list documents only, as tifffile's and VirtualiZarr's do: where they list no chunk of an array, they
    are asked for each.
    """

    def __init__(self, store: Any, *, read_only: bool = False, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        if not is_zarr_store(store):
            raise ArgumentError(f"ZarrStore needs a store of zarr-python 3, not {type(store).__name__}")
        self.store: Any = store
        check_flags(read_only=read_only)
        self.timeout: float = seconds(timeout, "timeout")
        self.read_only: bool = bool(read_only or store.read_only or not store.supports_writes)
        self._process = os.getpid()
        self._name = str(id(innermost(store)))
        # How to open a file anew, for forked children. It is not asked there: its locks may be taken for ever.
        self._reopening = reopening(store)
        # Without an event loop: both or neither, also of the stores that it wraps.
        self._direct = all(hasattr(one, "get_sync") and hasattr(one, "set_sync") for one in with_wrapped(store))
        self._lists_all = lists_all(store)
        self._lists: bool | None = None
        if not self._lists_all:
            # Only others may be unable to list, and have to be asked.
            self.can_list: Callable[[], bool] = partial(_can_list, weakref.ref(self))
        if not getattr(store, "_is_open", True):
            self._try("open", "", store._ensure_open)

    def __repr__(self) -> str:
        return f"<gzarr.ZarrStore of {type(self.store).__module__.partition('.')[0]}.{type(self.store).__name__}>"

    @property
    def documents_first(self) -> bool:
        """Whether there is no chunk without the document of its array, nor outside the shape that this says.

        So it is in Icechunk's stores, which commit both together.
        """
        return is_of_icechunk(innermost(self.store))

    def refusal(self, documents: Collection[str]) -> str:
        """Return why nodes cannot be stored, given the names of their documents; empty if they can."""
        if set(documents) == {"zarr.json"} or not self.documents_first:
            return ""
        return "Icechunk holds Zarr version 3 only: choose that (zarr_format=3)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ZarrStore):
            return NotImplemented
        if self.read_only != other.read_only:
            return False
        # By identity, as for gzarr's own stores in memory; zarr-python compares all values.
        in_memory = [getattr(store.store, "_store_dict", None) for store in (self, other)]
        if in_memory[0] is not None or in_memory[1] is not None:
            return in_memory[0] is in_memory[1]
        return self.store is other.store or bool(self.store == other.store)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), read_only=self.read_only, timeout=self.timeout), (self.store,)

    # -- calls

    def _here(self) -> Any:
        """Return the store of zarr-python, if it works in this process.

        Raises
        ------
        StoreError
            If this is a forked child, where it would not.
        """
        if self._process != os.getpid():
            check_forked(self, self.store, reopened=self._reopening is not None)
            if self._reopening is not None:
                self.store = pickle.loads(self._reopening)
            self._process = os.getpid()
        return self.store

    def _sync(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None) -> Any:
        if ending.is_alone():
            coroutine.close()
            raise RuntimeError(ending.NO_THREADS)
        from zarr.core.sync import sync

        return sync(coroutine, timeout=timeout)

    def _change(self, function: Callable[[], Coroutine[Any, Any, Any]], names: Sequence[str], timeout: float) -> Any:
        """Return the result of a coroutine function that changes values, after late changes of these."""
        # Cancelled, it could still go on in a thread or in a server. So another thread waits for its end.
        found = late_changes.outcome_of(lambda: self._sync(function(), None), timeout, names)
        if isinstance(found, BaseException):
            try:
                raise found
            finally:
                # Break the cycle of exception, traceback and this frame.
                del found
        return found

    def _try(
        self,
        what: str,
        key: str,
        function: Any,
        *arguments: Any,
        changes: bool = False,
        timeout: float | None = None,
        absent: Any = _MUST_BE,
    ) -> Any:
        """Return the result of a coroutine function of the store.

        Parameters
        ----------
        what, key
            What is tried with which key, for messages.
        function, *arguments
            The function, and what it is called with.
        changes
            Whether it changes the value of ``key``, or those below that prefix.
        timeout
            Seconds that it may take; None for those of this store.
        absent
            Result if the store says that there can be no such key; left out, that is an error.

        Raises
        ------
        StoreError
            If it fails, or takes too long.
        """
        begin = time.monotonic()
        timeout = timeout or self.timeout
        try:
            if changes:
                return self._change(partial(function, *arguments), [self._changed(key)], timeout)
            return self._sync(function(*arguments), timeout)
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            # Icechunk raises a KeyError where a chunk is to be erased and its array is not there.
            if absent is not _MUST_BE and (says(error, (*NO_KEY, *NO_ARRAY)) or self._is_key_error(error)):
                return absent
            raise self._error(what, key, error) from None
        finally:
            traffic.count(requests=1, seconds=time.monotonic() - begin)

    def _is_key_error(self, error: BaseException) -> bool:
        """Return whether an error is how Icechunk says that an array is not there whose chunks are to be changed."""
        return type(error) is KeyError and self.documents_first

    def _error(self, what: str, key: str, error: BaseException) -> StoreError:
        pass_on(error)
        no_array = says(error, NO_ARRAY) or (what == "write" and self._is_key_error(error))
        if no_array and what in ("read", "write") and CHUNK.fullmatch(key):
            return ErasedArrayError(f"{self!r}: cannot {what} {key!r}: {GONE}", key=key)
        if isinstance(error, TimeoutError):
            reason = f"no answer in {self.timeout:g} s"
        else:
            reason = redaction.describe(without_trace(error), frozenset())
            if what == "write" and says(error, (OTHER_FORMAT,)):
                reason += "; chunks in Icechunk have the keys of chunk_key_encoding='default' with '/'"
        return StoreError(f"{self!r}: cannot {what} {key!r}: {reason}", key=key)

    # -- reading

    def request_limits(self) -> RequestLimits:
        """Return how requests should be made: one at a time in each I/O thread, or several in each step of the loop."""
        return RequestLimits(io_threads.io_thread_count()) if self._direct else RequestLimits(_CALLS, _EACH)

    def get_many(self, requests: Sequence[Request]) -> list[Answer]:
        """Answer some requests."""
        try:
            store = self._here()
            for request in requests:
                split_key(request.key)
                check_range(request.byte_range)
        except (ArgumentError, StoreError) as error:
            return [Answer(None, error=error)] * len(requests)
        begin = time.monotonic()
        outcomes = self._directly(store, requests) if self._direct else self._together(store, requests)
        traffic.count(requests=len(requests), seconds=time.monotonic() - begin)
        return [self._answer(request, outcome) for request, outcome in zip(requests, outcomes, strict=True)]

    def _directly(self, store: Any, requests: Sequence[Request]) -> list[Any]:
        prototype = _prototype()
        outcomes: list[Any] = []
        for request in requests:
            try:
                outcomes.append(store.get_sync(request.key, prototype=prototype, byte_range=_asked(request)))
            # Stores of others may raise anything.
            except Exception as error:
                outcomes.append(error)
        return outcomes

    def _together(self, store: Any, requests: Sequence[Request]) -> list[Any]:
        if ending.is_alone():
            return [RuntimeError(ending.NO_THREADS)] * len(requests)
        # Not imported before it is needed: it takes longer than all of gzarr.
        import asyncio

        prototype = _prototype()

        async def gather() -> list[Any]:
            calls = (
                store.get(request.key, prototype, _asked(request))
                if request.byte_range != _NO_BYTES
                else _found(store, request, prototype)
                for request in requests
            )
            return await asyncio.gather(*calls, return_exceptions=True)

        try:
            return list(self._sync(gather(), self.timeout))
        # Stores of others may raise anything, and a panic of one written in Rust is a BaseException.
        except BaseException as error:
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            return [error] * len(requests)

    def _answer(self, request: Request, outcome: Any) -> Answer:
        if outcome is None or says_absent(request.key, outcome):
            return Answer(None)
        try:
            if isinstance(outcome, BaseException):
                raise self._error("read", request.key, outcome) from None
            try:
                view = memoryview(outcome.as_numpy_array()).cast("B") if len(outcome) else memoryview(b"")
            # Buffers of others may raise anything.
            except Exception as error:
                raise self._error("read", request.key, error) from None
            traffic.count(bytes_read=len(view))
            return Answer(checked_answer(request, view, self))
        except StoreError as error:
            return Answer(None, error=error)

    def _answer_all(self, requests: Sequence[Request]) -> Iterator[Answer]:
        step = _CALLS * _EACH
        for begin in range(0, len(requests), step):
            yield from self.get_many(requests[begin : begin + step])

    def get_small_values(self, keys: Sequence[str], max_nbytes: int) -> list[bytes | None]:
        """Return whole values, in order; None for an absent key; raise :class:`ValueSizeError` if one is too large."""
        return self._values([Request(key, most_nbytes=max_nbytes) for key in keys])

    # -- listing

    def lists_all(self) -> bool:
        """Return whether a key that the store does not list is absent."""
        return self._lists_all

    def _lists_keys(self) -> bool:
        """Return whether the store can list what is below a node: one request, and none once its answer is known."""
        store = self._here()

        async def lists() -> bool:
            try:
                async for _ in store.list_dir(""):
                    break
            except NotImplementedError:
                return False
            return True

        if self._lists is None:
            self._lists = bool(store.supports_listing and self._try("list", "", lists))
        return self._lists

    def _listed(self, prefix: str, method: str, *arguments: str) -> Iterator[str]:
        """Yield what an asynchronous generator of the store yields, fetched by pages.

        Zarr-python's ``ZipStore`` lists a key for each time that it was written: here it is listed once.
        Icechunk lists the keys below nodes only: those below a prefix of chunks are among those of their array.
        """
        store = self._here()
        names: Any = None
        # Archives have all names in memory; elsewhere, there may be too many.
        seen: set[str] | None = set() if any(map(is_archive, with_wrapped(store))) else None

        async def page() -> list[str]:
            nonlocal names
            found: list[str] = []
            if names is None:
                names = aiter(getattr(store, method)(*arguments))
            with contextlib.suppress(StopAsyncIteration):
                while len(found) < PAGE_KEYS:
                    found.append(await anext(names))
            return found

        while found := self._try("list", prefix, page, absent=_NO_NODE):
            if found is _NO_NODE:
                if method == "list_prefix" and any(self._listed(prefix, "list_dir", prefix)):
                    above = "".join(prefix[:-1].rpartition("/")[:2])
                    yield from self._listed(above, method, above)
                return
            yield from found if seen is None else [name for name in dict.fromkeys(found) if name not in seen]
            if len(found) < PAGE_KEYS:
                return
            if seen is not None:
                seen.update(found)

    def list(self) -> Iterator[str]:
        """Yield all keys, in the order of the store."""
        return filter(is_key, self._listed("", "list"))

    def list_prefix(self, prefix: str) -> Iterator[str]:
        """Yield all keys that start with ``prefix``, in the order of the store."""
        split_prefix(prefix)
        return (key for key in self._listed(prefix, "list_prefix", prefix) if key.startswith(prefix) and is_key(key))

    def list_dir(self, prefix: str) -> Listing:
        """Return the keys and the prefixes directly under ``prefix``, in full from the root, each sorted.

        A store of zarr-python gives names only. A name that is a key is not looked at as a prefix, too.
        """
        split_prefix(prefix)
        store = self._here()
        # Other programs may have left what is no key.
        found = {f"{prefix}{name.rstrip('/')}" for name in self._listed(prefix, "list_dir", prefix)}
        names = sorted(filter(is_key, found))

        import asyncio

        async def exist(some: Sequence[str]) -> list[Any]:
            return await asyncio.gather(*(_exists(store, name) for name in some), return_exceptions=True)

        keys: list[str] = []
        prefixes: list[str] = []
        for begin in range(0, len(names), _CALLS * _EACH):
            some = names[begin : begin + _CALLS * _EACH]
            for name, found in zip(some, self._try("list", prefix, exist, some), strict=True):
                if isinstance(found, BaseException) and not says(found, (*NO_KEY, *NO_ARRAY)):
                    raise self._error("look for", name, found)
                if found is True:
                    keys.append(name)
                else:
                    prefixes.append(f"{name}/")
        return keys, prefixes

    def list_sizes(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Yield all keys that start with ``prefix``, each with the size of its value in bytes."""
        for key in self.list_prefix(prefix):
            yield key, self._try("look for", key, self._here().getsize, key)

    # -- writing

    def _changed(self, key: str) -> str:
        """Return the name of a value or of a prefix for :mod:`gzarr.stores.late_changes`."""
        return f"{self._name}/{key}".rstrip("/")

    def _check_writable(self) -> None:
        if self.read_only:
            raise ReadOnlyError(f"{self!r} is read-only; nothing was changed")

    def set(self, key: str, value: Buffer) -> None:
        """Store ``value`` (bytes-like) under ``key``.

        Raises
        ------
        ReadOnlyError
            If the store is read-only.
        StoreError
            If the store fails.
        """
        self._check_writable()
        split_key(key)
        # A store in memory keeps the buffer, so it must be no one else's.
        data = value if type(value) is bytes else bytes(as_view(value, key))
        buffer = _prototype().buffer.from_bytes(data)
        store = self._here()
        if self._direct:
            name = self._changed(key)
            # In an I/O thread, it goes on when the wait for it has been interrupted.
            names = [name] if io_threads.is_one() else []
            # Erasing is asynchronous there, too.
            if not late_changes.wait(name, self.timeout):
                raise self._error("write", key, TimeoutError())
            try:
                with late_changes.changing(names, io_threads.wanted_by()[0]) as wanted:
                    if wanted:
                        store.set_sync(key, buffer)
            # Stores of others may raise anything.
            except Exception as error:
                raise self._error("write", key, error) from None
        else:
            self._try("write", key, store.set, key, buffer, changes=True)
        traffic.count(bytes_written=len(data))

    def erase_values(self, keys: Iterable[str]) -> None:
        """Erase several keys."""
        self._check_writable()
        for key in keys:
            split_key(key)
            self._try("erase", key, self._here().delete, key, changes=True, absent=None)

    def erase_prefix(self, prefix: str) -> None:
        """Erase all keys that start with ``prefix``."""
        self._check_writable()
        split_prefix(prefix)
        erase = partial(self._here().delete_dir, prefix.rstrip("/"))
        self._try("erase", prefix, erase, changes=True, timeout=_ERASING_S, absent=None)


def _prototype() -> Any:
    """Return the classes of buffers in host memory."""
    from zarr.core.buffer.cpu import buffer_prototype

    return buffer_prototype


async def _exists(store: Any, name: str) -> bool:
    """Return whether a name that a store has listed is a key, and not a prefix."""
    try:
        return bool(await store.exists(name))
    except NotImplementedError:
        # VirtualiZarr's: a key has nothing below it.
        try:
            async for _ in store.list_dir(f"{name}/"):
                return False
        except NotImplementedError:
            # An array with chunks that it does not list.
            return False
        return True


async def _found(store: Any, request: Request, prototype: Any) -> Any:
    """Return a byte or none of a value, to show that it is there; None if it is absent."""
    try:
        return await store.get(request.key, prototype, _asked(request))
    except NotImplementedError:
        # tifffile's stores give whole values only.
        return b"" if await store.exists(request.key) else None


def _asked(request: Request) -> Any:
    """Return the bytes to ask for, as zarr-python says it; None for all."""
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest

    asked = range_to_ask(request.byte_range)
    if asked == ByteRange():
        return None
    if asked.offset < 0:
        return SuffixByteRequest(-asked.offset)
    if asked.length is None:
        return OffsetByteRequest(asked.offset)
    return RangeByteRequest(asked.offset, asked.offset + asked.length)


def _can_list(reference: weakref.ref[ZarrStore]) -> bool:
    """Return whether a store can list. A method of its own, kept in it, would keep it from being freed."""
    store = reference()
    return store is not None and store._lists_keys()
