"""The job of reading shard indexes (``gzarr_kernels.index``), as an int64 array that it takes by address."""

from __future__ import annotations

from typing import Final

from . import read as R

# The job: an int64 array. It begins with the slots of ``read.py``. Those in use are SHARED, SPANS (number of
# shards), PATHS, PREFIX_NBYTES, GRID, COORDINATES, SEPARATOR, STATUS and OPEN_FLAGS.
#: Size of an index without its checksum, whether a crc32c follows it, and whether it is at the start of the file.
ENTRIES_NBYTES: Final = R.JOB_SIZE
CHECKSUM: Final = R.JOB_SIZE + 1
AT_START: Final = R.JOB_SIZE + 2
#: Address to which the indexes are written, one after the other (with room for a checksum after the last).
INTO: Final = R.JOB_SIZE + 3
#: int64 (shards,): size of each file.
FILE_NBYTES: Final = R.JOB_SIZE + 4
JOB_SIZE: Final = R.JOB_SIZE + 5
