"""Which chunks stay decoded from one read of an epoch to the next.

The order of an epoch is known, and so is the next use of each chunk. After each read, those that are used soonest stay,
as many as there is room for: what is used farthest ahead, or no more, makes way (L. A. Bélády, "A study of replacement
algorithms for a virtual-storage computer", 1966). A chunk that does not stay is decoded right into the batches. Only so
much of the order is looked at ahead, which bounds the time before the first batch, also when an epoch is resumed.

Shuffled blocks (:mod:`gzarr.loader.order`) keep nothing: their groups are such that hardly any chunk is in two of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from ..plan.planner import plan_windows
from ..stores.base import RemoteValues

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ..plan.planner import Plan
    from .order import Order
    from .reading import Source
    from .volumes import Volumes, VolumesCells

    IntArray = npt.NDArray[np.int64]

#: Uses of chunks that are looked at ahead, and samples that are planned at a time.
_AHEAD: Final = 1 << 15
_AT_ONCE: Final = 1 << 12
#: Reads that share the buffer with chunks that stay: each of the two in memory takes this part of it.
_PARTS: Final = (7 / 16, 1 / 4, 1 / 16)
#: Samples, uses of chunks and reads that are tried to choose among them; no reads of more samples are tried.
_TRIED_SAMPLES: Final = 1 << 11
_TRIED_USES: Final = 1 << 14
_TRIED_READS: Final = 2
_MOST_TRIED: Final = 1 << 15
#: Most reads that are listed to try some: each has at least one use, so these have as many as are tried, and as many
#: as are looked at ahead of them.
_MOST_READS: Final = 1 << 17
#: To copy a byte costs about so much of decoding one, unless that has to be fetched from a remote store, too.
_COPYING: Final = 0.1
#: A read of few samples costs about so many bytes more: where windows around poses leave room for few.
_READING: Final = 4 << 20
#: What stays has to save this part of the costs.
_WORTH: Final = 0.02
_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Reads:
    """How an epoch is read.

    Attributes
    ----------
    turns
        Most turns that are read together.
    room
        Most bytes of chunks that stay decoded from one read to the next; 0 for none.
    """

    turns: int
    room: int = 0


class Drawn(Protocol):
    """An epoch of a rank: which samples it has, one turn after the other (:class:`gzarr.loader.epoch.Epoch`)."""

    @property
    def samples(self) -> Volumes:
        """All samples."""

    @property
    def settings(self) -> Order:
        """How the order is made."""

    @property
    def batch_size(self) -> int:
        """Samples of a batch of one rank."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    @property
    def prefetch(self) -> int:
        """Batches that are made ready ahead."""

    @property
    def cells(self) -> VolumesCells:
        """The cells of this epoch."""

    def end(self, cursor: int) -> int:
        """Return the end of the rank's turns if the epoch goes on from a position."""

    def numbers(self, begin: int, end: int) -> IntArray:
        """Return the samples of some turns."""

    def origins(self, numbers: IntArray) -> IntArray:
        """Return the origins of samples, int64 ``(n, axes)``."""


