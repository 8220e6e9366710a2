"""Results without axes: scalars, also where NumPy has an array without axes, as in zarr-python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr

DATA = np.arange(6, dtype="i4").reshape(2, 3)


@pytest.mark.parametrize(
    ("data", "selection"),
    [
        (DATA, (0, 1)),
        (DATA, (0, 1, ...)),
        (DATA, (..., -1, np.int8(2))),
        (np.array(7, "f8"), ()),
        (np.array(7, "f8"), ...),
    ],
    ids=repr,
)
def test_scalars(data: np.ndarray[Any, Any], selection: Any) -> None:
    import zarr

    store: dict[str, Any] = {}
    theirs = zarr.create_array(zarr.storage.MemoryStore(store), data=data)
    a = gzarr.array(data, device="cpu")
    for found in (
        a[selection],
        a.get_basic_selection(selection),
        theirs.get_basic_selection(selection),
        a.view[...][selection],
    ):
        assert type(found) is data.dtype.type
        assert found == data[selection]
    kept = a.read(selection)
    assert type(kept) is np.ndarray
    assert kept.shape == ()
    assert kept == data[selection]
