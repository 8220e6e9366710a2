"""Computing blocks: their elements are read, and given to the function."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol

from ..documents.json import quote
from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .blocks import Block, BlockGrid
    from .inputs import BlockWindow, Input
    from .memory import BlockMemory

    Index = tuple[int, ...]


class Computing(Protocol):
    """What computes the results of blocks. Claims are made, in the order of blocks, and released in one thread."""

    def claim(self, index: Index) -> Any:
        """Return what a block needs."""

    def compute(self, block: Block, claim: Any, memory: BlockMemory) -> tuple[list[Any], Any]:
        """Return the results of a block for each output, without the halo, and its value that is to be reduced.

        Raises
        ------
        ArgumentError
            If the function returns something else.
        ChunkError
            If a chunk cannot be read.
        Exception
            What the function raises.
        """

    def release(self, claim: Any) -> None:
        """Drop what no other block needs after a block that is done."""


class FunctionCalls:
    """Calls of the function.

    Parameters
    ----------
    function
        The function.
    inputs
        Its inputs.
    grid
        The blocks.
    reduces
        Whether it returns a value after its outputs.
    """

    def __init__(
        self, function: Callable[..., Any], inputs: Sequence[Input], grid: BlockGrid, *, reduces: bool
    ) -> None:
        self._function, self._inputs, self._grid, self._reduces = function, inputs, grid, reduces
        self._tells = takes_block_info(function)
        #: Name of the function, in messages.
        self.name: str = name_of(function)

    def claim(self, index: Index) -> list[BlockWindow]:
        """Return what a block needs of each input."""
        return [one.claim(index) for one in self._inputs]

    def release(self, claim: list[BlockWindow]) -> None:
        """Drop chunks that no other block needs."""
        for one, window in zip(self._inputs, claim, strict=True):
            one.release(window)

    def compute(self, block: Block, claim: list[BlockWindow], memory: BlockMemory) -> tuple[list[Any], Any]:
        """Return the results of a block, without the halo, and its value; see :class:`Computing`."""
        results, value = self.call(block, claim, memory)
        each = zip(self._grid.outputs, block.boxes, results, strict=True)
        return [blocks.cut(result, block, box, self.name) for blocks, box, result in each], value

    def call(self, block: Block, claim: list[BlockWindow], memory: BlockMemory) -> tuple[list[Any], Any]:
        """Return what the function gives for a block: an item for each output, and the value.

        Raises
        ------
        ArgumentError
            If it gives fewer or more.
        """
        read = [one.read(window, memory) for one, window in zip(self._inputs, claim, strict=True)]
        with memory.current():
            results = self._function(*read, block_info=block) if self._tells else self._function(*read)
        read.clear()
        outputs = len(self._grid.outputs)
        some = [results] if outputs + self._reduces == 1 else results
        if not isinstance(some, (list, tuple)) or len(some) != outputs + self._reduces:
            raise ArgumentError(
                f"{self.name} must return {outputs} arrays"
                f"{' and a value to be reduced' if self._reduces else ''} for {block}, not {type(results).__name__}"
            )
        if not self._reduces:
            return list(some), None
        # Values wait until those of blocks before it are reduced.
        with memory.current():
            return list(some[:outputs]), memory.copied(some[-1])


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, for messages."""
    return getattr(function, "__name__", None) or quote(function)


def takes_block_info(function: Callable[..., Any]) -> bool:
    """Return whether a function has a parameter ``block_info``."""
    try:
        return "block_info" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
