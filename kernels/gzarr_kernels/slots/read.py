"""The job of the loop that reads (``gzarr_kernels.read``), as an int64 array that it takes by address."""

from __future__ import annotations

from typing import Final

# The job: an int64 array that workers take by address.
#: Source of encoded bytes.
MODE: Final = 0
MODE_MEMORY: Final = 0
MODE_FILES: Final = 1
MODE_RANGES: Final = 2
#: Address of three int64 shared by all workers: next span; not 0 once a worker has failed; next byte of NEW.
SHARED: Final = 1
SPANS: Final = 2
#: int64 (spans + 1,): first row of each span in CHUNK_ROWS; only for MODE_RANGES (else one chunk per span).
SPAN_ROWS: Final = 3
#: int64 (n,): chunk of each row, or 0 if row and chunk are the same.
CHUNK_ROWS: Final = 4
#: int64 (spans,): file, byte offset and length of each span; only for MODE_RANGES.
SPAN_FILE: Final = 5
SPAN_OFFSET: Final = 6
SPAN_NBYTES: Final = 7
#: int64 (n,) each: address (MODE_MEMORY; 0: absent) or byte offset (MODE_RANGES) of each chunk, and its length (below
#: 0: absent).
WHERE: Final = 8
NBYTES: Final = 9
#: Paths: bytes, and int64 (files + 1,) offsets into them; each path ends in a NUL. For MODE_FILES, only a prefix and
#: coordinates.
PATHS: Final = 10
PATH_OFFSETS: Final = 11
PREFIX_NBYTES: Final = 12
#: int64 (n, COORDINATES): grid coordinates, which follow the prefix, joined by the character SEPARATOR.
GRID: Final = 13
COORDINATES: Final = 14
SEPARATOR: Final = 15
PROGRAM: Final = 16
OPERATIONS: Final = 17
CHUNK_NBYTES: Final = 18
MOST_ENCODED: Final = 19
#: int64 (n + 1,).
PIECE_OFFSETS: Final = 20
GEOMETRY: Final = 21
#: int64 (n, 2): status and detail of each chunk.
STATUS: Final = 22
#: Address of the fill element of absent chunks, in native byte order, or 0 to leave them out.
FILL: Final = 23
#: int64 (k,) of zeros.
ZERO_STRIDES: Final = 24
#: Flags of the machine that runs, which may not be the one that compiled: those that open a chunk's file; a symbolic
#: link itself (0 where there are none); and a directory, or what a link to one means.
OPEN_FLAGS: Final = 25
LINK_FLAGS: Final = 26
FOLDER_FLAGS: Final = 27
#: Address and size of output in new memory, or 0: workers share its first touch, ``HUGE_PAGE_BYTES`` at a time.
NEW: Final = 28
NEW_NBYTES: Final = 29
JOB_SIZE: Final = 30

#: Size of a huge page on most machines.
HUGE_PAGE_BYTES: Final = 2 << 20
#: Ranges of a file closer together than this are read in one request.
GAP_BYTES: Final = 4096
#: Bytes of an uncompressed chunk read at a time: they are placed while still in the core's own cache.
SLAB_BYTES: Final = 256 << 10
