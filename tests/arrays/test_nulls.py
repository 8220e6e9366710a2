"""Nulls in tables and their columns, of pandas, polars and pyarrow: masks of another kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

pd = pytest.importorskip("pandas")

#: float64 does not hold it.
BIG = 2**53 + 1


def in_polars(items: list[Any]) -> Any:
    return pytest.importorskip("polars").Series(items)


def arrow(items: list[Any], dtype: Any = None) -> Any:
    return pytest.importorskip("pyarrow").array(items, dtype)


def arrow_chunks(items: list[Any]) -> Any:
    return pytest.importorskip("pyarrow").chunked_array([items[:1], items[1:]])


def in_arrow(items: list[Any]) -> Any:
    pytest.importorskip("pyarrow")
    return pd.Series(items, dtype="int64[pyarrow]")


INTEGERS: dict[str, Callable[[list[Any]], Any]] = {
    "Int64": lambda items: pd.Series(items, dtype="Int64"),
    "index": lambda items: pd.Index(items, dtype="Int64"),
    "array": lambda items: pd.array(items, dtype="Int64"),
    "categories": lambda items: pd.Series(pd.Categorical(items)),
    "pandas in pyarrow": in_arrow,
    "pyarrow": arrow,
    "chunks of pyarrow": arrow_chunks,
    "polars": in_polars,
}


def created(value: Any, **options: Any) -> Any:
    return gzarr.create_array({}, data=value, fill_value=7, **options)


def assigned(value: Any, **options: Any) -> Any:
    a = gzarr.full(2, 7, dtype="i8")
    a.write((), value, **options)
    return a


def appended(value: Any, **options: Any) -> Any:
    a = gzarr.full(0, 7, dtype="i8")
    a.append(value, **options)
    return a


@pytest.mark.parametrize("way", [created, assigned, appended])
@pytest.mark.parametrize("kind", INTEGERS)
def test_nulls_are_errors_or_filled(kind: str, way: Callable[..., Any]) -> None:
    value = INTEGERS[kind]([BIG, None])
    with pytest.raises(ArgumentError, match=r"null.*value\.fill(na|_null)\(.*fill_masked=True"):
        way(value)
    a = way(value, fill_masked=True)
    assert a.dtype == np.int64
    assert a[...].tolist() == [BIG, 7]
    assert way(INTEGERS[kind]([BIG, 2]))[...].tolist() == [BIG, 2]
    if kind != "categories":
        filled = value.fillna(5) if hasattr(value, "fillna") else value.fill_null(5)
        assert way(filled)[...].tolist() == [BIG, 5]


@pytest.mark.parametrize("value", [[BIG, None], [None, None]])
def test_nothing_is_written_before_the_error(value: list[Any]) -> None:
    store: dict[str, bytes] = {}
    series = pd.Series(value, dtype="Int64")
    with pytest.raises(ArgumentError, match="null"):
        gzarr.create_array(store, data=series)
    with pytest.raises(ArgumentError, match="null"):
        gzarr.save(store, named=pd.DataFrame({"a": [1, 2], "b": series}))
    with pytest.raises(ArgumentError, match="null"):
        gzarr.ome.create(store, [series, series], axes="yx")
    assert not store


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (pd.Series([True, None], dtype="boolean"), [True, False]),
        (pd.Series(["a", None], dtype="string"), ["a", ""]),
        (pd.Series(["a", None]).astype("category"), ["a", ""]),
        (pd.Series([1.5, None], dtype="Float64"), [1.5, 0.0]),
    ],
    ids=["bool", "text", "categories", "float"],
)
def test_other_types(value: Any, expected: list[Any]) -> None:
    with pytest.raises(ArgumentError, match=r"null.*\.fillna"):
        gzarr.array(value)
    a = gzarr.create_array({}, data=value, fill_masked=True)
    assert a[...].tolist() == expected


@pytest.mark.parametrize(
    "value",
    [
        pd.Series([1.5, None]),
        pd.Series(pd.Categorical([1.5, None])),
        pd.Series(pd.arrays.SparseArray([1.5, np.nan])),
        pd.Series([np.datetime64("2020-01-01", "ns"), None]),
    ],
    ids=["float64", "categories", "sparse", "times"],
)
def test_nan_and_nat_of_numpy_are_elements(value: Any) -> None:
    a = gzarr.array(value)
    np.testing.assert_array_equal(a[...], np.asarray(value))
    assert a.dtype == np.asarray(value).dtype


def test_nat_of_pyarrow_is_an_element() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    value = pyarrow.array([np.datetime64("2020-01-01", "us"), None], pyarrow.timestamp("us"))
    np.testing.assert_array_equal(gzarr.array(value)[...], np.array(["2020-01-01", "NaT"], "M8[us]"))


def test_nulls_among_objects_may_be_elements() -> None:
    value = pd.Series(["a", None]).astype("category")
    found = gzarr.create_array({}, data=value, dtype=object, zarr_format=2, filters=[{"id": "json2"}])
    assert found[0] == "a"
    assert np.isnan(found[1])


def test_tables() -> None:
    table = pd.DataFrame({"a": pd.Series([BIG, 1], dtype="Int64"), "b": pd.Series([2, None], dtype="Int64")})
    with pytest.raises(ArgumentError, match=r"null.*value\.fillna"):
        gzarr.array(table)
    a = gzarr.create_array({}, data=table, fill_masked=True)
    assert a[...].tolist() == [[BIG, 2], [1, 0]]
    assert gzarr.array(table.fillna(5))[...].tolist() == [[BIG, 2], [1, 5]]
    columns = pytest.importorskip("pyarrow").table({"a": [BIG, 1], "b": [2, None]})
    with pytest.raises(ArgumentError, match=r"null.*column\.fill_null"):
        gzarr.array(columns)


def test_lists_of_columns() -> None:
    a = gzarr.zeros((2, 2), dtype="i8")
    columns = [pd.Series([1, BIG], dtype="Int64"), pd.Series([None, 1], dtype="Int64")]
    with pytest.raises(ArgumentError, match=r"null.*\.fillna"):
        a[...] = columns
    a[...] = [column.fillna(3) for column in columns]
    assert a[...].tolist() == [[1, BIG], [3, 1]]


def test_labels_of_elements_are_no_methods() -> None:
    """pandas has elements as attributes, too."""
    labels = ["columns", "iloc", "dims", "null_count"]
    for dtype in ("i8", "Int64"):
        assert gzarr.array(pd.Series([1, 2, 3, 0], labels, dtype=dtype))[...].tolist() == [1, 2, 3, 0]
    with pytest.raises(ArgumentError, match="null"):
        gzarr.array(pd.Series([1, None, 3, 0], labels, dtype="Int64"))


def test_columns_in_xarray() -> None:
    xarray = pytest.importorskip("xarray")
    with pytest.raises(ArgumentError, match=r"null.*\.fillna"):
        gzarr.array(xarray.DataArray(pd.array([BIG, None], dtype="Int64"), dims="x"))
    with pytest.raises(ArgumentError, match=r"null.*\.fillna"):
        gzarr.array([xarray.DataArray(pd.array([BIG, None], dtype="Int64"), dims="x")])
    assert gzarr.array(xarray.DataArray(pd.array([BIG, 1], dtype="Int64"), dims="x"))[...].tolist() == [BIG, 1]


def test_integers_of_tables_are_not_rounded() -> None:
    table = pytest.importorskip("pyarrow").table({"a": [BIG], "b": [0.5]})
    with pytest.raises(ArgumentError, match=r"several types are not one array; .* in table\.column_names"):
        gzarr.array(table)
    store: dict[str, bytes] = {}
    gzarr.save(store, named={name: table[name] for name in table.column_names})
    assert gzarr.load(store)["a"].tolist() == [BIG]


def rows_of_arrow(kind: str) -> tuple[Any, Any]:
    """Return a column of pyarrow of rows, and its elements."""
    pa = pytest.importorskip("pyarrow")
    numbers = np.arange(24, dtype="i4")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 6)
    if kind == "lists":
        return lists, numbers.reshape(4, 6)
    if kind == "part":
        return lists[1:3], numbers.reshape(4, 6)[1:3]
    if kind == "lists of lists":
        inner = pa.FixedSizeListArray.from_arrays(pa.array(numbers), 3)
        return pa.FixedSizeListArray.from_arrays(inner, 2), numbers.reshape(4, 2, 3)
    if kind == "chunks":
        return pa.chunked_array([lists, lists[:2]]), np.concatenate([numbers, numbers[:12]]).reshape(6, 6)
    permutation = [1, 0] if kind == "permuted tensors" else None
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=permutation), lists)
    expected = tensors.to_numpy_ndarray()
    if kind == "chunks of tensors":
        return pa.chunked_array([tensors, tensors]), np.concatenate([expected, expected])
    return tensors, expected


@pytest.mark.parametrize(
    "kind", ["lists", "part", "lists of lists", "chunks", "tensors", "permuted tensors", "chunks of tensors"]
)
def test_rows_of_one_shape_in_pyarrow(kind: str) -> None:
    column, expected = rows_of_arrow(kind)
    assert expected.ndim == (2 if kind in ("lists", "part", "chunks") else 3)
    a = gzarr.array(column)
    assert a.dtype == np.int32
    np.testing.assert_array_equal(a[...], expected)
    a[...] = 0
    a[...] = column
    np.testing.assert_array_equal(a[...], expected)
    np.testing.assert_array_equal(gzarr.map_blocks(lambda x: x, column), expected)


@pytest.mark.parametrize("items", [[[1, 2], None, [3, 4]], [[1, 2], [7, None], [3, 4]]], ids=["row", "element"])
def test_nulls_among_rows_of_pyarrow(items: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    column = pa.array(items, pa.list_(pa.int64(), 2))
    with pytest.raises(ArgumentError, match="null"):
        created(column)
    expected = [[7 if n is None else n for n in row or (None, None)] for row in items]
    assert created(column, fill_masked=True)[...].tolist() == expected
