"""The order of an epoch's samples: a pure function of seed, epoch and settings.

Samples come in groups: those whose chunks are read together, numbered one group after the other. The epoch's order is
cut into blocks, and a block is read at once:

- ``"blocks"``: the groups are permuted, and as many as fit into memory form a block. Its samples are dealt to the
  streams, so that each stream has whole groups where possible, and permuted within their stream. Where an epoch has too
  few groups for that to be fair, streams exchange samples: a rank then reads groups that others read too.
- ``"full"``: all samples are permuted.
- ``False``: the samples are in their own order.

Position ``p`` of the order belongs to stream ``p % streams``, and to rank ``p % world_size``. If the world size divides
the number of streams, a rank thus has whole streams, and all ranks together have the same samples in the same step, for
every world size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from ..cached import cached_property
from ..distinct import distinct
from .permutation import Permutation, Permutations, hashed, mix

if TYPE_CHECKING:
    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

Shuffle: TypeAlias = Literal["full", "blocks"] | bool

# What a permutation is for; a part of its key.
_GROUPS: Final = 1
_SAMPLES: Final = 2
_DIVIDED: Final = 3
_EXCHANGED: Final = 4
_REST: Final = 5

#: Groups whose samples each stream has in an epoch, or all: one rank of many still meets all that there is.
_FAIR_GROUPS: Final = 64

#: How many numbers of blocks are tried at most.
_TRIALS: Final = 8
# So many positions at a time: what is computed for them stays in the processor's cache.
_AT_ONCE: Final = 1 << 14
# Blocks of which what is known is kept: threads give out one of them while they read the next one.
_KEPT_BLOCKS: Final = 3
#: Version of the order that settings give: a part of the fingerprint.
ORDER_VERSION: Final = 4


@dataclass(frozen=True)
class Order:
    """How the order of every epoch is made.

    Attributes
    ----------
    shuffle
        ``"full"``, ``"blocks"`` or False.
    block_bytes
        Most bytes of a block in memory; a single group may take more.
    streams
        Number of streams.
    seed
        Any integer of at least 0.
    sample_bytes
        Bytes of a sample.
    """

    shuffle: Shuffle
    block_bytes: int
    streams: int
    seed: int
    sample_bytes: int = 1

    @property
    def block_samples(self) -> int:
        """Most samples of a block, if each takes memory of its own."""
        return max(self.block_bytes // max(self.sample_bytes, 1), 1)


@dataclass(frozen=True, eq=False)
class EpochOrder:
    """The order of one epoch.

    Attributes
    ----------
    order
        How it is made.
    epoch
        Number of the epoch.
    offsets
        int64 ``(groups + 1,)``: group ``g`` has the samples ``offsets[g]`` to ``offsets[g + 1]``.
    group_bytes
        int64 ``(groups,)``, bytes of each group in memory; None if each sample takes memory of its own.
    """

    order: Order
    epoch: int
    offsets: IntArray
    group_bytes: IntArray | None = None

    @property
    def count(self) -> int:
        """Number of samples."""
        return int(self.offsets[-1])

    @cached_property
    def bounds(self) -> IntArray:
        """First position of each block, and the number of samples: int64 ``(blocks + 1,)``."""
        return self._cut[0]

    @property
    def total_bytes(self) -> int:
        """Bytes of all groups of ``"blocks"`` in memory."""
        return int(self._sizes.sum())

    @property
    def largest_group_bytes(self) -> int:
        """Bytes of the largest group of ``"blocks"`` in memory."""
        return int(self._sizes.max(initial=0))

    @cached_property
    def most_bytes(self) -> int:
        """Most bytes of a block of ``"blocks"`` in memory."""
        cuts = self._cut[1]
        return int(np.add.reduceat(self._sizes, cuts[:-1]).max(initial=0)) if len(cuts) > 1 else 0

    def samples(self, positions: IntArray) -> IntArray:
        """Return the sample at each position, int64 of the same shape ``(n,)``: in time and memory for these alone."""
        order = self.order
        if order.shuffle == "full":
            return self._all_samples(positions)
        if not order.shuffle:
            return positions
        result = np.empty_like(positions)
        for begin in range(0, len(positions), _AT_ONCE):
            some = positions[begin : begin + _AT_ONCE]
            first, last = np.searchsorted(self.bounds, [some.min(), some.max()], "right") - 1
            if first == last:
                result[begin : begin + _AT_ONCE] = self._block(int(first)).samples(some)
                continue
            blocks = np.searchsorted(self.bounds, some, "right") - 1
            for block in distinct(blocks).tolist():
                here = np.flatnonzero(blocks == block)
                result[begin + here] = self._block(block).samples(some[here])
        return result

    def has_whole_groups(self, world_size: int) -> bool:
        """Return whether ranks have whole groups in all blocks, but for the groups at the edges of their shares."""
        if world_size == 1:
            return True
        groups = distinct(np.diff(self._cut[1])).tolist()
        return all(self._teams_of(n) % world_size == 0 for n in groups)

    def groups(self, block: int) -> IntArray:
        """Return the groups of a block of ``"blocks"``, int64, in their permuted order."""
        cuts = self._cut[1]
        return self._groups[cuts[block] : cuts[block + 1]]

    def groups_of_rank(self, block: int, rank: int, world_size: int) -> IntArray:
        """Return the groups that a rank may have samples of in a block, ascending.

        Of each, it has some if ranks have whole groups. Otherwise the streams of a team share their groups.
        """
        return np.sort(self.groups(block)[self._block(block).groups_of_rank(rank, world_size)])

    @cached_property
    def _all_samples(self) -> Permutation:
        return Permutation(self.count, (self.order.seed, self.epoch, _SAMPLES))

    @cached_property
    def _groups(self) -> IntArray:
        return Permutation(len(self.offsets) - 1, (self.order.seed, self.epoch, _GROUPS)).all()

    @cached_property
    def _sizes(self) -> IntArray:
        """Bytes of each group, in their permuted order."""
        if self.group_bytes is None:
            return np.diff(self.offsets)[self._groups] * max(self.order.sample_bytes, 1)
        return np.maximum(self.group_bytes, 1)[self._groups]

    @cached_property
    def _cut(self) -> tuple[IntArray, IntArray]:
        """The first position and the first group of each block, both with an end."""
        order = self.order
        if order.shuffle != "blocks":
            bounds = np.append(np.arange(0, self.count, order.block_samples), self.count)
            return bounds, bounds
        if not len(self._groups):
            return np.zeros(1, np.int64), np.zeros(1, np.int64)
        sizes = self._sizes
        ends = np.cumsum(sizes)
        # Blocks of about one size: a short one at the end would hardly be mixed.
        total, largest = int(ends[-1]), int(sizes.max())
        # As few as fit the buffer: this number fits for sure, unless a single group does not.
        most = -(-total // max(order.block_bytes - largest, largest))
        least = min(-(-total // max(order.block_bytes, 1)), most)
        for blocks in distinct(np.linspace(least, most, _TRIALS).astype(np.int64)).tolist():
            cuts = _even_cuts(ends, blocks)
            if np.add.reduceat(sizes, cuts[:-1]).max() <= order.block_bytes:
                break
        return np.append(0, np.cumsum(np.diff(self.offsets)[self._groups])[cuts[1:] - 1]), cuts

    def _block(self, number: int) -> _Block:
        """Return a block of ``"blocks"``; the last ones are kept, as their samples are asked for a few at a time."""
        # Threads that find none only make one more than once.
        found = self._blocks.get(number)
        if found is None:
            found = self._made(number)
            # A list is made in one step, whatever other threads add.
            for old in list(self._blocks)[: 1 - _KEPT_BLOCKS]:
                self._blocks.pop(old, None)
            self._blocks[number] = found
        return found

    @cached_property
    def _blocks(self) -> dict[int, _Block]:
        return {}

    def _made(self, number: int) -> _Block:
        groups, order = self.groups(number), self.order
        return _Block(
            self.offsets[groups],
            self.offsets[groups + 1] - self.offsets[groups],
            int(self.bounds[number]),
            order.streams,
            self._teams_of(len(groups)),
            (order.seed, self.epoch, number),
        )

    def _teams_of(self, groups: int) -> int:
        """Return the number of teams of streams in a block of some groups: as many as leave each enough groups."""
        enough = -(-_FAIR_GROUPS // (len(self.bounds) - 1))
        most = groups // enough
        return max(d for d in range(1, self.order.streams + 1) if self.order.streams % d == 0 and d <= max(most, 1))


class _Block:
    """A block: which sample is at each of its positions.

    Position ``p`` belongs to stream ``p % streams``. The samples of the block's groups, one group after the other, are
    cut into as many parts, and each stream has a part in a permuted order. All of this is a function of the position
    alone, so a batch takes no more than its own samples.

    Samples of a group that several streams share are permuted first: neighbours are not for neighbouring streams. Then
    the streams of a team exchange samples, in each step of the streams anew. A whole step has the same samples as
    before, so batches of whole steps are as varied. Parts of a step, for smaller batches and for ranks, are a little
    less so; see :func:`_stride`. Teams are as small as they can be, so that ranks share few groups, but have enough
    groups for a fair share of all.

    Parameters
    ----------
    starts, sizes
        int64 ``(groups,)``, the first sample of each group, and the number of its samples.
    begin
        First position.
    streams, teams
        Numbers of them; ``teams`` divides ``streams``.
    key
        Integers that determine the order.
    """

    def __init__(
        self, starts: IntArray, sizes: IntArray, begin: int, streams: int, teams: int, key: tuple[int, int, int]
    ) -> None:
        self._starts, self._sizes, self._begin, self._streams = starts, sizes, begin, streams
        self._ends = np.cumsum(sizes)
        self._begins = self._ends - sizes
        n = int(self._ends[-1])
        # Place p of the block belongs to stream (begin + p) % streams. Each stream takes the next samples of these.
        first = np.empty(streams, np.int64)
        first[_contiguous_for_ranks(streams)[(begin + np.arange(streams)) % streams]] = np.arange(streams)
        counts = (n - first + streams - 1) // streams
        ends = np.cumsum(counts)
        # For each column of a step: the part that its sample is from.
        self._part_of = np.argsort(first)
        self._part_begins = ends - counts
        self._parts = Permutations(np.maximum(counts, 1), (*key, _SAMPLES))
        inner = ends[ends < n]
        at = np.searchsorted(self._ends, inner, "right")
        divided = distinct(at[inner > self._begins[at]])
        self._divided = np.full(len(sizes), -1, np.int64)
        self._divided[divided] = np.arange(len(divided))
        self._within = Permutations(sizes[divided], (*key, _DIVIDED))
        self._length = int(sizes[0]) if (sizes == sizes[0]).all() else None

        self._teams, self._each = teams, streams // teams
        self._steps, self._rest = divmod(n, streams)
        self._exchange = mix(*key, _EXCHANGED)
        # The columns of each team: columns of one group next to each other, and in order.
        self._circle = first.reshape(teams, self._each)
        places = np.sort(self._circle, axis=1)
        self._team_of, self._nth_of = np.empty(streams, np.int64), np.empty(streams, np.int64)
        self._team_of[places] = np.arange(teams)[:, None]
        self._nth_of[places] = _stride(self._each) * np.arange(self._each)
        # What is left for the last step is too little for all columns: in any order.
        self._rest_from = np.arange(self._rest)
        drawn = hashed(mix(*key, _REST), self._rest_from)
        for some in places if self._each > 1 else ():
            here = some[some < self._rest]
            self._rest_from[here] = here[np.argsort(drawn[here], kind="stable")]

    def samples(self, positions: IntArray) -> IntArray:
        """Return the samples at positions of the block, int64 ``(n,)``."""
        step, column = np.divmod(positions - self._begin, self._streams)
        part = self._part_of[self._exchanged(step, column) if self._each > 1 else column]
        place = self._part_begins[part] + self._parts(part, step)
        if self._length is None:
            group = np.searchsorted(self._ends, place, "right")
        else:
            group = place // self._length
        within = place - self._begins[group]
        divided = self._divided[group]
        here = np.flatnonzero(divided >= 0)
        if len(here):
            within[here] = self._within(divided[here], within[here])
        return self._starts[group] + within

    def groups_of_rank(self, rank: int, world_size: int) -> npt.NDArray[np.bool_]:
        """Return which groups the teams of a rank have samples of."""
        columns = np.arange(self._streams)
        own_teams = np.zeros(self._teams, bool)
        # In some step: a rank has the same columns in all of them only if the world size divides the streams.
        shared = math.gcd(self._streams, world_size)
        own_teams[self._team_of[(self._begin + columns - rank) % shared == 0]] = True
        own = self._part_of[own_teams[self._team_of]]
        begins, ends = self._part_begins[own], np.append(self._part_begins, self._ends[-1])[own + 1]
        present = np.zeros(len(self._sizes), bool)
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            if begin < end:
                first, last = np.searchsorted(self._ends, [begin, end - 1], "right")
                present[first : last + 1] = True
        return present

    def _exchanged(self, step: IntArray, column: IntArray) -> IntArray:
        """Return the columns that samples of some steps and columns come from."""
        team = self._team_of[column]
        shift = (hashed(self._exchange, step * self._teams + team) % np.uint64(self._each)).astype(np.int64)
        result: IntArray = self._circle[team, (shift + self._nth_of[column]) % self._each]
        last = np.flatnonzero(step == self._steps)
        if len(last):
            result[last] = self._rest_from[column[last]]
        return result


def _even_cuts(ends: IntArray, parts: int) -> IntArray:
    """Cut groups whose sizes add up to ``ends`` into parts of about one size: first group of each part, and the end."""
    total = int(ends[-1])
    # Python's integers: products may have more than 64 bits.
    wanted = np.array([i * total // parts for i in range(1, parts)], np.int64)
    stops = distinct(np.append(np.searchsorted(ends, wanted) + 1, len(ends)))
    return np.append(0, stops[stops <= len(ends)])


@cache
def _stride(size: int) -> int:
    """Return a stride around a circle, so that runs of its multiples are spread evenly, and those for each rank.

    Neighbours on the circle are of one group. A run of multiples is what a batch takes; every second, fourth, … of
    them, what a rank does.
    """
    runs = [
        (every, length)
        for every in (1, 2, 3, 4, 6, 8)
        if size % every == 0
        for length in (2, 4, 8, 16, 32)
        if every * length <= size
    ]

    def alike(stride: int) -> int:
        """Return how many parts of the circle, each as long as a fair share, are missed by these runs."""
        at = {run: run[0] * stride * np.arange(run[1]) % size for run in runs}
        return sum(length - len(distinct(at[every, length] * length // size)) for every, length in runs)

    coprime = [stride for stride in range(1, size + 1) if math.gcd(stride, size) == 1]
    return min(coprime, key=alike)


def _contiguous_for_ranks(streams: int) -> IntArray:
    """Return the place of each stream's samples in a block, so that a rank's streams are next to each other.

    The streams of a rank are equal modulo the world size. Reversing the digits of their numbers (in a radix of prime
    factors) makes equal lowest digits equal highest ones, whatever the number of lowest digits.
    """
    numbers, places, rest = np.arange(streams), np.zeros(streams, np.int64), streams
    for prime in _prime_factors(streams):
        rest //= prime
        numbers, digit = np.divmod(numbers, prime)
        places += digit * rest
    return places


def _prime_factors(number: int) -> list[int]:
    factors, candidate = [], 2
    while candidate * candidate <= number:
        while number % candidate == 0:
            factors.append(candidate)
            number //= candidate
        candidate += 1
    return [*factors, number] if number > 1 else factors
