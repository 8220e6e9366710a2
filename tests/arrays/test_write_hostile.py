"""Values and stores that once made writing lose or change data, or hang."""

from __future__ import annotations

import datetime
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError
from gzarr.stores.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from typing_extensions import Buffer

SECONDS = 20


@pytest.fixture(autouse=True)
def _nothing_waits_for_ever() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise TimeoutError(f"nothing came of it in {SECONDS} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(SECONDS)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def array(dtype: Any, **options: Any) -> gzarr.Array:
    return gzarr.create_array({}, shape=(4,), dtype=dtype, chunks=(3,), device="cpu", **options)


# -- classes derived from NumPy's array


@pytest.mark.parametrize("dtype", ["int64", "int16"])
def test_a_matrix_is_its_elements(dtype: str) -> None:
    # It has two dimensions however it is indexed.
    written = array(dtype)
    written[...] = np.matrix([[1, 2, 3, 4]])
    np.testing.assert_array_equal(written[...], [1, 2, 3, 4])


# -- numbers of ml_dtypes


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int4", 8),
        ("int4", -9),
        ("int4", 1.5),
        ("int4", np.int8(100)),
        ("int4", np.uint8(255)),
        ("uint4", -1),
        ("uint4", [1, 2, 3, 16]),
        ("int2", 2),
        ("bfloat16", 1e39),
        ("float8_e4m3fn", 1e6),
        ("float8_e4m3fn", np.inf),
        ("float8_e8m0fnu", -1.0),
        ("float8_e8m0fnu", 0),
        ("float4_e2m1fn", 100),
        ("float4_e2m1fn", np.nan),
    ],
)
def test_small_numbers_that_are_not_of_a_type(dtype: str, value: Any) -> None:
    written = array(dtype)
    written[...] = 1
    with pytest.raises(ArgumentError, match=f"of {dtype}|as {dtype}"):
        written[...] = value
    assert (written[...] == written.dtype.type(1)).all()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int4", -8),
        ("uint4", 15.0),
        ("int2", True),
        ("bfloat16", np.inf),
        ("float8_e4m3fn", 448),
        ("float4_e2m1fn", -6),
    ],
)
def test_small_numbers_at_the_ends_of_a_type(dtype: str, value: Any) -> None:
    written = array(dtype)
    written[...] = value
    assert written[...].astype(np.float64).tolist() == [float(value)] * 4


def test_small_numbers_are_rounded() -> None:
    written = array("bfloat16")
    written[...] = 0.3
    assert written[0] == written.dtype.type(0.3)


def test_small_numbers_as_other_numbers() -> None:
    source = array("bfloat16")
    source[...] = [1, 2.5, -3, 1e38]
    written = array("float32")
    written[...] = source[...]
    np.testing.assert_array_equal(written[...], source[...].astype(np.float32))
    with pytest.raises(ArgumentError, match="out of the range of float16"):
        array("float16")[...] = source[...]
    with pytest.raises(ArgumentError, match="cannot be stored as int16"):
        array("int16")[...] = source[...]


# -- moments, durations, raw bytes


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("M8[ns]", np.datetime64("9999-01-01", "D")),
        ("M8[ns]", np.datetime64("1000-01-01T00", "s")),
        ("M8[ns]", "9999-01-01"),
        ("M8[ns]", datetime.date(9999, 1, 1)),
        ("m8[ns]", np.timedelta64(2**62, "s")),
        ("M8[D]", np.datetime64("2000-01-01T05", "s")),
        ("|V3", b"abcdef"),
        ("|V3", [b"a", b"ab", b"abc", b"abcd"]),
    ],
)
def test_what_numpy_would_wrap_around_or_cut(dtype: str, value: Any) -> None:
    written = array(dtype, zarr_format=2)
    before = written[...].tobytes()
    with pytest.raises(ArgumentError, match="cannot be stored as"):
        written[...] = value
    assert written[...].tobytes() == before


@pytest.mark.parametrize(
    "item",
    [
        np.void(b"abcde"),
        bytearray(b"abcde"),
        np.array(b"abcde"),
        np.array([b"abcde"]),
        np.array([1.5]),
        np.array(2**40 + 7),
        np.array([(1, 2)], "i2,i4")[0],
        np.array([(1, 2)], "i2,i2")[0],
        memoryview(b"abcd"),
        np.datetime64("2000"),
        "abcd",
    ],
    ids=lambda item: f"{type(item).__name__} {getattr(item, 'dtype', '')}",
)
def test_what_numpy_would_take_for_raw_bytes(item: Any) -> None:
    ways: list[Callable[[], Any]] = [
        lambda: written.__setitem__(..., [item]),
        lambda: written.__setitem__(..., [b"ab", b"c", (b"",), item]),
        lambda: written.__setitem__(..., (item,)),
        lambda: written.append([item]),
        lambda: written.write_many([0, 1], [[item], [item]]),
        lambda: gzarr.array([item], dtype="V4", device="cpu"),
        lambda: gzarr.create_array({}, shape=4, dtype="V4", fill_value=[item]),
        lambda: gzarr.create_array({}, data=[(item,)], dtype=[("v", "V4")]),
    ]
    written = array("V4", zarr_format=2)
    for way in ways:
        with pytest.raises(ArgumentError, match=r"are not elements of|cannot be stored as .*: it has 5 bytes"):
            way()
        assert written.shape == (4,)
        assert not written.nchunks_initialized