class Chunks:
    """Numbers for all chunks of all arrays of an epoch.

    Parameters
    ----------
    sources
        The sources of each volume.

    Attributes
    ----------
    first
        Number of the first chunk of each source, for each volume.
    total_bytes
        Bytes of all chunks, decoded.
    sizes
        Bytes of chunks, each once, and the bytes of all chunks of that size.
    """

    def __init__(self, sources: Sequence[Sequence[Source]]) -> None:
        self._sources = sources
        counts = [source.nchunks for each in sources for source in each]
        self._ends = np.cumsum(counts)
        self._nbytes = np.array([source.chunk_nbytes for each in sources for source in each], np.int64)
        begins = iter((self._ends - counts).tolist())
        self.first: list[list[int]] = [[next(begins) for _ in each] for each in sources]
        self.sizes: dict[int, int] = {}
        for nbytes, count in zip(self._nbytes.tolist(), counts, strict=True):
            self.sizes[nbytes] = self.sizes.get(nbytes, 0) + nbytes * count
        self.total_bytes: int = sum(self.sizes.values())

    def nbytes(self, numbers: IntArray) -> IntArray:
        """Return the bytes of some chunks, decoded."""
        return self._nbytes[np.searchsorted(self._ends, numbers, "right")]

    def of_sources(self, numbers: IntArray) -> Iterator[tuple[Source, IntArray]]:
        """Yield the sources that have some of the chunks, in their order, and the coordinates of these.

        Parameters
        ----------
        numbers
            int64, ascending.
        """
        sources = [source for each in self._sources for source in each]
        begins = np.searchsorted(numbers, [first for each in self.first for first in each])
        for i, (begin, end) in enumerate(pairwise([*begins.tolist(), len(numbers)])):
            if end > begin:
                own = numbers[begin:end] - (self._ends[i - 1] if i else 0)
                yield sources[i], np.stack(np.unravel_index(own, sources[i].grid.grid_shape), axis=1)


def numbers_of(the_plan: Plan, source: Source, first: int) -> IntArray:
    """Return the number of each chunk of a plan, of which a source's have the numbers from ``first`` on."""
    return first + np.asarray(np.ravel_multi_index(tuple(the_plan.chunks.T), source.grid.grid_shape), np.int64)


@dataclass(frozen=True, eq=False)
class Step:
    """What one read does with chunks.

    Attributes
    ----------
    stay
        int64, ascending: the chunks that are in memory after it.
    fetched
        int64, ascending: the chunks that it decodes: those that it needs and that did not stay before.
    decoded_bytes
        Bytes of these.
    copied
        Part of the chunks that it needs which are copied: those that stayed before, or stay.
    uses
        Number of the chunks that it needs.
    samples
        Number of its samples.
    """

    stay: IntArray
    fetched: IntArray
    decoded_bytes: int
    copied: float
    uses: int
    samples: int


