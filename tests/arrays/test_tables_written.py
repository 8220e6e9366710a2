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


class Columns:
    """What gzarr asks of a table whose library is not installed."""

    def __init__(self, table: Any) -> None:
        self._table = table

    @property
    def columns(self) -> Any:
        return self._table.columns

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Any:
        return iter(self.columns)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._table, dtype)


@pytest.mark.parametrize(
    "make", [*MAKES.values(), lambda columns: Columns(pd.DataFrame(columns))], ids=[*MAKES, "another"]
)
@pytest.mark.parametrize("rows", [2, 3])
def test_many_values_are_rows(make: Callable[[Any], Any], rows: int) -> None:
    expected = np.arange(2.0 * rows).reshape(rows, 2)
    table = make({name: expected[:, int(name)] for name in "01"})
    a = gzarr.zeros((rows, 2), dtype="f8", device="cpu")
    a.write_many(range(rows), table)
    np.testing.assert_array_equal(a[...], expected)
    with pytest.raises(gzarr.ArgumentError, match=f"{rows - 1} selections, but {rows} values"):
        a.write_many(range(rows - 1), table)
    for call in (a.read_many, lambda table: a.write_many(table, expected)):
        with pytest.raises(gzarr.ArgumentError, match="_many takes a sequence of selections, not "):
            call(table)
    np.testing.assert_array_equal(a[...], expected)


def test_many_values_of_a_table_with_nulls() -> None:
    a = gzarr.full((2, 2), 9, dtype="i4", device="cpu")
    table = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": pd.array([3, 4], "Int64")})
    with pytest.raises(gzarr.ArgumentError, match="null"):
        a.write_many([0, 1], table)
    a.write_many([0, 1], table, fill_masked=True)
    assert a[...].tolist() == [[1, 3], [9, 4]]