def test_raw_bytes_that_fit() -> None:
    written = array("V4", zarr_format=2)
    items = [b"ab", np.bytes_(b"abcd"), np.void(b"a\0b"), bytearray(b"\0a")]
    expected = [bytes(item).ljust(4, b"\0") for item in items]
    for value in (items, tuple(items), [items], [np.array(items[0]), *items[1:]]):
        written[...] = value
        assert [item.tobytes() for item in written[...]] == expected
    written[...] = bytearray(b"abc")
    assert written[...].tobytes() == b"abc\0" * 4
    rows = gzarr.create_array({}, shape=(2, 2), dtype="V4", device="cpu")
    rows[...] = [[b"ab", np.void(b"c")], np.array([b"def", b"g"])]
    assert rows[...].tobytes() == b"ab\0\0c\0\0\0def\0g\0\0\0"


@pytest.mark.parametrize("dtype", ["complex64", "complex_float16"])
@pytest.mark.parametrize("known", [np.inf, -np.inf, np.nan, 1.0])
def test_no_part_of_a_complex_number_becomes_infinite(dtype: str, known: float) -> None:
    written = array(dtype)
    for value in (complex(known, 1e39), complex(-1e39, known), np.array([0, complex(known, 1e39), 0, 0])):
        with pytest.raises(ArgumentError, match="out of the range of complex"):
            written[...] = value
    with pytest.raises(ArgumentError, match="out of the range of complex"):
        gzarr.create_array({}, shape=1, dtype=dtype, fill_value=complex(known, 1e39))
    assert not written.nchunks_initialized
    for value in (complex(known, 2), complex(2, known), complex(known, np.inf)):
        written[...] = value
        np.testing.assert_array_equal(written[...].astype("c16"), np.full(4, value))


@pytest.mark.parametrize(
    ("dtype", "value", "stored"),
    [
        ("M8[ns]", "2000-01-01", "2000-01-01"),
        ("M8[s]", datetime.date(9999, 1, 1), "9999-01-01"),
        ("M8[D]", "NaT", "NaT"),
        ("M8[D]", 5, "1970-01-06"),
        ("m8[s]", np.timedelta64(5), 5),
        ("m8[ms]", datetime.timedelta(seconds=5), 5000),
        ("m8[s]", [1, 2, 3, "NaT"], [1, 2, 3, "NaT"]),
    ],
)
def test_moments_and_durations_that_fit(dtype: str, value: Any, stored: Any) -> None:
    written = array(dtype, zarr_format=2)
    written[...] = value
    np.testing.assert_array_equal(written[...], np.broadcast_to(np.array(stored, dtype), 4))


# -- objects


class _Refuses:
    def __array__(self, *_: object, **__: object) -> Any:
        raise RuntimeError("not now")


@pytest.mark.parametrize("items", [[[1, 2], [3]], [[1, 2], [3, 4]], [_Refuses(), 1]], ids=["ragged", "even", "refuses"])
def test_objects_that_are_no_numbers(items: list[Any]) -> None:
    objects = np.empty(2, object)
    for i, item in enumerate(items):
        objects[i] = item
    written = array("float32")
    with pytest.raises(ArgumentError, match="elements of type object are not elements of float32"):
        written[:2] = objects


# -- stores derived from others


class _Inverted(LocalStore):
    """A store that inverts all bits of values in both directions: anything that bypasses it does not come back."""

    def set(self, key: str, value: Buffer) -> None:
        super().set(key, _inverted(value))

    def get(self, key: str) -> bytes | None:
        value = super().get(key)
        return None if value is None else _inverted(value)


def _inverted(value: Buffer) -> bytes:
    return (~np.frombuffer(value, np.uint8)).tobytes()


@pytest.mark.parametrize("codec", ["zstd", "numcodecs.bz2"])
@pytest.mark.parametrize("shards", [None, (10,)])
def test_a_store_that_changes_set_is_not_gone_around(shards: Any, codec: str, tmp_path: Path) -> None:
    store = _Inverted(tmp_path)
    written = gzarr.create_array(
        store, shape=(20,), dtype="int32", chunks=(5,), shards=shards, compressors=[codec], device="cpu"
    )
    written[...] = np.arange(20)
    stored = sorted(file for file in tmp_path.glob("c/*") if file.is_file())
    assert len(stored) == (4 if shards is None else 2)
    plain: dict[str, bytes] = {
        file.relative_to(tmp_path).as_posix(): _inverted(file.read_bytes())
        for file in tmp_path.rglob("*")
        if file.is_file()
    }
    np.testing.assert_array_equal(gzarr.open_array(plain, device="cpu")[...], np.arange(20))
