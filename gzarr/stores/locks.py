"""Writers of one process take turns at a stored value: what one reads to change it, no other changes meanwhile.

Stored values share a few hundred locks. A thread that takes several takes them in order, so nobody waits in a circle;
one that changes the metadata of a node takes that lock before any of its chunks'. Other processes are not kept out; see
:meth:`gzarr.Array.write`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from .base import LocalFiles
from .local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COUNT: Final = 256
_locks: list[Any] = []
_node_locks: list[Any] = []
# Threads that hold each of them, as often as they do.
_node_holders: list[list[int]] = []


def _renew() -> None:
    # Threads that held some of them are not in a forked child, and what they were doing is not done there.
    _locks[:] = [threading.RLock() for _ in range(_COUNT)]
    _node_locks[:] = [threading.RLock() for _ in range(_COUNT)]
    _node_holders[:] = [[] for _ in range(_COUNT)]


_renew()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextlib.contextmanager
def hold(store: Any, keys: Iterable[str]) -> Iterator[None]:
    """Keep all other writers of this process away from some stored values.

    Parameters
    ----------
    store
        That they are in.
    keys
        Theirs. The locks of all are taken before anything is done; a thread that holds some must not come back for
        others.
    """
    root = _root(store)
    wanted: set[int] = set()
    for key in keys:
        wanted.add(_number(root, key))
        if len(wanted) == _COUNT:
            break
    locks, asked = list(_locks), []
    try:
        for i in sorted(wanted):
            # First: an interrupt (Ctrl-C) may come as soon as the lock is taken.
            asked.append(locks[i])
            locks[i].acquire()
        yield
    finally:
        _release(asked)


def _release(asked: list[Any]) -> None:
    """Release locks that this thread has asked for, whatever interrupts it: nobody else ever would."""
    interrupt: BaseException | None = None
    while asked:
        try:
            asked[-1].release()
            asked.pop()
        except RuntimeError:
            # It was not taken, or has been released.
            asked.pop()
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt


@contextlib.contextmanager
def hold_node(store: Any, *paths: str) -> Iterator[None]:
    """Keep all others of this process from changing the metadata of some nodes, or the shapes of arrays.

    Parameters
    ----------
    store, paths
        Where the nodes are. The thread must hold no lock of a stored value, and of no other node.
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
        for i in numbers:
            with contextlib.suppress(ValueError):
                holders[i].remove(thread)
        _release(asked)


def node_is_held(store: Any, path: str) -> bool:
    """Return whether another thread holds a node, or one that shares its lock, just now."""
    thread = threading.get_ident()
    return any(holder != thread for holder in list(_node_holders[_number(_root(store), f"{path}/")]))


def _root(store: Any) -> bytes | None:
    """Return the directory that a store's values are files in, or None."""
    if isinstance(store, LocalStore):
        return os.fsencode(store.root)
    return store.file_root() if isinstance(store, LocalFiles) else None


def _number(root: bytes | None, key: str) -> int:
    name = os.fsencode(key)
    if root is not None:
        # Stores may be one directory under two names, one below the other, or linked: it is the file that counts.
        folder, slash, name = (root + b"/" + name).rpartition(b"/")
        name = _real(folder) + slash + name
    return zlib.crc32(name) % _COUNT


@lru_cache(maxsize=1024)
def _real(folder: bytes) -> bytes:
    return os.path.realpath(folder)
