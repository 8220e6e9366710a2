"""Lists and arrays of objects in which numbers or times of several types meet: no element is altered on its way."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest

import gzarr

BIG = 2**63 + 1
FINE = "2020-01-01T00:00:00.000000001"


def made(dtype: Any, shape: tuple[int, ...] = (2,)) -> gzarr.Array:
    return gzarr.create_array({}, shape=shape, chunks=2, dtype=dtype, device="cpu")


# -- integers, which NumPy rounds to hold them beside other numbers


@pytest.mark.parametrize(
    ("dtype", "items"),
    [
        ("u8", [BIG, 1]),
        ("u8", [2**64 - 1, 0]),
        ("u8", [BIG, 1.0]),
        ("u8", [True, BIG]),
        ("u8", [np.float32(2**60), BIG]),
        ("u8", [BIG, 1 + 0j]),
        ("i8", [2**53 + 1, 1.0]),
        ("i8", [np.int64(2**62 + 1), np.float64(2)]),
        ("i8", [-(2**62) - 1, np.uint64(3)]),
    ],
    ids=str,
)
def test_integers_are_kept(dtype: str, items: list[Any]) -> None:
    numbers = [int(item.real) for item in items]
    for value in (items, tuple(items), np.array(items, object)):
        array = made(dtype)
        array[...] = value
        assert array[...].tolist() == numbers
        array.append(value)
        assert array[2:].tolist() == numbers
        assert gzarr.create_array({}, data=value, dtype=dtype, device="cpu")[...].tolist() == numbers
    rows = made(dtype, (2, 2))
    rows[...] = [items, [np.int8(1), np.int8(2)]]
    assert rows[...].tolist() == [numbers, [1, 2]]
    records = made([("id", dtype), ("x", "f4")])
    records[...] = [(items[0], 1), (items[1], 2)]
    assert records["id"].tolist() == numbers


def test_rows_of_arrays_of_several_types() -> None:
    array = made("u8", (2, 2))
    array[...] = [np.array([BIG, 3], "u8"), np.array([0, 5], "i8")]
    assert array[...].tolist() == [[BIG, 3], [0, 5]]


@pytest.mark.parametrize(
    ("dtype", "items", "wrong"),
    [
        ("u8", [BIG, -1], "-1 is out of the range of uint64"),
        ("u8", [2**64, 1], "18446744073709551616 is out of the range of uint64"),
        ("i8", [BIG, 1.0], "9223372036854775809 is out of the range of int64"),
        ("i4", [2**53 + 1, 1.0], r"9007199254740993\) cannot be stored as int32"),
        ("u8", [BIG, 1.5], r"1\.5\) cannot be stored as uint64"),
        ("u8", [BIG, float("nan")], r"nan\) cannot be stored as uint64"),
        ("u8", [BIG, 1j], "has an imaginary part"),
    ],
    ids=str,
)
def test_other_numbers_are_refused(dtype: str, items: list[Any], wrong: str) -> None:
    array = made(dtype)
    for value in (items, np.array(items, object)):
        with pytest.raises(gzarr.ArgumentError, match=wrong):
            array[...] = value
    assert not array[...].any()


def test_arrays_of_floating_point_numbers_round() -> None:
    array = made("f8")
    array[...] = [BIG, 1]
    assert array[...].tolist() == [float(BIG), 1.0]


# -- times, of which NumPy takes the finest unit for all, and wraps what is out of its range


@pytest.mark.parametrize(
    ("dtype", "items"),
    [
        ("M8[ns]", [FINE, "9999-01-01"]),
        ("M8[ns]", [np.datetime64(FINE), np.datetime64("9999-01-01")]),
        ("m8[ns]", [np.timedelta64(1, "ns"), np.timedelta64(200_000, "D")]),
    ],
    ids=str,
)
def test_times_out_of_range_are_refused(dtype: str, items: list[Any]) -> None:
    array = made(dtype, (2, 1))
    before = array[...].astype("i8")
    values: list[Any] = [[[item] for item in items]]
    if not isinstance(items[0], str):
        values.append(np.array(items, object)[:, None])
    for value in values:
        with pytest.raises(gzarr.ArgumentError, match=r"'9999-01-01'|200000,'D'"):
            array[...] = value
    np.testing.assert_array_equal(array[...].astype("i8"), before)


def test_times_that_fit_are_stored() -> None:
    array = made("M8[s]")
    array[...] = ["2020-01-01T00:00:00.000000000", "9999-01-01"]
    np.testing.assert_array_equal(array[...], np.array(["2020-01-01", "9999-01-01"], "M8[s]"))
    rows = made("M8[ns]", (2, 1))
    rows[...] = [np.array(["2021"], "M8[s]"), np.array([FINE], "M8[ns]")]
    np.testing.assert_array_equal(rows[...], np.array([["2021-01-01"], [FINE]], "M8[ns]"))
    rows[...] = [["NaT"], [None]]
    assert np.isnat(rows[...]).all()
    rows[...] = np.array([np.datetime64(FINE), np.datetime64("2021")], object)[:, None]
    np.testing.assert_array_equal(rows[...], np.array([[FINE], ["2021"]], "M8[ns]"))


def test_nanoseconds_of_pandas_are_kept() -> None:
    """To NumPy its times are Python's own, which have microseconds."""
    pandas = pytest.importorskip("pandas")
    array = made("M8[ns]")
    for value in (pandas.Timestamp(FINE), [pandas.Timestamp(FINE), "2021"], [pandas.Timestamp(FINE)] * 2):
        array[...] = value
        assert array[0] == np.datetime64(FINE)
    spans = made("m8[ns]")
    spans[...] = [pandas.Timedelta(1, "ns"), np.timedelta64(3, "us")]
    assert spans[...].tolist() == [1, 3000]


