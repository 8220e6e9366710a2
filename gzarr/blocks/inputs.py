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

    from ..arrays.array import Array
    from .axes import InputAxis
    from .boundary import Cut, Run
    from .memory import BlockMemory
    from .order import Order

    Index = tuple[int, ...]
    Box = tuple[slice, ...]

#: Most blocks among which the next user of a chunk is looked for.
_LOOK_AHEAD = 4096


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
    array
        Its elements, once it is decoded.
    ready
        Set when it is decoded, or when that has failed.
    """

    __slots__ = ("array", "box", "coords", "left", "ready", "users")

    def __init__(self, coords: Index, box: Box, left: int) -> None:
        self.coords: Index = coords
        self.box: Box = box
        self.left: int = left
        self.users: int = 0
        self.array: Any = None
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

    def __init__(self, array: Array, axes: Sequence[InputAxis], order: Order, room: int) -> None:
        self._array, self._axes, self._order, self._room = array, axes, order, room
        self._pieces: dict[Index, Piece] = {}
        self._nbytes = math.prod(axis.chunks.longest for axis in axes) * array.dtype.itemsize
        own = {axis.output for axis in axes if axis.blocks is not None}
        others = (n for d, n in enumerate(order.grid_shape) if d not in own)
        self._shared = any(axis.is_shared for axis in axes) or math.prod(others) > 1
        # Blocks that have not been handed out, for chunks that were dropped before the last one that needs them.
        self._left: dict[Index, int] = {}

    # -- in the thread that hands blocks out

    def claim(self, index: Index) -> Window:
        """Return what a block needs. Blocks are claimed in their order."""
        window = Window(index)
        if not self._shared:
            return window
        for coords in itertools.product(*(axis.chunks_of(self._along(axis, index)) for axis in self._axes)):
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

    def _along(self, axis: InputAxis, index: Index) -> int:
        return 0 if axis.output is None else index[axis.output]

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
        piece.array = None

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
        index = window.index
        runs = [axis.runs(self._along(axis, index)) for axis in self._axes]
        if not self._shared and all(len(some) == 1 and some[0].first is not None for some in runs):
            return self._read(tuple(slice(*some[0].extent) for some in runs), memory)
        shape = tuple(some[-1].end for some in runs)
        result = memory.empty(shape, self._array.dtype)
        if not self._shared:
            hull = tuple(_hull(some) for some in runs)
            found = [(hull, self._read(hull, memory))]
        else:
            self._decode(window, memory)
            found = [(piece.box, _of(piece)) for piece in window.pieces]
        # Many chunks have one extent along an axis.
        cuts = [functools.cache(functools.partial(_cuts, some)) for some in runs]
        sources = [(array, [cut(s.start, s.stop) for cut, s in zip(cuts, box, strict=True)]) for box, array in found]
        constants = [
            (tuple(slice(run.begin, run.end) if d == axis else slice(0, n) for d, n in enumerate(shape)), value)
            for axis, value in enumerate(one.boundary for one in self._axes)
            for run in runs[axis]
            if run.first is None
        ]
        memory.assemble(result, sources, constants)
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
                self._array.read_many([piece.box for piece in new], out=arrays, stream=memory.stream)
                memory.finish()
                for piece, array in zip(new, arrays, strict=True):
                    piece.array = array
        finally:
            for piece in new:
                piece.ready.set()
        for piece in window.pieces:
            piece.ready.wait()


def _of(piece: Piece) -> Any:
    if piece.array is None:
        # The block that was to decode it has failed, with the reason, or was cancelled.
        raise ReadCancelledError
    return piece.array


def _shape(box: Box) -> Index:
    return tuple(s.stop - s.start for s in box)


def _hull(runs: Sequence[Run]) -> slice:
    """Return the elements of the array from the first to the last one that runs are taken from."""
    extents = [run.extent for run in runs if run.first is not None]
    return slice(min(begin for begin, _ in extents), max(end for _, end in extents))


def _cuts(runs: Sequence[Run], low: int, high: int) -> list[Cut]:
    """Return the parts of a window along one axis that are taken from an extent of the array."""
    return [cut for run in runs if (cut := run.within(low, high)) is not None]
