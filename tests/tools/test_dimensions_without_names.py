"""Version 3 has two ways to say that no dimension has a name: no names, and null for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError

VALUES = np.arange(6, dtype="i2").reshape(2, 3)


@pytest.mark.parametrize("zarr_format", [1, 2])
def test_earlier_versions_have_none(zarr_format: Any) -> None:
    source: dict[str, bytes] = {}
    array = gzarr.create_array(source, data=VALUES, dimension_names=[None, None], device="cpu")
    assert array.dimension_names == (None, None)
    copies = (
        gzarr.copy(source, {}, zarr_format=zarr_format, device="cpu"),
        gzarr.array(array, zarr_format=zarr_format, device="cpu"),
        gzarr.create_array({}, data=VALUES, dimension_names=[None, None], zarr_format=zarr_format, device="cpu"),
    )
    for copied in copies:
        assert isinstance(copied, gzarr.Array)
        assert copied.dimension_names is None
        assert dict(copied.attrs) == {}
        np.testing.assert_array_equal(copied[...], VALUES)


def test_some_names_are_refused() -> None:
    source = gzarr.create_array({}, data=VALUES, dimension_names=["y", None], device="cpu")
    with pytest.raises(ArgumentError, match="all names would be lost"):
        gzarr.copy(source, {}, zarr_format=2, device="cpu")
