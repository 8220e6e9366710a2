"""The axes of outputs and inputs: where blocks begin and end, and what each needs of the inputs."""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..cached import cached_property
from ..integers import as_integer
from ..windows.runs import Cut, Run, runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..metadata.chunk_grid import ChunkAxis
    from ..windows.boundary import Mode

    IntArray = npt.NDArray[np.int64]


#: No output is that many times longer than an input.
_MOST_SCALE: Final = 1 << 31


@dataclass(frozen=True)
class AxisScale:
    """How much longer an axis of the outputs is than that of the inputs: a whole number, or the inverse of one."""

    numerator: int = 1
    denominator: int = 1

    @classmethod
    def of(cls, value: float | Fraction) -> AxisScale | None:
        """Return the scale for a number, or None if neither it nor its inverse is a whole one."""
        whole = as_integer(value)
        exact = value if isinstance(value, Fraction) else Fraction(float(value) if whole is None else whole)
        found = exact.limit_denominator(1 << 20)
        is_one_or_inverse = 1 in (found.numerator, found.denominator)
        if not 0 < found < _MOST_SCALE or not is_one_or_inverse or abs(float(found / exact) - 1) > 1e-9:
            return None
        return cls(found.numerator, found.denominator)

    def of_length(self, length: int) -> int:
        """Return the length of the outputs for one of the inputs."""
        return -(-length * self.numerator // self.denominator)

    def of_halo(self, before: int, after: int) -> tuple[int, int]:
        """Return the elements of the outputs before and after a block, for those of the inputs.

        Those before it are -1 if they are no whole number.
        """
        up, down = self.numerator, self.denominator
        return -1 if before % down else before * up // down, -(-after * up // down)

    def source(self, begin: int, end: int, size: int) -> tuple[int, int]:
        """Return the elements of an input, of ``size`` elements, that an extent of the outputs stands for."""
        up, down = self.numerator, self.denominator
        return begin * down // up, min(-(-end * down // up), size)


@dataclass(frozen=True, eq=False)
class WindowLayout:
    """How a window is put together along one axis; windows of one input that are alike are one object, as a rule.

    Attributes
    ----------
    length
        Elements of the window.
    sources
        Number of sources that its elements are taken from.
    cuts
        The elements that are taken from them.
    constants
        Begin and end of those that are the constant.
    constant
        Its value; None if there are none of them.
    """

    length: int
    sources: int
    cuts: tuple[Cut, ...]
    constants: tuple[tuple[int, int], ...] = ()
    constant: float | complex | None = None

    @property
    def columns(self) -> IntArray:
        """The cuts, int64 ``(6, number of cuts)``."""
        return np.array(self.cuts, np.int64).reshape(-1, len(Cut._fields)).T

    @property
    def is_plain(self) -> bool:
        """Whether the window is its only source as it stands."""
        return len(self.cuts) == 1 and not self.constants and self.cuts[0].step == 1


@dataclass(frozen=True, eq=False)
class WindowPart:
    """What a block's window is made of along one axis.

    Attributes
    ----------
    chunks
        The chunks of the array that are needed, in order.
    sources
        What its elements are taken from, in elements of the array: the chunks, or one extent.
    layout
        How it is put together.
    """

    chunks: tuple[int, ...]
    sources: tuple[slice, ...]
    layout: WindowLayout


@dataclass(frozen=True, eq=False)
class InputAxis:
    """An axis of an input.

    Attributes
    ----------
    size
        Its length, in elements.
    chunks
        The chunks that are decoded.
    blocks
        Blocks of the outputs along it; None if each block needs all of it.
    output
        Number of the axis of the outputs; None if there is none.
    scale
        How much longer the outputs are along it.
    halo, boundary, padded
        As of :class:`~gzarr.blocks.surroundings.Surroundings`, along this axis.
    """

    size: int
    chunks: ChunkAxis
    blocks: ChunkAxis | None = None
    output: int | None = None
    scale: AxisScale = field(default_factory=AxisScale)
    halo: tuple[int, int] = (0, 0)
    boundary: Mode | float | complex | None = None
    padded: bool = False

    @cached_property
    def _layouts(self) -> dict[Any, WindowLayout]:
        """The layouts of windows by what they say."""
        return {}

    def core(self, block: int) -> tuple[int, int]:
        """Return the extent of a block without its halo."""
        if self.blocks is None:
            return 0, self.size
        return self.scale.source(*self.blocks.extent(block), self.size)

    def window(self, block: int) -> tuple[int, int]:
        """Return the extent of a block with its halo; beyond the array, if that has a boundary there."""
        begin, end = self.core(block)
        if self.blocks is None:
            return begin, end
        before, after = self.halo
        if self.boundary is None:
            return max(begin - before, 0), min(end + after, self.size)
        if self.padded:
            end = begin + self._longest_core
        return begin - before, end + after

    def runs(self, block: int) -> list[Run]:
        """Return the runs that make up the window of a block."""
        return runs(*self.window(block), self.size, 0 if self.boundary is None else self.boundary)

    def part(self, block: int, *, joined: bool) -> WindowPart:
        """Return what the window of a block is made of.

        Parameters
        ----------
        block
            Number of the block along the axis of the outputs.
        joined
            Whether elements are taken from one source, read for this block alone; if not, from chunks.
        """
        runs = self.runs(block)
        chunks = self.chunks_of(block)
        extents = [run.extent for run in runs if run.first is not None]
        if joined:
            sources = [(min(begin for begin, _ in extents), max(end for _, end in extents))]
        else:
            sources = [self.chunks.extent(i) for i in chunks]
        cuts = [
            cut
            for i, (low, high) in enumerate(sources)
            for run in runs
            if (cut := run.within(low, high, i)) is not None
        ]
        constants = tuple((run.begin, run.end) for run in runs if run.first is None)
        constant = None if isinstance(self.boundary, str) or not constants else self.boundary
        kind = runs[-1].end, len(sources), tuple(cuts), constants, constant
        # Several threads may do this at once; setdefault is atomic.
        layout = self._layouts.setdefault(kind, WindowLayout(*kind))
        return WindowPart(tuple(chunks), tuple(itertools.starmap(slice, sources)), layout)

    def chunks_of(self, block: int) -> list[int]:
        """Return the chunks that a block needs, in order."""
        if self.blocks is None:
            return list(range(self.chunks.count_within(self.size)))
        found: set[int] = set()
        for run in self.runs(block):
            if run.first is not None:
                found.update(self.chunks.touching(*run.extent))
        return sorted(found)

    def users(self, chunk: int) -> Sequence[int]:
        """Return the blocks that need a chunk, in order; none if each block needs all of them."""
        if self.blocks is None:
            return ()
        begin, end = self.chunks.extent(chunk)
        before, after = self.halo
        up, down = self.scale.numerator, self.scale.denominator
        size, number_before, inside = self.blocks.size, self.blocks.count_within, self._inside
        # In elements of the outputs: where the first one of these begins, at the earliest, or what it has; and where
        # the first one after them begins.
        if self.padded:
            least = -(-(begin + 1 - self._longest_core - after) * up // down)
            first = number_before(min(max(least, 0), size))
        else:
            first = number_before(max((begin - after) * up // down, 0) + 1) - 1
        last = number_before(min(-(-(end + before) * up // down), size))
        found = range(max(first, inside.start), min(last, inside.stop))
        others = self._users_at_ends.get(chunk)
        return found if others is None else sorted([*found, *others])

    @cached_property
    def _inside(self) -> range:
        """The blocks whose windows are within the array; neither their begins nor their ends decrease."""
        if self.blocks is None:
            return range(0)
        count = self.blocks.count_within(self.blocks.size)
        first = bisect_left(range(count), 0, key=lambda block: self.window(block)[0])
        last = bisect_right(range(count), self.size, lo=first, key=lambda block: self.window(block)[1])
        return range(first, last)

    @cached_property
    def _users_at_ends(self) -> dict[int, list[int]]:
        """The blocks that need each chunk, of those whose windows go beyond the array."""
        found: dict[int, list[int]] = {}
        if self.blocks is not None:
            inside = self._inside
            count = self.blocks.count_within(self.blocks.size)
            for block in (*range(inside.start), *range(inside.stop, count)):
                for chunk in self.chunks_of(block):
                    found.setdefault(chunk, []).append(block)
        return found

    @cached_property
    def is_shared(self) -> bool:
        """Whether several blocks need the same chunk."""
        if self.blocks is None or self.blocks.count_within(self.blocks.size) < 2:
            return False
        if any(self.halo) or self._cuts_chunks:
            return True
        return any(len(self.users(chunk)) > 1 for chunk in self._users_at_ends)

    @property
    def _cuts_chunks(self) -> bool:
        """Whether blocks, without what is around them, begin within chunks, or within other blocks."""
        assert self.blocks is not None
        if self.blocks.is_regular and self.chunks.is_regular:
            up, down = self.scale.numerator, self.scale.denominator
            return self.blocks.longest * down % (up * self.chunks.longest) != 0
        needed = map(self.chunks_of, self._inside)
        return any(one[-1] >= other[0] for one, other in itertools.pairwise(needed))

    @cached_property
    def longest_window(self) -> int:
        """Most elements of a block with its halo."""
        if self.blocks is None:
            return self.size
        length = self._longest_core if self.padded else min(self._longest_core, self.size)
        # Without a boundary, the halo ends with the array.
        return length + sum(n if self.boundary is not None else min(n, self.size) for n in self.halo)

    @cached_property
    def repeats(self) -> int:
        """About how many times the array is begun again in a halo: each time is a cut of a window."""
        if self.blocks is None or not isinstance(self.boundary, str) or self.boundary == "edge" or self.size < 2:
            return 0
        return sum(self.halo) // self.size

    @cached_property
    def _longest_core(self) -> int:
        """Elements of the longest block without its halo, not cut at the end of the array."""
        assert self.blocks is not None
        return -(-self.blocks.longest * self.scale.denominator // self.scale.numerator)

    @cached_property
    def longest(self) -> int:
        """Most elements that are decoded for a block: its window, or whole chunks if those are shared."""
        if self.blocks is None or not self.is_shared:
            return self.longest_window
        return max(sum(map(self.chunks.length_of, self.chunks_of(i))) for i in self._some_blocks)

    @cached_property
    def kept(self) -> int:
        """Most elements along the axis that are decoded for a block and needed by the next one."""
        if self.blocks is None or not self.is_shared:
            return 0
        some = [set(self.chunks_of(i)) & set(self.chunks_of(i + 1)) for i in self._some_blocks[:-1]]
        return max((sum(map(self.chunks.length_of, both)) for both in some), default=0)

    @property
    def _some_blocks(self) -> Sequence[int]:
        """Blocks that stand for all: along axes with many, they are alike."""
        assert self.blocks is not None
        return range(min(self.blocks.count_within(self.blocks.size), 64))
