"""The geometry of one read, as an int64 array that jitted functions take by address.

A *piece* is a box of one chunk that goes to a box of one output. ``k`` dimensions, ``g`` outputs. Whoever fills the
array keeps the arrays behind its addresses alive and has checked that every box lies within its chunk and its output.
"""

from __future__ import annotations

from typing import Final

#: Most dimensions that a geometry can have (NumPy's own limit).
MAX_DIMS: Final = 64

K: Final = 0
#: Bytes of one placed element.
ITEMSIZE: Final = 1
#: Width of the units to byte-swap: 0, 2, 4 or 8.
SWAP: Final = 2
#: Bytes from the start of a stored element to what is placed (a field of a structured type).
FIELD_OFFSET: Final = 3
#: int64 (m, k) columns: first element in the chunk, number of elements, first element in the output.
START: Final = 4
COUNT: Final = 5
TARGET: Final = 6
#: int64 (m,): which output.
OUTPUT: Final = 7
#: int64 (k,): step in the chunk, in elements.
STEP: Final = 8
#: int64 (k,): bytes between neighbours in the decoded chunk.
SOURCE_STRIDES: Final = 9
#: int64 (g,): address of each output's first element.
BASES: Final = 10
#: int64 (g, k): bytes between neighbours in each output.
TARGET_STRIDES: Final = 11
#: int64 (k,): addresses of the index tables of a dimension, or 0: index in the chunk, index in the output.
TABLE_SOURCE: Final = 12
TABLE_TARGET: Final = 13
#: int64 (k,): dimensions from the slowest to the fastest in the decoded chunk.
ORDER: Final = 14
#: Which rows are contiguous on both sides: ANY_ROWS (fastest dimension: no table, step 1, dense in chunk and in all
#: outputs), SINGLE_ELEMENTS (the same, but not dense in all outputs: those of one element), or 0 for none.
DENSE_ROWS: Final = 15
SINGLE_ELEMENTS: Final = 1
ANY_ROWS: Final = 2
#: int64 (k,): shape of the chunk.
CHUNK_SHAPE: Final = 16
#: int64 (p,): byte offsets in the chunk and addresses of the elements of a point selection, or 0.
POINT_SOURCE: Final = 17
POINT_TARGET: Final = 18
#: Not 0 if the outputs are larger than the caches, so that rows are written past them.
STREAM: Final = 19

SIZE: Final = 20
