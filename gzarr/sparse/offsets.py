"""Where the rows of a matrix begin: ``indptr``, which is read whole, and checked; and errors of wrong elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays.array import Array
from ..errors import ChunkDecodeError

if TYPE_CHECKING:
    import numpy.typing as npt

    from .layout import Layout

    IntArray = npt.NDArray[np.int64]


def read_offsets(layout: Layout) -> IntArray:
    """Return ``indptr`` in host memory, int64 ``(n + 1,)``, read-only.

    Raises
    ------
    ChunkDecodeError
        If it does not begin with 0, descends, or goes beyond the values.
    ChunkError, SelectionError
        As for :meth:`gzarr.Array.read`.
    """
    array = layout.indptr
    is_csr = layout.form == "csr"
    major = layout.shape[0] if is_csr else layout.shape[1]
    what = "row" if is_csr else "column"
    # An unsigned number that does not fit becomes negative.
    found: IntArray = element_on_host(array, slice(major + 1)).astype(np.int64, copy=False)
    room = min(len(layout.data), len(layout.indices))
    if found[0]:
        raise damaged(array, 0, f"it begins with {found[0]}, not with 0")
    descends = found[1:] < found[:-1]
    if descends.any():
        i = int(np.argmax(descends))
        raise damaged(array, i + 1, f"{what} {i} has values from {found[i]} to {found[i + 1]}: it must not descend")
    if found[-1] > room:
        i = int(np.searchsorted(found, room, "right")) - 1
        raise damaged(
            array, i + 1, f"{what} {i} has values up to {found[i + 1]}, but 'data' and 'indices' have only {room}"
        )
    found.flags.writeable = False
    return found


def element_on_host(array: Array, selection: Any) -> Any:
    """Return elements in host memory, wherever the array is read to."""
    return Array(array.metadata, array.store, array.path, device="cpu", missing=array._missing)[selection]


def damaged(array: Array, element: int, reason: str) -> ChunkDecodeError:
    """Return the error of a wrong element of an array, which names its chunk."""
    metadata, place = array.metadata, np.array([[element]], np.int64)
    (chunk,) = array._planned_grid.chunk_of(place).tolist()
    (stored,) = metadata.chunk_grid.chunk_of(place).tolist()
    key = metadata.key_prefix(array.path) + metadata.chunk_key_encoding.encode(tuple(stored))
    return ChunkDecodeError(reason, node=array.name, chunk=tuple(chunk), key=key)
