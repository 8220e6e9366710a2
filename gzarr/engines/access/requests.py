"""Remote stores: I/O threads send requests while the engine's threads decode what has arrived.

Requests are sent in the order of the keys, as many at once as the store takes, as long as the bytes that were asked for
and not yet decoded stay within a budget. Answers are handed out as they arrive. Large values are fetched in parts side
by side: one connection is rarely as fast as the network.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import replace
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ...codecs.sharding import EMPTY
from ...errors import ValueReplacedError, ValueSizeError
from ...stores import io_threads
from ...stores.base import Answer, ByteRange, RemoteValues, Request
from ...waiting import taken_from
from .. import pool
from ..monitor import spent
from .access import Access
from .parts import Parts, part_bytes
from .sources import ABSENT, IN_SHARD, WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import numpy.typing as npt

    from ...errors import ChunkError
    from ...stores.base import RequestLimits
    from ..monitor import AskedAhead
    from .access import LoopWay, ReadRequest
    from .shard import Index, Shard
    from .sources import Sources, Spans

    IntArray = npt.NDArray[np.int64]

#: Most bytes that a read asks for before they are decoded, unless the caller says otherwise, and of values that are
#: being written.
BUDGET_BYTES: Final = 256 << 20
#: Share of the bytes needed that may be read in vain to save requests.
WASTE: Final = 0.1
#: Most chunks and bytes that one thread takes at a time.
BATCH_CHUNKS: Final = 64
BATCH_BYTES: Final = 8 << 20


class Requests(Access):
    """Access to the values of a remote store.

    Every request for a part of a shard names the version whose index was read.
    """

    way: LoopWay = "compiled loop, requests"
    remote: bool = True

    def replaced(self, versions: dict[str, Hashable], failure: ChunkError | None) -> set[str]:
        """As :meth:`Access.replaced`: a request failed since the value has another version."""
        if failure is None or not isinstance(failure.__cause__, ValueReplacedError) or failure.key is None:
            return set()
        self.indexes.drop((failure.key, 0, WHOLE))
        return {failure.key}

    def index(
        self, shard: Shard, name: tuple[str, int, int], entries: IntArray, versions: dict[str, Hashable]
    ) -> Index | None:
        """As :meth:`Access.index`, by one request, or none if the index is known.

        A kept index is used unchecked, because the requests for the chunks will name its version. So it is not used if
        none of the chunks to be read is in it: there would be no such request.
        """
        key, base, size = name
        version = versions.get(key)
        kept = self.indexes.last(name)
        if kept is not None and version in (None, kept[0]) and (kept[1][entries, 0] != EMPTY).any():
            versions[key] = kept[0]
            return kept[1]
        answers: list[Answer] = []

        def get(part: ByteRange) -> Any:
            answers.extend(self.store.get_many([Request(key, part, version)]))
            if answers[0].error is not None:
                raise answers[0].error
            return answers[0].value

        index = shard.read_index(get, base, size)
        if index is not None and answers[0].version is not None:
            versions[key] = answers[0].version
            self.indexes.put(name, answers[0].version, index)
        return index

    def each(
        self,
        request: ReadRequest,
        rows: IntArray,
        workers: int,
        use: Callable[[IntArray, list[Any]], bool],
        *,
        budget_bytes: int | None = None,
        least_batches: int = 1,
    ) -> None:
        """As :meth:`Access.each`."""
        absent = rows[request.sources.nbytes[rows] == ABSENT]
        if len(absent) and not use(absent, [None] * len(absent)):
            return
        wanted = rows[request.sources.nbytes[rows] != ABSENT]
        if not len(wanted):
            return
        monitor = request.monitor
        taken: AskedAhead | None = None
        if monitor is not None and monitor.ahead is not None:
            taken, wanted = monitor.ahead.take(self.store, request.node, request.plan.chunks, wanted, workers)
        fetching: Fetching | None = None
        if len(wanted):
            budget = BUDGET_BYTES if budget_bytes is None else budget_bytes
            fetching = Fetching(request, wanted, budget, workers)

        def taking() -> tuple[IntArray, list[Any], int] | None:
            if monitor is not None:
                monitor.check()
            with spent(monitor, "store"):
                found = None if taken is None else taken.take()
                return fetching.take() if found is None and fetching is not None else found

        def close() -> None:
            if taken is not None:
                taken.close()
            if fetching is not None:
                fetching.close()

        def work(_: int) -> None:
            try:
                while (found := taking()) is not None:
                    some, values, nbytes = found
                    if not use(some, values):
                        close()
                        return
                    # The bytes may be gone before room is made for others.
                    del values, found
                    if nbytes and fetching is not None:
                        fetching.release(nbytes)
            except BaseException:
                close()
                raise

        if fetching is not None:
            fetching.start()
        pool.run(work, workers)

    def each_value(self, work: Callable[[int], object], items: int, value_nbytes: int, workers: int) -> None:
        """As :meth:`Access.each_value`."""
        most = max(workers, min(self.store.request_limits().calls, BUDGET_BYTES // max(value_nbytes, 1)))
        io_threads.each(work, items, most)


def answers(store: RemoteValues, requests: Sequence[Request]) -> list[Answer]:
    """Return the answers to some requests, sent side by side."""
    limits = store.request_limits()
    step = max(1, min(limits.each, -(-len(requests) // limits.calls)))
    groups = [requests[i : i + step] for i in range(0, len(requests), step)]
    found = io_threads.call_all([partial(store.get_many, group) for group in groups])
    return [answer for group in found for answer in group]


def request_for(sources: Sources, i: int, offset: int, nbytes: int, most_encoded: int) -> Request:
    """Return the request for a byte range of value ``i``, or for all of it."""
    version = None if sources.versions is None else sources.versions[i]
    if nbytes == WHOLE:
        return Request(sources.keys[i], version=version, most_nbytes=most_encoded)
    if nbytes == IN_SHARD:
        return Request(sources.keys[i], most_nbytes=sources.most_shard_nbytes)
    return Request(sources.keys[i], ByteRange(offset, nbytes), version)


class Fetching:
    """The requests of one read, and their answers.

    I/O threads wait for room; the engine's threads wait for answers, and give room back. Only I/O threads take a lock:
    an interrupt (Ctrl-C), which comes to the main thread, leaves none taken.

    Parameters
    ----------
    request
        The read, from a remote store.
    rows
        int64, rows of its plan; at least one.
    budget_bytes, workers
        As for :meth:`Access.each`; an infinite budget where room was made before.
    hand_over
        Function that I/O threads call with some rows, a function that returns their encoded bytes (or raises
        ChunkError), and the number of bytes that were fetched; None for answers that :meth:`take` returns.
    """

    def __init__(
        self,
        request: ReadRequest,
        rows: IntArray,
        budget_bytes: float,
        workers: int,
        hand_over: Callable[[IntArray, Callable[[], list[Any]], int], None] | None = None,
    ) -> None:
        self._request = request
        self._store: RemoteValues = request.access.store
        limits = self._store.request_limits()
        self._spans: Spans = request.sources.join(
            rows, gap_bytes=limits.gap_bytes, most_bytes=limits.most_bytes, waste=WASTE
        )
        self._budget = budget_bytes
        self._consumers = workers
        # Encoded sizes of whole values are unknown: the largest one so far is expected again.
        self._largest = min(request.chunk.nbytes, request.most_encoded)
        # Large values are divided if there are too few of them for as many requests as may be in progress.
        self._divided = self._divide(limits) if 2 * len(self._spans) <= limits.calls else {}
        self._turns: list[tuple[int, int]] = []
        if self._divided:
            for i in range(len(self._spans)):
                self._turns += [(i, part) for part in range(len(self._divided[i]) if i in self._divided else 1)]
        self._number = number = len(self._turns or self._spans)
        self._each = 1 if self._divided else max(1, min(limits.each, -(-number // 2)))
        self._senders = max(1, min(limits.calls, -(-number // self._each)))
        self._turn = count()
        self._hand_over = hand_over
        self._done: SimpleQueue[tuple[int, Answer, int] | None] = SimpleQueue()
        self._released: SimpleQueue[int] = SimpleQueue()
        self._lock = threading.Lock()
        self._held = 0
        self._sending = self._senders
        self._closed = False

    def start(self) -> None:
        """Begin to send requests."""
        for _ in range(self._senders):
            io_threads.submit(self._send, self._is_closed)

    def close(self) -> None:
        """Send no more requests, and wake everyone who waits."""
        self._closed = True
        for _ in range(self._senders):
            self._released.put(0)
        for parts in self._divided.values():
            parts.admit()
        for _ in range(self._consumers):
            self._done.put(None)

    def _is_closed(self) -> bool:
        return self._closed

    def release(self, nbytes: int) -> None:
        """Make room for further requests."""
        self._released.put(nbytes)

    def take(self) -> tuple[IntArray, list[Any], int] | None:
        """Wait for answers; return rows, their encoded bytes, and the room to give back; None at the end.

        Raises
        ------
        ChunkError
            If a request failed.
        """
        first = taken_from(self._done)
        if first is None or self._closed:
            return None
        rows: list[IntArray] = []
        values: list[Any] = []
        room = nbytes = 0
        entry: tuple[int, Answer, int] | None = first
        while entry is not None:
            span, answer, asked = entry
            room += asked
            some = self._spans.of(span)
            rows.append(some)
            parts = self._parts(span, some, answer)
            values.extend(parts)
            nbytes += sum(map(len, filter(None, parts)))
            if len(values) >= BATCH_CHUNKS or nbytes >= BATCH_BYTES:
                break
            try:
                entry = self._done.get_nowait()
            except Empty:
                break
            if entry is None:
                # Meant for a later call.
                self._done.put(None)
        return np.concatenate(rows), values, room

    def _parts(self, span: int, rows: IntArray, answer: Answer) -> list[Any]:
        """Return the encoded bytes of the chunks of a span."""
        return self._found(rows, int(self._spans.offset[span]), int(self._spans.nbytes[span]), answer)

    def _found(self, rows: IntArray, base: int, size: int, answer: Answer) -> list[Any]:
        """Return the encoded bytes of some chunks, from the answer to a request for a byte range of their value."""
        if answer.error is not None:
            if len(rows) > 1 and size != IN_SHARD and isinstance(answer.error, ValueSizeError):
                # One at a time, to find the chunk whose range is wrong.
                return [self._alone(row) for row in rows.tolist()]
            raise self._request.store_failure(int(rows[0]), answer.error) from answer.error
        sources = self._request.sources
        if answer.value is None:
            if sources.packing is not None:
                # Chunks are in a value that exists, as its directory was read.
                erased = ValueReplacedError(f"{sources.keys[0]!r} of {self._store!r} was erased meanwhile")
                raise self._request.store_failure(int(rows[0]), erased) from erased
            return [None] * len(rows)
        if size == WHOLE:
            return [answer.value]
        if size == IN_SHARD:
            assert sources.find_in_shard is not None
            sources.find_in_shard(rows, answer)
            self._request.refuse_large(rows)
        parts = zip(rows.tolist(), sources.parts(rows, base, answer.value), strict=True)
        return [None if part is None else self._unwrapped(row, part) for row, part in parts]

    def _unwrapped(self, row: int, part: memoryview) -> Any:
        """Return the encoded bytes of a chunk, from those that were asked for."""
        packing = self._request.sources.packing
        if packing is None or packing.unwrap is None:
            return part
        try:
            return packing.unwrap(int(packing.index[row]), part)
        # Third-party stores may raise anything.
        except Exception as error:
            raise self._request.store_failure(row, error) from error

    def _alone(self, row: int) -> Any:
        sources = self._request.sources
        index, offset, nbytes = int(sources.key_index[row]), int(sources.offset[row]), int(sources.nbytes[row])
        answer = answers(self._store, [request_for(sources, index, offset, nbytes, self._request.most_encoded)])[0]
        return self._found(np.array([row]), offset, nbytes, answer)[0]

    # -- in I/O threads

    def _send(self) -> None:
        """Send requests one after the other, until there are no more or other reads wait for threads."""
        while not self._closed and (begin := next(self._turn) * self._each) < self._number:
            if self._turns:
                self._send_part(*self._turns[begin])
            else:
                self._send_spans(range(begin, min(begin + self._each, self._number)))
            if io_threads.others_wait():
                io_threads.submit(self._send, self._is_closed)
                return
        with self._lock:
            self._sending -= 1
            last = not self._sending
        if last:
            for _ in range(self._consumers):
                self._done.put(None)

    def _send_spans(self, some: range) -> None:
        sizes = [self._expected(i) for i in some]
        self._wait_for_room(sum(sizes))
        if self._closed:
            return
        for i, size, answer in zip(some, sizes, self._answers([self._asked(i) for i in some]), strict=True):
            if answer.value is not None and self._spans.nbytes[i] == WHOLE:
                self._largest = max(self._largest, len(memoryview(answer.value)))
            self._finished(i, answer, size)

    def _send_part(self, i: int, part: int) -> None:
        parts = self._divided.get(i)
        if parts is None:
            self._send_spans(range(i, i + 1))
            return
        if part == 0:
            self._wait_for_room(parts.nbytes)
            parts.admit()
        answer = parts.fetch(part, self._answers)
        if answer is not None and isinstance(answer.error, ValueReplacedError) and self._spans.nbytes[i] == WHOLE:
            # With one request, it does not matter which of the values it is.
            (answer,) = self._answers([self._asked(i)])
        if answer is not None and not self._closed:
            self._finished(i, answer, parts.nbytes)

    def _finished(self, span: int, answer: Answer, asked_nbytes: int) -> None:
        """Hand over the answer for a span."""
        if self._hand_over is None:
            self._done.put((span, answer, asked_nbytes))
            return
        rows = self._spans.of(span)
        nbytes = 0 if answer.value is None else memoryview(answer.value).nbytes
        # What it takes to find them, and an error, are for the thread that waits: I/O threads send the next requests.
        self._hand_over(rows, partial(self._parts, span, rows, answer), nbytes)

    def _asked(self, i: int) -> Request:
        """Return the request for a span."""
        columns, most = self._spans, self._request.most_encoded
        place = int(columns.key_index[i]), int(columns.offset[i]), int(columns.nbytes[i])
        return request_for(self._request.sources, *place, most)

    def _answers(self, asked: Sequence[Request]) -> list[Answer]:
        try:
            found = self._store.get_many(asked)
        # Third-party stores may raise anything.
        except BaseException as error:
            failure = error if isinstance(error, Exception) else ValueSizeError(str(error))
            return [Answer(None, error=failure)] * len(asked)
        return [_checked(request, answer) for request, answer in zip(asked, found, strict=True)]

    def _divide(self, limits: RequestLimits) -> dict[int, Parts]:
        """Return the values to fetch in parts, by span."""
        spans_ = self._spans
        sizes = {i: int(nbytes) for i, nbytes in enumerate(spans_.nbytes) if nbytes not in (WHOLE, IN_SHARD)}
        requests = {i: self._asked(i) for i in range(len(spans_))}
        if part_bytes(self._largest, limits):
            # The sizes of whole values, and their versions, are asked for first.
            unknown = [i for i, nbytes in enumerate(spans_.nbytes) if nbytes == WHOLE]
            heads = answers(self._store, [Request(requests[i].key, ByteRange(0, 0)) for i in unknown])
            for i, head in zip(unknown, heads, strict=True):
                if head.size is not None and head.size <= self._request.most_encoded:
                    sizes[i] = head.size
                    requests[i] = replace(requests[i], version=head.version)
        return {
            i: Parts(requests[i], int(spans_.offset[i]), nbytes, part)
            for i, nbytes in sizes.items()
            if (part := part_bytes(nbytes, limits)) and requests[i].version is not None
        }

    def _expected(self, i: int) -> int:
        nbytes = int(self._spans.nbytes[i])
        if nbytes == IN_SHARD:
            number = int(self._spans.bounds[i + 1] - self._spans.bounds[i])
            return number * min(self._request.chunk.nbytes, self._request.most_encoded)
        return self._largest if nbytes == WHOLE else nbytes

    def _wait_for_room(self, nbytes: int) -> None:
        with self._lock:
            with contextlib.suppress(Empty):
                while True:
                    self._held -= self._released.get_nowait()
            while self._held and self._held + nbytes > self._budget and not self._closed:
                self._held -= self._released.get()
            self._held += nbytes


def _checked(request: Request, answer: Answer) -> Answer:
    """Return an answer, with an error if it is not what was asked for."""
    if answer.error is not None or answer.value is None:
        return answer
    nbytes, length = memoryview(answer.value).nbytes, request.byte_range.length
    if length is not None and nbytes != length:
        wrong = f"the store returned {nbytes} bytes of {request.key!r}, expected {length}"
    elif request.most_nbytes is not None and nbytes > request.most_nbytes:
        wrong = f"{request.key!r} has {nbytes} bytes; a chunk of this array has at most {request.most_nbytes}"
    else:
        return answer
    return Answer(None, error=ValueSizeError(wrong, key=request.key))
