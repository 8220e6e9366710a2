"""Columns of polars, pyarrow and pandas of rows or structs, and times with a zone: nothing is changed."""

from __future__ import annotations

import datetime
import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

#: float64 does not hold it.
BIG = 2**53 + 1
PAIRS = [[BIG, None], [3, 4]]
ARROW_PAIR = pa.list_(pa.int64(), 2)
#: Columns and tables with nulls inside of their rows, and what they are with 7 in place of these.
ROWS: dict[str, tuple[Any, Any]] = {
    "array": (pl.Series(PAIRS, dtype=pl.Array(pl.Int64, 2)), [[BIG, 7], [3, 4]]),
    "null array": (pl.Series([None, [BIG, 4]], dtype=pl.Array(pl.Int64, 2)), [[7, 7], [BIG, 4]]),
    "array of arrays": (
        pl.Series([[[BIG, None], None], [[1, 2], [3, 4]]], dtype=pl.Array(pl.Int64, (2, 2))),
        [[[BIG, 7], [7, 7]], [[1, 2], [3, 4]]],
    ),
    "struct": (pl.Series([{"a": BIG, "b": 2}, {"a": None, "b": 1}]), [[BIG, 2], [7, 1]]),
    "null struct": (pl.Series([{"a": BIG, "b": 2}, None]), [[BIG, 2], [7, 7]]),
    "array of structs": (
        pl.Series([[{"a": BIG, "b": None}]], dtype=pl.Array(pl.Struct({"a": pl.Int64, "b": pl.Int64}), 1)),
        [[[BIG, 7]]],
    ),
    "table of arrays": (pl.DataFrame({"x": pl.Series(PAIRS, dtype=pl.Array(pl.Int64, 2))}), [[[BIG, 7]], [[3, 4]]]),
    "pandas in pyarrow": (pd.Series(PAIRS, dtype=pd.ArrowDtype(ARROW_PAIR)), [[BIG, 7], [3, 4]]),
}


@pytest.mark.parametrize("kind", ROWS)
def test_nulls_inside_of_rows(kind: str) -> None:
    value, expected = ROWS[kind]
    store: dict[str, bytes] = {}
    f = gzarr.zeros(np.shape(expected), dtype="f4", device="cpu")
    g = gzarr.zeros((0, *f.shape[1:]), dtype="f8", device="cpu")
    for write in (
        lambda: gzarr.create_array(store, data=value),
        lambda: f.__setitem__(..., value),
        lambda: f.__setitem__(..., [value]),
        lambda: g.append(value),
        lambda: gzarr.map_blocks(lambda x: x, value),
    ):
        with pytest.raises(ArgumentError, match=r"null.*fill(na|_null)\("):
            write()
    assert not store
    assert not f[...].any()
    assert g.shape[0] == 0
    a = gzarr.create_array({}, data=value, fill_masked=True, fill_value=7, device="cpu")
    assert a.dtype == np.int64
    assert a[...].tolist() == expected
    a.write((), value, fill_masked=True)
    assert a[...].tolist() == expected


def test_the_advice_for_nulls_in_polars() -> None:
    for kind in ("array", "array of arrays", "struct"):
        value, expected = ROWS[kind]
        with pytest.raises(ArgumentError) as caught:
            gzarr.array(value)
        advice = re.search(r"with (value\..*), or pass", str(caught.value))
        assert advice is not None
        given = eval(advice[1].replace("...", "7"), {"value": value})
        assert gzarr.array(given)[...].tolist() == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (pl.Series([[BIG, 2]], dtype=pl.Array(pl.Int64, 2)), [[BIG, 2]]),
        (pl.Series([[], []], dtype=pl.Array(pl.Int64, 0)), [[], []]),
        (pl.Series([{"a": BIG, "b": 2}]), [[BIG, 2]]),
        (pl.Series([{"a": BIG, "b": 2}]).clear(), np.zeros((0, 2))),
        (pl.DataFrame({"x": pl.Series([[BIG, 2]], dtype=pl.Array(pl.Int64, 2))}), [[[BIG, 2]]]),
        (pd.Series([[BIG, 2]], dtype=pd.ArrowDtype(ARROW_PAIR)), [[BIG, 2]]),
    ],
    ids=["array", "empty arrays", "struct", "no structs", "table", "pandas in pyarrow"],
)
def test_rows_without_nulls(value: Any, expected: Any) -> None:
    a = gzarr.array(value, device="cpu")
    assert a.dtype == np.int64
    assert a.shape == np.shape(expected)
    assert a[...].tolist() == np.asarray(expected, "i8").tolist()


@pytest.mark.parametrize("second", [2.5, None], ids=["number", "null"])
def test_integers_of_structs_are_not_rounded(second: float | None) -> None:
    kind = pl.Struct({"a": pl.Int64, "b": pl.Float64})
    value = pl.Series([{"a": BIG, "b": second}, {"a": 1, "b": 2.0}], dtype=kind)
    parts = pl.Series([[{"a": BIG, "b": second}]], dtype=pl.Array(kind, 1))
    a = gzarr.zeros((2, 2), dtype="i8", device="cpu")
    for write in (
        lambda: gzarr.create_array({}, data=value, fill_masked=True),
        lambda: gzarr.create_array({}, data=parts, fill_masked=True),
        lambda: a.write((), value, fill_masked=True),
    ):
        with pytest.raises(
            ArgumentError, match=r"structs of several types are not one array; .*\.struct\.field\(name\)"
        ):
            write()
    with pytest.raises(ArgumentError, match="of a DataFrame of several types are not one array"):
        gzarr.create_array({}, data=value.to_frame(), fill_masked=True)


