"""Tables that are written to arrays of integers: no integer is rounded by the table's own conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
LARGE = 2**53 + 1
MAKES: dict[str, Callable[[Any], Any]] = {"pandas": pd.DataFrame, "pyarrow": pa.table}


@pytest.mark.parametrize("library", MAKES)
def test_integers_beside_numbers(library: str) -> None:
    make = MAKES[library]
    a = gzarr.zeros((2, 2), dtype="i8")
    table = make({"n": [LARGE, 1], "x": [0.0, 2.0]})
    for write in (lambda: a.__setitem__(..., table), lambda: a.write((), table), lambda: a.append(table)):
        with pytest.raises(gzarr.ArgumentError, match="of several types are not one array"):
            write()
    assert a[...].tolist() == [[0, 0], [0, 0]]
    # Where nothing is rounded, or no integer is.
    a[...] = make({"n": [LARGE, 1], "x": [0, 2]})
    assert a[...].tolist() == [[LARGE, 0], [1, 2]]
    a[...] = make({"n": [3, 1], "x": [2.0**60, 2.0]})
    assert a[...].tolist() == [[3, 2**60], [1, 2]]
    # As for any array of integers that is written to floating-point numbers.
    f = gzarr.zeros((2, 2), dtype="f8")
    f[...] = table
    np.testing.assert_array_equal(f[...], [[2.0**53, 0], [1, 2]])
