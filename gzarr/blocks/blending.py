"""Results that overlap their neighbours', blended by weights that fall towards the ends of each.

A network sees little of what lies around the ends of its input, so what it gives there is worse, and blocks show. With
a halo that its results have as well, each element gets several results, and their weighted mean is taken. The weights
along each axis are Hann's window over the block with its halo; they add up to one for each element, because they are
divided by their sum. As blocks are a grid, this is so for the products over all axes, too.

Results are kept until all blocks that overlap them are done, as far as memory allows, and computed again otherwise.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..errors import ArgumentError
from .axes import InputAxis
from .sharing import SharedPiece, SharedPieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from .blocks import Block, BlockGrid, OutputBlocks
    from .computing import FunctionCalls
    from .memory import BlockMemory
    from .order import BlockOrder

    Index = tuple[int, ...]

#: Blocks along an axis for which weights are kept.
_KEEP: Final = 1024


class Share(NamedTuple):
    """What the results of one block are to another one, or to itself, along one axis.

    Attributes
    ----------
    block
        The block whose results these are.
    begin, end
        Elements of the output, begin and end.
    weights
        Weight of each of them, float64.
    """

    block: int
    begin: int
    end: int
    weights: npt.NDArray[np.float64]


class BlendedAxis:
    """An axis of an output.

    Parameters
    ----------
    blocks
        The output's blocks.
    axis
        Number of the axis.
    """

    def __init__(self, blocks: OutputBlocks, axis: int) -> None:
        self._blocks, self._padded = blocks.blocks[axis], blocks.padded
        self._before, self._after = blocks.halo_along(axis)
        #: The axis of the grid of blocks; None if every block has all of it.
        self.of: int | None = blocks.of[axis]

    def _core(self, block: int) -> tuple[int, int]:
        """Return the extent of a block, with what pads it."""
        begin, end = self._blocks.extent(block)
        return begin, begin + self._blocks.longest if self._padded else end

    def window(self, block: int) -> tuple[int, int]:
        """Return the elements that the results of a block stand for, within the output."""
        begin, end = self._core(block)
        return max(begin - self._before, 0), min(end + self._after, self._blocks.size)

    def shares(self, block: int) -> list[Share]:
        """Return what each block's results are to a block."""
        begin, end = self._blocks.extent(block)
        low, high = max(begin - self._after, 0), min(end + self._before, self._blocks.size)
        found = []
        total = np.zeros(end - begin)
        for other in self._blocks.touching(low, high):
            first, last = self._core(other)
            first, length = first - self._before, last - first + self._before + self._after
            own, stop = self.window(other)
            own, stop = max(own, begin), min(stop, end)
            if own < stop:
                weights = np.sin(math.pi * (np.arange(own, stop) - first + 0.5) / length) ** 2
                total[own - begin : stop - begin] += weights
                found.append(Share(other, own, stop, weights))
        return [
            share._replace(weights=share.weights / total[share.begin - begin : share.end - begin]) for share in found
        ]


class _Claim(NamedTuple):
    """The results that a block needs, and which of them are to be computed for it, with what that needs."""

    pieces: list[SharedPiece]
    new: list[tuple[SharedPiece, Any]]


