"""Writers of one process take turns at a stored value: what one reads to change it, no other changes meanwhile.

Stored values share a few hundred locks. A thread that takes several takes them in order, so nobody waits in a circle.
Other processes are not kept out; see :meth:`gzarr.Array.write`.
"""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from ..stores.base import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_COUNT: Final = 256
_locks: list[threading.Lock] = []


def _renew() -> None:
    # Threads that held some of them are not in a forked child, and what they were doing is not done there.
    _locks[:] = [threading.Lock() for _ in range(_COUNT)]


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
    # Two stores may be one directory under two names, or one below the other: it is the file that counts.
    root = store.file_root() if isinstance(store, LocalFiles) else None
    folder = b"" if root is None else _real(root) + b"/"
    wanted: set[int] = set()
    for key in keys:
        wanted.add(zlib.crc32(folder + os.fsencode(key)) % _COUNT)
        if len(wanted) == _COUNT:
            break
    locks = list(_locks)
    with contextlib.ExitStack() as stack:
        for i in sorted(wanted):
            stack.enter_context(locks[i])
        yield


@lru_cache(maxsize=64)
def _real(root: bytes) -> bytes:
    return os.path.realpath(root)
