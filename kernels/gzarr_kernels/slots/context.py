"""The context of one worker, as an int64 array that compiled code takes by address (``gzarr_kernels.context``)."""

from __future__ import annotations

from typing import Final

from ..operations import STATES

#: Buffers: each an address and a capacity.
ENCODED: Final = 0
FIRST: Final = 2
SECOND: Final = 4
BLOCKS: Final = 6
NEEDED: Final = 8
BUFFERS_END: Final = 10
#: The last decoded chunk: address, size, and the typesize (1: plain) and block size of its layout.
RESULT: Final = 10
RESULT_NBYTES: Final = 11
TYPESIZE: Final = 12
BLOCKSIZE: Final = 13
#: Detail of the last failure.
DETAIL: Final = 14
#: Totals since the caller cleared them: nanoseconds of reading, decoding and placing; encoded bytes; chunks.
READ_NS: Final = 15
DECODE_NS: Final = 16
PLACE_NS: Final = 17
ENCODED_BYTES: Final = 18
CHUNKS: Final = 19
#: Open file: its index and descriptor (-1: none).
FILE: Final = 20
DESCRIPTOR: Final = 21
#: Two int64 for results returned by address (also a timespec).
OUT0: Final = 22
OUT1: Final = 23
#: Search method of encoders, a number of ``searches.py``.
WAY: Final = 24
#: Nanoseconds after which a loop over chunks returns to its caller even if chunks are left; 0: no limit.
SLICE_NS: Final = 25
#: For the chunk being decoded: element size of byte planes that the caller takes, or 0; address of the geometry, and
#: the range of its pieces to be placed (everything if LAST_PIECE is 0); scratch for ``mark_piece``. See ``decode.py``.
PLANES: Final = 26
GEOMETRY: Final = 27
FIRST_PIECE: Final = 28
LAST_PIECE: Final = 29
SCRATCH: Final = 30
#: Address of the grid position of the last absent chunk whose folders were looked at; 0: of none in this job.
LOOKED_AT: Final = 31
#: From here on, ``_OWN_SLOTS`` slots for each of ``operations.STATES``.
_OWN: Final = 32
_OWN_SLOTS: Final = 4
SIZE: Final = _OWN + _OWN_SLOTS * len(STATES)


def own(name: str) -> int:
    """Return the first of the four slots of one of ``operations.STATES``; they are initially 0."""
    return _OWN + _OWN_SLOTS * STATES.index(name)
