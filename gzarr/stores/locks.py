"""Locks of stored values within one process: while a thread reads a value and changes it, no other thread changes it.

Stored values share a few hundred locks. A thread that takes several takes them in order, which rules out deadlocks; a
thread that changes the metadata of a node takes that lock before the locks of its chunks. Other processes are excluded
by :func:`between_processes` only; see :meth:`gzarr.Array.write`.

A lock is found by the real path of a file, which is looked up whenever it is asked for: links are switched and
directories renamed while a program runs. (Not by the number of its directory: that may only be made in this turn.)
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import zlib
from typing import TYPE_CHECKING, Any, Final

from ..errors import ArgumentError, StoreError
from .base import DirectoryStore, LocalFiles, LockingStore
from .descriptors import close_all
from .local_paths import file_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COUNT: Final = 256
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR)
# Opens a directory for its path only; 0 where the system has no such thing.
_PATH_ONLY: Final = getattr(os, "O_PATH", 0)
_locks: list[Any] = []
# Of documents: who holds one may ask for locks of chunks, of threads and of processes, and not the other way round.
_document_locks: list[Any] = []
_node_locks: list[Any] = []
# Per lock, the threads that hold it, once per acquisition.
_node_holders: list[list[int]] = []
# Changes that the thread has begun.
_own = threading.local()


def _renew() -> None:
    # A forked child lacks the threads that held some of them, and would wait for ever.
    _locks[:] = [threading.RLock() for _ in range(_COUNT)]
    _document_locks[:] = [threading.RLock() for _ in range(_COUNT)]
    _node_locks[:] = [threading.RLock() for _ in range(_COUNT)]
    _node_holders[:] = [[] for _ in range(_COUNT)]


_renew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextlib.contextmanager
def hold(
    store: Any, keys: Iterable[str], *others: tuple[Any, Iterable[str]], documents: bool = False
) -> Iterator[None]:
    """Exclude all other writers of this process from some stored values.

    Parameters
    ----------
    store
        Store of the values.
    keys
        Keys of the values. All locks are taken up front; a thread that holds some must not ask for more.
    *others
        Further stores, each with keys.
    documents
        Whether the values are documents.
    """
    wanted = _numbers(_root(store), keys)
    for other, more in others:
        wanted |= _numbers(_root(other), more)
    locks, asked = list(_document_locks if documents else _locks), []
    try:
        for i in sorted(wanted):
            # Recorded before it is taken: an interrupt (Ctrl-C) may come right afterwards.
            asked.append(locks[i])
            locks[i].acquire()
        yield
    finally:
        try:
            _release(asked)
        except BaseException:
            # An interrupt came before the first one was released, or between two of them.
            _release(asked)
            raise


def _release(asked: list[Any]) -> None:
    """Release the locks that this thread has asked for, even if interrupted: nobody else could."""
    interrupt: BaseException | None = None
    while asked:
        try:
            asked[-1].release()
            asked.pop()
        except RuntimeError:
            # It was never taken, or is already released.
            asked.pop()
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


@contextlib.contextmanager
def hold_node(store: Any, *paths: str) -> Iterator[None]:
    """Keep other threads of this process from changing the metadata of some nodes, or the shapes of arrays.

    Parameters
    ----------
    store, paths
        Store and paths of the nodes. The thread must not hold a lock of a stored value or of another node.
    """
    root = _root(store)
    numbers = sorted({_number(root, f"{path}/") for path in paths})
    locks, holders = list(_node_locks), list(_node_holders)
    thread = threading.get_ident()
    asked: list[Any] = []
    try:
        for i in numbers:
            # As above.
            asked.append(locks[i])
            locks[i].acquire()
            holders[i].append(thread)
        yield
    finally:
        try:
            _give_up(asked, numbers, holders, thread)
        except BaseException:
            # As above.
            _give_up(asked, numbers, holders, thread)
            raise


@contextlib.contextmanager
def begin(store: Any, path: str, change: str) -> Iterator[None]:
    """Refuse to begin a change of a node within the same change, which the same thread has begun.

    Locks let a thread pass that holds them, and a handler of a signal runs in the thread that it interrupts. What it
    changed there would be overwritten by what the interrupted change has read before.

    Parameters
    ----------
    store, path
        Store and path of the node.
    change
        Name of what is changed.

    Raises
    ------
    StoreError
        If this thread is just changing it; nothing was changed.
    """
    root = _root(store)
    place = (id(store), path) if root is None else _real_folder(root, path, {})
    begun: set[Any] = _own.__dict__.setdefault("begun", set())
    this = (place, change)
    if this in begun:
        raise StoreError(
            f"the {change} of '/{path}' in {store!r}: this thread is just changing it (a handler of a signal has "
            "interrupted that, or this is called by the function that changes attributes); nothing was changed here. "
            "Make this change afterwards: let a handler set a flag for the program"
        )
    try:
        begun.add(this)
        yield
    finally:
        begun.discard(this)


def _give_up(asked: list[Any], numbers: Iterable[int], holders: list[list[int]], thread: int) -> None:
    for i in numbers:
        with contextlib.suppress(ValueError):
            holders[i].remove(thread)
    _release(asked)


def node_is_held(store: Any, path: str) -> bool:
    """Return whether another thread currently holds a node, or one that shares its lock."""
    thread = threading.get_ident()
    return any(holder != thread for holder in list(_node_holders[_number(_root(store), f"{path}/")]))


def between_processes(store: Any, keys: Iterable[str], below: str = "") -> contextlib.AbstractContextManager[None]:
    """Return what holds the locks of some keys, which processes share, for the duration of a ``with`` block.

    Parameters
    ----------
    store
        Store of the keys.
    keys
        Keys to lock, all in one call to avoid deadlocks; none to lock the node itself.
    below
        Prefix of their node.

    Raises
    ------
    ArgumentError
        If the store has no such locks.
    """
    if not isinstance(store, LockingStore):
        raise ArgumentError(
            f"{store!r} has no locks between processes; only local stores have them. Without lock=True, processes may "
            "write to one array as long as no two write to the same chunk (in a sharded array, shard): let each write "
            "whole ones"
        )
    return store.lock(*keys, below=below)


def _root(store: Any) -> bytes | None:
    """Return the directory that holds a store's values as files, or None."""
    if isinstance(store, DirectoryStore):
        return store.directory()
    return store.file_root() if isinstance(store, LocalFiles) else None