def _writes(dtype: str) -> dict[str, Any]:
    """Return ways to write a value among elements of a dtype."""
    records = [("t", dtype), ("n", "i4")]
    return {
        "scalar": lambda a, v: a.__setitem__(0, v),
        "list": lambda a, v: a.__setitem__(..., [v, v]),
        "beside a string": lambda a, v: a.__setitem__(..., ["NaT", v]),
        "lists": lambda a, v: a.__setitem__(..., [[[v], [None]]]),
        "rows of objects": lambda a, v: a.__setitem__(..., [np.fromiter([v, v], object, 2)]),
        "array of objects": lambda a, v: a.__setitem__(..., np.fromiter([v, v], object, 2)),
        "write_many": lambda a, v: a.write_many([0, 1], [v, v]),
        "append": lambda a, v: a.append([v]),
        "data": lambda _, v: gzarr.create_array({}, data=[v], dtype=dtype),
        "full": lambda _, v: gzarr.full((2,), v, store={}, dtype=dtype),
        "fill value": lambda _, v: gzarr.create_array({}, shape=2, dtype=dtype, fill_value=v),
        "record": lambda _, v: gzarr.create_array({}, data=[(v, 1)], dtype=records),
        "field": lambda _, v: made(records).__setitem__("t", [v, v]),
        "ragged": lambda _, v: gzarr.create_array(
            {}, data=[[v]], dtype=object, zarr_format=2, filters=[{"id": "vlen-array", "dtype": dtype}]
        ),
    }


def refused(dtype: str, way: str, value: Any) -> None:
    """Check that a value is refused, with nothing written."""
    array = made(dtype)
    with pytest.raises(gzarr.ArgumentError, match="not elements of"):
        _writes(dtype)[way](array, value)
    assert array.shape == (2,)
    assert not array.nchunks_initialized


@pytest.mark.parametrize("way", _writes("M8[s]"))
def test_moments_are_no_durations(way: str) -> None:
    pandas = pytest.importorskip("pandas")
    moments = [np.datetime64("2020-01-01"), np.datetime64("NaT"), pandas.Timestamp("2020"), datetime(2020, 1, 1)]
    durations = [np.timedelta64(5, "s"), np.timedelta64("NaT"), pandas.Timedelta("5s"), timedelta(seconds=5)]
    for dtype, wrong in (("m8[s]", moments), ("M8[s]", durations)):
        for value in wrong:
            refused(dtype, way, value)


