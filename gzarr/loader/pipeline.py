"""The running of an epoch: reading blocks ahead, making batches ready ahead, giving them out.

One thread reads blocks of samples into the arrays of their batches, another one makes batches ready, and the consumer
takes them in order. Where samples overlap, the first thread reads slabs instead, and the second one gathers batches
from them. What is in memory is bounded: a block is read once there is room for it among what was read and is still
needed. An error takes the place of its batch.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from ..errors import ChunkDecodeError, GzarrError
from .like import consumer_stream, converted, converter
from .memory import memory_of
from .parts import place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from .epoch import Epoch
    from .like import Like
    from .slabs import Slabs

    IntArray = npt.NDArray[np.int64]

OnError: TypeAlias = "Literal['raise', 'skip'] | Callable[[Exception, int], object]"


class Batch(dict[str, Any]):
    """Arrays by name, each with the samples along its first axis.

    Attributes
    ----------
    samples
        int64 ``(n,)``, number of each sample: of the row, of the patch's cell in C order of its grid, or of the row in
        ``where=``. Of several volumes, the numbers go on from one to the next.
    volumes
        int64 ``(n,)``, number of each sample's volume.
    origins
        int64 ``(n, axes)``, the elements that each sample begins at, without its halo and runs.
    """

    __slots__ = ("origins", "samples", "volumes")

    samples: IntArray
    volumes: IntArray
    origins: IntArray


@dataclass(eq=False)
class _Open:
    """A batch that is being read."""

    arrays: list[Any]
    numbers: IntArray
    origins: IntArray
    filled: int = 0
    mark: Any = None
    bad: dict[int, Exception] = field(default_factory=dict)


@dataclass(eq=False)
class _Block:
    """The turns from ``begin`` to ``end``, whose batches are gathered from slabs."""

    begin: int
    end: int
    slabs: Slabs


@dataclass(eq=False)
class Ready:
    """What is given out next: a batch, or the error in its place.

    Attributes
    ----------
    value
        The batch, or the error.
    turns
        Samples that were read for it; 0 if there is no batch to go on with.
    mark
        Mark of the memory after which the batch is ready.
    failed
        Whether it is an error.
    """

    value: Any
    turns: int
    mark: Any = None
    failed: bool = False


@dataclass(eq=False)
class Stats:
    """Counters of an epoch; times in seconds."""

    samples: int = 0
    batches: int = 0
    skipped: int = 0
    reading_s: float = 0.0
    finishing_s: float = 0.0
    waiting_s: float = 0.0
    began: float = field(default_factory=time.perf_counter)


def most_held(epoch: Epoch, prefetch: int) -> int:
    """Return the most bytes of a rank that are read and still needed, unless a single block takes more."""
    if epoch.shares_slabs:
        return 2 * epoch.most_slab_bytes
    blocks = 2 * epoch.settings.block_bytes // epoch.world_size
    return max(blocks, (prefetch + 1) * epoch.batch_size * epoch.samples.sample_nbytes)


class _Work:
    """What the threads of an epoch share."""

    def __init__(
        self,
        epoch: Epoch,
        begin: int,
        prefetch: int,
        on_error: OnError,
        transform: Callable[[Batch], Any] | None,
    ) -> None:
        self.epoch = epoch
        self.volumes = epoch.samples.each
        self.sources, self.which = self.volumes[0].sources, self.volumes[0].which
        self.begin = begin
        self.first, self.end = epoch.first_turn(begin), epoch.end(begin)
        self.prefetch = prefetch
        self.on_error = on_error
        self.transform = transform
        self.memory = memory_of(self.sources[0].array.device)
        self.stats = Stats()
        self.open: dict[int, _Open] = {}
        self.shares_slabs = epoch.shares_slabs
        self.sample_nbytes = max(epoch.samples.sample_nbytes, 1)
        self.complete: deque[_Open | _Block | BaseException] = deque()
        self.ready: deque[Ready] = deque()
        self.changed = threading.Condition()
        self.stopped = False
        # Bytes that were read and are still needed: of slabs that are not gathered, or of samples that are not given
        # out; without those of batches that wait for the next block.
        self.held = 0
        self.most = most_held(epoch, prefetch)

    # -- reading

    def read(self, begin: int, end: int) -> Iterator[list[_Open]]:
        """Read the turns from ``begin`` to ``end``; yield batches as they are complete, in order."""
        numbers = self.epoch.numbers(begin, end)
        origins = self.epoch.origins(numbers)
        pieces = [(batch, rows) for batch, rows, _ in self._pieces(begin, end, numbers, origins)]
        try:
            self._read(numbers, origins, pieces)
        except GzarrError:
            for piece in pieces:
                self._read_alone(*piece)
                yield self._complete([piece])
        else:
            yield self._complete(pieces)

    def read_slabs(self, block: _Block) -> None:
        """Read the slabs of a block. If that fails, its batches are read one by one when they are gathered."""
        with contextlib.suppress(GzarrError):
            block.slabs.read(self.memory, self.epoch.most_slab_bytes)

    def gather(self, block: _Block) -> Iterator[_Open]:
        """Yield batches as they are complete with the samples of a block, in order."""
        slabs = block.slabs
        for batch, rows, turns in self._pieces(block.begin, block.end, slabs.numbers, slabs.origins):
            started = time.perf_counter()
            if slabs.is_read:
                slabs.gather(turns, [array[rows] for array in batch.arrays], self.memory)
            else:
                self._read_alone(batch, rows)
            self.stats.finishing_s += time.perf_counter() - started
            yield from self._complete([(batch, rows)])

    def _pieces(
        self, begin: int, end: int, numbers: IntArray, origins: IntArray
    ) -> Iterator[tuple[_Open, slice, slice]]:
        """Yield the batches of the turns from ``begin`` to ``end``, with the rows that these take, and which they are.

        Arrays are made when their batch's turn comes.
        """
        size = self.epoch.batch_size
        for step in range((begin - self.first) // size, (end - 1 - self.first) // size + 1):
            at = self.first + step * size
            count = min(size, self.end - at)
            if step not in self.open:
                arrays = [source.empty(count, self.memory) for source in self.sources]
                self.open[step] = _Open(
                    arrays, np.empty(count, np.int64), np.empty((count, origins.shape[1]), np.int64)
                )
            batch = self.open[step]
            low, high = max(begin, at), min(end, at + count)
            rows, turns = slice(low - at, high - at), slice(low - begin, high - begin)
            batch.numbers[rows], batch.origins[rows] = numbers[turns], origins[turns]
            yield batch, rows, turns

    def _complete(self, pieces: Sequence[tuple[_Open, slice]]) -> list[_Open]:
        """Return the batches that are complete now that some of their rows were read."""
        mark = self.memory.mark()
        for batch, rows in pieces:
            batch.filled += rows.stop - rows.start
            batch.mark = mark
        complete = [step for step, batch in sorted(self.open.items()) if batch.filled == len(batch.numbers)]
        return [self.open.pop(step) for step in complete]

    def _read(self, numbers: IntArray, origins: IntArray, pieces: Sequence[tuple[_Open, slice]]) -> None:
        """Read samples into rows of batches."""
        for volume, places, _ in self.epoch.cells.parts(numbers):
            for i, source in enumerate(self.volumes[volume].sources):
                outputs = [batch.arrays[i][rows] for batch, rows in pieces]
                rows = None if len(self.volumes) == 1 else places
                source.read(origins[places], outputs, self.memory, rows)

    def _read_alone(self, batch: _Open, rows: slice) -> None:
        """Read some rows of a batch, and if that fails, row by row, to find the samples that cannot be read."""
        try:
            self._read(batch.numbers[rows], batch.origins[rows], [(batch, rows)])
        except GzarrError as error:
            if self.on_error == "raise" and not isinstance(error, ChunkDecodeError):
                # A store that does not answer would be waited for again and again.
                batch.bad[rows.start] = error
                return
            for row in range(rows.start, rows.stop):
                one = slice(row, row + 1)
                try:
                    self._read(batch.numbers[one], batch.origins[one], [(batch, one)])
                except GzarrError as found:
                    batch.bad[row] = found

    # -- making ready

    def finish(self, batch: _Open) -> tuple[Any, Any]:
        """Return what the loader gives out for a batch, and the mark after which it is ready."""
        cells = self.epoch.cells
        labels, volumes = cells.labels(batch.numbers), cells.volumes(batch.numbers)
        arrays, origins, mark = batch.arrays, batch.origins, batch.mark
        if batch.bad:
            for row, error in batch.bad.items():
                begins = tuple(batch.origins[row].tolist())
                # Of an error that is not of one chunk, the first sample that was asked for.
                at = "in" if isinstance(error, ChunkDecodeError) else "from"
                error.add_note(f"({at} sample {int(labels[row])}, which begins at {begins})")
                if self.on_error == "raise":
                    raise error
                if callable(self.on_error):
                    self.on_error(error, int(labels[row]))
            self.stats.skipped += len(batch.bad)
            good = np.delete(np.arange(len(labels)), list(batch.bad))
            arrays = [self._some(array, good.tolist()) for array in arrays]
            labels, volumes, origins = labels[good], volumes[good], origins[good]
            mark = self.memory.mark()
        result = Batch()
        result.samples, result.volumes, result.origins = labels, volumes, origins
        place(result, self.epoch.samples.parts, [arrays[i] for i in self.which])
        return (result, mark) if self.transform is None else self.memory.transformed(self.transform, result, mark)

    def _some(self, array: Any, rows: list[int]) -> Any:
        """Return a copy of some rows."""
        results = self.memory.results
        some = results.empty((len(rows), *array.shape[1:]), array.dtype)
        for i, row in enumerate(rows):
            results.copy(some[i, ...], array[row, ...])
        return some

    # -- threads

    def run_reader(self) -> None:
        """Read all blocks, each as soon as there is room; the loop of the first thread."""
        try:
            for begin, end in itertools.pairwise(self.epoch.bounds(self.first, self.end)):
                block = self._block(begin, end)
                nbytes = (end - begin) * self.sample_nbytes if block is None else self._nbytes(block)
                with self.changed:
                    while not self.stopped and self.held and self.held + nbytes > self.most:
                        self.changed.wait()
                    if self.stopped:
                        return
                started = time.perf_counter()
                for done in self._done(begin, end, block):
                    with self.changed:
                        if self.stopped:
                            return
                        self.complete.extend(done)
                        self.held += sum(map(self._nbytes, done))
                        self.changed.notify_all()
                self.stats.reading_s += time.perf_counter() - started
        except BaseException as error:
            # Whatever it is, it is raised in the consumer's thread.
            with self.changed:
                self.complete.append(error)
                self.changed.notify_all()

    def _block(self, begin: int, end: int) -> _Block | None:
        """Return the block of some turns, if batches are gathered from slabs."""
        return _Block(begin, end, self.epoch.slabs(self.epoch.numbers(begin, end))) if self.shares_slabs else None

    def _done(self, begin: int, end: int, block: _Block | None) -> Iterator[Sequence[_Open | _Block]]:
        """Read some turns; yield the batches that are complete, or the block to gather them from."""
        if block is None:
            yield from self.read(begin, end)
        else:
            self.read_slabs(block)
            yield [block]

    def _nbytes(self, done: _Open | _Block) -> int:
        if isinstance(done, _Block):
            # Memory that is used again may have been written further.
            return max(done.slabs.nbytes, self.epoch.most_slab_bytes)
        return len(done.numbers) * self.sample_nbytes

    def run_finisher(self) -> None:
        """Make batches ready; the loop of the second thread."""
        try:
            while True:
                with self.changed:
                    self.changed.wait_for(lambda: self.stopped or self.complete)
                    if self.stopped:
                        return
                    results = self._results(self.complete.popleft())
                # Of a block, batches are gathered one after the other.
                while self._has_room() and (result := next(results, None)) is not None:
                    with self.changed:
                        self.ready.append(result)
                        self.changed.notify_all()
                    if result.failed and not result.turns:
                        return
        except BaseException as error:
            with self.changed:
                self.ready.append(Ready(error, 0, failed=True))
                self.changed.notify_all()

    def _has_room(self) -> bool:
        """Wait for room among the batches that are ready; return False if the epoch ends."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or len(self.ready) < self.prefetch)
            return not self.stopped

    def _results(self, done: _Open | _Block | BaseException) -> Iterator[Ready]:
        """Make batches ready."""
        if isinstance(done, BaseException):
            yield Ready(done, 0, failed=True)
        elif isinstance(done, _Open):
            yield self._finished(done)
        else:
            yield from map(self._finished, self.gather(done))
            with self.changed:
                self.held -= self._nbytes(done)
                self.changed.notify_all()

    def _finished(self, batch: _Open) -> Ready:
        """Make a batch ready."""
        started = time.perf_counter()
        try:
            value, mark = self.finish(batch)
            return Ready(value, len(batch.numbers), mark)
        except BaseException as error:
            return Ready(error, len(batch.numbers), failed=True)
        finally:
            self.stats.finishing_s += time.perf_counter() - started

    def take(self) -> Ready:
        """Wait for the next batch and return it."""
        started = time.perf_counter()
        with self.changed:
            self.changed.wait_for(lambda: self.stopped or self.ready)
            self.stats.waiting_s += time.perf_counter() - started
            if self.stopped:
                raise StopIteration
            result = self.ready.popleft()
            if not self.shares_slabs:
                self.held -= result.turns * self.sample_nbytes
            self.changed.notify_all()
        return result

    def inline(self) -> Iterator[Ready]:
        """Read and make ready without threads."""
        for begin, end in itertools.pairwise(self.epoch.bounds(self.first, self.end)):
            for done in self._done(begin, end, self._block(begin, end)):
                for item in done:
                    yield from self._results(item)

    def stop(self) -> None:
        """End the threads: at once while they wait, or after the block that is being read."""
        with self.changed:
            self.stopped = True
            self.complete.clear()
            self.ready.clear()
            self.changed.notify_all()
        self.memory.close()


