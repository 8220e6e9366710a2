"""What several blocks need is kept until the last of them, within bounded memory.

Which blocks need a piece is known before anything is read. So a piece is dropped after the last of them, and if memory
is short, the one that is needed last is dropped first. All bookkeeping is done in the thread that hands blocks out;
the threads that work on them only fill what they were told to.
"""

from __future__ import annotations

import itertools
import math
import threading
from typing import TYPE_CHECKING, Any, Final

from ..engines import monitor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .axes import InputAxis
    from .order import BlockOrder

    Index = tuple[int, ...]

#: Most blocks among which the next user of a piece is looked for.
_LOOK_AHEAD: Final = 4096
#: Seconds after which a thread that waits looks whether its work was cancelled.
_LOOK: Final = 0.1


class SharedPiece:
    """What several blocks need: a chunk of an input, or the results of a block that overlap other results.

    Attributes
    ----------
    coords
        Its coordinates.
    left
        Blocks that need it and have not been handed out.
    users
        Blocks that have been handed out and are not done.
    content
        What it is, once it is made; None before, and if that has failed.
    ready
        Set when it is made, or when that has failed.
    """

    __slots__ = ("content", "coords", "left", "ready", "users")

    def __init__(self, coords: Index, left: int) -> None:
        self.coords: Index = coords
        self.left: int = left
        self.users: int = 0
        self.content: Any = None
        self.ready: threading.Event = threading.Event()

    def wait(self) -> Any:
        """Return its content, once another thread has made it.

        Raises
        ------
        ReadCancelledError
            If it will not be made: the block that was to make it has failed, with the reason, or was never begun.
        """
        if self.content is None:
            wait_for(self.ready)
        if self.content is None:
            raise monitor.ReadCancelledError
        return self.content


def wait_for(event: threading.Event) -> None:
    """Wait for what another thread does, or until all work is cancelled, when that may never be done.

    Raises
    ------
    ReadCancelledError
        If all work is cancelled.
    """
    while not event.wait(_LOOK):
        if (watching := monitor.current()) is not None:
            watching.check()


class SharedPieces:
    """The pieces that are kept.

    Parameters
    ----------
    axes
        Axes along which the chunks are the pieces.
    order
        The order of blocks.
    most
        Most pieces that are kept, but for those that blocks in progress need.
    """

    def __init__(self, axes: Sequence[InputAxis], order: BlockOrder, most: int) -> None:
        self._axes, self._order, self._most = axes, order, most
        self._pieces: dict[Index, SharedPiece] = {}
        # Blocks that have not been handed out, for pieces that were dropped before the last one that needs them.
        self._left: dict[Index, int] = {}

    def claim(self, index: Index, needed: Iterable[Index]) -> tuple[list[SharedPiece], list[SharedPiece]]:
        """Return the pieces that a block needs, and which of them are to be made for it.

        Parameters
        ----------
        index
            The block. Blocks claim pieces in the order in which they are handed out.
        needed
            Coordinates of the pieces.
        """
        found, new = [], []
        for coords in needed:
            piece = self._pieces.get(coords)
            if piece is None:
                left = self._left.pop(coords, None)
                piece = SharedPiece(coords, math.prod(map(len, self._users(coords))) if left is None else left)
                self._pieces[coords] = piece
                new.append(piece)
            piece.left -= 1
            piece.users += 1
            found.append(piece)
        self._make_room(index)
        return found, new

    def release(self, pieces: Iterable[SharedPiece]) -> None:
        """Drop what no other block needs after a block that is done."""
        for piece in pieces:
            piece.users -= 1
            if not piece.users and piece.left <= 0:
                self._drop(piece)

    def _users(self, coords: Index) -> list[Sequence[int]]:
        """Return the blocks that need a piece, by their coordinates along each axis of the outputs."""
        users: list[Sequence[int]] = [range(n) for n in self._order.grid_shape]
        for axis, i in zip(self._axes, coords, strict=True):
            if axis.output is not None and axis.blocks is not None:
                users[axis.output] = axis.users(i)
        return users

    def _next_use(self, piece: SharedPiece, now: tuple[Index, Index]) -> tuple[Index, Index]:
        """Return the place in the order of the next block that needs a piece; of very many, this one."""
        users = self._users(piece.coords)
        if math.prod(map(len, users)) > _LOOK_AHEAD:
            return now
        return min((key for key in map(self._order.key, itertools.product(*users)) if key > now), default=now)

    def _make_room(self, index: Index) -> None:
        """Drop pieces while too much is kept: first those that are needed last."""
        excess = len(self._pieces) - self._most
        if excess <= 0:
            return
        now = self._order.key(index)
        idle = [piece for piece in self._pieces.values() if not piece.users]
        idle.sort(key=lambda piece: self._next_use(piece, now), reverse=True)
        for piece in idle[:excess]:
            self._left[piece.coords] = piece.left
            self._drop(piece)

    def _drop(self, piece: SharedPiece) -> None:
        del self._pieces[piece.coords]
        piece.content = None
