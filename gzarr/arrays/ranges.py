"""Reading many ranges of an array with one dimension into one array: the entries of many rows of a sparse matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..plan.ranges import plan_ranges
from .outputs import HOST

if TYPE_CHECKING:
    from ..plan.axes import IntArray
    from .read_options import ReadOptions
    from .reading import ReadableArray


def read_ranges(
    array: ReadableArray, starts: IntArray, counts: IntArray, dtype: np.dtype[Any], options: ReadOptions
) -> Any:
    """Read ranges of an array, one after the other, in one plan: each chunk is read and decoded once.

    Parameters
    ----------
    array
        Array of one dimension.
    starts, counts
        int64 ``(r,)``, first element and number of elements of each range, all inside the array, in any order.
    dtype
        Data type of the result, in native byte order. Elements are converted as by :meth:`gzarr.Array.read`.
    options
        Options of the read, from the array.

    Returns
    -------
    New array ``(counts.sum(),)`` in the memory of the options.

    Raises
    ------
    SelectionError, DeviceError, MemoryError, ChunkError
        As for :meth:`gzarr.Array.read`.
    """
    memory = options.memory
    # A device has no compiled conversion to float16.
    can_convert = memory is HOST or dtype != "f2"
    reader = array._reader if dtype == array.dtype else array._reader.converting(dtype) if can_convert else None
    own = array.dtype if reader is None else dtype
    reader = array._reader if reader is None else reader
    result = array._output((int(counts.sum()),), own, None, memory)
    if result.size:
        plan = plan_ranges(starts, counts, reader.planned_grid)
        reader.fill_planned(plan, [result[np.newaxis]], options.missing, memory, options.device)
    if own == dtype:
        return result
    converted = array._output(result.shape, dtype, None, memory)
    memory.copy(converted, result)
    return converted


def joined_ranges(starts: IntArray, counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return the same elements as fewer ranges: those that follow each other are one.

    Parameters
    ----------
    starts, counts
        As for :func:`read_ranges`.
    """
    if len(starts) < 2:
        return starts, counts
    first = np.flatnonzero(np.append(True, starts[1:] != starts[:-1] + counts[:-1]))
    return starts[first], np.add.reduceat(counts, first)
