"""What is appended to a matrix: a sparse matrix of SciPy or CuPy, checked before anything is written.

SciPy and CuPy make matrices of any three arrays. Where these do not fit together, all that is stored would become
unreadable, and SciPy's conversions to other formats write out of bounds. So a block is checked as it is given, and once
more if it is converted: that offsets do not descend, and the least and the greatest index.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..arrays.elements import as_elements
from ..arrays.host_copies import host_copy
from ..errors import ArgumentError
from .host import scipy_sparse
from .parts import Parts

if TYPE_CHECKING:
    import numpy.typing as npt

    from .layout import Form, Layout

#: Formats of compressed rows: what their rows and columns are called.
_COMPRESSED: Final = {
    "csr": ("row", "column"),
    "csc": ("column", "row"),
    "bsr": ("row of blocks", "column of blocks"),
}


@dataclass(frozen=True, eq=False)
class Added:
    """Rows to be appended (columns, in CSC), with elements of the types of the matrix.

    Attributes
    ----------
    values, indices
        ``(e,)`` in host memory.
    offsets
        int64 ``(n + 1,)``: the entries of row ``i`` are ``offsets[i]`` to ``offsets[i + 1]``.
    """

    values: npt.NDArray[Any]
    indices: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]


def on_host(block: Any, form: Form, name: str) -> Any:
    """Return a matrix of SciPy or CuPy as one of SciPy in a format, checked.

    Raises
    ------
    ArgumentError
        If it is neither, or if its arrays do not fit together.
    """
    sparse = scipy_sparse()
    is_on_device = type(block).__module__.startswith("cupyx.") and hasattr(block, "get")
    try:
        found = host_copy(block) if is_on_device else block
    # SciPy looks at some of what it gets.
    except ValueError as error:
        raise _malformed(name, str(error)) from error
    if not sparse.issparse(found) or found.ndim != 2:
        raise ArgumentError(
            f"matrix {name!r} takes sparse matrices of SciPy or CuPy with two dimensions, not {type(block).__name__}; "
            f"{_way(block)}"
        )
    _check(found, name)
    try:
        made = found.asformat(form)
    except ValueError as error:
        raise _malformed(name, str(error)) from error
    if made is not found:
        _check(made, name)
    return made


def _way(block: Any) -> str:
    """Say how something else becomes a sparse matrix."""
    if isinstance(block, Parts):
        return "scipy.sparse.csr_array(parts[:3], shape=parts.shape) makes one of the parts of CSR"
    # AnnData's matrices in files.
    if hasattr(block, "to_memory"):
        return "its to_memory() reads it as one; of a large one, append blocks of rows, m.append(block[begin:end])"
    # A matrix of gzarr, whose module imports this one.
    if hasattr(block, "to_dense") and hasattr(block, "nnz"):
        return "matrix[:] reads it as one; of a large one, append blocks of rows, m.append(matrix[begin:end])"
    return "scipy.sparse.csr_array(values) makes one of a dense array"


def added_to(layout: Layout, block: Any) -> Added:
    """Return what a block, from :func:`on_host`, adds to a matrix.

    Raises
    ------
    ArgumentError
        If the matrix has another number of columns (in CSC, of rows), or if its types cannot hold an element.
    """
    name = layout.group.name
    other = int(layout.form == "csr")
    if block.shape[other] != layout.shape[other]:
        what = ("rows", "columns")[other]
        raise ArgumentError(
            f"matrix {name!r} has {layout.shape[other]} {what}, but the block has {block.shape[other]}: "
            "nothing was changed"
        )
    offsets = block.indptr.astype(np.int64)
    end = int(offsets[-1])
    values, indices = (
        as_elements(elements[:end], array.dtype, (end,), array.name)
        for elements, array in ((block.data, layout.data), (block.indices, layout.indices))
    )
    return Added(values, indices, offsets)


def _check(block: Any, name: str) -> None:
    """Refuse a matrix of SciPy whose arrays do not fit together."""
    if block.format == "coo":
        if not len(block.row) == len(block.col) == len(block.data):
            raise _malformed(name, f"{len(block.row)} rows, {len(block.col)} columns and {len(block.data)} values")
        for numbers, count, what in zip((block.row, block.col), block.shape, ("row", "column"), strict=True):
            if (place := _first_outside(numbers, count)) >= 0:
                raise _malformed(name, f"entry {place} is in {what} {numbers[place]}, but there are {count} {what}s")
    elif block.format in _COMPRESSED:
        _check_compressed(block, name)


def _check_compressed(block: Any, name: str) -> None:
    row, column = _COMPRESSED[block.format]
    sizes = block.blocksize if block.format == "bsr" else (1, 1)
    shape = [length // size for length, size in zip(block.shape, sizes, strict=True)]
    rows, columns = shape[::-1] if block.format == "csc" else shape
    offsets, indices, room = block.indptr, block.indices, min(len(block.data), len(block.indices))
    for array, what in ((offsets, "indptr"), (indices, "indices")):
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise _malformed(name, f"{what!r} is {array.dtype} of shape {array.shape}, not integers in one dimension")
    if len(offsets) != rows + 1:
        raise _malformed(name, f"'indptr' has {len(offsets)} elements, but there are {rows} {row}s")
    if offsets[0]:
        raise _malformed(name, f"'indptr' begins with {offsets[0]}, not with 0")
    descends = offsets[1:] < offsets[:-1]
    if descends.any():
        i = int(np.argmax(descends))
        raise _malformed(name, f"{row} {i} has values from {offsets[i]} to {offsets[i + 1]}: 'indptr' descends")
    end = int(offsets[-1])
    if end > room:
        raise _malformed(name, f"'indptr' ends with {end}, but 'data' and 'indices' have only {room}")
    if (place := _first_outside(indices[:end], columns)) >= 0:
        i = int(np.searchsorted(offsets, place, "right")) - 1
        raise _malformed(
            name, f"{row} {i} has an entry in {column} {indices[place]}, but there are {columns} {column}s"
        )


def _first_outside(numbers: npt.NDArray[Any], count: int) -> int:
    """Return the place of the first number that is not from 0 to ``count`` − 1, or −1."""
    if not len(numbers) or (numbers.min() >= 0 and numbers.max() < count):
        return -1
    return int(np.argmax((numbers < 0) | (numbers >= count)))


def _malformed(name: str, reason: str) -> ArgumentError:
    return ArgumentError(f"matrix {name!r}: the block is malformed: {reason}. Nothing was changed")
