"""What a loader's settings mean: how often chunks are decoded, how well samples are mixed, how much memory it takes.

With K classes of which each group of samples has one, a batch out of R independent groups has about
(K − 1) / (2 ln 2 · R) bits less entropy than one out of the whole epoch: the bias of the entropy of a sample of R
(Miller, 1955).
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ..display import readable_size
from ..distinct import distinct
from ..plan.planner import plan
from ..plan.selection import parse_basic
from .keeping import Keeping, numbers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from .epoch import Epoch
    from .reading import Source
    from .volumes import Volume

    IntArray = npt.NDArray[np.int64]

#: Independent groups in a block for each sample of a batch that are enough.
GROUPS_A_SAMPLE = 4
#: Fewest blocks whose chunks are counted, and most samples whose chunks are counted at once.
_BLOCKS = 8
_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Mixing:
    """How well an epoch's samples are mixed.

    Attributes
    ----------
    samples
        Samples of an epoch.
    block_samples
        Samples that are mixed with each other, in the mean; all of them with ``shuffle="full"``, one without shuffling.
    groups
        Independent groups of neighbouring samples among them: as many groups of one size would be as varied.
    wanted_groups
        So many make a batch about as varied as one of the whole epoch.
    sample_bytes
        Bytes of one sample.
    buffer_bytes_wanted
        Value of ``buffer_bytes`` that would mix ``wanted_groups``, or all samples, in bytes; None if they are mixed.
    """

    samples: int
    block_samples: float
    groups: float
    wanted_groups: int
    sample_bytes: int
    buffer_bytes_wanted: int | None

    @classmethod
    def of(cls, epoch: Epoch, with_block: Callable[[int], Epoch | None]) -> Mixing:
        """Return the mixing of an epoch.

        Parameters
        ----------
        epoch
            The epoch.
        with_block
            A function that returns the same epoch as it would be with other ``block_bytes``, or None.
        """
        mixed, groups = _mixed(epoch)
        wanted = _wanted(epoch)
        buffer = None if _is_enough(epoch) else _buffer_bytes_for(epoch, with_block)
        return cls(epoch.samples.count, mixed, groups, wanted, epoch.samples.sample_nbytes, buffer)

    @property
    def is_enough(self) -> bool:
        """Whether there are as many independent groups as wanted, or all that the epoch has."""
        return self.buffer_bytes_wanted is None

    @property
    def advice(self) -> str:
        """What is mixed, and how to mix more."""
        return (
            f"{self.block_samples:.0f} samples of {self.groups:.0f} independent groups are mixed, and this batch size "
            f"wants {self.wanted_groups} groups; buffer_bytes={self.buffer_bytes_wanted} or smaller chunks would do"
        )


def _mixed(epoch: Epoch) -> tuple[float, float]:
    """Return how many samples of an epoch are mixed, and of how many independent groups, in the mean."""
    count, shuffle = epoch.samples.count, epoch.settings.shuffle
    mixed = groups = float(count) if shuffle == "full" else 1.0
    if shuffle == "blocks":
        blocks = max(len(epoch.order.bounds) - 1, 1)
        mixed, groups = count / blocks, _independent(np.diff(epoch.cells.offsets)) / blocks
    return max(mixed, 1.0), max(groups, 1.0)


def _wanted(epoch: Epoch) -> int:
    return GROUPS_A_SAMPLE * epoch.batch_size * epoch.world_size


def _is_enough(epoch: Epoch) -> bool:
    """Return whether as many groups as wanted are mixed, or all samples."""
    mixed, groups = _mixed(epoch)
    return groups >= _wanted(epoch) or mixed >= epoch.samples.count


def _independent(sizes: IntArray) -> float:
    """Return the number of groups of some sizes, or of the groups of one size that would be as varied.

    The latter if a few groups have most of the samples, which weights may lead to. Source: the effective number of
    parties (Laakso & Taagepera, 1979), by which two samples are from the same group as often.
    """
    squares = float(np.square(sizes, dtype=np.float64).sum())
    alike = float(sizes.sum()) ** 2 / squares if squares else 0.0
    # Groups at edges are always smaller.
    return alike if 2 * alike < len(sizes) else float(len(sizes))


def _buffer_bytes_for(epoch: Epoch, with_block: Callable[[int], Epoch | None]) -> int:
    """Return a value of ``buffer_bytes`` that mixes as many groups of an epoch as wanted, or all of its samples.

    It is tried, as groups may grow with the buffer: for arrays beside the one with the most bytes.
    """
    wanted, now = _wanted(epoch), epoch.settings.block_bytes
    # With a buffer for anything, only the main array asks for groups.
    bound = with_block(sys.maxsize)
    if bound is None:
        return 2 * _block_bytes_for(epoch, wanted)
    block_bytes = _block_bytes_for(bound, wanted)
    if block_bytes <= now:
        block_bytes = max(_block_bytes_for(epoch, wanted), now + 1)
    for further in (2, 4, 8):
        tried = with_block(block_bytes)
        if tried is None or _is_enough(tried):
            return 2 * block_bytes
        # All samples in one block are enough.
        whole = _block_bytes_for(tried, tried.samples.count)
        block_bytes = min(max(_block_bytes_for(tried, wanted), further * block_bytes), whole)
    return 2 * whole


def _block_bytes_for(epoch: Epoch, groups: int) -> int:
    """Return the bytes of blocks that have some groups of an epoch, or all of its samples."""
    blocks = max((len(epoch.cells.offsets) - 1) // groups, 1)
    total, largest = epoch.order.total_bytes, epoch.order.largest_group_bytes
    # Blocks are cut where a group begins, and have about one size; there is room for two groups in each.
    return max(-(-total // blocks) + (largest if blocks > 1 else 0), 2 * largest)


@dataclass(frozen=True)
class Explanation:
    """What a loader's settings mean for one epoch.

    Attributes
    ----------
    samples, batches
        Number of samples of all ranks; number of batches of this one.
    amplification
        Bytes of chunks that all ranks decode to the bytes of the chunks that samples need, each once. Estimated from a
        part of the epoch if it is long.
    mixing
        How well samples are mixed.
    held_bytes
        Most bytes in memory of this rank: of samples that are read ahead, of batches that are ready, and of chunks that
        stay decoded.
    planning_bytes
        About how many bytes the order and the plan of what is read together take beside that, for a while.
    """

    samples: int
    batches: int
    amplification: float
    mixing: Mixing
    held_bytes: int
    planning_bytes: int

    def lost_entropy(self, classes: int) -> float:
        """Return how many bits of entropy a batch of all ranks loses if each group has one class, of this number."""
        return (classes - 1) / (2 * math.log(2) * self.mixing.groups)

    def __str__(self) -> str:
        mixing = self.mixing
        lines = [
            f"{self.samples} samples of {readable_size(mixing.sample_bytes)}, {self.batches} batches of this rank",
            f"amplification {self.amplification:.2f}: a chunk is decoded {self.amplification:.2f} times an epoch",
            f"mixing: {mixing.block_samples:.0f} samples of {mixing.groups:.0f} independent groups are mixed",
            f"memory: at most {readable_size(self.held_bytes)} of samples and chunks, "
            f"{readable_size(self.planning_bytes)} of their order, and what decoding takes",
        ]
        return "\n".join(lines if mixing.is_enough else [*lines, f"too few: {mixing.advice}"])


def explain(epoch: Epoch, with_block: Callable[[int], Epoch | None], held_bytes: int) -> Explanation:
    """Return what an epoch's settings mean.

    Parameters
    ----------
    epoch, with_block
        The epoch, and a function that returns it with other blocks, as for :meth:`Mixing.of`.
    held_bytes
        Most bytes of samples in memory.
    """
    count, mixing = epoch.samples.count, Mixing.of(epoch, with_block)
    return Explanation(count, epoch.steps(0), amplification(epoch), mixing, held_bytes, epoch.planning_bytes)


def amplification(epoch: Epoch) -> float:
    """Estimate the bytes that are decoded to the bytes of the chunks that are needed."""
    count = epoch.samples.count
    if epoch.settings.shuffle != "blocks":
        decoded = _of_reads(epoch)
    else:
        decoded = _of_blocks(epoch) if epoch.reads_rows or epoch.largest_block_bytes else _of_short_reads(epoch)
    if count > _AT_ONCE and epoch.is_dense:
        needed_bytes = sum(map(_bytes_without_gap, epoch.samples.each))
    else:
        needed: dict[Source, IntArray] = {}
        for begin in range(0, count, _AT_ONCE):
            for source, chunks in _touched(epoch, np.arange(begin, min(begin + _AT_ONCE, count))):
                needed[source] = distinct(needed[source], chunks) if source in needed else chunks
        needed_bytes = sum(len(chunks) * source.touched_nbytes for source, chunks in needed.items())
    # Samples without elements need no bytes.
    return max(decoded / needed_bytes, 1.0) if needed_bytes else 1.0


def _bytes_without_gap(volume: Volume) -> int:
    """Return the bytes of the chunks of a volume's samples on a grid, which leave no gap: of all from first to last."""
    samples, result = volume.samples, 0
    if not samples.count:
        return 0
    corners = np.array(
        [[0] * len(samples.counts), [(n - 1) * s for n, s in zip(samples.counts, samples.stride, strict=True)]]
    )
    for source in volume.sources:
        if 0 not in source.read_shape:
            low, high = source.inside(corners)
            first, last = source.grid.chunk_of(np.stack([low, high + np.array(source.read_shape) - 1]))
            result += math.prod((last - first + 1).tolist()) * source.touched_nbytes
    return result


