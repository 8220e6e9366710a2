"""Dimensions that are reversed by their names, which arrays of xarray have in memory, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

import gzarr
from gzarr.loader import Dataset, Loader, Rows, Windows

FIELD = np.arange(6 * 4 * 3, dtype="f4").reshape(6, 4, 3)
DIMS = ("time", "lat", "lon")


def stored() -> gzarr.Array:
    return gzarr.array(FIELD, chunks=(2, 4, 3), dimension_names=DIMS, device="cpu")


@pytest.mark.parametrize("kind", ["array", "variable"])
def test_arrays_of_xarray_have_their_names(kind: str) -> None:
    given = xr.DataArray(FIELD, dims=DIMS)
    own = given if kind == "array" else given.variable
    wanted = FIELD[:, ::-1]
    (alone,) = Loader(own, batch_size=6, shuffle=False, flip="lat")
    np.testing.assert_array_equal(alone["data"], wanted)
    (batch,) = Loader({"u": stored(), "v": own}, batch_size=6, shuffle=False, flip="lat", stack=("u", "v"))
    np.testing.assert_array_equal(batch["data"], np.stack([wanted, wanted], axis=1))


def test_names_that_are_no_text() -> None:
    given = xr.DataArray(FIELD, dims=("time", 0, 1))
    np.testing.assert_array_equal(Dataset(given)[2]["data"], FIELD[2])
    with pytest.raises(gzarr.ArgumentError, match="flip='lat' is not a dimension of any array"):
        Loader(given, flip="lat")


@pytest.mark.parametrize(
    ("other", "has"),
    [
        (FIELD, "dimensions without names"),
        (xr.DataArray(FIELD, dims=("time", "y", "lon")), r"the dimensions \('time', 'y', 'lon'\)"),
    ],
    ids=["no names", "other names"],
)
def test_one_tensor_is_reversed_as_a_whole(other: object, has: str) -> None:
    arrays = {"u": stored(), "v": other}
    message = f"flip='lat' is a dimension of 'u', but not of 'v', which is stacked with it and has {has}: give the axis"
    with pytest.raises(gzarr.ArgumentError, match=message):
        Loader(arrays, Rows(), flip="lat", stack=("v", "u"))
    (batch,) = Loader(arrays, Rows(), batch_size=6, shuffle=False, flip=1, stack=("v", "u"))
    np.testing.assert_array_equal(batch["data"], np.stack([FIELD[:, ::-1]] * 2, axis=1))
    # Beside each other, arrays may have other dimensions.
    (batch,) = Loader(arrays, Rows(), batch_size=6, shuffle=False, flip="lat")
    np.testing.assert_array_equal(batch["u"], FIELD[:, ::-1])
    np.testing.assert_array_equal(batch["v"], FIELD)


@pytest.mark.parametrize("flip", ["lat", ("lat", "lon"), 1])
def test_static_arrays_are_reversed_by_name(flip: Any) -> None:
    static = {"o": stored().view[0], "x": xr.DataArray(FIELD[0], dims=DIMS[1:]), "n": FIELD[0]}
    loader = Loader(stored(), Windows(0, {"r": (0, 0)}, static=static), batch_size=6, shuffle=False, flip=flip)
    (batch,) = loader
    turned = {"lat": FIELD[0, ::-1], ("lat", "lon"): FIELD[0, ::-1, ::-1], 1: FIELD[0]}[flip]
    np.testing.assert_array_equal(batch["o"], turned)
    np.testing.assert_array_equal(batch["x"], turned)
    np.testing.assert_array_equal(batch["n"], FIELD[0])
