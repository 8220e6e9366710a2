"""The running of an epoch: reading blocks ahead, making batches ready ahead, giving them out.

One thread reads blocks of samples into the arrays of their batches, another one makes batches ready, and the consumer
takes them in order. What is in memory is bounded: a block is read once there is room for it among the samples that were
not given out. An error takes the place of its batch.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
import weakref
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from ..engines.monitor import Monitor, ReadCancelledError
from ..errors import ChunkDecodeError, GzarrError
from .like import consumer_stream, converted, converter
from .memory import memory_of
from .parts import place
from .stats import Stats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from .epoch import Epoch
    from .like import Like

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
class Ready:
    """What is given out next: a batch, or the error in its place.

    Attributes
    ----------
    value
        The batch, or the error.
    turns
        Samples that were read for it; 0 if there is no batch to go on with.
    skipped
        Those of them that the batch lacks.
    mark
        Mark of the memory after which the batch is ready.
    failed
        Whether it is an error.
    """

    value: Any
    turns: int
    mark: Any = None
    failed: bool = False
    skipped: int = 0


def most_held(epoch: Epoch, prefetch: int) -> int:
    """Return the most samples of a rank that are read and not given out, unless a single block has more."""
    block = max(epoch.settings.block_samples // epoch.world_size, 1)
    return max(2 * block, (prefetch + 1) * epoch.batch_size)


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
        self.monitor = Monitor()
        self.open: dict[int, _Open] = {}
        self.stopped = False
        self.most = most_held(epoch, prefetch)
        # An interrupt (Ctrl-C) in the consumer's thread leaves none of their locks taken, as it may a condition's.
        # None wakes those who wait when there is nothing more to come.
        self.complete: SimpleQueue[_Open | BaseException | None] = SimpleQueue()
        self.ready: SimpleQueue[Ready | None] = SimpleQueue()
        # Turns that were given out, and places for batches that are ready.
        self.freed: SimpleQueue[int] = SimpleQueue()
        self.places: SimpleQueue[None] = SimpleQueue()
        for _ in range(prefetch):
            self.places.put(None)

    # -- reading

    def read(self, begin: int, end: int) -> Iterator[list[_Open]]:
        """Read the turns from ``begin`` to ``end``; yield batches as they are complete, in order."""
        size = self.epoch.batch_size
        numbers = self.epoch.numbers(begin, end)
        origins = self.epoch.origins(numbers)
        pieces = []
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
            pieces.append((batch, rows))
        try:
            self._read(numbers, origins, pieces)
        except GzarrError:
            for piece in pieces:
                self._read_alone(*piece)
                yield self._complete([piece])
        else:
            yield self._complete(pieces)

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
        started = time.perf_counter()
        try:
            with self.monitor:
                self._read_parts(numbers, origins, pieces)
        finally:
            self.stats.add_read(time.perf_counter() - started, self.monitor.take())
            self.stats.chunks, self.stats.uses = self.monitor.chunks, self.monitor.uses

    def _read_parts(self, numbers: IntArray, origins: IntArray, pieces: Sequence[tuple[_Open, slice]]) -> None:
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
        # Turns that were read and not given out.
        held = 0
        try:
            for begin, end in itertools.pairwise(self.epoch.bounds(self.first, self.end)):
                while held and held + end - begin > self.most and not self.stopped:
                    held -= self.freed.get()
                if self.stopped:
                    return
                held += end - begin
                for done in self.read(begin, end):
                    # Nothing of a block is to be held while waiting for room for the next one.
                    while done:
                        self.complete.put(done.pop(0))
        except ReadCancelledError:
            return
        except BaseException as error:
            # Whatever it is, it is raised in the consumer's thread.
            self.complete.put(error)

    def run_finisher(self) -> None:
        """Make batches ready; the loop of the second thread."""
        for _ in range(self.epoch.steps(self.begin)):
            self.places.get()
            batch = self.complete.get()
            if self.stopped or batch is None:
                return
            result, last = self._finished(batch), isinstance(batch, BaseException)
            if self.stopped:
                return
            self.ready.put(result)
            if last:
                return
            # Not to be held while waiting for the next one.
            del batch, result

    def _finished(self, batch: _Open | BaseException) -> Ready:
        """Make a batch ready."""
        if isinstance(batch, BaseException):
            return Ready(batch, 0, failed=True)
        started = time.perf_counter()
        try:
            value, mark = self.finish(batch)
            return Ready(value, len(batch.numbers), mark, skipped=len(batch.bad))
        except BaseException as error:
            return Ready(error, len(batch.numbers), failed=True)
        finally:
            self.stats.transform_s += time.perf_counter() - started

    def take(self) -> Ready:
        """Wait for the next batch and return it."""
        result = self.ready.get()
        if result is None:
            self.ready.put(None)
            raise StopIteration
        self.freed.put(result.turns)
        self.places.put(None)
        return result

    def inline(self) -> Iterator[Ready]:
        """Read and make ready without threads."""
        for begin, end in itertools.pairwise(self.epoch.bounds(self.first, self.end)):
            for done in self.read(begin, end):
                yield from map(self._finished, done)

    def stop(self) -> None:
        """End the threads: at once while they wait, or after the requests and chunks that are being read."""
        self.stopped = self.monitor.cancelled = True
        waiting: tuple[SimpleQueue[Any], ...] = (self.complete, self.ready)
        for queue in waiting:
            with contextlib.suppress(Empty):
                while True:
                    queue.get_nowait()
            queue.put(None)
        self.freed.put(0)
        self.places.put(None)


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
        # When the consumer got the last batch.
        self._left: float | None = None
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
        try:
            return self._measured()
        except Exception:
            raise
        except BaseException:
            # After an interrupt, the traceback may keep this iterator for long.
            self.close()
            raise

    def _measured(self) -> Any:
        asked, stats = time.perf_counter(), self._work.stats
        if self._left is not None:
            stats.consumer_s += asked - self._left
        try:
            return self._next()
        finally:
            self._left = time.perf_counter()
            stats.waiting_s += self._left - asked

    def _next(self) -> Any:
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
        work.stats.samples += ready.turns - ready.skipped
        work.stats.skipped += ready.skipped
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
    def ended(self) -> bool:
        """Whether there are no more batches."""
        return self._work.stopped

    @property
    def steps(self) -> int:
        """Number of batches from the beginning of this iterator on."""
        return self._steps

    @property
    def stats(self) -> Stats:
        """Counters."""
        return self._work.stats
