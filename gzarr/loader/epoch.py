"""One epoch as a rank sees it: which samples each of its batches has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from ..cached import cached_property
from ..display import readable_size
from ..distinct import distinct
from ..errors import ArgumentError
from .keeping import chosen, doubled
from .machine import memory_bytes
from .order import EpochOrder
from .row_sizes import cut_by_bytes
from .row_slabs import RowSlabs
from .slabs import PLANNED, Listed, Slabs

if TYPE_CHECKING:
    import numpy.typing as npt

    from .boxes import Boxes
    from .keeping import Reads
    from .order import Order
    from .volumes import Volumes, VolumesCells

    IntArray = npt.NDArray[np.int64]

#: So many samples, or bytes of them, are worth reading together though no chunk is decoded less often by that.
_BUSY_SAMPLES: Final = 64
_BUSY_BYTES: Final = 32 << 20
# Bytes that the order of a sample and the plan of each window take while they are made; and those that a group takes
# in the order of all groups, and a read among all reads.
_PLANNING_BYTES: Final = 400
_GROUP_BYTES: Final = 120
_READ_BYTES: Final = 40
# Samples of a group, in the mean, for which reading it as a whole pays.
_LEAST_OF_A_GROUP: Final = 16
# What is reckoned for many samples takes memory for this many at a time.
_AT_ONCE: Final = 1 << 16
#: Samples that overlap are listed, and boxes made around them, up to this many; the boxes of more are whole groups.
LISTED: Final = 1 << 16
# If so many samples of a rank have an element in common, in the mean, it needs about all elements of groups it shares.
_MUCH_OVERLAP: Final = 4


@dataclass(frozen=True, eq=False)
class Epoch:
    """One epoch of one rank.

    The samples of a rank are at the positions ``rank``, ``rank + world_size``, … of the order; ``turn`` counts them.

    Attributes
    ----------
    samples
        All samples.
    settings
        How the order is made.
    number
        Number of the epoch.
    batch_size
        Samples of a batch of one rank.
    rank, world_size
        Number of the rank, and number of ranks.
    drop_last, pad
        Whether the last batch is left out, or filled up, if the samples do not fill it on all ranks.
    prefetch
        Batches that are made ready ahead.
    told
        How it is read, if that was chosen before.
    """

    samples: Volumes
    settings: Order
    number: int
    batch_size: int
    rank: int
    world_size: int
    drop_last: bool
    pad: bool
    prefetch: int
    told: Reads | None = None

    @cached_property
    def cells(self) -> VolumesCells:
        """The cells of this epoch."""
        return self.samples.cells(self.settings.seed, self.number, grouped=self.settings.shuffle == "blocks")

    def refuse_too_many_groups(self) -> None:
        """Refuse an order in blocks that this machine has no memory for.

        Raises
        ------
        ArgumentError
            If that is so.
        """
        if self.settings.shuffle == "blocks":
            groups = sum(volume.samples.groups for volume in self.samples.each)
            self._refuse(groups, _GROUP_BYTES, "groups", "shuffle='full' or False does without; or give larger chunks")

    def _refuse(self, parts: int, nbytes: int, what: str, hint: str) -> None:
        """Refuse an epoch of so many parts that a list of them does not fit the memory."""
        if parts * nbytes > (most := memory_bytes()):
            raise ArgumentError(
                f"an epoch of {self.samples.count} samples has {parts} {what}, and a list of them takes "
                f"{readable_size(parts * nbytes)}: more than the memory of this machine, {readable_size(most)}. {hint}"
            )

    @cached_property
    def order(self) -> EpochOrder:
        """The order of this epoch."""
        sizes = None
        if self._overlap:
            sizes = self.samples.group_bytes(self.cells)
        elif self.reads_rows and self.settings.shuffle == "blocks":
            sizes = self.samples.row_group_bytes(self.cells)
        return EpochOrder(self.settings, self.number, self.cells.offsets, sizes)

    @property
    def shares_slabs(self) -> bool:
        """Whether batches are gathered from slabs."""
        return self._overlap or self.reads_groups or self.reads_rows

    @property
    def reads_rows(self) -> bool:
        """Whether rows of sparse matrices are kept as they are stored, until their batch's turn comes."""
        return self.samples.have_rows

    @property
    def _overlap(self) -> bool:
        return self.settings.shuffle == "blocks" and self.samples.share_slabs

    @cached_property
    def reads_groups(self) -> bool:
        """Whether slabs are whole groups: of samples that are small or many, most of which a rank needs."""
        if self.settings.shuffle != "blocks" or self.reads_rows:
            return False
        if not (self._overlaps_densely if self._overlap else self.samples.are_narrow):
            return False
        groups = len(self.cells.offsets) - 1
        if groups * _LEAST_OF_A_GROUP > self.samples.count:
            return False
        if self.order.has_whole_groups(self.world_size):
            return True
        one_by_one = self.samples.count * self.samples.sample_nbytes
        return self._overlap and one_by_one >= _MUCH_OVERLAP * self.world_size * self.order.total_bytes

    @property
    def _overlaps_densely(self) -> bool:
        """Whether blocks have so many samples that overlap that listing them takes long, and leave no gap."""
        return self._block_turns > LISTED and self.is_dense

    @property
    def _block_turns(self) -> int:
        """A rank's turns of the largest block."""
        return int(np.diff(self.order.bounds).max(initial=0)) // self.world_size

    @property
    def is_dense(self) -> bool:
        """Whether samples are all cells of a grid, each where its cell is, with no gap between neighbours."""
        return all(
            volume.samples.chosen is None
            and volume.samples.jitter is None
            and not volume.samples.is_weighed
            and all(
                source.part.posed is None and not source.is_rows and source.is_dense(volume.samples.stride)
                for source in volume.sources
            )
            for volume in self.samples.each
        )

    @property
    def most_slab_bytes(self) -> int:
        """Most bytes of a rank's slabs of a block, unless its samples are few in many groups."""
        if self.settings.shuffle == "blocks":
            return -(-self.order.most_bytes // self.world_size)
        largest = self._row_reads[1] if self._cuts_by_bytes else self.most_turns * self.samples.kept_sample_nbytes
        return max(self.settings.block_bytes // self.world_size, largest)

    @property
    def _cuts_by_bytes(self) -> bool:
        """Whether reads are cut by what their rows take: neighbours may all be much longer than the mean."""
        return self.reads_rows and self.settings.shuffle is False

    @cached_property
    def _row_reads(self) -> tuple[list[int], int]:
        """The turns at which reading is cut by bytes, and the bytes of the largest read, from the beginning."""
        return self._cut_by_bytes(self.first_turn(0), self.end(0))

    def _cut_by_bytes(self, begin: int, end: int) -> tuple[list[int], int]:
        most_bytes = self.settings.block_bytes // self.world_size
        # All rows are looked at, so once for all epochs that have them in one order.
        key = begin, end, self.rank, self.world_size, self.batch_size, most_bytes
        found = self.samples.row_cuts.get(key)
        if found is None:
            found = cut_by_bytes(self._row_sample_bytes, begin, end, self.batch_size, most_bytes)
            if all(volume.samples.is_line for volume in self.samples.each):
                self.samples.row_cuts[key] = found
        return found

    def _row_sample_bytes(self, begin: int, end: int, *, in_batches: bool = False) -> IntArray:
        """Return the bytes of the sample of each of some turns, int64 ``(n,)``, where rows of matrices are read."""
        draw = self.settings.seed, self.number
        return self.samples.row_sample_bytes(self.cells, self.numbers(begin, end), draw, in_batches=in_batches)

    @cached_property
    def batch_bytes(self) -> int:
        """Most bytes of a batch; if its rows stay sparse, and are not in their own order, the mean."""
        largest = self.batch_size * self.samples.sample_nbytes
        if not (self._cuts_by_bytes and self.samples.stay_sparse):
            return largest
        begin, end = self.first_turn(0), self.end(0)
        at_once = max(_AT_ONCE // self.batch_size, 1) * self.batch_size
        for first in range(begin, end, at_once):
            nbytes = self._row_sample_bytes(first, min(first + at_once, end), in_batches=True)
            largest = max(largest, int(np.add.reduceat(nbytes, np.arange(0, len(nbytes), self.batch_size)).max()))
        return largest

    def slabs(self, begin: int, end: int) -> Slabs | RowSlabs:
        """Return the slabs of the rank's turns from ``begin`` to ``end``, which are not read yet."""
        # Of few samples that overlap, such as those that fill up the last batch, boxes are smaller.
        if self.reads_groups and not (self._overlap and end - begin <= LISTED):
            return Slabs(self.samples, self.cells, Turns(self, begin, end), self._groups_of(begin, end))
        numbers = self.numbers(begin, end)
        if self.reads_rows:
            return RowSlabs(self.samples, self.cells, numbers, self.origins(numbers))
        return Slabs(self.samples, self.cells, Listed(numbers, self.origins(numbers)))

    def boxes(self, block: int, rank: int) -> list[list[Boxes]]:
        """Return the boxes of a rank's slabs of a block, for each volume and each of its sources."""
        if self.reads_groups:
            groups = self.order.groups_of_rank(block, rank, self.world_size)
            return Slabs(self.samples, self.cells, Turns(self, 0, 0), groups).boxes
        begin, end = self.order.bounds[block : block + 2].tolist()
        numbers = self.order.samples(np.arange(begin + (rank - begin) % self.world_size, end, self.world_size))
        return Slabs(self.samples, self.cells, Listed(numbers, self.origins(numbers))).boxes

    def _groups_of(self, begin: int, end: int) -> IntArray:
        """Return the groups of the samples of some turns, ascending."""
        order, offsets = self.order, self.cells.offsets
        present = np.zeros(len(offsets) - 1, bool)
        block = int(np.searchsorted(order.bounds, self.rank + self.world_size * begin, "right")) - 1
        if block < len(order.bounds) - 1:
            first, last = (self.first_turn(bound) for bound in order.bounds[block : block + 2].tolist())
            known = order.groups_of_rank(block, self.rank, self.world_size)
            if [begin, end] == [first, last]:
                return known
        else:
            # What fills up the last batch.
            last, known = begin, np.empty(0, np.int64)
        for at in range(begin, end, _AT_ONCE):
            stop = min(at + _AT_ONCE, end)
            present[np.searchsorted(offsets, self.numbers(at, stop), "right") - 1] = True
            # Of large groups, the first samples are of all of them.
            if end <= last and np.count_nonzero(present) == len(known):
                break
        return np.flatnonzero(present)

    def first_turn(self, cursor: int) -> int:
        """Return the rank's first turn at a position of the order or after it."""
        return max(-(-(cursor - self.rank) // self.world_size), 0)

    def end(self, cursor: int) -> int:
        """Return the end of the rank's turns if the epoch goes on from a position."""
        whole = self.batch_size * self.world_size
        left = max(self.samples.count - cursor, 0)
        if self.pad:
            return self.first_turn(cursor) + -(-left // whole) * self.batch_size if self.samples.count else 0
        if self.drop_last:
            return self.first_turn(cursor) + left // whole * self.batch_size
        return self.first_turn(self.samples.count)

    def steps(self, cursor: int) -> int:
        """Return the number of batches from a position on."""
        return -(-(self.end(cursor) - self.first_turn(cursor)) // self.batch_size)

    @cached_property
    def _reads_blocks(self) -> bool:
        """Whether blocks are read whole: not if each sample is a group of its own, which no other one helps to read."""
        return self.settings.shuffle == "blocks" and int(np.diff(self.cells.offsets).max(initial=1)) > 1

    @cached_property
    def most_turns(self) -> int:
        """Most turns that are read together, unless blocks are read whole."""
        if self.reads_rows:
            each = self.samples.kept_sample_nbytes * self.world_size
            return max(self.settings.block_bytes // each, self.batch_size)
        if self.settings.shuffle != "blocks":
            return self.reads.turns
        # As many as keep threads and stores busy.
        busy = max(_BUSY_SAMPLES, _BUSY_BYTES // max(self.samples.sample_nbytes, 1))
        return max(min(self.settings.block_samples // self.world_size, busy), self.batch_size)

    @cached_property
    def reads(self) -> Reads:
        """How it is read, unless it is shuffled in blocks."""
        return chosen(self) if self.told is None else self.told

    @property
    def kept_bytes(self) -> int:
        """Most bytes of chunks that stay decoded from one read to the next."""
        return 0 if self.settings.shuffle == "blocks" or self.reads_rows else self.reads.room

    @property
    def planning_bytes(self) -> int:
        """About how many bytes the order and the plan of what is read together take, beside the samples."""
        if self.reads_groups:
            # One thread counts and reads a block while another one tells and gathers samples of the one before.
            samples = max(3 * PLANNED, LISTED) if self._overlap else 3 * PLANNED
        elif self._reads_blocks:
            samples = self._block_turns
        elif self._cuts_by_bytes:
            samples = int(np.diff(self._row_reads[0]).max(initial=0))
        else:
            samples = self.most_turns
        of_samples = min(samples, self.samples.count) * _PLANNING_BYTES * len(self.samples.parts)
        return of_samples + _GROUP_BYTES * (len(self.cells.offsets) - 1)

    @property
    def most_bytes(self) -> int:
        """Most bytes that are read together, unless a single group has more."""
        if self.shares_slabs:
            return self.most_slab_bytes
        if self._reads_blocks:
            return self.settings.block_bytes // self.world_size
        return self.most_turns * (self.samples.sample_nbytes + self.samples.apart_nbytes)

    @property
    def largest_block_bytes(self) -> int:
        """Most bytes of a rank's part of a block that is read whole, also of a single group; 0 without such blocks."""
        if not self._reads_blocks:
            return 0
        if self.world_size == 1 or not (self._overlap or self.reads_groups):
            return self.most_slab_bytes
        order = self.order
        if order.has_whole_groups(self.world_size):
            # And those at the edges of its share.
            needed = self.most_slab_bytes + 2 * order.largest_group_bytes
        else:
            # Groups that others need too.
            needed = (self._block_turns + 1) * self.samples.sample_nbytes
        return min(order.most_bytes, needed)

    def bounds(self, begin: int, end: int) -> list[int]:
        """Return the turns at which reading from turn ``begin`` to ``end`` is cut, both included.

        Shuffled blocks are read whole. Otherwise the first read is one batch, so that it comes soon, and each is twice
        as long as the one before, up to :attr:`most_turns`, or to what rows of matrices take in memory.
        """
        if begin >= end:
            return [begin]
        if self._reads_blocks:
            turns = -(-(self.order.bounds - self.rank) // self.world_size)
            inside = turns[(turns > begin) & (turns < end)]
            # The samples that fill up the last batch are of the first block.
            return [begin, *distinct(inside).tolist(), end]
        if not self._cuts_by_bytes:
            hint = "Give a part of the arrays, such as array.view[:10**9], or a larger buffer_bytes"
            self._refuse((end - begin) // self.most_turns, _READ_BYTES, "reads", hint)
        if self.reads_rows and self.settings.shuffle == "full":
            # Each read needs nearly all chunks, however short it is.
            return [*range(begin, end, self.most_turns), end]
        if self._cuts_by_bytes:
            return [*self._cut_by_bytes(begin, end)[0]]
        return doubled(begin, end, self.batch_size, self.most_turns)

    def numbers(self, begin: int, end: int) -> IntArray:
        """Return the samples of the rank's turns from ``begin`` to ``end``, int64."""
        positions = self.rank + self.world_size * np.arange(begin, end)
        return self.order.samples(positions % max(self.samples.count, 1))

    def origins(self, numbers: IntArray) -> IntArray:
        """Return the origins of samples, int64 ``(n, columns)``."""
        seed, result = self.settings.seed, np.empty((len(numbers), self.samples.columns), np.int64)
        for begin in range(0, len(numbers), _AT_ONCE):
            some = slice(begin, begin + _AT_ONCE)
            result[some] = self.samples.origins(self.cells, numbers[some], seed, self.number)
        return result

    def cursor(self, begin: int, steps: int) -> int:
        """Return the position after ``steps`` batches of all ranks from a position on."""
        return min(begin + steps * self.batch_size * self.world_size, self.samples.count)


@dataclass(frozen=True, eq=False)
class Turns:
    """The samples of a rank's turns from ``begin`` to ``end``, which are found when they are asked for.

    Attributes
    ----------
    epoch
        The epoch.
    begin, end
        The turns.
    """

    epoch: Epoch
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def some(self, begin: int, end: int) -> tuple[IntArray, IntArray]:
        """As for :class:`gzarr.loader.slabs.Told`."""
        numbers = self.epoch.numbers(self.begin + begin, self.begin + end)
        return numbers, self.epoch.origins(numbers)
