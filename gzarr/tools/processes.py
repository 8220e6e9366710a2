"""Work in other processes: of dask.distributed, or of a ``concurrent.futures.Executor``."""

from __future__ import annotations

import functools
import pickle
import uuid
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from ..errors import ArgumentError
from ..stores import why_not_shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future

    from ..stores.base import ReadableStore

#: What comes of a part of the work.
Found = TypeVar("Found", covariant=True)

#: Parts that are submitted ahead, so that a copy of any size needs little memory here and in a scheduler.
_AHEAD: Final = 1000
#: How often dask.distributed runs a part again that has failed.
_RETRIES: Final = 2


class WorkOfProcesses(Protocol[Found]):
    """What is done in other processes; pickled once."""

    def work_on(self, part: Any, /) -> Found:
        """Do a part of the work; return what came of it."""


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
    reason = why_not_shared(store)
    if reason is not None:
        raise ArgumentError(f"{what}, {store!r}, cannot be used by other processes: {reason}; omit client=")


def in_processes(executor: Executor, work: WorkOfProcesses[Found], parts: Iterable[Any]) -> Iterator[Found]:
    """Do parts of a work in other processes; yield what came of each, in no particular order.

    A part is done again if its process is killed meanwhile (by dask.distributed) or if it fails; each stored value is
    replaced in one step, and so has its old or its new value at any time. After an error, parts that have not begun are
    given up, and those that have are waited for, so that nothing is written later. Only dask.distributed does not tell
    which have begun: its workers may still finish some.
    """
    data = pickled(work)
    left = iter(parts)
    pending: set[Future[Found]] = set()
    try:
        while True:
            # One by one: what has been submitted is known if the next part, or its submission, fails.
            for part in islice(left, _AHEAD - len(pending)):
                pending.add(executor.submit(_work_on, data, part))
            if not pending:
                return
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    finally:
        # (Another interrupt ends the waiting.)
        wait([future for future in pending if not future.cancel()])


def pickled(work: WorkOfProcesses[Any]) -> bytes:
    """Return what other processes make the work of: other bytes each time, for they keep what they have made.

    Sources of equal names may have changed since, such as the document of references at a URL.

    Raises
    ------
    ArgumentError
        If it cannot be given to other processes.
    """
    named = uuid.uuid4().hex, work
    try:
        return pickle.dumps(named)
    # (Icechunk refuses writable sessions with a ValueError.)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError) as error:
        reason = error
    try:
        # It comes with dask.distributed, and also takes functions that have no name.
        from cloudpickle import dumps
    except ImportError:
        raise ArgumentError(
            f"other processes cannot be given the work: {reason}; define functions in a module"
        ) from None
    try:
        data: bytes = dumps(named)
    except Exception as error:
        raise ArgumentError(f"other processes cannot be given the work: {error}") from error
    return data


@functools.lru_cache(maxsize=8)
def _unpickled(data: bytes) -> WorkOfProcesses[Any]:
    work: WorkOfProcesses[Any] = pickle.loads(data)[1]
    return work


def _work_on(data: bytes, part: Any) -> Any:
    return _unpickled(data).work_on(part)
