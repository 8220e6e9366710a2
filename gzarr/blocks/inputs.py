"""Reading the windows of blocks: chunks that later blocks need stay decoded, within bounded memory.

Which blocks need a chunk is known before anything is read. So a chunk is dropped after the last of them, and if memory
is short, the one that is needed last is dropped first. All bookkeeping is done in the thread that hands blocks out;
the threads that work on them only fill what they were told to.
"""

from __future__ import annotations

import itertools
import math
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ..engines.monitor import ReadCancelledError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..arrays.array import Array
    from .axes import InputAxis
    from .boundary import Run
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
        # Memory of chunks that are no longer needed.
        self._free: list[Any] = []
        self._chunk_shape = tuple(axis.chunks.longest for axis in axes)
        self._nbytes = math.prod(self._chunk_shape) * array.dtype.itemsize
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
        if piece.array is not None and self._array.device == "cpu" and not self._array.dtype.hasobject:
            self._free.append(piece.array.base if piece.array.base is not None else piece.array)
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
            return self._array.read(tuple(slice(*some[0].extent) for some in runs), stream=memory.stream)
        shape = tuple(some[-1].end for some in runs)
        result = memory.empty(shape, self._array.dtype)
        if not self._shared:
            hull = tuple(_hull(some) for some in runs)
            sources = [(hull, self._array.read(hull, stream=memory.stream))]
        else:
            self._decode(window, memory)
            sources = [(piece.box, _of(piece)) for piece in window.pieces]
        for box, elements in sources:
            for target, source in _copies(runs, box):
                memory.copy(result[target], elements[source])
        constants = [[(run.begin, run.end) for run in some if run.first is None] for some in runs]
        for d, extents in enumerate(constants):
            for begin, end in extents:
                part = result[(*(slice(None),) * d, slice(begin, end))]
                memory.fill(part, self._axes[d].boundary)
        return result

    def _decode(self, window: Window, memory: BlockMemory) -> None:
        """Decode the chunks that are to be decoded for a block, and wait for those that others decode."""
        new = window.new
        try:
            if new:
                arrays = [self._memory_of(piece, memory) for piece in new]
                self._array.read_many([piece.box for piece in new], out=arrays, stream=memory.stream)
                memory.finish()
                for piece, array in zip(new, arrays, strict=True):
                    piece.array = array
        finally:
            for piece in new:
                piece.ready.set()
        for piece in window.pieces:
            piece.ready.wait()

    def _memory_of(self, piece: Piece, memory: BlockMemory) -> Any:
        shape = tuple(s.stop - s.start for s in piece.box)
        if self._array.device != "cpu" or self._array.dtype.hasobject:
            return memory.empty(shape, self._array.dtype)
        try:
            whole = self._free.pop()
        except IndexError:
            whole = np.empty(math.prod(self._chunk_shape), self._array.dtype)
        return whole[: math.prod(shape)].reshape(shape)


def _of(piece: Piece) -> Any:
    if piece.array is None:
        # The block that was to decode it has failed, with the reason, or was cancelled.
        raise ReadCancelledError
    return piece.array


def _hull(runs: Sequence[Run]) -> slice:
    """Return the elements of the array from the first to the last one that runs are taken from."""
    extents = [run.extent for run in runs if run.first is not None]
    return slice(min(begin for begin, _ in extents), max(end for _, end in extents))


def _copies(runs: Sequence[Sequence[Run]], box: Box) -> Iterator[tuple[Box, Box]]:
    """Yield the parts of a window that lie in a box of the array, and where in the box."""
    found = []
    for some, extent in zip(runs, box, strict=True):
        parts = [part for run in some if (part := run.within(extent.start, extent.stop)) is not None]
        found.append([(slice(p.begin, p.end), _slice(p, extent.start)) for p in parts])
    for pairs in itertools.product(*found):
        yield tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def _slice(run: Run, start: int) -> slice:
    assert run.first is not None
    first, count = run.first - start, run.end - run.begin
    if run.step > 0:
        return slice(first, first + count)
    return slice(first, first - count if first >= count else None, -1)
