"""The work of an epoch: reading blocks ahead, and making batches ready ahead.

One thread reads blocks of samples into the arrays of their batches, another one makes batches ready, and the consumer
takes them in order. Where samples overlap, the first thread reads slabs instead, and the second one gathers batches
from them. What is in memory is bounded: a block is read once there is room for it among what was read and is still
needed. An error takes the place of its batch.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

from ..engines.monitor import Monitor, ReadCancelledError
from ..engines.pool import thread_count
from ..errors import ChunkDecodeError, GzarrError
from ..sparse.kept_rows import SparseRows
from ..waiting import taken_from
from .ahead import ReadAhead, are_remote
from .batch import Batch
from .documents import ArraysChangedError
from .keeping import Keeping
from .kept import ChunkMemory, Kept, Wanted
from .measured import Measured
from .memory import memory_of
from .permutation import mix
from .stats import Stats

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from .documents import Documents
    from .epoch import Epoch
    from .like import Like
    from .memory import Memory
    from .pinned import PinnedResults
    from .reading import Reading, Source
    from .row_slabs import RowSlabs
    from .slabs import Slabs
    from .volumes import Volume

    IntArray = npt.NDArray[np.int64]

#: Tells seeds of batches from what else is drawn.
_BATCHES: Final = 0xBA7C4

OnError: TypeAlias = "Literal['raise', 'skip'] | Callable[[Exception, int], object]"


@dataclass(eq=False)
class _Open:
    """A batch that is being read, whose first sample is that of a rank's turn."""

    turn: int
    arrays: list[Any]
    numbers: IntArray
    origins: IntArray
    filled: int = 0
    mark: Any = None
    bad: dict[int, Exception] = field(default_factory=dict)


@dataclass(eq=False)
class _BlockOfEpoch:
    """The turns from ``begin`` to ``end``, whose batches are gathered from slabs."""

    begin: int
    end: int
    slabs: Slabs | RowSlabs


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


def most_held(epoch: Epoch) -> int:
    """Return the most bytes of a rank's samples that are read and still needed, unless a single group takes more."""
    if epoch.shares_slabs:
        return 2 * epoch.most_bytes
    return max(2 * epoch.most_bytes, (epoch.prefetch + 1) * epoch.batch_size * epoch.samples.sample_nbytes)


def decoding_bytes(source: Source) -> int:
    """Return about how many bytes the threads of a read take for encoded and decoded chunks."""
    array = source.array
    return 2 * thread_count() * math.prod(array.chunks) * array.dtype.itemsize


@dataclass(frozen=True, slots=True, eq=False)
class Giving:
    """What becomes of samples that were read.

    Attributes
    ----------
    transform, on_error, copy, like
        As for :class:`gzarr.loader.Loader`.
    pinned
        Page-locked memory for the batches, or None.
    static
        Arrays of which each batch has a copy, by name.
    """

    transform: Callable[[Batch], Any] | None
    on_error: OnError
    copy: bool
    like: Like | None
    pinned: PinnedResults | None
    static: Mapping[str, Any]


def _called(name: str, function: Callable[..., Any], *given: Any) -> Any:
    """Return what a user's function returns. Its StopIteration, which would end the epoch, becomes an error."""
    try:
        return function(*given)
    except StopIteration as error:
        raise RuntimeError(f"{name} raised StopIteration") from error