def test_moments_and_durations_in_one_list() -> None:
    moment, duration = np.datetime64("2020-01-01"), np.timedelta64(5, "s")
    for items in ([moment, duration], [duration, moment], [[moment], [duration]]):
        for value in (items, np.array(items, object)):
            for dtype in ("M8[s]", "m8[s]"):
                with pytest.raises(gzarr.ArgumentError, match="are not elements of"):
                    made(dtype, np.shape(items))[...] = value
        # NumPy would infer moments.
        with pytest.raises(gzarr.ArgumentError, match="are not elements of"):
            gzarr.create_array({}, data=items)
    swapped = made([("t", "M8[s]"), ("d", "m8[s]")])
    with pytest.raises(gzarr.ArgumentError, match="field 't': elements of type timedelta64"):
        swapped[...] = (duration, moment)
    swapped[...] = (moment, duration)
    assert swapped[0].tolist() == (datetime(2020, 1, 1), timedelta(seconds=5))


def test_nat_of_pandas_is_both() -> None:
    pandas = pytest.importorskip("pandas")
    for dtype, other in (("M8[s]", np.datetime64("2020")), ("m8[s]", np.timedelta64(5, "s"))):
        array = made(dtype)
        array[...] = [pandas.NaT, other]
        assert np.isnat(array[...]).tolist() == [True, False]
        array[...] = pandas.NaT
        assert np.isnat(array[...]).all()


@pytest.mark.parametrize("number", [5, "5", True, np.timedelta64(5)], ids=["5", "text", "True", "no unit"])
@pytest.mark.parametrize(
    "other",
    [np.timedelta64(1, "m"), np.timedelta64(1000, "ms"), timedelta(minutes=1)],
    ids=["1 m", "1000 ms", "1 min"],
)
def test_numbers_beside_durations_have_the_unit_of_the_array(number: Any, other: Any) -> None:
    for items in ([number, other], (other, number), [[number], [other]], [number, other, np.timedelta64(2, "h"), None]):
        for value in (items, np.array(items, object)):
            expected = np.zeros(np.shape(items), "m8[s]")
            expected[...] = value
            array = made("m8[s]", expected.shape)
            array[...] = value
            np.testing.assert_array_equal(array[...], expected)
    records = made([("t", "m8[s]")], (2,))
    records[...] = [(number,), (other,)]
    assert records["t"].tolist() == [timedelta(seconds=int(number)), np.timedelta64(other).astype("m8[us]").item()]


def test_numbers_beside_durations_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    array = made("m8[s]", (3,))
    array[...] = [5, pandas.Timedelta("1min"), pandas.NaT]
    np.testing.assert_array_equal(array[...], np.array([5, 60, "NaT"], "m8[s]"))


@pytest.mark.parametrize("dtype", ["m8[s]", "M8[s]"])
@pytest.mark.parametrize("way", _writes("m8[s]"))
def test_numbers_that_are_no_times_are_refused_in_lists_too(way: str, dtype: str) -> None:
    """Of NumPy's own numbers in lists, NumPy takes whole units, and wraps large ones."""
    numbers = [
        *(kind(1.7) for kind in (np.float16, np.float32, np.float64, np.longdouble)),
        *(np.float32(2), np.float32("nan"), np.float64("inf"), np.float64(1e30)),
        *(np.complex64(1 + 2j), np.uint64(2**63), np.array(1.7), np.array(2**64 - 1, "u8")),
    ]
    for number in numbers:
        refused(dtype, way, number)


def test_numbers_of_numpy_beside_times() -> None:
    array = made("m8[s]")
    for number in (np.float64(1.7), np.array(1.7), np.float32("nan"), np.uint64(2**63)):
        for value in ([number, np.timedelta64(1, "m")], [None, number], [1, number]):
            for given in (value, np.fromiter(value, object, 2)):
                with pytest.raises(gzarr.ArgumentError, match="are not elements of"):
                    array[...] = given
    array[...] = [np.uint64(2**63 - 1), np.int8(-2)]
    assert array[...].astype("i8").tolist() == [2**63 - 1, -2]


