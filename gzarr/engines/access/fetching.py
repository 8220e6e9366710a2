"""The requests of one read from a remote store, within a budget of bytes, and their answers.

Requests are sent in the order of the keys, as many at once as the store takes, as long as the bytes that were asked for
and not yet decoded stay within a budget. Answers are handed out as they arrive. Large values are fetched in parts side
by side: one connection is rarely as fast as the network.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ...errors import StoreError, ValueReplacedError, ValueSizeError
from ...guarded import Lock
from ...stores import io_threads
from ...stores.base import Answer, ByteRange, Request
from ...waiting import taken_from
from .answers import answered, answers, checked, flat_bytes, request_for
from .parts import Parts, part_bytes
from .sources import IN_SHARD, WHOLE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from ...stores.base import RemoteValues, RequestLimits
    from .access import ReadRequest
    from .sources import Spans

    IntArray = npt.NDArray[np.int64]

#: Share of the bytes needed that may be read in vain to save requests.
WASTE: Final = 0.1
#: Most chunks and bytes that one thread takes at a time.
BATCH_CHUNKS: Final = 64
BATCH_BYTES: Final = 8 << 20


class _Sent(NamedTuple):
    """A request in progress: its span, the part of it, the bytes that room was made for, and the request."""

    span: int
    part: int
    nbytes: int
    request: Request


class _Found(NamedTuple):
    """An answer: the rows of its chunks, the byte range that was asked for, and the bytes to make room for after it."""

    rows: IntArray
    offset: int
    nbytes: int
    answer: Answer
    room: int


class Fetching:
    """The requests of one read, and their answers.

    A store that keeps many requests in progress by itself takes them one by one (:class:`RequestStream`); those to
    others are sent by I/O threads. These threads make or wait for room; the engine's threads wait for answers, and give
    room back. Only the former take a lock: an interrupt (Ctrl-C), which comes to the main thread, leaves none taken.

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
        self._streams = limits.streams
        self._hand_over = hand_over
        self._done: SimpleQueue[_Found | None] = SimpleQueue()
        self._released: SimpleQueue[int] = SimpleQueue()
        self._lock = Lock()
        # Bytes that were asked for and not released, the next turn, and turns without an answer.
        self._held = self._next = 0
        self._left = number
        self._blocked = self._closed = self._took = False

    def start(self) -> None:
        """Begin to send requests."""
        if self._streams is not None and self._streams.answer_each(self):
            return
        self._streams = None
        for _ in range(self._senders):
            self._submit(self._send)

    def close(self) -> None:
        """Send no more requests, and wake everyone who waits."""
        self._closed = True
        self._end()
        if self._streams is not None:
            self._streams.give_up()

    def has_ended(self) -> bool:
        """Return whether there will be no more requests."""
        return self._closed or self._next >= self._number

    def is_given_up(self) -> bool:
        """Return whether nobody waits for answers any more."""
        return self._closed

    def release(self, nbytes: int) -> None:
        """Make room for further requests."""
        self._released.put(nbytes)
        if self._blocked and self._streams is not None:
            self._blocked = False
            self._streams.look_again()

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
        entry: _Found | None = first
        while entry is not None:
            room += entry.room
            rows.append(entry.rows)
            parts = self._parts(entry)
            values.extend(parts)
            nbytes += sum([len(part) for part in parts if part is not None])
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

    def _parts(self, found: _Found) -> list[Any]:
        """Return the encoded bytes of some chunks, from the answer to a request for a byte range of their value."""
        rows, answer = found.rows, found.answer
        if answer.error is not None:
            raise self._request.store_failure(int(rows[0]), answer.error) from answer.error
        sources = self._request.sources
        if answer.value is None:
            if sources.packing is not None:
                # Chunks are in a value that exists, as its directory was read.
                erased = ValueReplacedError(f"{sources.keys[0]!r} of {self._store!r} was erased meanwhile")
                raise self._request.store_failure(int(rows[0]), erased) from erased
            return [None] * len(rows)
        if found.nbytes == WHOLE:
            return [answer.value]
        if found.nbytes == IN_SHARD:
            assert sources.find_in_shard is not None
            sources.find_in_shard(rows, answer)
            self._request.refuse_large(rows)
        parts = zip(rows.tolist(), sources.parts(rows, found.offset, answer.value), strict=True)
        return [None if part is None else self._unwrapped(row, part) for row, part in parts]

    def _unwrapped(self, row: int, part: memoryview) -> Any:
        """Return the encoded bytes of a chunk, from those that were asked for."""
        packing = self._request.sources.packing
        if packing is None or packing.unwrap is None:
            return part
        try:
            return flat_bytes(
                self._store, self._request.sources.key(row), packing.unwrap(int(packing.index[row]), part)
            )
        # Third-party stores may raise anything.
        except Exception as error:
            raise self._request.store_failure(row, error) from error

    # -- in threads of the store, or I/O threads

    def next_request(self, *, waits: bool = False) -> tuple[_Sent, Request] | None:
        """Return the next request; None at the end, or if there is no room for it and the caller does not wait.

        Room for a large value is made before its first part is asked for.
        """
        waited = False
        while True:
            with self._lock:
                found, full = self._next_with_room()
                took, self._took = self._took, False
            ready = not full or not waits
            if took or (ready and waited):
                # In place of the entries that were taken: others who wait look again, for room or for the end.
                self._released.put(0)
            if ready:
                return found
            # Not with the lock: another thread may need it to send what will make room.
            nbytes = self._released.get()
            waited = True
            with self._lock:
                self._held -= nbytes

    def _next_with_room(self) -> tuple[tuple[_Sent, Request] | None, bool]:
        """Return the next request, or None; and whether that is for want of room."""
        while not self.has_ended():
            span, part = self._turns[self._next] if self._turns else (self._next, 0)
            parts = self._divided.get(span)
            nbytes = self._expected(span) if parts is None else parts.nbytes
            if not part and not self._makes_room(nbytes):
                return None, True
            self._next += 1
            request = self._asked(span) if parts is None else parts.request(part)
            if request is not None:
                return (_Sent(span, part, nbytes, request), request), False
            # Another part of the value has failed.
            self._left -= 1
            if not self._left:
                self._end()
        return None, False

    def answered(self, token: _Sent, answer: Answer) -> None:
        """Take the answer to a request."""
        span = token.span
        parts = self._divided.get(span)
        found: Answer | None
        found = answer = checked(self._store, token.request, answer)
        if parts is not None:
            found = parts.put(token.part, answer)
            if found is not None and isinstance(found.error, ValueReplacedError) and self._spans.nbytes[span] == WHOLE:
                # With one request, it does not matter which of the values it is.
                self._follow(partial(self._ask_again, token))
                return
        elif answer.value is not None and self._spans.nbytes[span] == WHOLE:
            self._largest = max(self._largest, memoryview(answer.value).nbytes)
        if found is not None and isinstance(found.error, ValueSizeError) and self._is_joined(span):
            self._follow(partial(self._ask_one_by_one, token))
            return
        if found is not None and not self._closed:
            self._finished(self._of_span(span, found, token.nbytes))
        self._count()

    def _ask_again(self, token: _Sent) -> None:
        answer = self._answers([self._asked(token.span)])[0]
        if not self._closed:
            self._finished(self._of_span(token.span, answer, token.nbytes))
        self._count()

    def _ask_one_by_one(self, token: _Sent) -> None:
        """Ask for the chunks of a span alone, to find the one whose range is wrong."""
        sources, rows = self._request.sources, self._spans.of(token.span)
        for i, row in enumerate(rows.tolist()):
            if self._closed:
                break
            index, offset, nbytes = int(sources.key_index[row]), int(sources.offset[row]), int(sources.nbytes[row])
            answer = self._answers([request_for(sources, index, offset, nbytes, self._request.most_encoded)])[0]
            ends = answer.error is not None or i == len(rows) - 1
            some = rows[i:] if ends else rows[i : i + 1]
            self._finished(_Found(some, offset, nbytes, answer, token.nbytes if ends else 0))
            if ends:
                break
        self._count()

    def _count(self) -> None:
        """Count an answer; after the last one, those who wait learn that there are no more."""
        with self._lock:
            self._left -= 1
            last = not self._left
        if last:
            self._end()

    def _end(self) -> None:
        for _ in range(self._senders):
            self._released.put(0)
        for _ in range(self._consumers):
            self._done.put(None)

    def _is_joined(self, span: int) -> bool:
        """Return whether a span is a byte range of several chunks."""
        return bool(
            self._spans.nbytes[span] != IN_SHARD and self._spans.bounds[span + 1] - self._spans.bounds[span] > 1
        )

    def _of_span(self, span: int, answer: Answer, room: int) -> _Found:
        return _Found(self._spans.of(span), int(self._spans.offset[span]), int(self._spans.nbytes[span]), answer, room)

    def _finished(self, found: _Found) -> None:
        """Hand over an answer."""
        if self._hand_over is None:
            self._done.put(found)
            return
        value = found.answer.value
        # What it takes to find them, and an error, are for the thread that waits: I/O threads send the next requests.
        self._hand_over(found.rows, partial(self._parts, found), 0 if value is None else memoryview(value).nbytes)

    def _makes_room(self, nbytes: int) -> bool:
        """Count bytes that will be asked for if there is room; return whether there is."""
        self._take_released()
        if self._held and self._held + nbytes > self._budget:
            # Whoever makes room from now on says so.
            self._blocked = True
            self._take_released()
            if self._held and self._held + nbytes > self._budget:
                return False
        self._held += nbytes
        return True

    def _take_released(self) -> None:
        with contextlib.suppress(Empty):
            while True:
                self._held -= self._released.get_nowait()
                # Each entry would have woken a thread that waits.
                self._took = self._streams is None

    # -- in I/O threads

    def _submit(self, task: Callable[[], None]) -> None:
        io_threads.submit(partial(self._run, task), self.is_given_up)

    def _follow(self, task: Callable[[], None]) -> None:
        """Run a task that sends further requests in an I/O thread, not in one of the store."""
        if io_threads.is_one():
            # Not later: all I/O threads may come to wait for the room that it keeps.
            task()
        else:
            self._submit(task)

    def _run(self, task: Callable[[], None]) -> None:
        """Run a task; whatever it raises, the thread goes on, and those who wait learn of it."""
        try:
            task()
        except BaseException as error:
            self._finished(_Found(self._spans.rows, 0, 0, Answer(None, error=_as_exception(error)), 0))

    def _send(self) -> None:
        """Send requests one after the other, until there are no more or other reads wait for threads."""
        if not io_threads.is_one():
            # No thread can be had: this one, which would make room, sends the requests first.
            self._budget = math.inf
        while sent := self._next_requests():
            answers_ = self._answers([request for _, request in sent])
            for (token, _), answer in zip(sent, answers_, strict=True):
                self.answered(token, answer)
            if io_threads.others_wait():
                self._submit(self._send)
                return

    def _next_requests(self) -> list[tuple[_Sent, Request]]:
        """Wait for room; return the requests of a call."""
        found: list[tuple[_Sent, Request]] = []
        while len(found) < self._each and (asked := self.next_request(waits=not found)) is not None:
            found.append(asked)
        return found

    def _asked(self, i: int) -> Request:
        """Return the request for a span."""
        columns, most = self._spans, self._request.most_encoded
        place = int(columns.key_index[i]), int(columns.offset[i]), int(columns.nbytes[i])
        return request_for(self._request.sources, *place, most)

    def _answers(self, asked: Sequence[Request]) -> list[Answer]:
        try:
            return answered(self._store, asked)
        # Third-party stores may raise anything, and so may what is compiled.
        except BaseException as error:
            return [Answer(None, error=_as_exception(error))] * len(asked)

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


def _as_exception(error: BaseException) -> Exception:
    """Return an error that a caller's thread may raise, such as for an interrupt that came to another one."""
    return error if isinstance(error, Exception) else StoreError(f"{type(error).__name__}: {error}")