class Keeping:
    """Tells for each read of an epoch which chunks stay.

    Parameters
    ----------
    epoch
        The epoch.
    bounds
        The turns at which reading is cut.
    room
        Most bytes of chunks that stay.

    Attributes
    ----------
    chunks
        Their numbers.
    """

    def __init__(self, epoch: Drawn, bounds: Sequence[int], room: int) -> None:
        self.chunks: Chunks = Chunks([volume.sources for volume in epoch.samples.each])
        self._epoch, self._bounds = epoch, np.asarray(bounds, np.int64)
        self._ahead = _AHEAD if room else 1
        # Chunks of each size have a part of the room, so that the memory of one can be used for another.
        total = max(self.chunks.total_bytes, 1)
        self._most = {nbytes: room * whole // total // nbytes for nbytes, whole in self.chunks.sizes.items()}
        # Uses of chunks, of one read after the other: the chunk, and the next use of it, counted from the first use on.
        # Those before `_done` are over.
        self._uses, self._next = np.empty(0, np.int64), np.empty(0, np.int64)
        self._begin = self._done = 0
        # The end of each read's uses that are known, and the reads that are taken.
        self._ends: list[int] = []
        self._read = 0
        # The chunks that stay, and the next use of each.
        none = np.empty(0, np.int64)
        self._stay, self._stay_next = none, none

    @property
    def left(self) -> bool:
        """Whether there are more reads."""
        return self._read < len(self._bounds) - 1

    def step(self) -> Step:
        """Return what the next read does."""
        if self._read >= len(self._ends) or self._known - self._done < self._ahead // 2:
            self._look_ahead()
        end = self._ends[self._read]
        here = slice(self._done - self._begin, end - self._begin)
        uses, after = self._uses[here], self._next[here]
        # What stayed and is used by this read was kept for its first use from there on, which is in this read.
        due = self._stay_next < end
        fetched = uses[~np.isin(uses, self._stay[due])]
        decoded = int(self.chunks.nbytes(fetched).sum())
        known = after < _NEVER
        found = np.append(self._stay[~due], uses[known])
        when = np.append(self._stay_next[~due], after[known])
        order = np.argsort(when)
        sizes = self.chunks.nbytes(found[order])
        fits = np.concatenate([order[sizes == nbytes][:most] for nbytes, most in self._most.items()])
        copied = np.count_nonzero(due) + np.count_nonzero(np.isin(fetched, found[fits]))
        self._stay, self._stay_next = found[fits], when[fits]
        samples = int(self._bounds[self._read + 1] - self._bounds[self._read])
        self._done, self._read = end, self._read + 1
        return Step(np.sort(self._stay), fetched, decoded, copied / max(len(uses), 1), len(uses), samples)

    @property
    def _known(self) -> int:
        return self._begin + len(self._uses)

    def _look_ahead(self) -> None:
        """Find the chunks of more reads, and the next use of each."""
        parts = [self._uses[self._done - self._begin :]]
        self._begin, known = self._done, self._done + len(parts[0])
        while len(self._ends) < len(self._bounds) - 1 and known - self._begin < self._ahead:
            first = len(self._ends)
            last = int(np.searchsorted(self._bounds, self._bounds[first] + _AT_ONCE, "right")) - 1
            last = min(max(last, first + 1), len(self._bounds) - 1)
            found, counts = self._uses_of(first, last)
            parts.append(found)
            self._ends.extend((known + np.cumsum(counts)).tolist())
            known += len(found)
        self._uses = np.concatenate(parts)
        order = np.argsort(self._uses, kind="stable")
        again = self._uses[order[1:]] == self._uses[order[:-1]]
        self._next = np.full(len(order), _NEVER)
        self._next[order[:-1][again]] = self._begin + order[1:][again]

    def _uses_of(self, first: int, last: int) -> tuple[IntArray, IntArray]:
        """Return the chunks of the reads ``first`` to ``last``, each once a read, and how many each of them uses."""
        bounds, epoch = self._bounds[first : last + 1], self._epoch
        numbers = epoch.numbers(int(bounds[0]), int(bounds[-1]))
        origins = epoch.origins(numbers)
        reads, chunks = [], []
        for volume, places, _ in epoch.cells.parts(numbers):
            read_of = np.searchsorted(bounds - bounds[0], places, "right") - 1
            for source, begin in zip(epoch.samples.each[volume].sources, self.chunks.first[volume], strict=True):
                the_plan = plan_windows(
                    source.inside(origins[places]), source.read_shape, (1,) * source.array.ndim, source.grid
                )
                reads.append(read_of[the_plan.output // source.part.windows])
                chunks.append(np.repeat(numbers_of(the_plan, source, begin), np.diff(the_plan.piece_offsets)))
        read, chunk = np.concatenate(reads), np.concatenate(chunks)
        order = np.lexsort((chunk, read))
        read, chunk = read[order], chunk[order]
        # Samples without elements use no chunks.
        once = np.append(True, (read[1:] != read[:-1]) | (chunk[1:] != chunk[:-1]))[: len(read)]
        return chunk[once], np.bincount(read[once], minlength=last - first)


def doubled(begin: int, end: int, first: int, most: int) -> list[int]:
    """Return the turns at which reading is cut: a first read, each twice as long as the one before, up to a longest."""
    result = _growing(begin, end, first, most)
    if result[-1] < end:
        result += [*range(result[-1] + most, end, most), end]
    return result


def _growing(begin: int, end: int, first: int, most: int) -> list[int]:
    """Return the turns at which those reads are cut that are shorter than the longest."""
    result, length = [begin], first
    while length < most and result[-1] < end:
        result.append(min(result[-1] + length, end))
        length *= 2
    return result


def chosen(epoch: Drawn) -> Reads:
    """Return how to read an epoch that is not shuffled in blocks: what decodes, and copies, least within the buffer.

    Large reads decode each chunk once for many samples. Smaller ones leave room for chunks that stay. Which of them
    is better depends on how large samples are beside chunks, so some are tried on the first samples of the epoch.
    """
    batch, count = epoch.batch_size, epoch.end(0)
    nbytes = max(epoch.samples.sample_nbytes + epoch.samples.apart_nbytes, 1)
    buffer = 2 * epoch.settings.block_bytes // epoch.world_size
    whole = Reads(max(epoch.settings.block_bytes // nbytes // epoch.world_size, batch))
    sources = [source for volume in epoch.samples.each for source in volume.sources]
    if count <= batch or any(source.array.dtype.hasobject for source in sources):
        return whole
    parts = []
    for part in _PARTS:
        turns = max(int(buffer * part) // nbytes, batch)
        room = buffer - max(2 * turns, (epoch.prefetch + 1) * batch) * nbytes
        if room >= max(source.chunk_nbytes for source in sources):
            parts.append(Reads(turns, room))
    if not parts:
        return whole
    remote = any(isinstance(source.array.store, RemoteValues) for source in sources)
    copying = 0.0 if remote else _COPYING * nbytes
    total = Chunks([sources]).total_bytes
    if epoch.settings.shuffle and total <= parts[-1].room:
        # Each chunk is decoded once if all stay, and else by nearly every read of many samples. From a remote store, in
        # reads as large as can be: at the end of each, fewer requests are in progress than could be.
        all_stay = next(reads for reads in parts if total <= reads.room) if remote else parts[-1]
        costs = {all_stay: total / count + copying, whole: _cost_of_all(epoch, whole, total)}
    elif whole.turns <= _MOST_TRIED:
        reading = _READING if epoch.samples.apart_nbytes else 0
        costs = {reads: _cost(epoch, reads, copying) + reading / reads.turns for reads in (whole, *parts)}
    else:
        return whole
    best = min(costs, key=lambda reads: costs[reads])
    return best if costs[best] < (1 - _WORTH) * costs[whole] else whole


def _cost_of_all(epoch: Drawn, reads: Reads, total: int) -> float:
    """Return at most how many bytes a sample decodes if no chunk stays, and all have ``total`` bytes."""
    batch, count = epoch.batch_size, epoch.end(0)
    numbers = epoch.numbers(0, batch)
    origins, needed = epoch.origins(numbers), 0
    for volume, places, _ in epoch.cells.parts(numbers):
        for source in epoch.samples.each[volume].sources:
            needed += source.grid_uses(origins[places]) * source.chunk_nbytes
    growing = _growing(0, count, batch, reads.turns)
    longest, last = divmod(count - growing[-1], reads.turns)
    lengths = np.append(np.diff(growing), [last, reads.turns])
    decoded = np.minimum(lengths * (needed / batch), total)
    return float(decoded[:-1].sum() + longest * decoded[-1]) / count


def _cost(epoch: Drawn, reads: Reads, copying: float) -> float:
    """Return about what a sample costs, in bytes that are decoded, if copying a whole one costs so much."""
    end = epoch.end(0)
    if end > _TRIED_SAMPLES:
        # Short reads are few.
        begins = range(0, end, reads.turns)
        bounds = [*begins[:_MOST_READS], *([end] if len(begins) <= _MOST_READS else [])]
    else:
        bounds = doubled(0, end, epoch.batch_size, reads.turns)
    keeping = Keeping(epoch, bounds, reads.room)
    costs: list[float] = []
    samples: list[int] = []
    uses = 0
    while keeping.left and (uses < _TRIED_USES or len(samples) < _TRIED_READS):
        step = keeping.step()
        uses += step.uses
        costs.append(step.decoded_bytes + step.copied * copying * step.samples)
        samples.append(step.samples)
    # At first, nothing has been decoded yet.
    half = len(samples) // 2 if keeping.left else 0
    return sum(costs[half:]) / sum(samples[half:])
