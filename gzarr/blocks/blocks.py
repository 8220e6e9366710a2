"""Blocks of outputs, and what a function gives for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..metadata.chunk_grid import ChunkAxis
    from .axes import InputAxis

    Box = tuple[slice, ...]


@dataclass(frozen=True)
class Block:
    """A block, as a function with a parameter ``block_info`` is told.

    Attributes
    ----------
    index
        Its coordinates in the grid of blocks.
    grid_shape
        Number of blocks along each axis of the outputs.
    box
        Its elements in the outputs.
    halo
        For each axis of the arrays that the function is given, the elements before and after the block.
    """

    index: tuple[int, ...]
    grid_shape: tuple[int, ...]
    box: Box
    halo: tuple[tuple[int, int], ...]

    @property
    def number(self) -> int:
        """Number of the block, in C order of the grid."""
        number = 0
        for i, n in zip(self.index, self.grid_shape, strict=True):
            number = number * n + i
        return number

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the block in the outputs."""
        return tuple(s.stop - s.start for s in self.box)

    def __str__(self) -> str:
        extents = ", ".join(f"{s.start}:{s.stop}" for s in self.box)
        return f"block {self.index} of {self.grid_shape}, [{extents}]"


class Grid:
    """The blocks of outputs.

    Parameters
    ----------
    blocks
        Blocks along each axis of the outputs.
    axes
        For each of them, the axis of the inputs that it comes from; None for new ones.
    common
        All axes of the inputs.
    """

    def __init__(self, blocks: Sequence[ChunkAxis], axes: Sequence[InputAxis | None], common: Sequence[InputAxis]):
        self.blocks: tuple[ChunkAxis, ...] = tuple(blocks)
        self._axes, self._common = tuple(axes), tuple(common)
        self.shape: tuple[int, ...] = tuple(axis.size for axis in blocks)
        self.grid_shape: tuple[int, ...] = tuple(axis.count_within(axis.size) for axis in blocks)

    @property
    def count(self) -> int:
        """Number of blocks."""
        return math.prod(self.grid_shape)

    def block(self, index: tuple[int, ...]) -> Block:
        """Return a block."""
        box = tuple(slice(*axis.extent(i)) for axis, i in zip(self.blocks, index, strict=True))
        halo = []
        for axis in self._common:
            i = 0 if axis.output is None else index[axis.output]
            (begin, end), (low, high) = axis.core(i), axis.window(i)
            halo.append((begin - low, high - end))
        return Block(index, self.grid_shape, box, tuple(halo))

    def cut(self, result: Any, block: Block, function: str) -> Any:
        """Return what a function gave for a block without its halo.

        Raises
        ------
        ArgumentError
            If it has neither the shape of the block nor that of the block with its halo.
        """
        if not hasattr(result, "shape"):
            raise ArgumentError(f"{function} returned {type(result).__name__} for {block}, not an array")
        if tuple(result.shape) == block.shape:
            return result
        whole: list[int] = []
        inner = []
        for axis, length in zip(self._axes, block.shape, strict=True):
            before = after = 0
            if axis is not None:
                up, down = axis.scale.numerator, axis.scale.denominator
                before, after = block.halo[self._common.index(axis)]
                # A halo that is no multiple of the scale cannot be cut off.
                before, after = (-1, 0) if before % down else (before * up // down, -(-after * up // down))
            whole.append(before + length + after)
            inner.append(slice(before, before + length))
        if tuple(result.shape) == tuple(whole):
            return result[tuple(inner)]
        with_halo = f" or, with the halo, {tuple(whole)}" if tuple(whole) != block.shape and -1 not in whole else ""
        raise ArgumentError(
            f"{function} returned an array of shape {tuple(result.shape)} for {block}; expected {block.shape}"
            f"{with_halo}"
        )
