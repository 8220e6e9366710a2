"""Shapes that cannot be those of a new array: of other data, and of elements without bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr


@pytest.mark.parametrize("shape", [(3,), (2, 2), 5])
@pytest.mark.parametrize("is_view", [False, True], ids=["array", "view"])
def test_the_shape_of_other_data_is_refused(shape: Any, is_view: bool) -> None:
    source = gzarr.array(np.arange(4), {}, device="cpu")
    store: dict[str, bytes] = {}
    with pytest.raises(gzarr.ArgumentError, match="differs from the shape of the data"):
        gzarr.array(source.view[...] if is_view else source, store, shape=shape)
    assert not store
    assert gzarr.array(source, {}, shape=(4,))[...].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "dtype", ["V0", np.dtype([]), [("a", "V0")], ("i4", (0,))], ids=["void", "no fields", "field", "subarray"]
)
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3,)])
def test_elements_without_bytes(dtype: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(gzarr.ArgumentError):
        gzarr.create_array({}, shape=shape, dtype=dtype)


@pytest.mark.parametrize("shape", [(), (0,), (3,)])
def test_every_array_is_true(shape: tuple[int, ...]) -> None:
    # As in zarr-python, so that "if array:" asks whether there is one.
    assert gzarr.zeros(shape)