class Pipeline:
    """Iterator over the batches of an epoch. When it is no longer used, its threads end.

    Parameters
    ----------
    epoch
        The epoch.
    begin
        Position of the order to go on from.
    prefetch, transform, on_error, copy, like
        As for :class:`gzarr.loader.Loader`.
    progress
        Function that is called with the number of batches given out, and with None at the end.
    """

    def __init__(
        self,
        epoch: Epoch,
        *,
        begin: int,
        prefetch: int,
        transform: Callable[[Batch], Any] | None,
        on_error: OnError,
        copy: bool,
        like: Like | None,
        progress: Callable[[int | None], None],
    ) -> None:
        self._work = work = _Work(epoch, begin, prefetch, on_error, transform)
        self._steps = epoch.steps(begin)
        self._given = 0
        self._copy = copy
        self._like, self._device = like, work.sources[0].array.device
        self._convert = converter(like, self._device)
        # The last batch given out, if its memory is used again.
        self._kept: Any = None
        self._progress = progress
        self._inline = None if prefetch else work.inline()
        self._close = weakref.finalize(self, work.stop)
        if prefetch and self._steps:
            for target in (work.run_reader, work.run_finisher):
                threading.Thread(target=target, name=f"gzarr-loader-{target.__name__}", daemon=True).start()

    def __iter__(self) -> Pipeline:
        return self

    def __next__(self) -> Any:
        """Return the next batch, or raise the error of one that cannot be read; the next call then goes on."""
        if self._given >= self._steps and not self._work.stopped:
            self._progress(None)
            self.close()
        if self._work.stopped:
            raise StopIteration
        work = self._work
        if self._kept is not None:
            # The consumer has enqueued what it does with the last batch.
            work.memory.take_back(consumer_stream(self._like, self._device))
            self._kept = None
        ready = work.take() if self._inline is None else next(self._inline)
        if ready.failed and not ready.turns:
            # The reading itself failed: there is no batch to go on with.
            self.close()
            raise ready.value
        self._given += 1
        self._progress(self._given)
        if ready.failed:
            raise ready.value
        work.stats.batches += 1
        work.stats.samples += ready.turns
        if not self._copy:
            self._kept = ready.value
        stream = consumer_stream(self._like, self._device)
        result = work.memory.hand_over(ready.value, ready.mark, stream, copy=self._copy)
        if self._convert is not None and isinstance(result, dict):
            return converted(result, self._convert)
        return result

    def close(self) -> None:
        """End the epoch and its threads."""
        self._close()

    @property
    def stats(self) -> Stats:
        """Counters."""
        return self._work.stats
