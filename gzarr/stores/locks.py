"""Locks of stored values within one process: while a thread reads a value and changes it, no other thread changes it.

Stored values share a few hundred locks. To rule out deadlocks, a thread takes nodes first, then documents, then chunks,
and each kind in order. What a handler of a signal does, or a function that is called in the middle of a change, may ask
for them in another order. It only waits for a moment then, and is refused. Other processes are excluded by
:func:`between_processes` only, see :meth:`gzarr.Array.write`, and by :func:`claim` from making the same node.

Nodes are held by their paths, with all below them if these may be erased or moved: nobody erases a group while a node
below it is made. A thread gets all of the nodes that it asks for at once, so that none waits for another that waits.

A lock is found by the real path of a file, which is looked up whenever it is asked for: links are switched and
directories renamed while a program runs. (Not by the number of its directory: that may only be made in this turn.)
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import ArgumentError, StoreError
from ..guarded import RLock
from .base import DirectoryStore, LocalFiles, LockingStore, WritableStore
from .claims import hold_claim
from .descriptors import close_all
from .directories import make_directories, remove_empty
from .file_locks import holds_documents
from .local_paths import file_name
from .temporary_names import claim_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COUNT: Final = 256
# Times that others may erase an empty directory in which a node is to be claimed.
_MOST_ATTEMPTS: Final = 20
# Time that who creates a node, or asks out of order, waits for others, most of whom take milliseconds; and between two
# looks.
_PATIENCE_S: Final = 2.0
_PAUSE_S: Final = 0.003
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR)
# Opens a directory for its path only; 0 where the system has no such thing.
_PATH_ONLY: Final = getattr(os, "O_PATH", 0)
_ADVICE: Final = (
    "(a handler of a signal has interrupted that, or this is called by the function that changes attributes); nothing "
    "was changed here. Make this change afterwards: let a handler set a flag for the program"
)
_locks: list[Any] = []
# Of documents: who holds one may ask for locks of chunks, of threads and of processes, and not the other way round.
_document_locks: list[Any] = []
# What threads hold of nodes. It only gets longer under its lock; who gives a hold up needs no lock, and always can.
_node_holders: list[_Hold] = []
_adding: list[Any] = []
# Changes that the thread has begun.
_own = threading.local()


def _renew() -> None:
    # A forked child lacks the threads that held some of them, and would wait for ever.
    _locks[:] = [RLock() for _ in range(_COUNT)]
    _document_locks[:] = [threading.RLock() for _ in range(_COUNT)]
    _adding[:] = [threading.RLock()]
    _node_holders[:] = []


_renew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def lock_of(store: Any, key: str) -> RLock:
    """Return the lock of one stored value, for use in ``with`` only.

    As :func:`hold`, but an interrupt (Ctrl-C) at any moment leaves it free. After one, what a generator holds may stay
    held as long as the error is kept; so a worker of a pool, where others wait for the same lock, and the error waits
    for them, takes this one.
    """
    (number,) = _numbers(_root(store), (key,))
    lock: RLock = _locks[number]
    return lock


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
        Keys of the values. All locks are taken up front; a thread that holds some is not to ask for more.
    *others
        Further stores, each with keys.
    documents
        Whether the values are documents.

    Raises
    ------
    StoreError
        If the thread holds some nevertheless, and would have to wait for another one, which may wait for it.
    """
    keys = list(keys)
    wanted = _numbers(_root(store), keys)
    for other, more in others:
        wanted |= _numbers(_root(other), more)
    locks, asked = list(_document_locks if documents else _locks), []
    try:
        for i in sorted(wanted):
            # Recorded before it is taken: an interrupt (Ctrl-C) may come right afterwards.
            asked.append(locks[i])
            # Whoever asks in order need not be known until then. Keywords would take more time than the lock.
            if locks[i].acquire(True, _PATIENCE_S):
                continue
            if not _are_held(locks[i + 1 :]) and not (documents and _are_held(_locks)):
                locks[i].acquire()
            else:
                what = f"the documents of '/{keys[0].rpartition('/')[0]}'" if documents else repr(keys[0])
                raise _out_of_order(f"{what} in {store!r}")
        yield
    finally:
        try:
            _release(asked)
        except BaseException:
            # An interrupt came before the first one was released, or between two of them.
            _release(asked)
            raise


def _are_held(locks: list[Any]) -> bool:
    """Return whether this thread holds some of the locks."""
    return any(lock._is_owned() for lock in locks)