# -- records, of which NumPy has each with its own names of fields


def _swapped() -> dict[str, Any]:
    """Return ways to write an array of records."""

    def data(v: Any, dtype: Any) -> gzarr.Array:
        return gzarr.array(list(v), dtype=dtype)

    return {
        "array": lambda a, v: a.__setitem__(..., v),
        "list": lambda a, v: a.__setitem__(..., list(v)),
        "lists": lambda a, v: a.__setitem__(..., [list(v)]),
        "rows": lambda a, v: a.__setitem__(..., [v]),
        "objects": lambda a, v: a.__setitem__(..., np.fromiter(v, object, len(v))),
        "beside a tuple": lambda a, v: a.__setitem__(..., [(1, 2), v[0]]),
        "append": lambda a, v: a.append(list(v)),
        "write_many": lambda a, v: a.write_many([0, 1], list(v)),
        "data": lambda a, v: data(v, a.dtype),
    }


@pytest.mark.parametrize("way", _swapped())
def test_fields_in_another_order_are_refused(way: str) -> None:
    pair = np.dtype([("a", "i4"), ("b", "i4")])
    swapped = np.array([(1, 2), (3, 4)], [("b", "i4"), ("a", "i4")])
    array = made(pair)
    with pytest.raises(gzarr.ArgumentError, match="elements with the fields b, a are not elements of"):
        _swapped()[way](array, swapped)
    assert array.shape == (2,)
    assert not array.nchunks_initialized
    # Entirely different names are matched by position, as by NumPy.
    _swapped()[way](array, np.array([(1, 2), (3, 4)], [("x", "i4"), ("y", "i8")]))
    if way != "data":
        assert array[...][-1].tolist() in [(3, 4), (1, 2)]


def test_fields_of_nested_records_in_another_order_are_refused() -> None:
    nested = made([("p", [("a", "i4"), ("b", "i4")]), ("n", "i4")])
    inner = np.array([(1, 2)], [("b", "i4"), ("a", "i4")])[0]
    with pytest.raises(gzarr.ArgumentError, match="field 'p': elements with the fields b, a are not elements of"):
        nested[...] = [(inner, 1), (inner, 2)]
    assert not nested.nchunks_initialized


@pytest.mark.parametrize(
    ("dtype", "item"),
    [
        ("M8", np.datetime64("2020")),
        ("M8", np.datetime64("2020-01-01")),
        ("M8", "2020-01-01"),
        ("M8", datetime(2020, 1, 1)),
        ("m8", np.timedelta64(5, "s")),
        ("m8", timedelta(seconds=5)),
    ],
    ids=str,
)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_units_are_not_dropped(dtype: str, item: Any, zarr_format: Any) -> None:
    array = gzarr.create_array({}, shape=(2,), chunks=1, dtype=dtype, zarr_format=zarr_format, device="cpu")
    for value in (item, [item, item], [item, "NaT"], np.fromiter([item, None], object, 2)):
        with pytest.raises(gzarr.ArgumentError, match=r"which has no unit; create the array with one, such as .*64"):
            array[...] = value
    with pytest.raises(gzarr.ArgumentError, match="which has no unit"):
        array[0] = item
    with pytest.raises(gzarr.ArgumentError, match="which has no unit"):
        gzarr.create_array({}, shape=2, dtype=dtype, fill_value=item, zarr_format=zarr_format)
    with pytest.raises(gzarr.ArgumentError, match="which has no unit"):
        gzarr.create_array({}, data=[item], dtype=dtype, zarr_format=zarr_format)
    assert not array.nchunks_initialized
    array[...] = [np.array("NaT", f"{dtype}[s]")[()]] * 2
    assert np.isnat(array[...]).all()
    array[...] = np.array(["NaT"], f">{dtype}[s]")
    assert np.isnat(array[...]).all()


def test_times_in_lists_within_themselves() -> None:
    items: list[Any] = ["2020"]
    items.append(items)
    with pytest.raises(gzarr.ArgumentError):
        made("M8[ns]")[...] = items
