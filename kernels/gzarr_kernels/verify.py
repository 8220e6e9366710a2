"""Verification of frames by decoding them on the host first: a device's decoders are undefined on invalid frames.

The host's decoder gets the same bytes and the same decoded size as the device's. Its output is discarded; checksums of
the output are left to the device. GDeflate has no decoder on the host, so its frames cannot be verified.
"""

from __future__ import annotations

from numba import types

from .context import ensure
from .jit import call_5, unit
from .memory import i64
from .slots import context as C
from .slots.frames import ALGORITHM, RAW, SOURCE, SOURCE_NBYTES, TARGET_NBYTES


@unit(types.int64, 7)
def frames_decode(
    context: int, staging: int, columns: int, capacity: int, first: int, count: int, verifies: int
) -> int:
    """Decode some frames, one after the other, into the worker's scratch.

    Parameters
    ----------
    context
        Address of the worker's context; its buffers FIRST and NEEDED are used.
    staging
        Address to which the frames' sources are relative.
    columns, capacity
        Address and capacity of the columns of frames (``slots/frames.py``).
    first, count
        First frame and number of frames.
    verifies
        Address of the algorithm's ``verifies(context, source, nbytes, target, size)``, which returns whether a frame
        decodes to ``size`` bytes; 0 if there is none: compressed frames then fail.

    Returns
    -------
    1 if all frames decode to their sizes; else 0, also if out of memory.
    """
    column = i64(columns)
    for f in range(first, first + count):
        if column[ALGORITHM * capacity + f] == RAW:
            continue
        if verifies == 0:
            return 0
        size = column[TARGET_NBYTES * capacity + f]
        target = ensure(context, C.FIRST, size + 64)
        if target == 0:
            return 0
        source = staging + column[SOURCE * capacity + f]
        if call_5(verifies, context, source, column[SOURCE_NBYTES * capacity + f], target, size) == 0:
            return 0
    return 1
