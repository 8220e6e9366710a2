"""The job of filling a wave (``gzarr_kernels.stage``), as an int64 array; it begins with the slots of ``read``."""

from __future__ import annotations

from typing import Final

from . import read as R

#: Staging memory: address and size in bytes.
STAGING: Final = R.JOB_SIZE
CAPACITY: Final = R.JOB_SIZE + 1
#: Format of chunks: address of the function that divides them into frames (0: not compressed), number of crc32c
#: suffixes, decoded size in bytes. The function, ``frames(context, address, at, nbytes, size, chunk, columns, capacity,
#: frame)``, inspects ``nbytes`` bytes at ``address + at`` and returns the number of frames, or REFUSED; see ``_cut``.
CUT: Final = R.JOB_SIZE + 2
CHECKSUMS: Final = R.JOB_SIZE + 3
EXPECTED: Final = R.JOB_SIZE + 4
#: Bytes before a chunk that align the data after its header.
LEAD: Final = R.JOB_SIZE + 5
#: Address of the frames' columns (``frames``), and their capacity.
FRAMES: Final = R.JOB_SIZE + 6
MOST_FRAMES: Final = R.JOB_SIZE + 7
#: Address of int64 (rows, RESULTS): outcome of each chunk.
OUTCOMES: Final = R.JOB_SIZE + 8
#: Address of an int64, the next row to take, for the workers of one job; and the outcome of the job's first row.
NEXT: Final = R.JOB_SIZE + 9
FIRST: Final = R.JOB_SIZE + 10
#: Whether to decode frames without a checksum on the host first; and the address of the function for it
#: (``verify.py``).
VERIFY: Final = R.JOB_SIZE + 11
VERIFIES: Final = R.JOB_SIZE + 12
JOB_SIZE: Final = R.JOB_SIZE + 13

# The columns of the outcomes.
STATE: Final = 0
TYPESIZE: Final = 1
BLOCKSIZE: Final = 2
BITS: Final = 3
DIRECT: Final = 4
END: Final = 5
RESULTS: Final = 6

READY: Final = 0
ABSENT: Final = 1
#: No room left in this wave.
DEFERRED: Final = 2
#: Left to the host's decoders.
FALLBACK: Final = 3
