"""Chunks that are asked for before the read that needs them.

Whoever knows what will be read next (a loader) asks for it ahead, so that requests to a remote store stay in progress
from one read to the next. The read finds them by its monitor, and requests only what is not among them.
"""

from __future__ import annotations

import math
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from ..waiting import taken_from
from .access.fetching import BATCH_CHUNKS, Fetching
from .access.sources import ABSENT
from .monitor import ReadCancelledError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import numpy.typing as npt

    from .access.access import ReadRequest

    IntArray = npt.NDArray[np.int64]


class _Parts:
    """Encoded bytes of chunks that one request fetched, found when one of them is wanted.

    No lock: two threads may both find them, and find the same.
    """

    __slots__ = ("_find", "_found")

    def __init__(self, find: Callable[[], list[Any]]) -> None:
        self._find = find
        self._found: list[Any] | None = None

    def __getitem__(self, i: int) -> Any:
        if self._found is None:
            self._found = self._find()
        return self._found[i]


class Asked:
    """One chunk that was asked for."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        self._done: SimpleQueue[tuple[_Parts, int] | None] = SimpleQueue()

    def answer(self, parts: _Parts, i: int) -> None:
        """Hand over its encoded bytes, at a place among others."""
        self._done.put((parts, i))

    def cancel(self) -> None:
        """End the wait for it."""
        self._done.put(None)

    def get(self) -> Any:
        """Wait for its encoded bytes and return them, or None if it is absent; call it once.

        Raises
        ------
        ChunkError
            If it cannot be fetched.
        ReadCancelledError
            If nobody asks for it any more.
        """
        found = taken_from(self._done)
        if found is None:
            raise ReadCancelledError
        parts, i = found
        return parts[i]


class Asking:
    """Requests for some chunks, of which there is room for all answers.

    Parameters
    ----------
    request
        A read from a store with ``get_many``; its outputs are not used.
    answered
        Function that is called in I/O threads with the number of chunks that one request fetched, and of its bytes.

    Attributes
    ----------
    chunks
        What was asked for, by the coordinates of the chunk. (Chunks that are absent by the index of a shard are not.)

    Raises
    ------
    ChunkError
        If an index gives a chunk too many bytes.
    """

    def __init__(self, request: ReadRequest, answered: Callable[[int, int], None]) -> None:
        request.refuse_large()
        self._answered = answered
        rows = np.flatnonzero(request.sources.nbytes != ABSENT)
        self._by_row: dict[int, Asked] = {row: Asked() for row in rows.tolist()}
        coords = map(tuple, request.plan.chunks[rows].tolist())
        self.chunks: dict[tuple[int, ...], Asked] = dict(zip(coords, self._by_row.values(), strict=True))
        self._fetching: Fetching | None = None
        if len(rows):
            self._fetching = Fetching(request, rows, math.inf, 1, self._hand_over)
            try:
                self._fetching.start()
            except BaseException:
                self.close()
                raise

    def _hand_over(self, rows: IntArray, find: Callable[[], list[Any]], nbytes: int) -> None:
        parts = _Parts(find)
        for i, row in enumerate(rows.tolist()):
            # None if nobody asks any more.
            if (asked := self._by_row.pop(row, None)) is not None:
                asked.answer(parts, i)
        self._answered(len(rows), nbytes)

    def close(self) -> None:
        """Send no more requests, and end the waits for those that have no answer."""
        if self._fetching is not None:
            self._fetching.close()
        for asked in list(self._by_row.values()):
            asked.cancel()
        self._by_row.clear()

    @property
    def waiting(self) -> int:
        """Number of chunks that have no answer yet."""
        return len(self._by_row)


class Taken:
    """Chunks that a read takes from what was asked for ahead.

    Parameters
    ----------
    rows
        Rows of the read's plan.
    asked
        What was asked for, for each of them.
    workers
        Number of threads that take them.
    """

    def __init__(self, rows: Iterable[int], asked: Sequence[Asked], workers: int) -> None:
        self._rows = np.fromiter(rows, np.int64)
        self._asked = asked
        self._each = min(max(len(asked) // (2 * workers), 1), BATCH_CHUNKS)
        self._turn = count()
        self._closed = False

    def take(self) -> tuple[IntArray, list[Any], int] | None:
        """Wait for the next of them; return rows, their encoded bytes, and no room to give back; None at the end.

        Raises
        ------
        ChunkError
            If one of them cannot be fetched.
        """
        begin = next(self._turn) * self._each
        some = slice(begin, begin + self._each)
        try:
            # From the last one on: then the others are mostly there, and the thread waits once.
            values = [asked.get() for asked in reversed(self._asked[some])][::-1]
        except ReadCancelledError:
            if self._closed:
                return None
            raise
        return (self._rows[some], values, 0) if values else None

    def close(self) -> None:
        """Take no more: one of the threads has failed."""
        self._closed = True
        for asked in self._asked:
            asked.cancel()
