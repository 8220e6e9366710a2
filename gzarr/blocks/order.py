"""The order in which blocks are visited, so that chunks which several blocks need are decoded as rarely as possible.

Blocks are visited layer by layer along the first axis along which neighbours share chunks. What a layer shares with the
next one is kept decoded. If that does not fit in memory, the other axes are cut into strips, and each strip is visited
from one end to the other before the next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..arrays.stored_chunks import grid_points

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .axes import InputAxis

    Index = tuple[int, ...]

#: Number of an axis that there is not.
_NONE = 1 << 30


@dataclass(frozen=True)
class BlockOrder:
    """An order of the blocks of a grid.

    Attributes
    ----------
    grid_shape
        Blocks along each axis.
    strips
        Most blocks of a strip along each axis.
    """

    grid_shape: Index
    strips: Index

    @classmethod
    def whole(cls, grid_shape: Index) -> BlockOrder:
        """Return C order, which has one strip."""
        return cls(grid_shape, tuple(max(n, 1) for n in grid_shape))

    def __iter__(self) -> Iterator[Index]:
        """Yield the coordinates of all blocks."""
        for strip in grid_points([-(-n // s) for n, s in zip(self.grid_shape, self.strips, strict=True)]):
            begins = [i * s for i, s in zip(strip, self.strips, strict=True)]
            lengths = [min(s, n - b) for b, s, n in zip(begins, self.strips, self.grid_shape, strict=True)]
            for inside in grid_points(lengths):
                yield tuple(b + i for b, i in zip(begins, inside, strict=True))

    def key(self, index: Index) -> tuple[Index, Index]:
        """Return what sorts blocks into this order."""
        return tuple(i // s for i, s in zip(index, self.strips, strict=True)), index


def choose_order(grid_shape: Index, inputs: Sequence[tuple[Sequence[InputAxis], int]], room: int) -> BlockOrder:
    """Return the order in which chunks are likely to be decoded least often.

    Parameters
    ----------
    grid_shape
        Blocks along each axis of the outputs.
    inputs
        For each input, its axes and the bytes of an element.
    room
        Bytes for decoded chunks that are kept for later blocks.
    """
    order = best = BlockOrder.whole(grid_shape)
    sweep = min((_sweep(axes) for axes, _ in inputs), default=_NONE)
    least = math.inf
    while True:
        share = room // max(sum(itemsize for _, itemsize in inputs), 1)
        decoded = sum(_amplification(axes, order, share) * itemsize for axes, itemsize in inputs)
        if decoded < least:
            best, least = order, decoded
        # The longest strip, in blocks; the sweep itself is not cut.
        widest = max(range(sweep + 1, len(grid_shape)), key=lambda d: order.strips[d], default=None)
        if widest is None or order.strips[widest] <= 1:
            return best
        halved = [-(-n // 2) if d == widest else n for d, n in enumerate(order.strips)]
        order = BlockOrder(grid_shape, tuple(halved))


def _sweep(axes: Sequence[InputAxis]) -> int:
    """Return the first axis of the outputs along which blocks share chunks; a large number if there is none."""
    shared = [axis.output for axis in axes if axis.output is not None and axis.is_shared]
    return min(shared, default=_NONE)


def _amplification(axes: Sequence[InputAxis], order: BlockOrder, room: int) -> float:
    """Return about how often a chunk of an input is decoded, given the room for elements."""
    sweep = _sweep(axes)
    if sweep == _NONE:
        return 1.0
    # Along each axis: elements of a block's chunks, how many the next one needs as well, and elements of a strip.
    longest = [axis.longest for axis in axes]
    kept = [axis.kept for axis in axes]
    strips = [
        axis.longest if axis.output is None or axis.output < sweep else _strip(axis, order.strips[axis.output])
        for axis in axes
    ]
    # What is kept for the next layer, the next row of it, and so on; and the block itself.
    held = [math.prod(longest[:d]) * kept[d] * math.prod(strips[d + 1 :]) for d in range(len(axes))]
    missing = max(sum(held) + math.prod(longest) - room, 0)
    edges = 1.0
    again = 0.0
    for d, axis in enumerate(axes):
        if axis.output is None:
            continue
        blocks = order.grid_shape[axis.output]
        if axis.output == sweep:
            again = min(missing / max(held[d], 1), 1) * kept[d] * blocks / max(axis.size, 1)
        elif order.strips[axis.output] < blocks:
            # At each edge of a strip, what it shares with the next one is decoded for both.
            edges += kept[d] * (-(-blocks // order.strips[axis.output]) - 1) / max(axis.size, 1)
    return edges * (1 + again)


def _strip(axis: InputAxis, blocks: int) -> int:
    """Return the elements of the chunks of a number of blocks."""
    return min(blocks * (axis.longest - axis.kept) + axis.kept, axis.chunks.end)
