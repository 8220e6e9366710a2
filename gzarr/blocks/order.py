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


@dataclass(frozen=True)
class Order:
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


def choose_order(grid_shape: Index, inputs: Sequence[tuple[Sequence[InputAxis], int]], room: int) -> Order:
    """Return the order with the widest strips whose shared chunks fit in memory.

    Parameters
    ----------
    grid_shape
        Blocks along each axis of the outputs.
    inputs
        For each input, its axes and the bytes of an element.
    room
        Bytes for decoded chunks that are kept for later blocks.
    """
    strips = list(grid_shape)
    sweep = min((_sweep(axes) for axes, _ in inputs), default=len(strips))
    while True:
        order = Order(grid_shape, tuple(max(s, 1) for s in strips))
        if sum(_kept_bytes(axes, order, itemsize) for axes, itemsize in inputs) <= room:
            return order
        # The longest strip, in blocks; the sweep itself is not cut.
        widest = max(range(sweep + 1, len(strips)), key=lambda d: strips[d], default=None)
        if widest is None or strips[widest] <= 1:
            return order
        strips[widest] = -(-strips[widest] // 2)


def _sweep(axes: Sequence[InputAxis]) -> int:
    """Return the first axis of the outputs along which blocks share chunks; a large number if there is none."""
    shared = [axis.output for axis in axes if axis.output is not None and axis.is_shared]
    return min(shared, default=1 << 30)


def _kept_bytes(axes: Sequence[InputAxis], order: Order, itemsize: int) -> int:
    """Return about how many bytes of an input are kept for later blocks at any time."""
    sweep = _sweep(axes)
    if sweep == 1 << 30:
        return 0
    lengths = []
    for axis in axes:
        if axis.output is None or axis.output < sweep:
            lengths.append(axis.longest)
        elif axis.output == sweep:
            # What is kept of the layer before, and what is begun of the one that is being read.
            lengths.append(axis.kept + axis.longest)
        else:
            lengths.append(min(order.strips[axis.output] * axis.longest, axis.chunks.end))
    return math.prod(lengths) * itemsize
