"""Reading the windows of blocks: chunks that later blocks need stay decoded, within bounded memory.

The thread that hands blocks out says which chunks are decoded for which block; the threads that work on blocks decode
them.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import TYPE_CHECKING, Any

from .sharing import SharedPiece, SharedPieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..arrays.exporting import ExportedArray
    from .axes import InputAxis, WindowPart
    from .memory import BlockMemory
    from .order import BlockOrder

    Index = tuple[int, ...]
    Box = tuple[slice, ...]

#: Places along an axis for which it is kept what windows are made of.
_KEEP_PARTS = 1024


class BlockWindow:
    """What one block needs of one input.

    Attributes
    ----------
    index
        The block's coordinates.
    pieces
        The chunks that it needs, if chunks are shared.
    new
        Those of them that are to be decoded for it.
    """

    __slots__ = ("index", "new", "pieces")

    def __init__(self, index: Index) -> None:
        self.index: Index = index
        self.pieces: list[SharedPiece] = []
        self.new: list[SharedPiece] = []


class Input:
    """An input of blocks.

    Parameters
    ----------
    array
        The array.
    axes
        Its axes.
    order
        The order of blocks.
    room
        Elements of chunks that are kept.
    """

    def __init__(self, array: ExportedArray, axes: Sequence[InputAxis], order: BlockOrder, room: int) -> None:
        self._array, self._axes = array, axes
        each = math.prod(axis.chunks.longest for axis in axes)
        self._kept = SharedPieces(axes, order, max(room // max(each, 1), 1))
        own = {axis.output for axis in axes if axis.blocks is not None}
        others = (n for d, n in enumerate(order.grid_shape) if d not in own)
        self._shared = any(axis.is_shared for axis in axes) or math.prod(others) > 1
        # Many blocks have the same place along an axis.
        parts = (functools.partial(axis.part, joined=not self._shared) for axis in axes)
        self._found = [functools.lru_cache(_KEEP_PARTS)(part) for part in parts]

    # -- in the thread that hands blocks out

    def claim(self, index: Index) -> BlockWindow:
        """Return what a block needs. Blocks are claimed in their order."""
        window = BlockWindow(index)
        if not self._shared:
            return window
        needed = itertools.product(*(part.chunks for part in self._parts(index)))
        window.pieces, window.new = self._kept.claim(index, needed)
        return window

    def release(self, window: BlockWindow) -> None:
        """Drop what no other block needs after a block that is done."""
        self._kept.release(window.pieces)

    def _parts(self, index: Index) -> list[WindowPart]:
        """Return what the window of a block is made of, along each axis."""
        return [
            found(0 if axis.output is None else index[axis.output])
            for axis, found in zip(self._axes, self._found, strict=True)
        ]

    # -- in the thread that works on a block

    def read(self, window: BlockWindow, memory: BlockMemory) -> Any:
        """Return the elements of a block with its halo.

        Parameters
        ----------
        window
            What the block needs.
        memory
            Memory of the result.

        Raises
        ------
        ChunkError
            If a chunk cannot be read.
        """
        parts = self._parts(window.index)
        layouts = tuple([part.layout for part in parts])
        if not self._shared and all(layout.is_plain for layout in layouts):
            return self._read(tuple(part.sources[0] for part in parts), memory)
        result = memory.empty(tuple([layout.length for layout in layouts]), self._array.dtype)
        if self._shared:
            self._decode(window, memory)
            sources = [piece.wait() for piece in window.pieces]
        else:
            sources = [memory.source(self._read(tuple(part.sources[0] for part in parts), memory))]
        memory.assemble(result, sources, layouts)
        return result

    def _read(self, box: Box, memory: BlockMemory) -> Any:
        """Return the elements of a box of the array."""
        result = memory.empty(_shape(box), self._array.dtype)
        return self._array.read(box, out=result, stream=memory.stream)

    def _box(self, coords: Index) -> Box:
        """Return the extent of a chunk."""
        return tuple(slice(*axis.chunks.extent(i)) for axis, i in zip(self._axes, coords, strict=True))

    def _decode(self, window: BlockWindow, memory: BlockMemory) -> None:
        """Decode the chunks that are to be decoded for a block."""
        new = window.new
        try:
            if new:
                boxes = [self._box(piece.coords) for piece in new]
                arrays = [memory.empty(_shape(box), self._array.dtype) for box in boxes]
                self._array._read_chunks([piece.coords for piece in new], arrays, memory.stream)
                memory.finish()
                for piece, array in zip(new, arrays, strict=True):
                    piece.content = memory.source(array)
        finally:
            for piece in new:
                piece.ready.set()


def _shape(box: Box) -> Index:
    return tuple(s.stop - s.start for s in box)