def _out_of_order(what: str) -> StoreError:
    return StoreError(
        f"{what}: another thread is changing this, and may wait for this thread, which is in the middle of another "
        f"change {_ADVICE}"
    )


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
def hold_node(store: Any, *paths: str, below: bool = True) -> Iterator[None]:
    """Keep other threads of this process from changing the metadata of some nodes, or the shapes of arrays.

    No other thread erases, overwrites or moves a group above them, either.

    Parameters
    ----------
    store, paths
        Store and paths of the nodes. The thread is not to hold a lock of a stored value or of another node.
    below
        Whether the nodes are held with all below them, as they have to be if they may be erased or moved.

    Raises
    ------
    StoreError
        If the thread holds a lock of a value nevertheless, and would have to wait for another one, which may wait for
        it.
    """
    mine = _Hold(store, paths, below=below)
    try:
        while (other := _hold_or_find(mine)) is not None:
            in_order = not _are_held(_document_locks) and not _are_held(_locks)
            if not other.wait(-1 if in_order else _PATIENCE_S):
                raise _out_of_order(f"{', '.join(repr(f'/{path}') for path in paths)} in {store!r}")
        yield
    finally:
        try:
            mine.give_up()
        except BaseException:
            # As above.
            mine.give_up()
            raise


class _Hold:
    """Some nodes of a store that a thread holds, or is about to."""

    def __init__(self, store: Any, paths: Iterable[str], *, below: bool) -> None:
        root, known = _root(store), dict[bytes, bytes]()
        self._store, self._in_files, self._below = store, root is not None, below
        self._places = [_place(root, path, known) for path in paths]
        self._thread = threading.get_ident()
        # One for each thread that waits for the end of this, which releases it.
        self._waiting: list[Any] = []

    def excludes(self, other: _Hold) -> bool:
        """Return whether two threads cannot have both."""
        if self._thread == other._thread or self._in_files != other._in_files:
            return False
        nested = False
        for one in self._places:
            for two in other._places:
                if one == two:
                    # Of most other stores it is not sure that they differ.
                    return self._in_files or not _are_two(self._store, other._store)
                nested = nested or (self._below and _is_below(two, one)) or (other._below and _is_below(one, two))
        return nested and (self._in_files or _are_one(self._store, other._store))

    def wait(self, timeout: float) -> bool:
        """Wait until it is given up, for some seconds or without limit (-1); return whether it is."""
        waiter = threading.Lock()
        waiter.acquire()
        self._waiting.append(waiter)
        # Looked at afterwards: who gives it up removes it first.
        return self not in _node_holders or waiter.acquire(timeout=timeout)

    def give_up(self) -> None:
        """Let other threads have the nodes; this may be done again after an interrupt."""
        with contextlib.suppress(ValueError):
            _node_holders.remove(self)
        _release(self._waiting)


def _hold_or_find(mine: _Hold) -> _Hold | None:
    """Hold nodes and return None, or return what another thread holds of them, or below or above them."""
    lock, asked = _adding[0], list[Any]()
    try:
        # As above.
        asked.append(lock)
        lock.acquire()
        # A copy: others give up theirs meanwhile.
        for other in _node_holders.copy():
            if mine.excludes(other):
                return other
        _node_holders.append(mine)
        return None
    finally:
        try:
            _release(asked)
        except BaseException:
            # As above.
            _release(asked)
            raise


def _place(root: bytes | None, path: str, known: dict[bytes, bytes]) -> bytes:
    """Return the place of a node. It ends with a slash, so that those below begin with it."""
    place = path.encode("utf-8", "surrogatepass") if root is None else _real_folder(root, path, known)
    return place.rstrip(b"/") + b"/"


def _is_below(place: bytes, group: bytes) -> bool:
    return group == b"/" or place.startswith(group)


def _are_one(one: Any, other: Any) -> bool:
    """Return whether two stores without a directory are known to have the same values, or caches of them."""
    from .remote_store import RemoteStore
    from .same_values import have_same_values

    one, other = innermost(one), innermost(other)
    if isinstance(one, RemoteStore) and isinstance(other, RemoteStore) and one.address() is not None:
        # Whatever headers are sent there.
        return one.address() == other.address()
    return have_same_values(one, other)


def _are_two(one: Any, other: Any) -> bool:
    """Return whether two stores are dictionaries of their own, which a program may make while it fills another one."""
    from .memory import MemoryStore

    stores = innermost(one), innermost(other)
    if not all(type(store) is MemoryStore and type(store.mapping) is dict for store in stores):
        return False
    return stores[0].mapping is not stores[1].mapping


def innermost(store: Any) -> Any:
    """Return the store that a cache, or several, pass changes on to, or the store itself."""
    while isinstance(inner := getattr(store, "store", None), WritableStore):
        store = inner
    return store


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
    if has_begun(store, path, change):
        raise StoreError(f"the {change} of '/{path}' in {store!r}: this thread is just changing it {_ADVICE}")
    this = _Change(store, path, change)
    begun: list[_Change] = _own.__dict__.setdefault("begun", [])
    try:
        begun.append(this)
        yield
    finally:
        with contextlib.suppress(ValueError):
            begun.remove(this)


