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
from functools import cache, cached_property
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from ..distinct import distinct
from .permutation import Permutation, hashed, mix

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

#: Each stream has samples of so many groups in an epoch, or of all: a rank of many meets all that there is.
_FAIR_GROUPS: Final = 64

#: How many numbers of blocks are tried at most.
_TRIALS: Final = 8
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

    @cached_property
    def most_bytes(self) -> int:
        """Most bytes of a block of ``"blocks"`` in memory."""
        cuts = self._cut[1]
        return int(np.add.reduceat(self._sizes, cuts[:-1]).max(initial=0)) if len(cuts) > 1 else 0

    def samples(self, positions: IntArray) -> IntArray:
        """Return the sample at each position, int64 of the same shape."""
        order = self.order
        if order.shuffle == "full":
            return self._all_samples(positions)
        if not order.shuffle:
            return positions
        if not len(positions):
            return positions
        first, last = np.searchsorted(self.bounds, [positions.min(), positions.max()], "right") - 1
        if first == last:
            return self._mixed(int(first))[positions - int(self.bounds[first])]
        blocks = np.searchsorted(self.bounds, positions, "right") - 1
        result = np.empty_like(positions)
        for block in distinct(blocks).tolist():
            here = blocks == block
            result[here] = self._mixed(block)[positions[here] - int(self.bounds[block])]
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
        # As few as fit the buffer; so many do for sure, unless a single group does not.
        most = -(-total // max(order.block_bytes - largest, largest))
        least = min(-(-total // max(order.block_bytes, 1)), most)
        for blocks in distinct(np.linspace(least, most, _TRIALS).astype(np.int64)).tolist():
            cuts = _even_cuts(ends, blocks)
            if np.add.reduceat(sizes, cuts[:-1]).max() <= order.block_bytes:
                break
        return np.append(0, np.cumsum(np.diff(self.offsets)[self._groups])[cuts[1:] - 1]), cuts

    def _mixed(self, block: int) -> IntArray:
        """Return the samples of a block of ``"blocks"`` in their order, int64 ``(n,)``."""
        order = self.order
        groups = self.groups(block)
        sizes = self.offsets[groups + 1] - self.offsets[groups]
        n, streams = int(sizes.sum()), order.streams
        # All samples of the first group, then those of the second, and so on.
        ids = np.arange(n) + np.repeat(self.offsets[groups] - np.append(0, np.cumsum(sizes)[:-1]), sizes)
        # Place p of the block belongs to stream (begin + p) % streams. Each stream takes the next samples of these.
        begin = int(self.bounds[block])
        first = np.empty(streams, np.int64)
        first[_contiguous_for_ranks(streams)[(begin + np.arange(streams)) % streams]] = np.arange(streams)
        counts = (n - first + streams - 1) // streams
        self._permute_divided(block, ids, sizes, np.cumsum(counts))
        stream = np.repeat(np.arange(streams), counts)
        mixed = _permuted(stream, self._drawn(block, n, _SAMPLES))
        nth = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
        result = np.empty(n, np.int64)
        result[first[stream] + nth * streams] = ids[mixed]
        return self._exchanged(block, result, first)

    def _drawn(self, block: int, n: int, what: int) -> npt.NDArray[np.uint64]:
        """Return hashes for a block, uint64 ``(n,)``."""
        return hashed(mix(self.order.seed, self.epoch, block, what), np.arange(n))

    def _permute_divided(self, block: int, ids: IntArray, sizes: IntArray, ends: IntArray) -> None:
        """Permute the samples of each group that several streams share: neighbours are not for neighbouring streams.

        Parameters
        ----------
        block, ids
            Number of the block, and its samples, one group after the other.
        sizes
            int64, samples of each group.
        ends
            int64 ``(streams,)``, samples of each stream and all before it.
        """
        begins = np.cumsum(sizes) - sizes
        inner = ends[ends < len(ids)]
        at = np.searchsorted(begins, inner, "right") - 1
        divided = distinct(at[inner > begins[at]])
        lengths = sizes[divided]
        which = np.repeat(np.arange(len(divided)), lengths)
        here = np.arange(len(which)) + (begins[divided] - np.cumsum(lengths) + lengths)[which]
        ids[here] = ids[here[_permuted(which, self._drawn(block, len(here), _DIVIDED))]]

    def _exchanged(self, block: int, samples: IntArray, first: IntArray) -> IntArray:
        """Exchange samples between the streams of a team, in each step of the streams anew.

        A whole step has the same samples as before, so batches of whole steps are as varied. Parts of a step, for
        smaller batches and for ranks, are a little less so; see :func:`_stride`. Teams are as small as they can be, so
        that ranks share few groups, but have enough groups for a fair share of all.

        Parameters
        ----------
        block, samples
            Number of the block, and its samples in their order.
        first
            int64 ``(streams,)``, place of the first sample of each stream, the streams of a rank together.
        """
        teams, streams = self._teams_of(len(self.groups(block))), self.order.streams
        if teams == streams:
            return samples
        each = streams // teams
        # The places of each team in a step: with streams of one group next to each other, and in order.
        circle = first.reshape(teams, each)
        places = np.sort(circle, axis=1)
        steps, rest = divmod(len(samples), streams)
        # For each team and shift, where its samples of a step come from.
        turns = circle[:, (np.arange(each)[:, None] + _stride(each) * np.arange(each)) % each]
        shift = (self._drawn(block, steps * teams, _EXCHANGED) % np.uint64(each)).astype(np.int64)
        columns = turns[np.arange(teams), shift.reshape(steps, teams)].reshape(steps, streams)
        if teams > 1:
            columns = columns[:, np.argsort(places.reshape(-1))]
        result = samples.copy()
        columns += streams * np.arange(steps)[:, None]
        np.take(samples, columns.reshape(-1), out=result[: steps * streams])
        if rest:
            # Too few for a whole step: in any order.
            drawn = self._drawn(block, rest, _REST)
            for some in places:
                here = steps * streams + some[some < rest]
                result[here] = samples[here[np.argsort(drawn[some[some < rest]])]]
        return result

    def _teams_of(self, groups: int) -> int:
        """Return the number of teams of streams in a block of some groups: as many as leave each enough groups."""
        enough = -(-_FAIR_GROUPS // (len(self.bounds) - 1))
        most = groups // enough
        return max(d for d in range(1, self.order.streams + 1) if self.order.streams % d == 0 and d <= max(most, 1))


def _even_cuts(ends: IntArray, parts: int) -> IntArray:
    """Cut groups whose sizes add up to ``ends`` into parts of about one size: first group of each part, and the end."""
    total = int(ends[-1])
    # Python's integers: products may have more than 64 bits.
    wanted = np.array([i * total // parts for i in range(1, parts)], np.int64)
    stops = distinct(np.append(np.searchsorted(ends, wanted) + 1, len(ends)))
    return np.append(0, stops[stops <= len(ends)])


def _permuted(owner: IntArray, drawn: npt.NDArray[np.uint64]) -> IntArray:
    """Return the indices of elements ordered by owner, and by hashes among those of one: int64 ``(n,)``.

    Parameters
    ----------
    owner
        int64 ``(n,)``, ascending, at least 0.
    drawn
        uint64 ``(n,)``.
    """
    n = len(owner)
    if not n:
        return np.zeros(0, np.int64)
    # All keys differ, so any way to sort gives the same order, the fastest one too.
    index_bits, owner_bits = np.uint64(n.bit_length()), np.uint64(int(owner[-1]).bit_length())
    keys = drawn >> (owner_bits + index_bits) << index_bits
    if owner_bits:
        keys |= owner.astype(np.uint64) << (np.uint64(64) - owner_bits)
    keys |= np.arange(n, dtype=np.uint64)
    keys.sort()
    return (keys & ((np.uint64(1) << index_bits) - np.uint64(1))).astype(np.int64)


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
