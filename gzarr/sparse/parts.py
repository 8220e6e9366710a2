"""A sparse matrix as its arrays."""

from __future__ import annotations

from typing import Any, NamedTuple


class Parts(NamedTuple):
    """A sparse matrix as its arrays, in host memory or on a GPU, for libraries other than SciPy and CuPy.

    For example ``torch.sparse_csr_tensor(parts.indptr, parts.indices, parts.data, parts.shape)``, where the columns of
    each row ascend: the entries have the order of the store, or of the columns that were chosen.

    Attributes
    ----------
    data
        ``(e,)``, the values.
    indices
        int32 ``(e,)``, the column of each (in CSC, the row).
    indptr
        int32 ``(n + 1,)``, or int64 for 2³¹ values and more: how many values are before each row (column).
    shape
        Rows and columns.
    """

    data: Any
    indices: Any
    indptr: Any
    shape: tuple[int, int]