def has_begun(store: Any, path: str, change: str) -> bool:
    """Return whether this thread has begun a change of a node: :func:`begin`."""
    begun: list[_Change] = getattr(_own, "begun", [])
    return bool(begun) and any(map(_Change(store, path, change).is_same, begun))


class _Change:
    """A change that a thread has begun of a node."""

    def __init__(self, store: Any, path: str, change: str) -> None:
        root = _root(store)
        self._store, self._in_files = store, root is not None
        self._what = change, self._in_files, _place(root, path, {})

    def is_same(self, other: _Change) -> bool:
        """Return whether it is the same change of the same node, whichever object stands for the store."""
        return self._what == other._what and (self._in_files or _are_one(self._store, other._store))


@contextlib.contextmanager
def claim(store: Any, path: str, *, creates: bool = False) -> Iterator[None]:
    """Keep other processes from making a node that this one makes, if they claim it, too.

    Nothing is claimed where a store's values are no files, or no file can be made beside those of the node. A thread
    that shares the node with others holds it (:func:`hold_node`), so that they wait.

    Parameters
    ----------
    store, path
        Store and path of the node.
    creates
        Whether the node is created at once: then others are waited for a moment, for most of them do the same, and the
        thread may have claimed the node already.

    Raises
    ------
    ArgumentError
        If somebody else has claimed it.
    """
    end = time.monotonic() + (_PATIENCE_S if creates else 0)
    while True:
        with contextlib.ExitStack() as held:
            if _take_claim(store, path, held, again=creates):
                yield
                return
        if time.monotonic() >= end:
            raise ArgumentError(
                f"another writer is creating '/{path}' in {store!r} at the same time; try again when that has ended"
            )
        time.sleep(_PAUSE_S)


def _take_claim(store: Any, path: str, held: contextlib.ExitStack, *, again: bool) -> bool:
    """Claim a node until a stack is closed, or return False if somebody else has; ``again`` if it may be claimed."""
    root, inner = _root(store), innermost(store)
    # Links that are refused could lead to the file.
    if root is None or (isinstance(inner, LocalFiles) and inner.file_root() is None):
        return True
    place = Path(os.fsdecode(_real_folder(root, path, {})))
    # A forked child has none of its parent's.
    claimed, this = _own.__dict__.setdefault("claimed", set()), (os.getpid(), place)
    if again and this in claimed:
        return True
    # By its own path: what a link to nothing leads to is not made.
    above = os.path.dirname(os.fsdecode((root + b"/" + file_name(path)).rstrip(b"/")))  # noqa: PTH120
    # The directories stay, so what is promised for new ones holds for them.
    durable = getattr(inner, "durable", False)
    for _ in range(_MOST_ATTEMPTS):
        try:
            held.callback(remove_empty, make_directories(above, durable=durable))
            is_mine = held.enter_context(hold_claim(str(place.parent / claim_name(place.name))))
            if is_mine:
                held.callback(claimed.discard, this)
                claimed.add(this)
            return is_mine
        except FileNotFoundError:
            # Others have just erased an empty directory.
            continue
        except OSError:
            break
    return True


def is_within(store: Any, path: str, group: str) -> bool:
    """Return whether a node is a group or below it, also if links lead there."""
    root, known = _root(store), dict[bytes, bytes]()
    return _is_below(_place(root, path, known), _place(root, group, known))


def is_linked(store: Any, path: str) -> bool:
    """Return whether a node is a symbolic link; the root of a store is none, whatever its path is."""
    root = _root(store)
    return bool(path) and root is not None and os.path.islink(root + b"/" + file_name(path))  # noqa: PTH114


def node_is_held(store: Any, path: str) -> bool:
    """Return whether another thread currently holds a node, or a group above it with all below."""
    if not _node_holders:
        return False
    mine = _Hold(store, [path], below=False)
    return any(mine.excludes(other) for other in _node_holders.copy())


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
    StoreError
        If the lock of a node is asked for by a thread that holds those of documents: another process may hold it, and
        wait for these.
    """
    if not isinstance(store, LockingStore):
        raise ArgumentError(
            f"{store!r} has no locks between processes; only local stores have them. Without lock=True, processes may "
            "write to one array as long as no two write to the same chunk (in a sharded array, shard): let each write "
            "whole ones"
        )
    keys = tuple(keys)
    if not keys and holds_documents():
        raise StoreError(
            f"'/{below.rstrip('/')}' in {store!r}: another process may be changing this with lock=True, and wait for "
            f"this thread, which is in the middle of another change with lock=True {_ADVICE}"
        )
    return store.lock(*keys, below=below)


def _root(store: Any) -> bytes | None:
    """Return the directory that holds a store's values as files, or None."""
    if isinstance(store, DirectoryStore):
        return store.directory()
    return store.file_root() if isinstance(store, LocalFiles) else None


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
