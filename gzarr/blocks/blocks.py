"""Blocks of outputs, and what a function gives for them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..arrays.elements import in_numpy
from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..metadata.chunk_grid import ChunkAxis
    from .axes import AxisScale, InputAxis
    from .surroundings import Surroundings

    Box = tuple[slice, ...]

#: What is said of the shape of a result with its halo.
_WITH_HALO: Final = "with the halo"


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
        Its elements in the first output.
    boxes
        Its elements in each output.
    halo
        For each axis of the arrays that the function is given, the elements before and after the block, with those that
        pad it.
    """

    index: tuple[int, ...]
    grid_shape: tuple[int, ...]
    box: Box
    boxes: tuple[Box, ...]
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
        """Shape of the block in the first output."""
        return tuple(s.stop - s.start for s in self.box)

    def __str__(self) -> str:
        extents = ", ".join(f"{s.start}:{s.stop}" for s in self.box)
        return f"block {self.index} of {self.grid_shape}, [{extents}]"


class OutputBlocks:
    """The blocks of one output.

    Parameters
    ----------
    blocks
        Blocks along each of its axes.
    of
        For each of them, the axis of the grid of blocks; None if every block has all of it.
    scales, sources
        For each of them, its scale, and the axis of the inputs that it comes from; None for new ones.
    surroundings
        What blocks of the inputs are given beside their own elements.
    """

    def __init__(
        self,
        blocks: Sequence[ChunkAxis],
        of: Sequence[int | None],
        scales: Sequence[AxisScale | None],
        sources: Sequence[int | None],
        surroundings: Surroundings,
    ) -> None:
        self.blocks: tuple[ChunkAxis, ...] = tuple(blocks)
        self.of: tuple[int | None, ...] = tuple(of)
        self.sources: tuple[int | None, ...] = tuple(sources)
        self.shape: tuple[int, ...] = tuple(axis.size for axis in blocks)
        self._scales = tuple(scales)
        self._surroundings = surroundings
        longest = (axis.longest if self.padded else min(axis.longest, axis.size) for axis in blocks)
        self.most_elements: int = math.prod(longest)

    def box(self, index: tuple[int, ...]) -> Box:
        """Return the elements of a block."""
        places = [0 if at is None else index[at] for at in self.of]
        return tuple([slice(*axis.extent(i)) for axis, i in zip(self.blocks, places, strict=True)])

    def cut(self, result: Any, block: Block, box: Box, function: str) -> Any:
        """Return what a function gave for a block without its halo, and without what pads the block.

        Raises
        ------
        ArgumentError
            If it has none of the shapes of a result.
        """
        if not hasattr(result, "dtype") and hasattr(result, "shape") and hasattr(result, "__array__"):
            # Tables of pandas and polars have a type for each column.
            try:
                result = in_numpy(result)
            except (TypeError, ValueError, OverflowError) as error:
                kind = type(result).__name__
                raise ArgumentError(f"{function} returned {kind} for {block}, which is no array: {error}") from error
        if not (hasattr(result, "shape") and hasattr(result, "dtype")):
            raise ArgumentError(f"{function} returned {type(result).__name__} for {block}, not an array")
        length = tuple([s.stop - s.start for s in box])
        if tuple(result.shape) == length:
            return result
        longer = self._longer(block, length)
        for _, shape, begins in longer:
            if tuple(result.shape) == shape:
                return result[tuple([slice(begin, begin + n) for begin, n in zip(begins, length, strict=True)])]
        expected = "".join(f" or, {words}, {shape}" for words, shape, _ in longer if shape != length)
        raise ArgumentError(
            f"{function} returned an array of shape {tuple(result.shape)} for {block}; expected {length}{expected}"
        )

    def whole(self, result: Any, block: Block, box: Box, function: str) -> Any:
        """Return what a function gave for a block, which must have the halo.

        Raises
        ------
        ArgumentError
            If it has not.
        """
        shape = None
        for words, shape, _ in self._longer(block, tuple([s.stop - s.start for s in box])):
            if words == _WITH_HALO and tuple(getattr(result, "shape", ())) == shape:
                return result
        given = f"an array of shape {tuple(result.shape)}" if hasattr(result, "shape") else type(result).__name__
        raise ArgumentError(
            f"{function} returned {given} for {block}; with blend=, results have the halo, and the shape {shape}"
        )

    def _longer(self, block: Block, length: tuple[int, ...]) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
        """Return the shapes of results that are longer than the block: what they have, and where the block begins."""
        found = []
        if self.padded:
            length = tuple(axis.longest for axis in self.blocks)
            found.append(("padded", length, (0,) * len(length)))
        halo = self.halo_of(block)
        if all(before >= 0 for before, _ in halo):
            shape = tuple(before + n + after for n, (before, after) in zip(length, halo, strict=True))
            found.append((_WITH_HALO, shape, tuple(before for before, _ in halo)))
        return found

    @property
    def most_with_halo(self) -> int:
        """Most elements of a result with its halo."""
        return math.prod(axis.longest + sum(self.halo_along(d)) for d, axis in enumerate(self.blocks))

    @property
    def padded(self) -> bool:
        """Whether blocks at the end of an axis are as long as others."""
        return self._surroundings.padded

    @property
    def has_whole_halos(self) -> bool:
        """Whether halos are whole numbers of elements of the output."""
        return all(
            scale is None or source is None or not any(n % scale.denominator for n in self._surroundings.halos[source])
            for scale, source in zip(self._scales, self.sources, strict=True)
        )

    def halo_of(self, block: Block) -> list[tuple[int, int]]:
        """Return the elements of a result before and after a block, along each axis; -1 if they cannot be cut off."""
        if self.padded:
            return [self.halo_along(d) for d in range(len(self.blocks))]
        each = zip(self._scales, self.sources, strict=True)
        return [
            (0, 0) if scale is None or source is None else scale.of_halo(*block.halo[source]) for scale, source in each
        ]

    def halo_along(self, axis: int) -> tuple[int, int]:
        """Return the elements of a result before and after an inner block; -1 if they cannot be cut off."""
        scale, source = self._scales[axis], self.sources[axis]
        if scale is None or source is None:
            return 0, 0
        return scale.of_halo(*self._surroundings.halos[source])


class BlockGrid:
    """The blocks of all outputs.

    Parameters
    ----------
    blocks
        Blocks along each axis of the first output.
    common
        All axes of the inputs.
    outputs
        The blocks of each output.
    """

    def __init__(
        self, blocks: Sequence[ChunkAxis], common: Sequence[InputAxis], outputs: Sequence[OutputBlocks]
    ) -> None:
        self._blocks, self._common = tuple(blocks), tuple(common)
        self.outputs: tuple[OutputBlocks, ...] = tuple(outputs)
        self.grid_shape: tuple[int, ...] = tuple(axis.count_within(axis.size) for axis in blocks)

    @property
    def count(self) -> int:
        """Number of blocks."""
        return math.prod(self.grid_shape)

    def block(self, index: tuple[int, ...]) -> Block:
        """Return a block."""
        box = tuple(slice(*axis.extent(i)) for axis, i in zip(self._blocks, index, strict=True))
        halo = []
        for axis in self._common:
            i = 0 if axis.output is None else index[axis.output]
            (begin, end), (low, high) = axis.core(i), axis.window(i)
            halo.append((begin - low, high - end))
        return Block(index, self.grid_shape, box, tuple(output.box(index) for output in self.outputs), tuple(halo))
