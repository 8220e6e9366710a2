"""The geometry of one read, as an int64 array that jitted functions take by address.

A *piece* is a box of one chunk that goes to a box of one output. In shapes, ``m`` is the number of pieces, ``k`` of
dimensions, ``g`` of outputs. The caller keeps the arrays behind the addresses alive and checks beforehand that every
box is within its chunk and its output.
"""

from __future__ import annotations

from typing import Final

#: Most dimensions that a geometry can have (NumPy's own limit).
MAX_DIMS: Final = 64

K: Final = 0
#: Size of one placed element in the output, in bytes.
ITEMSIZE: Final = 1
#: Width of the units to byte-swap: 0, 2, 4 or 8.
SWAP: Final = 2
#: Byte offset of the placed bytes in a stored element (for a field of a structured type).
FIELD_OFFSET: Final = 3
#: int64 (m, k) columns: first element in the chunk, number of elements, first element in the output.
START: Final = 4
COUNT: Final = 5
TARGET: Final = 6
#: int64 (m,): index of the output.
OUTPUT: Final = 7
#: int64 (k,): step in the chunk, in elements.
STEP: Final = 8
#: int64 (k,): strides of the decoded chunk, in bytes.
SOURCE_STRIDES: Final = 9
#: int64 (g,): address of each output's first element.
BASES: Final = 10
#: int64 (g, k): strides of each output, in bytes.
TARGET_STRIDES: Final = 11
#: int64 (k,): addresses of the index tables of a dimension, or 0: index in the chunk, index in the output.
TABLE_SOURCE: Final = 12
TABLE_TARGET: Final = 13
#: int64 (k,): dimensions from the slowest to the fastest in the decoded chunk.
ORDER: Final = 14
#: Rows that are contiguous on both sides: ANY_ROWS (the fastest dimension has no table and step 1, and is dense in the
#: chunk and in all outputs), SINGLE_ELEMENTS (the same, but not dense in all outputs: only rows of one element), or 0.
DENSE_ROWS: Final = 15
SINGLE_ELEMENTS: Final = 1
ANY_ROWS: Final = 2
#: int64 (k,): shape of the chunk.
CHUNK_SHAPE: Final = 16
#: int64 (p,): byte offsets in the chunk and addresses of the elements of a point selection, or 0.
POINT_SOURCE: Final = 17
POINT_TARGET: Final = 18
#: Not 0 if the outputs are larger than the caches, so that rows are written with streaming stores.
STREAM: Final = 19

#: Size of one placed element in the decoded chunk, in bytes.
SOURCE_ITEMSIZE: Final = 20
#: Number of the conversion of placed elements (``slots/conversion.py``); 0 for none.
CONVERSION: Final = 21

SIZE: Final = 22
