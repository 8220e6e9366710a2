"""Data of Python objects, of which no type of elements can be taken: what the message advises works."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError

pd = pytest.importorskip("pandas")

ZONE = datetime.timezone(datetime.timedelta(hours=2))
NOON = datetime.datetime(2020, 1, 1, 12, 30)
TEXT = ["a", None, "b"]
ZONED = pd.Series(pd.to_datetime(["2020-01-01 12:30", None]).tz_localize("Europe/Berlin"))
MOMENTS = np.array(["2020-01-01T11:30", "NaT"], "M8[ns]")

#: What is given, the type that the message names, the advice (or Python that is in it), and the elements then.
CASES: dict[str, tuple[Any, str, str, Any]] = {
    "text in a list": (
        TEXT,
        "NoneType",
        "[item if isinstance(item, str) else '' for item in np.asarray(values, object)]",
        np.array(["a", "", "b"]),
    ),
    "bytes in an array": (
        np.array([b"a", None], object),
        "NoneType",
        "[item if isinstance(item, bytes) else b'' for item in np.asarray(values, object)]",
        np.array([b"a", b""]),
    ),
    "text of NumPy": (
        np.array(["a", np.nan], np.dtypes.StringDType(na_object=np.nan)),
        "float",
        "[item if isinstance(item, str) else '' for item in np.asarray(values, object)]",
        np.array(["a", ""]),
    ),
    "text in a column": (pd.Series(TEXT, dtype=object), "NoneType", "values.fillna('')", np.array(["a", "", "b"], "O")),
    "truth values": ([True, None], "bool", "[False if item is None else item for item in values]", [True, False]),
    "truth values and NA": (
        [True, pd.NA],
        "bool",
        "[False if pd.isna(item) else item for item in values]",
        [True, False],
    ),
    "numbers": ([1, None, 2], "int", "[0 if item is None else item for item in values]", [1, 0, 2]),
    "decimals": ([Decimal("1.5")], "Decimal", "np.asarray(values, float)", [1.5]),
    "fractions in a column": (pd.Series([Fraction(1, 2)]), "Fraction", "np.asarray(values, float)", [0.5]),
    "decimals as text": ([Decimal("1.10")], "Decimal", "np.asarray(values).astype(str)", np.array(["1.10"])),
    "large integers": ([2**70], "int", "np.asarray(values).astype(str)", np.array([str(2**70)])),
    "several types": (np.array(["a", 1], object), "int", "np.asarray(values).astype(str)", np.array(["a", "1"])),
    "a moment and a duration": (
        [NOON, datetime.timedelta(1)],
        "datetime",
        "np.asarray(values).astype(str)",
        np.array(["2020-01-01 12:30:00", "1 day, 0:00:00"]),
    ),
    "time of day": ([datetime.time(12, 1)], "time", "np.asarray(values).astype(str)", np.array(["12:01:00"])),
    "zones in a column": (ZONED, "Timestamp", "values.dt.tz_convert(None)", MOMENTS),
    "zones in an index": (pd.DatetimeIndex(ZONED), "Timestamp", "values.tz_convert(None)", MOMENTS),
    "zones in a list": (
        [NOON.replace(tzinfo=ZONE)],
        "datetime",
        '[item.astimezone(datetime.timezone.utc).replace(tzinfo=None) for item in values], and dtype="M8[us]"',
        np.array(["2020-01-01T10:30"], "M8[us]"),
    ),
    "zones in a column of objects": (
        pd.Series([pd.Timestamp("2020-01-01T00:00:00.000000001", tz="UTC")], dtype=object),
        "Timestamp",
        '[item.astimezone(datetime.timezone.utc).replace(tzinfo=None) for item in values], and dtype="M8[ns]"',
        np.array(["2020-01-01T00:00:00.000000001"], "M8[ns]"),
    ),
    "moments in a list": ([NOON, None], "datetime", 'dtype="M8[us]"', np.array([NOON, None], "M8[us]")),
    "moments in an array": (np.array([NOON], object), "datetime", 'dtype="M8[us]"', np.array([NOON], "M8[us]")),
    "moments of pandas": (
        np.array([pd.Timestamp(1, unit="ns"), pd.NaT, pd.Timestamp("2020")], object),
        "Timestamp",
        'dtype="M8[ns]"',
        np.array(["1970-01-01T00:00:00.000000001", "NaT", "2020"], "M8[ns]"),
    ),
    "dates": ([NOON.date()], "date", 'dtype="M8[D]"', np.array(["2020-01-01"], "M8[D]")),
    "dates in a column": (pd.Series([NOON.date()]), "date", 'dtype="M8[D]"', np.array(["2020-01-01"], "M8[D]")),
    "durations": ([datetime.timedelta(1)], "timedelta", 'dtype="m8[us]"', np.array([86400 * 10**6], "m8[us]")),
    "periods in a column": (
        pd.Series(pd.PeriodIndex(["2020-01"], freq="M")),
        "Period",
        "values.dt.to_timestamp()",
        np.array(["2020-01"], "M8[ns]"),
    ),
    "periods in an index": (
        pd.PeriodIndex(["2020-01"], freq="M"),
        "Period",
        "values.to_timestamp()",
        np.array(["2020-01"], "M8[ns]"),
    ),
    "periods in a list": (
        [pd.Period("2020-01", "M")],
        "Period",
        "np.asarray(values).astype(str)",
        np.array(["2020-01"]),
    ),
    "arrays of one shape in a column": (
        pd.Series([np.arange(2), np.arange(2, 4)]),
        "ndarray",
        "np.stack(values)",
        np.arange(4).reshape(2, 2),
    ),
    "intervals": (pd.interval_range(0, 1), "Interval", "np.asarray(values).astype(str)", np.array(["(0, 1]"])),
}


@pytest.mark.parametrize("case", CASES)
def test_advice(case: str) -> None:
    values, kind, advice, expected = CASES[case]
    with pytest.raises(ArgumentError, match=rf"data: .* of type {kind}; .*{re.escape(advice)}"):
        gzarr.array(values)
    python, comma, options = (advice if advice[0] != "d" else f"values, and {advice}").partition(", and ")
    names = {"values": values, "np": np, "pd": pd, "datetime": datetime}
    arguments = {"dtype": options.removeprefix("dtype=").strip('"')} if comma else {}
    a = gzarr.array(eval(python, names), **arguments)
    np.testing.assert_array_equal(a[...], expected)
    assert a.dtype == np.asarray(expected).dtype


def test_text_with_another_type() -> None:
    with pytest.raises(ArgumentError, match=r"some are text, some bytes: decode the bytes"):
        gzarr.array(np.array(["a", b"b"], object))
    with pytest.raises(ArgumentError, match="say what type they are"):
        gzarr.array([None, None])


def test_lists_are_stored_as_json() -> None:
    rows = np.empty(2, object)
    rows[:] = [[1, 2], [3]]
    with pytest.raises(
        ArgumentError, match=r"of type list; that takes zarr_format=2, dtype=object and a filter"
    ) as caught:
        gzarr.array(rows)
    assert "filters=[{'id': 'json2'}]" in str(caught.value)
    a = gzarr.array(rows, zarr_format=2, dtype=object, filters=[{"id": "json2"}])
    assert a[...].tolist() == [[1, 2], [3]]


def test_fields_of_records() -> None:
    values = pd.DataFrame({"a": [1, 2], "b": ["x", "yy"]}).to_records(index=False)
    with pytest.raises(ArgumentError, match=r"fields of records .*gzarr\.save\(store, named=\{name: values\[name\]"):
        gzarr.array(values)
    store: dict[str, bytes] = {}
    gzarr.save(store, named={name: values[name] for name in values.dtype.names})
    assert {name: array.tolist() for name, array in gzarr.load(store).items()} == {"a": [1, 2], "b": ["x", "yy"]}


def test_missing_text_for_an_array_of_text() -> None:
    a = gzarr.create_array({}, shape=3, dtype=str)
    with pytest.raises(ArgumentError, match=r"None cannot be stored: .* say what missing values become") as caught:
        a[...] = TEXT
    advice = str(caught.value).partition("such as ")[2]
    a[...] = eval(advice, {"values": TEXT, "np": np})
    assert a[...].tolist() == ["a", "", "b"]


def test_zones_are_not_dropped_from_objects() -> None:
    a = gzarr.zeros(2, dtype="M8[us]")
    with pytest.raises(ArgumentError, match="not elements of"):
        a[...] = ZONED


@pytest.mark.parametrize("wrong", [3, 10**30, "x", datetime.timedelta(1)])
def test_what_is_no_moment_beside_moments(wrong: Any) -> None:
    a = gzarr.zeros(2, dtype="M8[us]")
    for values in ([NOON, wrong], np.array([NOON, wrong], object)):
        with pytest.raises(ArgumentError):
            a[...] = values


def test_what_is_not_computed_yet() -> None:
    class LazyFrame:
        def collect(self) -> Any:
            return np.arange(3)

    with pytest.raises(ArgumentError, match=r"pass what its collect\(\) gives"):
        gzarr.array(LazyFrame())