LISTS: dict[str, Callable[[Any], Any]] = {
    "polars": pl.Series,
    "pyarrow": pa.array,
    "chunks": lambda items: pa.chunked_array([items]),
    "pandas": lambda items: pd.Series(items, dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
}


@pytest.mark.parametrize("library", LISTS)
def test_nulls_in_lists(library: str) -> None:
    column = LISTS[library](PAIRS)
    with pytest.raises(ArgumentError, match="nulls in its lists; if all have one length") as caught:
        gzarr.array(column)
    advice = re.search(r"pass rows, (.*), and say", str(caught.value))
    assert advice is not None
    rows = eval(advice[1], {"column": column, "pyarrow": pa, "pandas": pd, "n": 2})
    a = gzarr.create_array({}, data=rows, fill_masked=True, fill_value=7, device="cpu")
    assert a[...].tolist() == [[BIG, 7], [3, 4]]
    # Empty lists have no nulls in them, and what NumPy makes of these is exact.
    with pytest.raises(ArgumentError, match="elements are Python objects"):
        gzarr.array(LISTS[library]([[1, 2], []]))


MOMENT = datetime.datetime(2020, 1, 1, 12, 30)
ZONED = pa.array([MOMENT, None], pa.timestamp("us", "Europe/Berlin"))
IN_POLARS = pl.Series([MOMENT, None]).dt.replace_time_zone("UTC").dt.convert_time_zone("Europe/Berlin")


@pytest.mark.parametrize("column", [IN_POLARS, ZONED, pa.chunked_array([ZONED])], ids=["polars", "pyarrow", "chunks"])
def test_zones_of_columns(column: Any) -> None:
    a = gzarr.zeros(2, dtype="M8[us]", device="cpu")
    rows = gzarr.zeros((1, 2), dtype="M8[us]", device="cpu")
    for write in (
        lambda: gzarr.array(column),
        lambda: gzarr.array([column]),
        lambda: a.__setitem__(..., column),
        lambda: rows.__setitem__(..., [column]),
        lambda: gzarr.map_blocks(lambda x: x, column),
    ):
        with pytest.raises(
            ArgumentError, match="its times are in Europe/Berlin, and an array has no time zones"
        ) as caught:
            write()
        advice = re.search(r"with (column\..*)", str(caught.value))
        assert advice is not None
    utc = eval(advice[1], {"column": column, "pyarrow": pa})
    np.testing.assert_array_equal(gzarr.array(utc)[...], np.array([MOMENT, None], "M8[us]"))


@pytest.mark.parametrize(
    "value",
    [
        pl.DataFrame({"a": IN_POLARS}),
        pa.table({"a": ZONED}),
        pl.Series([[None]], dtype=pl.Array(IN_POLARS.dtype, 1)),
        pa.array([[MOMENT]], pa.list_(ZONED.type, 1)),
    ],
    ids=["polars", "pyarrow", "rows of polars", "rows of pyarrow"],
)
def test_zones_in_tables_and_rows(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"its times are in Europe/Berlin, .*take UTC, with column\."):
        gzarr.array(value)


def test_zones_of_scalars() -> None:
    moment = MOMENT.replace(tzinfo=datetime.UTC)
    a = gzarr.zeros(1, dtype="M8[us]", device="cpu")
    for value in (moment, [moment], pd.Timestamp(moment), [pd.Timestamp(moment)], [pd.Series([moment])]):
        with pytest.raises(ArgumentError, match=r"an array has no time zones: take UTC, with item\.astimezone\("):
            a[...] = value
    a[...] = moment.astimezone(datetime.UTC).replace(tzinfo=None)
    assert a[0] == np.datetime64(MOMENT)


@pytest.mark.parametrize(
    "text", ["2020-01-01T13:30+01:00", "2020-01-01 12:30Z", " 2020-01-01T12Z ", "-044-03-15T12-05"]
)
def test_zones_in_text(text: str) -> None:
    a = gzarr.zeros(1, dtype="M8[us]", device="cpu")
    records = gzarr.zeros(1, dtype=[("time", "M8[us]")], device="cpu")
    for write in (
        lambda: a.__setitem__(0, text),
        lambda: a.__setitem__(..., [text]),
        lambda: a.__setitem__(..., [text.encode()]),
        lambda: a.__setitem__(..., [np.array(text)]),
        lambda: records.__setitem__(0, (text,)),
        lambda: gzarr.create_array({}, data=["NaT", text], dtype="M8[s]"),
        lambda: gzarr.full(1, text, dtype="M8[s]"),
    ):
        with pytest.raises(ArgumentError, match=r"has a time zone, and an array has no time zones") as caught:
            write()
    if text.startswith("2020"):
        advice = re.search(r"with (datetime\..*)", str(caught.value))
        assert advice is not None
        moment = eval(advice[1], {"datetime": datetime, "item": text.strip()})
        assert moment in (MOMENT, MOMENT.replace(minute=0))


def test_text_without_a_zone() -> None:
    moments = ["2020-01-01T12:30:00.5", " 2020-01-01", "2020-01", "-0044-03-15T00:00", "NaT", "2020-01-01 12"]
    a = gzarr.create_array({}, data=moments, dtype="M8[ms]", device="cpu")
    np.testing.assert_array_equal(a[...], np.array(moments, "M8[ms]"))


def test_lazy_tables_are_refused_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ArgumentError, match=r"pass what its collect\(\) gives"):
            gzarr.array(pl.DataFrame({"a": [1]}).lazy())
