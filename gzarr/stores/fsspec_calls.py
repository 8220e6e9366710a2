"""Calls of a filesystem of fsspec, in this process and for a bounded time.

Asynchronous filesystems work in fsspec's event loop, which a forked child does not have; synchronous ones may hold
connections and open files, which a child shares with its parent. So a child makes its filesystems anew.
"""

from __future__ import annotations

import contextlib
import os
import sys
import weakref
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from .. import ending
from ..errors import ArgumentError, StoreError
from ..guarded import Lock
from ..importing import import_module
from ..installing import COMMANDS
from ..reasons import pass_on
from . import fsspec_web, io_threads, late_changes
from .byte_ranges import range_to_ask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .base import Request

    #: Arguments of a method.
    Arguments = tuple[tuple[Any, ...], dict[str, Any]]

T = TypeVar("T")

#: Names of synchronous filesystems that work in several threads at a time. Others have one connection or one open file.
#: (Reading archives in threads fails in some versions of Python's zipfile.)
_PARALLEL: Final = frozenset({"arrow_hdfs", "data", "github", "hdfs", "hf", "local", "memory", "sftp", "ssh"})
#: Seconds by which the wait for a batch is longer than that for each of its requests.
_MARGIN_S: Final = 2.0
#: Locks of a filesystem: of files, where only calls for one file must not run at a time.
_LOCKS: Final = 64
#: Limits of values from which on no bound is asked for: there is no memory for it, and files make room for all of it.
_MOST_BOUND: Final = 1 << 30
#: Methods that change the file or folder that is their first argument.
_CHANGES: Final = frozenset({"pipe_file", "rm_file", "rmdir"})
#: How many times as long as another call a listing may take, which may be thousands of requests.
_LISTING: Final = 20


