"""The job of gathering pieces into rows of several arrays (``gzarr_kernels.batch``), as an int64 array."""

from __future__ import annotations

from typing import Final

from . import read as R

# The job begins with the slots of ``read.py``. Those in use are SHARED and SPANS (number of pieces). ``g`` is the
# number of arrays; each has a geometry (``geometry.py``), in whose terms the array is a chunk and its rows are the
# indices of the slowest dimension.
#: int64 (g,): address of each geometry, and of the first of the rows to fill.
GEOMETRIES: Final = R.JOB_SIZE
TARGETS: Final = R.JOB_SIZE + 1
#: int64 (g,): first of the pieces to copy; and int64 (g + 1,): how many of them come before those of an array.
FIRST_PIECES: Final = R.JOB_SIZE + 2
PIECES_BEFORE: Final = R.JOB_SIZE + 3
#: First row to fill, and end.
LOW: Final = R.JOB_SIZE + 4
HIGH: Final = R.JOB_SIZE + 5
JOB_SIZE: Final = R.JOB_SIZE + 6
