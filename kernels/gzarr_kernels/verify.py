"""Frames, decoded on the host before a device's decoder sees them: those are undefined on what does not decode.

Each frame is given to the decoder here as it would be given to the one there: the same bytes, to the same size. What it
decodes to is thrown away, and checksums of that are left to the device. GDeflate has no decoder here, so nothing
vouches for it.
"""

from __future__ import annotations

from numba import types

from . import context as C
from .frames import ALGORITHM, RAW, SOURCE, SOURCE_NBYTES, TARGET_NBYTES
from .jit import call_5, unit
from .memory import i64


@unit(types.int64, 7)
def frames_decode(
    context: int, staging: int, columns: int, capacity: int, first: int, count: int, verifies: int
) -> int:
    """Decode some frames, one after the other, to the worker's scratch.

    Parameters
    ----------
    context
        Address of the worker's context; its buffers FIRST and NEEDED are used.
    staging
        Address that the frames' sources count from.
    columns, capacity
        Of the frames (``frames.py``).
    first, count
        Which of them.
    verifies
        Address of ``verifies(context, source, nbytes, target, size)`` of the algorithm, which returns whether a frame
        decodes to ``size`` bytes; 0: there is none, so nothing is verified.

    Returns
    -------
    1 if all decode to what they should; else 0, which is also the answer where memory is out.
    """
    column = i64(columns)
    for f in range(first, first + count):
        if column[ALGORITHM * capacity + f] == RAW:
            continue
        if verifies == 0:
            return 0
        size = column[TARGET_NBYTES * capacity + f]
        target = C.ensure(context, C.FIRST, size + 64)
        if target == 0:
            return 0
        source = staging + column[SOURCE * capacity + f]
        if call_5(verifies, context, source, column[SOURCE_NBYTES * capacity + f], target, size) == 0:
            return 0
    return 1