def module(name: str) -> Any:
    """Return a module of fsspec.

    Raises
    ------
    ArgumentError
        If fsspec is not installed.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise ArgumentError(f"this store needs the package fsspec ({COMMANDS['fsspec']}): {error}") from error


def is_a(value: object, module_name: str, class_name: str) -> bool:
    """Return whether a value is an instance of a class, which is not imported for that."""
    loaded = sys.modules.get(module_name)
    return loaded is not None and isinstance(value, getattr(loaded, class_name))


def is_exactly(value: object, module_name: str, class_name: str) -> bool:
    """Return whether a value is of a class, and not of one derived from it."""
    return type(value).__module__ == module_name and type(value).__name__ == class_name


class OfFilesystems(Generic[T]):
    """Values for filesystems, each as long as that lives.

    In a dictionary, filesystems that were made from equal arguments would be one, whatever they have read since then.
    """

    def __init__(self) -> None:
        self._values: dict[int, tuple[weakref.ref[Any], T]] = {}

    def get(self, fs: Any) -> T | None:
        """Return the value of a filesystem, or None if it has none."""
        found = self._values.get(id(fs))
        return None if found is None or found[0]() is not fs else found[1]

    def set(self, fs: Any, value: T) -> T:
        """Keep and return the value of a filesystem."""
        number, values = id(fs), self._values
        values[number] = weakref.ref(fs, lambda _: values.pop(number, None)), value
        return value


def innermost(fs: Any, path: str = "") -> tuple[Any, str, tuple[str, ...]]:
    """Return the filesystem below wrappers and caches, the path there, and the protocols of the caches.

    Parameters
    ----------
    fs, path
        Filesystem of fsspec, of any kind, and path there.
    """
    caches: tuple[str, ...] = ()
    while True:
        if is_a(fs, "fsspec.implementations.dirfs", "DirFileSystem"):
            fs, path = fs.fs, fs._join(path)
        elif is_a(fs, "fsspec.implementations.asyn_wrapper", "AsyncFileSystemWrapper"):
            fs = fs.sync_fs
        elif _is_cache(fs):
            fs, caches = fs.fs, (*caches, protocols_of(fs)[0])
        else:
            return fs, path, caches


class Calls:
    """The methods of a filesystem.

    Most attributes of a cache of fsspec are those of the filesystem below, whose methods know nothing of what is kept.
    So files are read by the cache's own methods, which are synchronous, and names and sizes are asked for below it.

    Parameters
    ----------
    fs
        Filesystem of fsspec, of any kind.
    timeout
        Seconds after which a request counts as failed.

    Raises
    ------
    ArgumentError
        If it is an ``asynchronous=True`` filesystem that cannot be made anew without that.
    """

    def __init__(self, fs: Any, timeout: float) -> None:
        self.timeout = timeout
        fs = _synchronous(fs)
        if fs.async_impl and fs.asynchronous:
            try:
                fs = _anew(fs)
            # Filesystems may raise anything.
            except Exception as error:
                pass_on(error)
                raise ArgumentError(
                    f"a {type(fs).__name__} with asynchronous=True cannot be used here ({type(error).__name__}); make "
                    "it without that"
                ) from None
        inner, _, caches = innermost(fs)
        self.protocols: tuple[str, ...] = protocols_of(inner)
        self.is_async: bool = _is_async(fs)
        # Caches of another kind have a table of their files, which several threads must not change.
        self.parallel: bool = {*caches} <= {"simplecache"} and (
            bool(inner.async_impl) or not _PARALLEL.isdisjoint(self.protocols)
        )
        self._is_cache = bool(caches)
        #: The methods of what is below, for a cache.
        self.below: Calls | None = Calls(fs.fs, timeout) if _is_cache(fs) else None
        # Object stores, which have none, are asynchronous.
        self.has_directories: bool = not self.is_async or not {"ssh", "sftp"}.isdisjoint(self.protocols)
        self.immediate: bool = is_exactly(fs, "fsspec.implementations.memory", "MemoryFileSystem")
        self._made: tuple[int, Any] = (os.getpid(), fs)

    def __reduce__(self) -> tuple[Any, ...]:
        return Calls, (self._made[1], self.timeout)

    @property
    def fs(self) -> Any:
        """The filesystem; in a forked child another one, made from the same arguments.

        Raises
        ------
        StoreError
            If it cannot be made anew.
        """
        process, fs = self._made
        if process != os.getpid():
            if not self.immediate:
                try:
                    fs = _anew(fs)
                # Filesystems may raise anything, and their texts may have secrets in them.
                except Exception as error:
                    pass_on(error)
                    raise StoreError(
                        f"a {type(fs).__name__} cannot be made anew in this forked process ({type(error).__name__}); "
                        "open the store in the child, or start processes with 'spawn'"
                    ) from None
            self._made = (os.getpid(), fs)
        return fs

    @property
    def names(self) -> Calls:
        """The methods that tell names and sizes of files: those below a cache that lists what is below."""
        if self.below is None or type(self.fs).ls.__module__ != "fsspec.implementations.cached":
            return self
        return self.below.names

    def all(self, method: str, calls: Sequence[Arguments]) -> list[Any]:
        """Call a method several times; return results and exceptions, in order.

        Calls of an asynchronous filesystem run side by side; a synchronous one is called again and again.
        """
        fs = self.fs
        timeout = self.timeout * (_LISTING if method in ("find", "ls") else 1)
        names = [_name(fs, arguments[0]) for arguments, _ in calls] if method in _CHANGES else []
        if self.is_async and names and io_threads.is_one():
            # An interrupt does not come to this thread: it ends the wait for it, and the change goes on.
            with late_changes.changing(names, io_threads.wanted_by()[0]) as wanted:
                return self._gather(fs, method, calls, timeout) if wanted else [_too_late(timeout)] * len(calls)
        if self.is_async:
            if not all(late_changes.wait(name, timeout) for name in names):
                return [_too_late(timeout)] * len(calls)
            return self._gather(fs, method, calls, timeout)
        function = getattr(fs, method)
        if method == "cat_file" and is_a(fs, "fsspec.implementations.arrow", "ArrowFSWrapper"):
            # For a part that begins with the first byte, it opens a stream, and then seeks in it.
            function = partial(function, seekable=True)
        return [self._one(fs, function, call, timeout, names[i : i + 1]) for i, call in enumerate(calls)]

    def one(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        """Call a method; return its result, or raise its exception."""
        (found,) = self.all(method, [(arguments, keywords)])
        if isinstance(found, BaseException):
            try:
                raise found
            finally:
                # Break the cycle of exception, traceback and this frame.
                del found
        return found

    def size_read(self, path: str) -> int:
        """Return the size of a file as it is read: a cache of whole files may keep one from before a change."""
        if not is_a(self.fs, "fsspec.implementations.cached", "WholeFileCacheFileSystem"):
            return int(self.names.one("size", path))
        with self.one("open", path, "rb") as file:
            return int(file.seek(0, os.SEEK_END))

    def settle(self, path: str) -> None:
        """Wait until late changes of a folder, and below it, have ended; raise ``TimeoutError`` if they do not."""
        if not late_changes.wait(_name(self.fs, path), self.timeout):
            raise _too_late(self.timeout)

    def _gather(self, fs: Any, method: str, calls: Sequence[Arguments], timeout: float) -> list[Any]:
        if ending.is_alone():
            return [RuntimeError(ending.NO_THREADS)] * len(calls)
        # Not imported before it is needed: it takes longer than all of gzarr.
        import asyncio

        function = getattr(fs, f"_{method}")
        if method == "cat_file":
            function = fsspec_web.checked(function)

        async def call(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            return await asyncio.wait_for(function(*arguments, **keywords), timeout)

        running: list[Any] = []
        given_up: list[None] = []

        async def gather() -> list[Any]:
            running.append(asyncio.current_task())
            if given_up:
                return []
            return await asyncio.gather(*(call(*one) for one in calls), return_exceptions=True)

        try:
            found = module("fsspec.asyn").sync(fs.loop, gather, timeout=timeout + _MARGIN_S)
        except BaseException as error:
            # Nobody waits for it any more, and fsspec lets it go on: a change could come after later ones.
            given_up.append(None)
            # The event loop may stand still, or be gone.
            with contextlib.suppress(RuntimeError):
                for task in running:
                    fs.loop.call_soon_threadsafe(task.cancel)
            if isinstance(error, Exception):
                return [error] * len(calls)
            raise
        return [_too_late(timeout) if isinstance(one, TimeoutError) else one for one in found]

    def _one(
        self, fs: Any, function: Callable[..., Any], call: Arguments, timeout: float, changes: Sequence[str]
    ) -> Any:
        arguments, keywords = call
        run = partial(function, *arguments, **keywords)
        if self.immediate:
            try:
                return run()
            except BaseException as error:
                return error
        return late_changes.outcome_of(run, timeout, changes, self._lock(fs, arguments[0]))

    def _lock(self, fs: Any, path: str) -> Lock | None:
        """Return the lock of a filesystem for one thread at a time, or of a file that a cache may be about to keep."""
        if self.parallel and not self._is_cache:
            return None
        return _locks_of(innermost(fs)[0])[hash(path) % _LOCKS if self.parallel else 0]


def _name(fs: Any, path: str) -> str:
    """Return a name of a file or folder, the same for all stores of a filesystem."""
    return f"{id(fs)}/{path.strip('/')}".rstrip("/")


def _locks_of(fs: Any) -> tuple[Lock, ...]:
    """Return the locks of a filesystem, which several stores may share: fsspec gives a filesystem again."""
    with _locks_lock:
        return _locks.get(fs) or _locks.set(fs, tuple(Lock() for _ in range(_LOCKS)))


def _renew() -> None:
    # A forked child lacks the threads that held some of them, and would wait for ever.
    global _locks, _locks_lock
    _locks, _locks_lock = OfFilesystems(), Lock()


_locks: OfFilesystems[tuple[Lock, ...]] = OfFilesystems()
_locks_lock = Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def _too_late(timeout: float) -> TimeoutError:
    return TimeoutError(f"no answer in {timeout:g} s")


@dataclass(frozen=True, slots=True)
class FileCall:
    """A call that gets bytes of a file.

    Attributes
    ----------
    calls, path
        Filesystem, and path there.
    request
        Key for messages, the bytes that are needed of the file, and their limit.
    bounded
        Whether to ask for no more than a byte above the limit, which shows that a value is too large. (Web servers may
        compress what they send, or ignore ranges.)
    """

    calls: Calls
    path: str
    request: Request
    bounded: bool = False

    @property
    def needs_size(self) -> bool:
        """Whether the filesystem gives the last bytes of a file only if told where they begin."""
        return self.request.byte_range.offset < 0 and not self.calls.is_async and not self.calls.immediate

    @property
    def arguments(self) -> Arguments:
        """Arguments of ``cat_file``."""
        asked, most = range_to_ask(self.request.byte_range), self.request.most_nbytes
        start: int | None = asked.offset
        stop = None if asked.length is None else asked.offset + asked.length
        if stop is None and start == 0:
            stop = most + 1 if self.bounded and most is not None and most < _MOST_BOUND else None
            start = None if stop is None else 0
        return (self.path,), {"start": start, "end": stop}


def _synchronous(fs: Any) -> Any:
    """Return the filesystem in an asynchronous wrapper, or ``fs`` itself."""
    while is_a(fs, "fsspec.implementations.asyn_wrapper", "AsyncFileSystemWrapper"):
        fs = fs.sync_fs
    return fs


def _is_cache(fs: Any) -> bool:
    return is_a(fs, "fsspec.implementations.cached", "CachingFileSystem")


def _is_async(fs: Any) -> bool:
    """Return whether a filesystem is asynchronous, whatever it says of itself."""
    # That of a directory always says so, and a cache says it of what is below.
    if is_a(fs, "fsspec.implementations.dirfs", "DirFileSystem"):
        return _is_async(fs.fs)
    return bool(fs.async_impl) and not _is_cache(fs)


def protocols_of(fs: Any) -> tuple[str, ...]:
    """Return the protocols of a filesystem."""
    return (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)


def _anew(fs: Any) -> Any:
    """Return another filesystem of the same kind, for this process and for synchronous callers."""
    if is_exactly(fs, "fsspec.implementations.memory", "MemoryFileSystem"):
        # Memory is not a connection.
        return fs
    arguments = tuple(_renewed(value) for value in fs.storage_args)
    keywords = {name: _renewed(value) for name, value in fs.storage_options.items() if name != "loop"}
    keywords.pop("asynchronous", None)
    return type(fs)(*arguments, **keywords)


def _renewed(value: Any) -> Any:
    """Return an argument of a filesystem, for another one in this process."""
    if is_a(value, "fsspec.spec", "AbstractFileSystem"):
        return _anew(_synchronous(value))
    if hasattr(value, "seek"):
        raise TypeError("an open file cannot be shared")
    if isinstance(value, dict) and not {"asynchronous", "loop"}.isdisjoint(value):
        return {name: option for name, option in value.items() if name not in ("asynchronous", "loop")}
    if isinstance(value, dict) and any(is_a(inner, "fsspec.spec", "AbstractFileSystem") for inner in value.values()):
        return {name: _renewed(inner) for name, inner in value.items()}
    return value
