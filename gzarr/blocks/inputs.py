"""Reading the windows of blocks: chunks that later blocks need stay decoded, within bounded memory.

Which blocks need a chunk is known before anything is read. So a chunk is dropped after the last of them, and if memory
is short, the one that is needed last is dropped first. All bookkeeping is done in the thread that hands blocks out;
the threads that work on them only fill what they were told to.
"""

from __future__ import annotations

import functools
import itertools
import math
import threading
from typing import TYPE_CHECKING, Any

from ..engines.monitor import ReadCancelledError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..arrays.exporting import ExportedArray
    from .assembly import Source
    from .axes import InputAxis, WindowPart
    from .memory import BlockMemory
    from .order import Order

    Index = tuple[int, ...]
    Box = tuple[slice, ...]

#: Most blocks among which the next user of a chunk is looked for.
_LOOK_AHEAD = 4096
#: Places along an axis for which it is kept what windows are made of.
_KEEP_PARTS = 1024


class Piece:
    """A chunk that several blocks need.

    Attributes
    ----------
    coords
        The chunk's coordinates.
    box
        Its extent in the array.
    left
        Blocks that need it and have not been handed out.
    users
        Blocks that have been handed out and are not done.
    source
        Its elements, once it is decoded.
    ready
        Set when it is decoded, or when that has failed.
    """

    __slots__ = ("box", "coords", "left", "ready", "source", "users")

    def __init__(self, coords: Index, box: Box, left: int) -> None:
        self.coords: Index = coords
        self.box: Box = box
        self.left: int = left
        self.users: int = 0
        self.source: Source | None = None
        self.ready: threading.Event = threading.Event()


class Window:
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
        self.pieces: list[Piece] = []
        self.new: list[Piece] = []


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
        Bytes for chunks that are kept.
    """

    def __init__(self, array: ExportedArray, axes: Sequence[InputAxis], order: Order, room: int) -> None:
        self._array, self._axes, self._order, self._room = array, axes, order, room
        self._pieces: dict[Index, Piece] = {}
        self._nbytes = math.prod(axis.chunks.longest for axis in axes) * array.dtype.itemsize
        own = {axis.output for axis in axes if axis.blocks is not None}
        others = (n for d, n in enumerate(order.grid_shape) if d not in own)
        self._shared = any(axis.is_shared for axis in axes) or math.prod(others) > 1
        # Many blocks have the same place along an axis.
        parts = (functools.partial(axis.part, joined=not self._shared) for axis in axes)
        self._found = [functools.lru_cache(_KEEP_PARTS)(part) for part in parts]
        # Blocks that have not been handed out, for chunks that were dropped before the last one that needs them.
        self._left: dict[Index, int] = {}

    # -- in the thread that hands blocks out

    def claim(self, index: Index) -> Window:
        """Return what a block needs. Blocks are claimed in their order."""
        window = Window(index)
        if not self._shared:
            return window
        for coords in itertools.product(*(part.chunks for part in self._parts(index))):
            piece = self._pieces.get(coords)
            if piece is None:
                piece = self._pieces[coords] = self._piece(coords)
                window.new.append(piece)
            piece.left -= 1
            piece.users += 1
            window.pieces.append(piece)
        self._make_room(index)
        return window

    def release(self, window: Window) -> None:
        """Drop what no other block needs after a block that is done."""
        for piece in window.pieces:
            piece.users -= 1
            if not piece.users and not piece.left:
                self._drop(piece)

    def _parts(self, index: Index) -> list[WindowPart]:
        """Return what the window of a block is made of, along each axis."""
        return [
            found(0 if axis.output is None else index[axis.output])
            for axis, found in zip(self._axes, self._found, strict=True)
        ]

    def _piece(self, coords: Index) -> Piece:
        box = tuple(slice(*axis.chunks.extent(i)) for axis, i in zip(self._axes, coords, strict=True))
        left = self._left.pop(coords, None)
        return Piece(coords, box, math.prod(map(len, self._users(coords))) if left is None else left)

    def _users(self, coords: Index) -> list[Sequence[int]]:
        """Return the blocks that need a chunk, by their coordinates along each axis of the outputs."""
        users: list[Sequence[int]] = [range(n) for n in self._order.grid_shape]
        for axis, i in zip(self._axes, coords, strict=True):
            if axis.output is not None and axis.blocks is not None:
                users[axis.output] = axis.users[i]
        return users

    def _next_use(self, piece: Piece, now: tuple[Index, Index]) -> tuple[Index, Index]:
        """Return the place in the order of the next block that needs a chunk; of very many, this one."""
        users = self._users(piece.coords)
        if math.prod(map(len, users)) > _LOOK_AHEAD:
            return now
        return min((key for key in map(self._order.key, itertools.product(*users)) if key > now), default=now)

    def _make_room(self, index: Index) -> None:
        """Drop chunks while too much is kept: first those that are needed last."""
        excess = len(self._pieces) - max(self._room // max(self._nbytes, 1), 1)
        if excess <= 0:
            return
        now = self._order.key(index)
        idle = [piece for piece in self._pieces.values() if not piece.users]
        idle.sort(key=lambda piece: self._next_use(piece, now), reverse=True)
        for piece in idle[:excess]:
            self._left[piece.coords] = piece.left
            self._drop(piece)

    def _drop(self, piece: Piece) -> None:
        del self._pieces[piece.coords]
        piece.source = None

    # -- in the thread that works on a block

    def read(self, window: Window, memory: BlockMemory) -> Any:
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
            sources = list(map(_of, window.pieces))
        else:
            sources = [memory.source(self._read(tuple(part.sources[0] for part in parts), memory))]
        memory.assemble(result, sources, layouts)
        return result

    def _read(self, box: Box, memory: BlockMemory) -> Any:
        """Return the elements of a box of the array."""
        result = memory.empty(_shape(box), self._array.dtype)
        return self._array.read(box, out=result, stream=memory.stream)

    def _decode(self, window: Window, memory: BlockMemory) -> None:
        """Decode the chunks that are to be decoded for a block, and wait for those that others decode."""
        new = window.new
        try:
            if new:
                arrays = [memory.empty(_shape(piece.box), self._array.dtype) for piece in new]
                self._array._read_chunks([piece.coords for piece in new], arrays, memory.stream)
                memory.finish()
                for piece, array in zip(new, arrays, strict=True):
                    piece.source = memory.source(array)
        finally:
            for piece in new:
                piece.ready.set()
        for piece in window.pieces:
            if piece.source is None:
                piece.ready.wait()


def _of(piece: Piece) -> Source:
    if piece.source is None:
        # The block that was to decode it has failed, with the reason, or was cancelled.
        raise ReadCancelledError
    return piece.source


def _shape(box: Box) -> Index:
    return tuple(s.stop - s.start for s in box)
