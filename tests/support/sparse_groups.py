"""Sparse matrices as groups, written as AnnData specifies them, and read back as dense arrays; without SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np

import gzarr


def dense(shape: tuple[int, int], dtype: Any = "f4", seed: int = 0, share: float = 0.3) -> np.ndarray[Any, Any]:
    """Return a matrix with some rows of zeros, and one without any."""
    rng = np.random.default_rng(seed)
    values = rng.integers(1, 100, shape) * (rng.random(shape) < share)
    values[1::7] = 0
    if len(values) > 3:
        values[3] = np.arange(1, shape[1] + 1) % 100 + 1
    result: np.ndarray[Any, Any] = values.astype(dtype)
    if np.dtype(dtype).kind == "c":
        result = result + result * 1j
    return result


def compressed(matrix: np.ndarray[Any, Any], form: str) -> tuple[Any, Any, Any]:
    """Return the values, indices and offsets of a dense matrix."""
    rows = matrix if form == "csr" else matrix.T
    row, column = np.nonzero(rows)
    return rows[row, column], column, np.concatenate([[0], np.cumsum((rows != 0).sum(axis=1))])


def write(
    store: Any,
    shape: tuple[int, int],
    parts: tuple[Any, Any, Any],
    form: str = "csr",
    *,
    index: Any = "i4",
    offset: Any = "i8",
    path: str = "X",
    attributes: dict[str, Any] | None = None,
    **layout: Any,
) -> gzarr.Group:
    """Write a group; ``layout`` are arguments of ``create_array`` for the values and their indices."""
    said = {"encoding-type": f"{form}_matrix", "encoding-version": "0.1.0", "shape": list(shape)}
    version = layout.pop("zarr_format", 3)
    group = gzarr.create_group(
        store, path=path, attributes=said if attributes is None else attributes, zarr_format=version
    )
    layout = {"chunks": 64, **layout}
    group.create_array("data", data=parts[0], **layout)
    group.create_array("indices", data=np.asarray(parts[1]).astype(index), **layout)
    group.create_array("indptr", data=np.asarray(parts[2]).astype(offset), chunks=16)
    return group


def stored(matrix: np.ndarray[Any, Any], form: str = "csr", **options: Any) -> Any:
    """Return a store in memory with a matrix in the group "X"."""
    store = gzarr.MemoryStore()
    write(store, matrix.shape, compressed(matrix, form), form, **options)
    return store


def to_dense(parts: Any, form: str, to_numpy: Any = np.asarray) -> np.ndarray[Any, Any]:
    """Return what ``Matrix.read_parts`` returned as a dense array, after a check of its arrays."""
    data, indices, indptr = (to_numpy(part) for part in parts[:3])
    assert indices.dtype == np.int32
    assert indptr.dtype == np.int32
    rows = parts.shape[form == "csc"]
    assert len(indptr) == rows + 1
    assert indptr[0] == 0
    assert indptr[-1] == len(data) == len(indices)
    result = np.zeros((rows, parts.shape[form == "csr"]), data.dtype)
    np.add.at(result, (np.repeat(np.arange(rows), np.diff(indptr)), indices), data)
    return result if form == "csr" else result.T
