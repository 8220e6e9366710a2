"""Numbers that the attribute ``dtype`` makes booleans: masked as xarray does it, on any device."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import xarray as xr

from gzarr.integrations.xarray_masking import Masking

SCALES: list[dict[str, Any]] = [{}, {"scale_factor": 0.5}, {"add_offset": 1}]


@pytest.mark.filterwarnings("ignore:variable .v. has")
@pytest.mark.parametrize("dtype", ["i1", "u1", "i8", "u8", "f4", "f8"])
def test_masked_flags(dtype: str) -> None:
    numbers = np.array([0, 1, 2, 0, 127], dtype)
    # What is -1 in a signed type is the largest number of an unsigned one.
    numbers[3:4].view("u1")[...] = 255
    cases = itertools.product((numbers[0], numbers[2], numbers[3]), ({}, {"missing_value": 127}), ("true", "false"))
    for (fill, missing, unsigned), scale in itertools.product(cases, SCALES):
        attributes = {"dtype": "bool", "_FillValue": fill, "_Unsigned": unsigned, **missing, **scale}
        with np.errstate(invalid="ignore"):
            stored = xr.Variable("x", numbers, attributes)
            decoded = xr.conventions.decode_cf_variable("v", stored)
            found = Masking.of(stored, decoded).apply(numbers.copy())
        assert found.dtype == bool
        np.testing.assert_array_equal(found, decoded.values)
