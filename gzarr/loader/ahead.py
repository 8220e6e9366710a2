"""Asking remote stores ahead: requests stay in progress from one read of an epoch to the next.

The order of an epoch is known, and so are the chunks that each read will fetch. When a read begins, all its chunks are
asked for, of all arrays side by side. Until then, as many chunks of later reads are as keep the requests in
progress that the store allows, and as there is room for: the room of samples that are not read yet. So no more memory
is held than without.

Reads find what was asked for by their monitor. They follow each other as before, and fetch what was not asked for
themselves, so nothing else depends on this. A request that fails is an error of the read that takes its answer.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from itertools import pairwise
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

import numpy as np

from ..engines.asking import Asking, Taken
from ..errors import GzarrError
from ..guarded import Lock
from ..sparse.view import DenseView
from ..stores.base import RemoteValues

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ..engines.access.access import ReadRequest
    from ..engines.asking import Asked
    from .epoch import Epoch
    from .keeping import Keeping, Step
    from .reading import Source
    from .row_slabs import RowSlabs
    from .slabs import Slabs

    IntArray = npt.NDArray[np.int64]
    # What was asked for, of each array by the coordinates of the chunk. Several windows may need the same one.
    Found = dict[tuple[int, str], dict[tuple[int, ...], list[Asked]]]

#: Most values (chunks or shards) that are asked for together, and least part of the room: requests are sent in the
#: order of the reads.
_VALUES: Final = 64
_PARTS: Final = 8
#: A chunk that was not answered is taken to have this part of its decoded bytes at least.
_LEAST: Final = 8
#: Answers after which more is asked for.
_WORTH_A_LOOK: Final = 16
#: Requests that have no answer, for each that may be in progress: with more, nothing is asked for ahead.
_WAITING: Final = 2
#: Most bytes of chunks that are asked for when their read begins; it fetches the others itself.
_MOST_BYTES: Final = 128 << 20


def are_remote(epoch: Epoch) -> bool:
    """Return whether arrays of an epoch are read by requests, to host memory."""
    sources = [source for volume in epoch.samples.each for source in volume.sources]
    return any(_is_asked(source) and source.array.device == "cpu" for source in sources)


def _is_asked(source: Source) -> bool:
    """Return whether chunks of an array may be asked for: a dense view has none in the store."""
    return isinstance(source.array.store, RemoteValues) and not isinstance(source.array, DenseView)


class ReadAhead:
    """What is asked for ahead in an epoch.

    Parameters
    ----------
    epoch
        The epoch.
    bounds
        The turns at which reading is cut.
    most
        Most bytes of samples that are read and still needed, and of chunks that are asked for.
    keeping
        Tells which chunks each read fetches; None for slabs.
    """

    def __init__(self, epoch: Epoch, bounds: Sequence[int], most: int, keeping: Keeping | None) -> None:
        self._epoch, self._bounds, self._most, self._keeping = epoch, bounds, most, keeping
        stores = [source.array.store for volume in epoch.samples.each for source in volume.sources]
        self._calls = min(store.request_limits().calls for store in stores if isinstance(store, RemoteValues))
        # The reader waits for the lock while chunks are asked for ahead; the consumer never does.
        self._lock = Lock()
        self._events: SimpleQueue[None] = SimpleQueue()
        self._answers: deque[None] = deque()
        self.stopped: bool = False
        # Number of the read that has begun, and of reads that are planned; what they need, in their order.
        self._read, self._planned = -1, 0
        self._plans = self._planned_reads()
        self._failure: Exception | None = None
        self._slabs: deque[Slabs | RowSlabs] = deque()
        self._steps: deque[Step] = deque()
        self._left: deque[tuple[int, Source, IntArray]] = deque()
        # What was asked for, and how many bytes that is of later reads.
        self._asking: deque[tuple[int, Asking]] = deque()
        self._asked: dict[int, Found] = {}
        self._bytes: dict[int, int] = {}
        self._current: Found = {}
        # Bytes of the largest chunk that was answered, of each source (the mean of those that one request fetched).
        self._largest: dict[int, int] = {}
        # Bytes of the reads that have begun, and of those that are no longer needed.
        self._begun = self._freed = 0

    # -- for the reader

    def next_slabs(self) -> Slabs | RowSlabs:
        """Return the slabs of the next read that were not returned yet."""
        with self._lock:
            if not self._slabs:
                self._plan()
            return self._slabs.popleft()

    def next_step(self) -> Step:
        """Return what the next read does with chunks that was not returned yet."""
        with self._lock:
            if not self._steps:
                self._plan()
            return self._steps.popleft()

    def begin(self, nbytes: int) -> None:
        """Ask for all that the next read needs, given the bytes of its samples."""
        with self._lock:
            self._read += 1
            self._begun += nbytes
            while self._asking and self._asking[0][0] < self._read:
                self._asking.popleft()[1].close()
            while self._planned <= self._read:
                self._plan()
            self._current = self._asked.setdefault(self._read, {})
            room = _MOST_BYTES - self._bytes.pop(self._read, 0)
            while self._left and self._left[0][0] == self._read:
                read, source, chunks = self._left.popleft()
                room -= len(chunks) * self._expected(source)
                if room >= 0:
                    self._ask(read, source, chunks)
            del self._asked[self._read]
        self._events.put(None)

    def take(
        self, store: object, node: str, chunks: IntArray, rows: IntArray, workers: int
    ) -> tuple[Taken | None, IntArray]:
        """Take what the present read asked for; as :class:`gzarr.engines.monitor.Ahead`."""
        own = self._current.get((id(store), node))
        if not own:
            return None, rows
        found: dict[int, Asked] = {}
        for row, coords in zip(rows.tolist(), map(tuple, chunks[rows].tolist()), strict=True):
            if asked := own.get(coords):
                found[row] = asked.pop()
        if not found:
            return None, rows
        others = np.array([row for row in rows.tolist() if row not in found], np.int64)
        return Taken(found, list(found.values()), workers), others

    # -- for others

    def free(self, nbytes: int) -> None:
        """Tell that a number of bytes of samples is no longer needed; always called by the same thread."""
        self._freed += nbytes
        self._events.put(None)

    def stop(self) -> None:
        """Ask for nothing more, and end all waits for what was asked for."""
        self.stopped = True
        try:
            # One step, without the lock: another thread may be adding to it, and closes what it adds from now on.
            for _, asking in self._asking.copy():
                asking.close()
        finally:
            self._events.put(None)

    def run_ahead(self) -> None:
        """Ask for chunks of later reads whenever there is room; the loop of a thread."""
        try:
            while not self.stopped:
                with self._lock:
                    if not self._ask_ahead():
                        return
                self._events.get()
                while True:
                    try:
                        self._events.get_nowait()
                    except Empty:
                        break
        except Exception:
            # Without this thread, chunks are asked for when their read begins; if that fails too, the reader says so.
            return

    # -- with the lock

    def _ask_ahead(self) -> bool:
        """Ask for chunks of later reads while there is room; return whether there are more."""
        waiting = sum(asking.waiting for _, asking in self._asking)
        room = self._most - (self._begun - self._freed) - sum(self._bytes.values())
        while waiting < _WAITING * self._calls and not self.stopped:
            while not self._left:
                if self._planned >= len(self._bounds) - 1:
                    return False
                self._plan()
            read, source, chunks = self._left[0]
            nbytes = len(chunks) * self._expected(source)
            if nbytes > room:
                break
            self._left.popleft()
            room -= nbytes
            self._bytes[read] = self._bytes.get(read, 0) + nbytes
            waiting += len(chunks)
            self._ask(read, source, chunks)
        return True

    def _ask(self, read: int, source: Source, chunks: IntArray) -> None:
        """Ask for some chunks."""
        found = self._asked.setdefault(read, {})

        def ask(request: ReadRequest) -> None:
            if not request.access.remote:
                return
            asking = Asking(request, partial(self._answered, id(source)))
            self._asking.append((read, asking))
            if self.stopped:
                asking.close()
            own = found.setdefault((id(request.access.store), request.node), {})
            for coords, asked in asking.chunks.items():
                own.setdefault(coords, []).append(asked)

        try:
            source.array._ask(chunks, ask)
        except GzarrError:
            # The read will find it out as well, and say so in its place.
            return

    def _expected(self, source: Source) -> int:
        """Return how many bytes a chunk is taken to have that was not answered: as many as the largest one so far."""
        return max(self._largest.get(id(source), source.chunk_nbytes), source.chunk_nbytes // _LEAST)

    def _answered(self, source: int, count: int, nbytes: int) -> None:
        # In I/O threads. Not every answer is worth a look.
        self._largest[source] = max(self._largest.get(source, 0), nbytes // count)
        self._answers.extend([None] * count)
        if len(self._answers) >= _WORTH_A_LOOK:
            self._answers.clear()
            self._events.put(None)

    def _plan(self) -> None:
        """Find what the next read needs."""
        if self._failure is not None:
            raise self._failure
        try:
            found = next(self._plans)
        except Exception as error:
            # For the reader, if it is in the other thread.
            self._failure = error
            raise
        for source, chunks in found:
            if _is_asked(source):
                parts = _cut(chunks, source, self._most // _PARTS)
                self._left.extend((self._planned, source, some) for some in parts)
        self._planned += 1

    def _planned_reads(self) -> Iterator[list[tuple[Source, IntArray]]]:
        """Yield what each read fetches: sources, and the coordinates of their chunks."""
        if self._keeping is not None:
            while self._keeping.left:
                step = self._keeping.step()
                if self._epoch.kept_bytes:
                    self._steps.append(step)
                yield list(self._keeping.chunks.of_sources(step.fetched))
            return
        for begin, end in pairwise(self._bounds):
            slabs = self._epoch.slabs(begin, end)
            self._slabs.append(slabs)
            yield list(slabs.chunks())


def _cut(chunks: IntArray, source: Source, most_bytes: int) -> list[IntArray]:
    """Cut chunks into parts that are asked for together: some whole values, or all that is wanted of some shards.

    A shard counts once, however many of its chunks are wanted: its index, or the whole of it, is one request.
    """
    n, shard = len(chunks), source.array.shards
    if not n:
        return []
    value_of = np.arange(n)
    if shard is not None:
        _, value_of = np.unique(chunks * np.array(source.array.chunks) // np.array(shard), axis=0, return_inverse=True)
        order = np.argsort(value_of.reshape(-1), kind="stable")
        chunks, value_of = chunks[order], value_of.reshape(-1)[order]
    # The first chunk of each value, and the end.
    first = np.flatnonzero(np.diff(value_of, prepend=-1, append=n))
    each = int(np.clip(most_bytes // source.chunk_nbytes * (len(first) - 1) // n, 1, _VALUES))
    return np.split(chunks, first[each:-1:each])
