"""The job of the loop that writes (``gzarr_kernels.write``), as an int64 array that it takes by address."""

from __future__ import annotations

from typing import Final

from . import read as R

# The job: an int64 array. It begins with the slots of ``read.py``. Writing uses MODE (FILES or MEMORY), SHARED, SPANS
# (number of rows), CHUNK_ROWS (the row's chunk in the plan), WHERE and NBYTES (MEMORY: address of the row's output
# buffer; number of encoded bytes, -1 for a chunk that is all fill), PATHS, PREFIX_NBYTES, GRID, COORDINATES, SEPARATOR
# (of the values' keys), PROGRAM, OPERATIONS, CHUNK_NBYTES, PIECE_OFFSETS, GEOMETRY, STATUS and FILL.
#: int64 (rows,): the row's value, its turn within the value, and its entry in the value's index.
VALUE: Final = R.JOB_SIZE
TURN: Final = R.JOB_SIZE + 1
SLOT: Final = R.JOB_SIZE + 2
#: int64 (values, STATE_SIZE).
STATE: Final = R.JOB_SIZE + 3
#: Whether chunks that are all fill are left out, and the address of the fill element in stored byte order.
SKIP_FILL: Final = R.JOB_SIZE + 4
STORED_FILL: Final = R.JOB_SIZE + 5
#: Whether chunks that lie in the input exactly as they are stored may be encoded from there.
DIRECT: Final = R.JOB_SIZE + 6
#: Names of temporary files: address of an ASCII prefix, its length, and the number of the first file, which is
#: appended as 16 hexadecimal digits.
TEMPORARY: Final = R.JOB_SIZE + 7
TEMPORARY_NBYTES: Final = R.JOB_SIZE + 8
TOKEN: Final = R.JOB_SIZE + 9
#: Whether files are flushed to disk before they are renamed.
DURABLE: Final = R.JOB_SIZE + 10
#: Shards: address of their indexes (16 bytes per entry, all ones), entries per shard (0: each value is one chunk),
#: whether a crc32c follows the index, and whether the index is at the start.
INDEXES: Final = R.JOB_SIZE + 11
ENTRIES: Final = R.JOB_SIZE + 12
CHECKSUM: Final = R.JOB_SIZE + 13
AT_START: Final = R.JOB_SIZE + 14
CREATE_FLAGS: Final = R.JOB_SIZE + 15
#: Uncompressed chunks in files: number of indices of the slowest dimension gathered at a time; 0: all.
SLAB: Final = R.JOB_SIZE + 16
#: Old content of rows. int64 (rows,): what is needed of it (``OLD_…`` below); 0 if no row needs any.
OLD: Final = R.JOB_SIZE + 17
#: Shards: int64 (values,), descriptor of the old file (-1: none); int64 (rows,), offset and size in it (size below 0:
#: absent). Addresses of 0 without shards: a chunk's old content is its file.
OLD_FILE: Final = R.JOB_SIZE + 18
OLD_OFFSET: Final = R.JOB_SIZE + 19
OLD_NBYTES: Final = R.JOB_SIZE + 20
#: Program that decodes a chunk, as PROGRAM and OPERATIONS of a read; MOST_ENCODED is used too.
OLD_PROGRAM: Final = R.JOB_SIZE + 21
OLD_OPERATIONS: Final = R.JOB_SIZE + 22
JOB_SIZE: Final = R.JOB_SIZE + 23

#: What is needed of a row's old content: nothing; all of it, and the row's pieces are changed in it; its stored bytes,
#: which are kept as they are (only in shards).
OLD_NONE: Final = 0
OLD_CHANGED: Final = 1
OLD_KEPT: Final = 2

# The state of a value.
#: Number of rows, number of finished rows, turn of the next row, file offset of the next chunk.
COUNT: Final = 0
DONE: Final = 1
NEXT: Final = 2
OFFSET: Final = 3
#: Descriptor of the temporary file; -1: none.
DESCRIPTOR: Final = 4
#: Outcome: a status, its detail, and the chunk concerned.
CODE: Final = 5
DETAIL: Final = 6
CHUNK: Final = 7
STATE_SIZE: Final = 8

#: Outcomes other than statuses: not written yet; all fill, so that an existing file has to be erased; not written,
#: because old content could not be read or decoded here.
PENDING: Final = -1
ERASE: Final = -2
LEFT: Final = -3