def _of_blocks(epoch: Epoch) -> float:
    """Estimate the bytes that all ranks decode of an epoch in blocks."""
    count, bounds = epoch.samples.count, epoch.order.bounds
    blocks = len(bounds) - 1
    # Blocks of whole groups are alike, and may have millions of samples.
    enough = max(2 if epoch.reads_groups else _BLOCKS, _AT_ONCE * blocks // count)
    counted = distinct(np.linspace(0, blocks - 1, min(blocks, enough)).round().astype(int)).tolist()
    decoded = 0.0
    for block in counted:
        begin, end = int(bounds[block]), int(bounds[block + 1])
        for rank in range(epoch.world_size):
            if epoch.shares_slabs and not epoch.reads_rows:
                read = _in_slabs(epoch, block, rank)
            else:
                turns = np.arange(begin + (rank - begin) % epoch.world_size, end, epoch.world_size)
                read = _touched(epoch, epoch.order.samples(turns))
            decoded += sum(len(chunks) * source.touched_nbytes for source, chunks in read)
    return decoded * count / sum(int(bounds[block + 1] - bounds[block]) for block in counted)


def _of_short_reads(epoch: Epoch) -> float:
    """Estimate the bytes that all ranks decode of an epoch in blocks of which a few samples at a time are read."""
    decoded, counted = 0.0, 0
    for rank in range(epoch.world_size):
        own = replace(epoch, rank=rank)
        reads = list(pairwise(own.bounds(0, own.end(0))))
        enough = max(_BLOCKS, _AT_ONCE * len(reads) // max(epoch.samples.count, 1))
        for i in distinct(np.linspace(0, len(reads) - 1, min(len(reads), enough)).round().astype(int)).tolist():
            begin, end = reads[i]
            read = _touched(own, own.numbers(begin, end))
            decoded += sum(len(chunks) * source.touched_nbytes for source, chunks in read)
            counted += end - begin
    return decoded * epoch.samples.count / max(counted, 1)


def _of_reads(epoch: Epoch) -> float:
    """Estimate the bytes that all ranks decode of an epoch that is not in blocks."""
    decoded = 0.0
    if epoch.reads_rows:
        return _of_row_reads(epoch)
    for rank in range(epoch.world_size):
        own = replace(epoch, rank=rank)
        end = own.end(0)
        keeping = Keeping(own, own.bounds(0, end), own.kept_bytes)
        samples: list[int] = []
        bytes_: list[int] = []
        while keeping.left and (sum(samples) < _AT_ONCE or len(samples) < _BLOCKS):
            step = keeping.step()
            samples.append(step.samples)
            bytes_.append(step.decoded_bytes)
        decoded += sum(bytes_)
        if keeping.left:
            # The rest goes on like the second half, when what stays has been decoded.
            half = len(samples) // 2
            decoded += sum(bytes_[half:]) / sum(samples[half:]) * (end - sum(samples))
    return decoded


def _of_row_reads(epoch: Epoch) -> float:
    """Estimate the same where rows of sparse matrices are read."""
    decoded, counted = 0.0, 0
    for rank in range(epoch.world_size):
        own = replace(epoch, rank=rank)
        samples = 0
        for begin, end in pairwise(own.bounds(0, own.end(0))):
            if samples >= _AT_ONCE:
                break
            read = _touched(own, own.numbers(begin, end))
            decoded += sum(len(chunks) * source.touched_nbytes for source, chunks in read)
            samples += end - begin
        counted += samples
    return decoded * epoch.samples.count / max(counted, 1)


def _touched(epoch: Epoch, numbers: IntArray) -> Iterator[tuple[Source, IntArray]]:
    """Yield, for each array of some samples, the numbers of the chunks that they touch."""
    origins = epoch.origins(numbers)
    for volume, places, _ in epoch.cells.parts(numbers):
        for source in epoch.samples.each[volume].sources:
            yield source, source.touched(origins[places])


def _in_slabs(epoch: Epoch, block: int, rank: int) -> Iterator[tuple[Source, IntArray]]:
    """Yield, for each array, the numbers of the chunks that a rank's slabs of a block touch."""
    for volume, each in zip(epoch.samples.each, epoch.boxes(block, rank), strict=True):
        for source, found in zip(volume.sources, each, strict=bool(each)):
            selections = [parse_basic(selection, source.array.shape) for selection in found.selections]
            yield source, numbers_of(plan(selections, source.grid), source, 0)