class EpochWork:
    """What the threads of an epoch share."""

    def __init__(
        self,
        epoch: Epoch,
        begin: int,
        giving: Giving,
        documents: Documents,
    ) -> None:
        self.epoch = epoch
        self.volumes: list[Volume] = epoch.samples.each
        self.reading: Reading = self.volumes[0].reading
        self.device: str = self.reading.sources[0].array.device
        self.giving = giving
        self.begin = begin
        self.first: int = epoch.first_turn(begin)
        self.end: int = epoch.end(begin)
        self.bounds: list[int] = epoch.bounds(self.first, self.end)
        self.memory: Memory = memory_of(self.device, giving.pinned)
        room = epoch.kept_bytes
        keeping = Keeping(epoch, self.bounds, room) if room else None
        self.kept: Kept | None = None
        if keeping is not None:
            self.kept = Kept(keeping, ChunkMemory(self.memory, room), at_once=epoch.most_bytes)
        self.stats: Stats = Stats()
        self.monitor: Monitor = Monitor()
        self._measured: Callable[[], Measured] = partial(Measured, self.monitor, self.stats, documents)
        self.open: dict[int, _Open] = {}
        # Batches with errors that were not told.
        self.failed: list[_Open] = []
        self.shares_slabs: bool = epoch.shares_slabs
        self.sample_nbytes: int = max(epoch.samples.sample_nbytes, 1)
        self.stopped: bool = False
        self.most: int = most_held(epoch)
        if not self.shares_slabs:
            # Decoding takes memory too: while it does, so much less is held, within reason. Slabs are freed at once.
            self.most -= min(max(map(decoding_bytes, self.reading.sources)), self.most // 4)
        self.ahead: ReadAhead | None = None
        # Without threads of the loader's own, nothing is asked for ahead.
        if epoch.prefetch and are_remote(epoch):
            if keeping is None and not self.shares_slabs:
                keeping = Keeping(epoch, self.bounds, 0)
            self.monitor.ahead = self.ahead = ReadAhead(epoch, self.bounds, self.most, keeping)
        # An interrupt (Ctrl-C) in the consumer's thread leaves none of their locks taken, as it may a condition's.
        # None wakes those who wait when there is nothing more to come.
        self.complete: SimpleQueue[_Open | _BlockOfEpoch | BaseException | None] = SimpleQueue()
        self.ready: SimpleQueue[Ready | None] = SimpleQueue()
        # Bytes that are no longer needed, and places for batches that are ready.
        self.freed: SimpleQueue[int] = SimpleQueue()
        self.places: SimpleQueue[None] = SimpleQueue()
        for _ in range(min(epoch.prefetch, epoch.steps(begin))):
            self.places.put(None)

    # -- reading

    def read(self, begin: int, end: int) -> Iterator[list[_Open]]:
        """Read the turns from ``begin`` to ``end``; yield batches as they are complete, in order."""
        numbers = self.epoch.numbers(begin, end)
        origins = self.epoch.origins(numbers)
        pieces = [(batch, rows) for batch, rows, _ in self._pieces(begin, end, numbers, origins)]
        try:
            if self.kept is None:
                self._read(numbers, origins, pieces)
            else:
                self._read_kept(self.kept, numbers, origins, pieces)
        except GzarrError:
            for piece in pieces:
                self._read_alone(*piece)
                yield self._complete([piece])
        else:
            yield self._complete(pieces)

    def read_slabs(self, block: _BlockOfEpoch) -> None:
        """Read the slabs of a block. If that fails, its batches are read one by one when they are gathered."""
        slabs = block.slabs
        with contextlib.suppress(GzarrError), self._measured():
            uses = self.monitor.uses
            slabs.read(self.memory, self.epoch.most_slab_bytes)
            # Of each sample, not of the boxes.
            self.monitor.uses = uses + slabs.uses

    def gather(self, block: _BlockOfEpoch) -> Iterator[_Open]:
        """Yield batches as they are complete with the samples of a block, in order."""
        slabs = block.slabs
        for first, numbers, origins in slabs.told():
            begin = block.begin + first
            for batch, rows, turns in self._pieces(begin, begin + len(numbers), numbers, origins):
                if slabs.is_read:
                    started = time.perf_counter()
                    slabs.gather(turns, [array[rows] for array in batch.arrays], self.memory)
                    self.stats.decoder_s += time.perf_counter() - started
                else:
                    self._read_alone(batch, rows)
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
                arrays = [output.empty(count, self.memory) for output in self.reading.outputs]
                self.open[step] = _Open(
                    at, arrays, np.empty(count, np.int64), np.empty((count, origins.shape[1]), np.int64)
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
        with self._measured():
            for volume, places, _ in self.epoch.cells.parts(numbers):
                for source in self.volumes[volume].sources:
                    outputs = [batch.arrays[source.number][taken] for batch, taken in pieces]
                    rows = None if len(self.volumes) == 1 else places
                    source.read(origins[places], outputs, self.memory, rows)

    def _read_kept(
        self, kept: Kept, numbers: IntArray, origins: IntArray, pieces: Sequence[tuple[_Open, slice]]
    ) -> None:
        """Read the samples of the next read into rows of batches, with the chunks that stay decoded."""
        with self._measured():
            step = kept.keeping.step() if self.ahead is None else self.ahead.next_step()
            first = kept.keeping.chunks.first
            wanted = []
            for volume, places, _ in self.epoch.cells.parts(numbers):
                rows = None if len(self.volumes) == 1 else places
                for i, source in enumerate(self.volumes[volume].sources):
                    outputs = [batch.arrays[source.number][taken] for batch, taken in pieces]
                    wanted.append(Wanted(source, first[volume][i], origins[places], outputs, self.memory, rows))
            uses = self.monitor.uses
            self.monitor.uses = uses + kept.read(wanted, step.stay)

    def _read_alone(self, batch: _Open, rows: slice) -> None:
        """Read some rows of a batch, and if that fails, row by row, to find the samples that cannot be read."""
        try:
            self._read(batch.numbers[rows], batch.origins[rows], [(batch, rows)])
        except GzarrError as error:
            if self.giving.on_error == "raise" and not isinstance(error, ChunkDecodeError):
                # A store that does not answer would be waited for again and again.
                self._add_failure(batch, rows.start, error)
                return
            for row in range(rows.start, rows.stop):
                one = slice(row, row + 1)
                try:
                    self._read(batch.numbers[one], batch.origins[one], [(batch, one)])
                except GzarrError as found:
                    self._add_failure(batch, row, found)

    def _add_failure(self, batch: _Open, row: int, error: Exception) -> None:
        if not batch.bad:
            self.failed.append(batch)
        batch.bad[row] = error

    # -- making ready

    def finish(self, batch: _Open) -> tuple[Any, Any]:
        """Return what the loader gives out for a batch, and the mark after which it is ready."""
        cells = self.epoch.cells
        labels, volumes = cells.labels(batch.numbers), cells.volumes(batch.numbers)
        begins = self.epoch.samples.begins(batch.origins, volumes)
        arrays, mark = batch.arrays, batch.mark
        if batch.bad:
            good = np.delete(np.arange(len(labels)), list(batch.bad))
            self._tell(batch, labels, begins)
            arrays = [self._some(array, good.tolist()) for array in arrays]
            labels, volumes, begins = labels[good], volumes[good], begins[good]
            mark = self.memory.mark()
        result = Batch()
        result.samples, result.volumes, result.origins = labels, volumes, begins
        result.flipped = self.epoch.samples.flipped
        result.seed = self._seed(batch.turn)
        result.update(self.giving.static)
        self.reading.place(result, arrays)
        if any(output.sparse is not None for output in self.reading.outputs):
            # Rows that stay sparse are put together only now.
            mark = self.memory.mark()
        # Whoever has a batch may change it in place.
        mark = self.reading.separate(result, self.memory, mark)
        if self.giving.static:
            copies, mark = self.memory.copied(self.giving.static, mark)
            result.update(copies)
        transform = self.giving.transform
        if transform is None:
            return result, mark
        return self.memory.transformed(partial(_called, "transform=", transform), result, mark)

    def _seed(self, turn: int) -> int:
        """Return the seed of the batch of a turn: by its position in the order, where no other one begins."""
        epoch = self.epoch
        return mix(epoch.settings.seed, epoch.number, _BATCHES, epoch.rank + epoch.world_size * turn) >> 1

    def _tell(self, batch: _Open, labels: IntArray, begins: IntArray) -> None:
        """Raise the errors of a batch, or call the function for them, with the samples' labels."""
        bad, batch.bad = batch.bad, {}
        error = None
        try:
            with contextlib.suppress(ValueError):
                self.failed.remove(batch)
            for row, error in bad.items():
                # Of an error that is not of one chunk, the first sample that was asked for.
                at = "in" if isinstance(error, ChunkDecodeError) else "from"
                error.add_note(f"({at} sample {int(labels[row])}, which begins at {tuple(begins[row].tolist())})")
                if self.giving.on_error == "raise":
                    raise error
                if callable(self.giving.on_error):
                    _called("on_error=", self.giving.on_error, error, int(labels[row]))
        finally:
            # An error's traceback has this frame: they would keep each other until garbage is collected.
            del bad, error

    def _empty_queues(self) -> None:
        """Let go of what nobody takes any more, and wake who waits: what a thread puts in last may be an error."""
        waiting: tuple[SimpleQueue[Any], ...] = (self.complete, self.ready)
        for queue in waiting:
            with contextlib.suppress(Empty):
                while True:
                    queue.get_nowait()
            queue.put(None)

    def _forget_failures(self) -> None:
        """Forget errors that will not be told: their tracebacks have the batches that have them."""
        with contextlib.suppress(IndexError):
            while True:
                self.failed.pop().bad = {}

    def _some(self, array: Any, rows: list[int]) -> Any:
        """Return a copy of some rows."""
        if isinstance(array, SparseRows):
            return array.taken(rows)
        results = self.memory.results
        some = results.empty((len(rows), *array.shape[1:]), array.dtype)
        for i, row in enumerate(rows):
            results.copy(some[i, ...], array[row, ...])
        return some

    # -- threads

    def run_reader(self) -> None:
        """Read all blocks, each as soon as there is room; the loop of the first thread."""
        # Bytes that were read and are still needed: of slabs that are not gathered, or of samples that are not given
        # out; without batches that wait for the next block.
        held = 0
        try:
            for begin, end in itertools.pairwise(self.bounds):
                block = self._block(begin, end)
                nbytes = (end - begin) * self.sample_nbytes if block is None else self._nbytes(block)
                while held and held + nbytes > self.most and not self.stopped:
                    held -= self.freed.get()
                if self.stopped:
                    return
                if self.ahead is not None:
                    self.ahead.begin(nbytes)
                for done in self._done(begin, end, block):
                    # Nothing of a block is to be held while waiting for room for the next one.
                    while done:
                        held += self._nbytes(done[0])
                        self.complete.put(done.pop(0))
                del block
        except ReadCancelledError:
            return
        except ArraysChangedError as error:
            self.complete.put(error.__cause__)
        except BaseException as error:
            # Whatever it is, it is raised in the consumer's thread.
            self.complete.put(error)
        finally:
            if self.kept is not None:
                self.kept.clear()
            if self.stopped:
                self._empty_queues()
                self._forget_failures()

    def _block(self, begin: int, end: int) -> _BlockOfEpoch | None:
        """Return the block of some turns, if batches are gathered from slabs."""
        if not self.shares_slabs:
            return None
        slabs = self.epoch.slabs(begin, end) if self.ahead is None else self.ahead.next_slabs()
        return _BlockOfEpoch(begin, end, slabs)

    def _done(self, begin: int, end: int, block: _BlockOfEpoch | None) -> Iterator[list[_Open | _BlockOfEpoch]]:
        """Read some turns; yield the batches that are complete, or the block to gather them from."""
        if block is None:
            yield from map(list, self.read(begin, end))
        else:
            self.read_slabs(block)
            yield [block]

    def _nbytes(self, done: _Open | _BlockOfEpoch) -> int:
        if isinstance(done, _BlockOfEpoch):
            # Memory that is used again may have been written further.
            return max(done.slabs.nbytes, self.epoch.most_slab_bytes)
        return len(done.numbers) * self.sample_nbytes

    def run_finisher(self) -> None:
        """Make batches ready; the loop of the second thread."""
        left = self.epoch.steps(self.begin)
        try:
            while left:
                done = self.complete.get()
                if self.stopped or done is None:
                    return
                results = self._results(done)
                # Nothing of a batch or a block is to be held while waiting for the next one.
                del done
                # Of a block, batches are gathered one after the other.
                while (result := self._next_of(results)) is not None:
                    left -= 1
                    ended = result.failed and not result.turns
                    self.ready.put(result)
                    del result
                    if ended:
                        return
                del results
        except ReadCancelledError:
            return
        except ArraysChangedError as error:
            self.ready.put(Ready(error.__cause__, 0, failed=True))
        except BaseException as error:
            self.ready.put(Ready(error, 0, failed=True))
        finally:
            if self.stopped:
                self._empty_queues()
                self._forget_failures()

    def _next_of(self, results: Iterator[Ready]) -> Ready | None:
        """Wait for a place and return the next batch for it; None if there are no more, or the epoch ends."""
        self.places.get()
        result = None if self.stopped else next(results, None)
        try:
            if result is None or self.stopped:
                self.places.put(None)
                return None
            return result
        finally:
            # An error's traceback has this frame: they would keep each other until garbage is collected.
            del result

    def _results(self, done: _Open | _BlockOfEpoch | BaseException) -> Iterator[Ready]:
        """Make batches ready."""
        if isinstance(done, BaseException):
            yield Ready(done, 0, failed=True)
        elif isinstance(done, _Open):
            yield self._finished(done)
        else:
            nbytes = self._nbytes(done)
            yield from map(self._finished, self.gather(done))
            # Its memory is free before the next block is read.
            del done
            self._free(nbytes)

    def _finished(self, batch: _Open) -> Ready:
        """Make a batch ready."""
        started, bad = time.perf_counter(), len(batch.bad)
        try:
            value, mark = self.finish(batch)
            return Ready(value, len(batch.numbers), mark, skipped=bad)
        except BaseException as error:
            return Ready(error, len(batch.numbers), failed=True)
        finally:
            self.stats.transform_s += time.perf_counter() - started

    def take(self) -> Ready:
        """Wait for the next batch and return it."""
        result = taken_from(self.ready)
        if result is None:
            self.ready.put(None)
            raise StopIteration
        if not self.shares_slabs:
            self._free(result.turns * self.sample_nbytes)
        self.places.put(None)
        return result

    def _free(self, nbytes: int) -> None:
        """Tell that a number of bytes is no longer needed."""
        self.freed.put(nbytes)
        if self.ahead is not None:
            self.ahead.free(nbytes)

    def inline(self) -> Generator[Ready]:
        """Read and make ready without threads."""
        for begin, end in itertools.pairwise(self.bounds):
            for done in self._done(begin, end, self._block(begin, end)):
                for item in done:
                    yield from self._results(item)

    def next_inline(self, inline: Iterator[Ready]) -> Ready:
        """Return the next batch of :meth:`inline`."""
        try:
            return next(inline)
        except ArraysChangedError as error:
            return Ready(error.__cause__, 0, failed=True)

    def stop(self) -> None:
        """End the threads: at once while they wait, or after the requests and chunks that are being read."""
        self.stopped = self.monitor.cancelled = True
        self._empty_queues()
        self.freed.put(0)
        self.places.put(None)
        if self.ahead is not None:
            self.ahead.stop()
        if self.kept is not None and not self.epoch.prefetch:
            self.kept.clear()
        self._forget_failures()
        self.memory.close()