def _number(root: bytes | None, key: str) -> int:
    (number,) = _numbers(root, [key])
    return number


def _numbers(root: bytes | None, keys: Iterable[str]) -> set[int]:
    """Return the numbers of the locks of some keys. Only builtins are called for each key of a folder."""
    numbers: set[int] = set()
    # Two stores may share files (same directory under two names, nested, linked), so lock by file.
    folders: dict[str, int] = {}
    known: dict[bytes, bytes] = {}
    for key in keys:
        folder, slash, name = ("", "", key) if root is None else key.rpartition("/")
        above = folders.get(folder)
        if above is None:
            above = 0 if root is None else zlib.crc32(_real_folder(root, folder + slash, known) + b"/")
            folders[folder] = above
        numbers.add(zlib.crc32(name.encode("utf-8", "surrogatepass"), above) % _COUNT)
        if len(numbers) == _COUNT:
            break
    return numbers


def _real_folder(root: bytes, folder: str, known: dict[bytes, bytes]) -> bytes:
    return _real((root + b"/" + file_name(folder)).rstrip(b"/") or b"/", known)


def _real(folder: bytes, known: dict[bytes, bytes] | None = None) -> bytes:
    """Return the real path of a folder, which need not exist.

    Parameters
    ----------
    folder
        Absolute path.
    known
        Real paths that one call has found, so that the folders in a folder cost one look at each.
    """
    known = {} if known is None else known
    found = known.get(folder)
    if found is not None:
        return found
    parent, slash, name = folder.rpartition(b"/")
    if not slash or not name or name in (b".", b".."):
        return os.path.realpath(folder)
    above = known.get(parent)
    if above is None:
        above = known[parent] = _real_if_exists(parent or b"/") or _real(parent, known)
    path = above.rstrip(b"/") + b"/" + name
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            path = os.path.realpath(path)
    except OSError:
        # It may be made in this turn.
        pass
    known[folder] = path
    return path


def _real_if_exists(folder: bytes) -> bytes | None:
    """Return the real path of a folder, or None if it does not exist."""
    if _PATH_ONLY:
        # The system knows it, in fewer calls than one for each name in it.
        fds: list[int] = []
        try:
            # As ``open_into`` does, without another call.
            fds.extend(map(os.open, (folder,), (_PATH_ONLY,)))
            path = os.readlink(b"/proc/self/fd/%d" % fds[0])  # noqa: PTH115
        except OSError as error:
            if not fds and error.errno in _ABSENT:
                return None
            # Nothing is mounted there that tells it, or too many files are open.
            path = b""
        finally:
            try:
                close_all(fds)
            except BaseException:
                # Interrupted (Ctrl-C): nobody else could close it.
                close_all(fds)
                raise
        # Of one that another thread has just erased, the system says so after its path.
        if path.startswith(b"/") and not path.endswith(b" (deleted)"):
            return path
    return os.path.realpath(folder)
