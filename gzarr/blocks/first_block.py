"""What waits for the results of the first block: outputs are created with their data types, and not before.

So a function that fails at once leaves nothing behind. Results of all other blocks have the data types of the first
one's, or are refused: what is stored must not depend on which block was complete first.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from ..dtypes.properties import native
from ..engines import monitor
from ..errors import ArgumentError
from ..hierarchy.new_nodes import NewArray, arguments_of_data
from ..metadata.formats import DEFAULT_FORMAT
from .outputs import CreatedOutput, NewOutput
from .sharing import wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .blocks import Block, OutputBlocks
    from .memory import BlockMemory


class FirstBlock:
    """Outputs that are made when the results of the first block are there; other threads wait for it.

    Parameters
    ----------
    outputs
        All outputs: those that are to be created, and others.
    blocks
        The blocks of each.
    """

    def __init__(self, outputs: Sequence[Any], blocks: Sequence[OutputBlocks]) -> None:
        self._outputs, self._blocks = outputs, blocks
        self._ready = threading.Event()
        self._made = False

    def make(self, results: Sequence[Any], memory: BlockMemory) -> tuple[list[Any], list[np.dtype[Any] | None]]:
        """Make the outputs for the results of the first block.

        Returns
        -------
        The outputs, and the data type of each if the first block's result decided it.

        Raises
        ------
        ArgumentError
            If an array with such elements, or at this place, cannot be created.
        """
        outputs = list(self._outputs)
        dtypes: list[np.dtype[Any] | None] = [None] * len(outputs)
        for i, (output, blocks, result) in enumerate(zip(self._outputs, self._blocks, results, strict=True)):
            if not isinstance(output, (CreatedOutput, NewOutput)):
                continue
            wanted = None
            if output.follows_results:
                wanted, dtypes[i] = data_types_of(result)
            if isinstance(output, CreatedOutput):
                outputs[i] = output.planned(wanted)
            else:
                output.array(blocks.shape, dtypes[i] or result.dtype, memory)
        # Not before there can be all of them.
        outputs = [output.create() if isinstance(output, NewArray) else output for output in outputs]
        self._made = True
        return outputs, dtypes

    def end(self) -> None:
        """Tell those who wait that the outputs are made, or will not be."""
        self._ready.set()

    def wait(self) -> None:
        """Wait until the outputs are made; end the work in this thread if they will not be."""
        # The first block may never be worked on, if all work was cancelled.
        wait_for(self._ready)
        if not self._made:
            # The first block has failed, with the reason.
            raise monitor.ReadCancelledError


def check_type(result: Any, wanted: np.dtype[Any] | None, block: Block, function: str) -> None:
    """Refuse a result of another data type than the first block's, which decided that of the output.

    Raises
    ------
    ArgumentError
        If so.
    """
    if wanted is None:
        return
    found = result.dtype if getattr(result, "dtype", None) == wanted else data_types_of(result)[1]
    if found != wanted:
        raise ArgumentError(
            f"{function} returned elements of {found} for {block}, and of {wanted} for the first block, which the "
            "output was created with: pass dtype= (or Output(dtype=)), a data type for all results, or have the "
            "function return one, such as by x.astype(...)"
        )


def data_types_of(result: Any) -> tuple[Any, np.dtype[Any]]:
    """Return the data type of the array for a result, as for :func:`gzarr.create_array`; and NumPy's."""
    try:
        found = native(np.dtype(result.dtype))
    except (AttributeError, TypeError):
        # Tensors have types of their own.
        found = np.dtype(object)
    if not found.hasobject:
        return found, found
    wanted = arguments_of_data(result, None, {}, DEFAULT_FORMAT)[2]["dtype"]
    return wanted, native(wanted) if isinstance(wanted, np.dtype) else np.dtype(object)