class Blending:
    """Blended results of blocks, a :class:`~gzarr.blocks.computing.Computing`.

    Parameters
    ----------
    calls
        Calls of the function.
    grid
        The blocks.
    axes
        Axes along which the results of blocks overlap, from :func:`overlapping`.
    order
        The order of blocks.
    most
        Most blocks whose results are kept.
    """

    def __init__(
        self, calls: FunctionCalls, grid: BlockGrid, axes: Sequence[InputAxis], order: BlockOrder, most: int
    ) -> None:
        self._calls, self._grid, self._axes = calls, grid, axes
        self._kept = SharedPieces(axes, order, most)
        self._outputs = [[BlendedAxis(blocks, k) for k in range(len(blocks.blocks))] for blocks in grid.outputs]
        self._shares = [[functools.lru_cache(_KEEP)(axis.shares) for axis in axes] for axes in self._outputs]
        # Weights in the memory of results; most blocks have the same.
        self._weights: dict[bytes, Any] = {}

    def claim(self, index: Index) -> _Claim:
        """Return the results that a block needs."""
        needed = itertools.product(*(axis.chunks_of(i) for axis, i in zip(self._axes, index, strict=True)))
        pieces, new = self._kept.claim(index, needed)
        return _Claim(pieces, [(piece, self._calls.claim(piece.coords)) for piece in new])

    def release(self, claim: _Claim) -> None:
        """Drop results that no other block needs."""
        for _, own in claim.new:
            self._calls.release(own)
        self._kept.release(claim.pieces)

    def compute(self, block: Block, claim: _Claim, memory: BlockMemory) -> tuple[list[Any], Any]:
        """Return the blended results of a block, and None; see :class:`~gzarr.blocks.computing.Computing`."""
        try:
            for piece, own in claim.new:
                piece.content = self._results(self._grid.block(piece.coords), own, memory)
                piece.ready.set()
        finally:
            for piece, _ in claim.new:
                piece.ready.set()
        found = {piece.coords: piece.wait() for piece in claim.pieces}
        with memory.current():
            return [self._blended(number, block, found, memory) for number in range(len(self._outputs))], None

    def _results(self, block: Block, claim: Any, memory: BlockMemory) -> list[_Result]:
        """Return the results of a block, with its halo, and wait until they are complete."""
        given, _ = self._calls.call(block, claim, memory)
        found = []
        with memory.current():
            for blocks, box, result in zip(self._grid.outputs, block.boxes, given, strict=True):
                result = blocks.whole(result, block, box, self._calls.name)
                try:
                    array = memory.array(result)
                except TypeError as error:
                    raise ArgumentError(
                        f"{self._calls.name} returned {type(result).__name__} for {block}, which NumPy makes no array "
                        f"of: {error}"
                    ) from error
                if array is None or np.dtype(array.dtype).kind not in "fc":
                    kind = type(result).__name__ if array is None else f"elements of {array.dtype}"
                    raise ArgumentError(
                        f"{self._calls.name} returned {kind} for {block}; blend= takes means, so results are arrays "
                        "of floating-point numbers in the memory of the blocks"
                    )
                begins = [s.start - before for s, (before, _) in zip(box, blocks.halo_of(block), strict=True)]
                # It is kept while the function is called for other blocks.
                found.append(_Result(memory.copied(array), begins))
        memory.finish()
        return found

    def _blended(self, number: int, block: Block, found: dict[Index, list[_Result]], memory: BlockMemory) -> Any:
        """Return the elements of an output for a block."""
        axes, box = self._outputs[number], block.boxes[number]
        # Those of an axis along which every block has all of it are one block's.
        shares = [
            share(0 if axis.of is None else block.index[axis.of])
            for axis, share in zip(axes, self._shares[number], strict=True)
        ]
        dtype = next(iter(found.values()))[number].array.dtype
        # Sums of float16 would lose most of their bits.
        total = memory.empty(tuple(s.stop - s.start for s in box), np.result_type(dtype, np.float32))
        total[...] = 0
        for parts in itertools.product(*shares):
            index = list(block.index)
            for axis, part in zip(axes, parts, strict=True):
                if axis.of is not None:
                    index[axis.of] = part.block
            array, begins = found[tuple(index)][number]
            value = array[tuple([slice(p.begin - b, p.end - b) for p, b in zip(parts, begins, strict=True)])]
            for d, part in enumerate(parts):
                value = value * self._in_memory(part.weights, total.real.dtype, memory).reshape(
                    -1, *(1,) * (len(parts) - d - 1)
                )
            total[tuple([slice(p.begin - s.start, p.end - s.start) for p, s in zip(parts, box, strict=True)])] += value
        return total.astype(dtype, copy=False)

    def _in_memory(self, weights: npt.NDArray[np.float64], dtype: np.dtype[Any], memory: BlockMemory) -> Any:
        """Return weights as an array in the memory of results."""
        key = weights.tobytes() + dtype.char.encode()
        found = self._weights.get(key)
        if found is None:
            # Several threads may do this at once. All use what stays: other arrays are freed in order with one stream.
            found = self._weights.setdefault(key, memory.from_host(weights.astype(dtype)))
        return found


class _Result(NamedTuple):
    """What the function gave for a block, and the element of the output that its first one stands for."""

    array: Any
    begins: list[int]


def overlapping(grid: BlockGrid) -> list[InputAxis]:
    """Return the axes along which the results of blocks overlap: the pieces are blocks, and blocks need them.

    Raises
    ------
    ArgumentError
        If none overlap, or halos are no multiples of the scale.
    """
    if not all(blocks.has_whole_halos for blocks in grid.outputs):
        raise ArgumentError("blend= needs halos that are multiples of the inverse of scale=")
    first = grid.outputs[0]
    axes = []
    for d, blocks in enumerate(first.blocks):
        before, after = first.halo_along(d)
        # A block is reached by those before it whose halo after them reaches it, and the other way round.
        axes.append(InputAxis(blocks.size, blocks, blocks, d, halo=(after, before)))
    if not any(any(axis.halo) for axis in axes):
        raise ArgumentError("blend= needs a halo: the elements by which the results of blocks overlap")
    return axes
