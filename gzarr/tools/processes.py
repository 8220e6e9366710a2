"""Parts of a copy in other processes: dask.distributed's workers, or those of a ``concurrent.futures.Executor``."""

from __future__ import annotations

import functools
import pickle
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..errors import ArgumentError
from ..stores import why_not_shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from ..stores.base import ReadableStore

#: Parts that are submitted ahead, so that a copy of any size needs little memory here and in a scheduler.
_AHEAD: Final = 1000
#: How often dask.distributed runs a part again that has failed.
_RETRIES: Final = 2


class _Copies(Protocol):
    """What copies parts."""

    def copy_part(self, part: Any) -> list[str]:
        """Copy a part; return what became of each piece of it."""


def as_executor(client: Any) -> Executor:
    """Return what runs functions in other processes.

    Parameters
    ----------
    client
        ``distributed.Client``, or any ``concurrent.futures.Executor``.

    Raises
    ------
    ArgumentError
        If it is neither.
    """
    if isinstance(client, Executor):
        return client
    if hasattr(client, "get_executor"):
        executor: Executor = client.get_executor(pure=False, retries=_RETRIES)
        return executor
    raise ArgumentError(
        f"client must be a distributed.Client or a concurrent.futures.Executor, not {type(client).__name__}"
    )


def check_shared(store: ReadableStore, what: str) -> None:
    """Raise ArgumentError if other processes do not see what is in a store."""
    if (reason := why_not_shared(store)) is not None:
        raise ArgumentError(f"{what}, {store!r}, cannot be used by other processes: {reason}; omit client=")


def in_processes(executor: Executor, copies: _Copies, parts: Iterable[Any]) -> Iterator[list[str]]:
    """Copy parts in other processes; yield what became of each, in no particular order.

    A part is copied again if its process is killed meanwhile (by dask.distributed) or if it fails; each stored value is
    replaced in one step, and so has its old or its new value at any time. After an error, parts that have not begun are
    given up.
    """
    data = pickle.dumps(copies)
    left = iter(parts)
    pending: set[Future[list[str]]] = set()
    try:
        while True:
            pending |= {executor.submit(_copy_part, data, part) for part in islice(left, _AHEAD - len(pending))}
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    finally:
        for future in pending:
            future.cancel()


@functools.lru_cache(maxsize=8)
def _copies(data: bytes) -> _Copies:
    copies: _Copies = pickle.loads(data)
    return copies


def _copy_part(data: bytes, part: Any) -> list[str]:
    return _copies(data).copy_part(part)
