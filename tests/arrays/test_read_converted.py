"""Reads that convert elements (``dtype=``), compared with NumPy's ``astype`` of what zarr-python reads."""

from __future__ import annotations

import itertools
import json
import warnings
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.zarr_arrays import BIG, LITTLE, blosc3, codec, shard, v2, v3, write

import gzarr
from gzarr.errors import ArgumentError, ChunkError, OutputError

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

NUMBERS = ("bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8")
SHAPE = (13, 22, 17)
SELECTIONS: tuple[Any, ...] = (
    ...,
    (slice(2, 11, 3), slice(None, None, -1), 4),
    (slice(None), np.array([3, 3, 19, 0]), slice(1, 16)),
    (slice(4, 5), slice(2, 3), slice(0, 17)),
    (np.array([1, 12, 7]), np.array([0, 21, 7]), np.array([5, 5, 16])),
    (12, 21, 16),
)


def every_bit(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Return elements of all sizes, of random bits; NaN, infinities and subnormal numbers come often enough."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape) > 0
    n = int(np.prod(shape))
    values = np.frombuffer(rng.bytes(n * np.dtype(dtype).itemsize), dtype).copy()
    if np.dtype(dtype).kind == "f":
        info = np.finfo(dtype)
        special = [np.nan, np.inf, -np.inf, 0.0, -0.0, info.smallest_subnormal, info.max, 65504, 65519, 65520, 65536]
        special += [2.0**-14, 2.0**-24, 2.0**-25, 3 * 2.0**-25, 6.1e-5, 2049, 2051]
        with np.errstate(all="ignore"):
            values[: len(special)] = special
    elif np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        special = [info.min, info.max, info.max - 1, min(info.max, 2**24 + 1), min(info.max, 2**53 + 1)]
        values[: len(special)] = special
    return values.reshape(shape)


def converted(values: np.ndarray[Any, Any], dtype: Any) -> np.ndarray[Any, Any]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return values.astype(dtype)


@pytest.mark.parametrize("stored", NUMBERS)
def test_all_pairs_are_as_numpy_converts(stored: str, tmp_path: Path) -> None:
    data = every_bit(stored, SHAPE)
    gzarr.create_array(tmp_path / "a", data=data, chunks=(5, 8, 17))
    theirs = zarr.open_array(tmp_path / "a")[...]
    a = gzarr.open_array(tmp_path / "a", device="cpu")
    for dtype, selection in itertools.product(NUMBERS, SELECTIONS):
        if data.dtype.kind in "fc" and np.dtype(dtype).kind in "iu":
            continue
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = a.read(selection, dtype=dtype)
        expected = converted(theirs[selection], dtype)
        np.testing.assert_array_equal(result, expected, f"{stored} → {dtype}, {selection}", strict=True)
        # Zeros have signs.
        if expected.dtype.kind == "f":
            same = np.isnan(expected) | (np.signbit(result) == np.signbit(expected))
            assert np.all(same), f"{stored} → {dtype}"


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressor", [None, {"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1}])
@pytest.mark.parametrize("stored", ["<u2", ">u2", ">f8", "<f8", ">i4"])
def test_layouts_of_version_2(stored: str, compressor: Any, order: str, device: TestedDevice, tmp_path: Path) -> None:
    data = np.random.default_rng(1).integers(0, 60000, SHAPE).astype(stored)
    write(tmp_path, v2(SHAPE, (5, 8, 17), stored, compressor, order=order), data)
    a = device.open(tmp_path)
    for dtype, selection in itertools.product(("f4", "f8", "i8", "f2", "c16"), SELECTIONS):
        if data.dtype.kind == "f" and dtype == "i8":
            continue
        expected = converted(data[selection], dtype)
        np.testing.assert_array_equal(device.read(a, selection, dtype=dtype), expected, f"{dtype}, {selection}")


LAYOUTS = {
    "shards": [shard([5, 4, 17], [LITTLE, codec("zstd", level=1, checksum=False)])],
    "big-endian shards": [shard([5, 4, 17], [BIG, codec("gzip", level=1)])],
    "transposed": [codec("transpose", order=[2, 0, 1]), LITTLE, blosc3("zstd", "shuffle", 2)],
    "bitshuffle": [LITTLE, blosc3("lz4", "bitshuffle", 2)],
    "host codec": [LITTLE, codec("numcodecs.bz2", level=1)],
    "filter": [codec("numcodecs.delta", dtype="<u2"), LITTLE],
    "cast": [codec("cast_value", data_type="uint8", out_of_range="wrap"), LITTLE, codec("gzip", level=1)],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_of_version_3(name: str, device: TestedDevice, tmp_path: Path) -> None:
    data = np.random.default_rng(2).integers(0, 256, SHAPE).astype("u2")
    chunks = (5, 8, 17)
    a = device.open(write_ours(tmp_path, v3(SHAPE, chunks, "uint16", LAYOUTS[name]), data))
    for dtype, selection in itertools.product(("f4", "u1", "i8", "f2", "bool"), SELECTIONS):
        expected = converted(data[selection], dtype)
        np.testing.assert_array_equal(device.read(a, selection, dtype=dtype), expected, f"{dtype}, {selection}")


def test_large_reads_write_past_the_caches(device: TestedDevice, tmp_path: Path) -> None:
    data = np.random.default_rng(3).integers(0, 60000, (3, 700, 2100)).astype("u2")
    a = gzarr.create_array(tmp_path / "rows", data=data, chunks=(1, 300, 2100))
    b = gzarr.create_array(tmp_path / "short", data=data, chunks=(2, 64, 50), codecs=None)
    for array in (a, b):
        opened = device.open(tmp_path / array.name.strip("/") if array.name != "/" else array.store)
        np.testing.assert_array_equal(device.read(opened, dtype="f8"), data.astype("f8"))
        out = device.empty((3, 700, 4200), np.dtype("f4"))[:, :, ::2]
        device.read(opened, dtype="f4", out=out)
        np.testing.assert_array_equal(device.to_numpy(out), data.astype("f4"))


def test_rectilinear_chunks(device: TestedDevice, tmp_path: Path) -> None:
    data = np.arange(60 * 7, dtype="i4").reshape(60, 7)
    gzarr.create_array(tmp_path / "a", data=data, chunks=[[10, 20, 30], [3, 4]])
    a = device.open(tmp_path / "a")
    np.testing.assert_array_equal(device.read(a, dtype="f4"), data.astype("f4"))
    np.testing.assert_array_equal(device.read(a, (slice(5, 40, 3), -1), dtype="i2"), data[5:40:3, -1].astype("i2"))


def test_absent_chunks_have_the_converted_fill_value(device: TestedDevice, tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", shape=(10, 10), chunks=(4, 4), dtype="u2", fill_value=40000)
    a = device.open(tmp_path / "a")
    for dtype in ("f4", "i8", "u1", "f2", "bool"):
        expected = converted(np.full((10, 10), 40000, "u2"), dtype)
        np.testing.assert_array_equal(device.read(a, dtype=dtype), expected)
        np.testing.assert_array_equal(device.read(a, (3, slice(0, 9, 2)), dtype=dtype), expected[3, :9:2])
    with pytest.raises(ChunkError):
        device.read(a, dtype="f4", missing="error")
    write(tmp_path / "b", v2((10,), (4,), "<u2", fill=None), None)
    np.testing.assert_array_equal(device.read(device.open(tmp_path / "b"), dtype="f4"), np.zeros(10, "f4"))


def test_arrays_without_axes_and_without_elements(device: TestedDevice, tmp_path: Path) -> None:
    gzarr.create_array(tmp_path / "a", data=np.array(300, "u2"))
    a = device.open(tmp_path / "a")
    for dtype in ("f4", "u1", "c8", "f2"):
        np.testing.assert_array_equal(device.read(a, (), dtype=dtype), np.array(300, "u2").astype(dtype))
    for shape in ((0,), (3, 0, 2)):
        gzarr.create_array(tmp_path / "b", data=np.zeros(shape, "i4"), overwrite=True)
        b = device.open(tmp_path / "b")
        assert device.read(b, dtype="f4").shape == shape
    gzarr.create_array(tmp_path / "c", data=np.arange(12, dtype="i4").reshape(3, 4))
    assert device.read(device.open(tmp_path / "c"), (slice(2, 2), 1), dtype="f8").shape == (0,)


def test_fields_and_other_types(tmp_path: Path) -> None:
    rows = np.zeros(5, [("x", "i2"), ("t", "M8[s]")])
    rows["x"] = [1, -2, 3, -4, 5]
    rows["t"] = np.arange(5)
    a = gzarr.create_array(tmp_path / "a", data=rows, chunks=2)
    np.testing.assert_array_equal(a.read("x", dtype="f4"), rows["x"].astype("f4"), strict=True)
    np.testing.assert_array_equal(a.read("t", dtype="M8[ns]"), rows["t"].astype("M8[ns]"), strict=True)
    with pytest.raises(ArgumentError, match="cannot be converted to dtype=float32"):
        a.read(dtype="f4")
    c = gzarr.create_array(tmp_path / "c", data=np.array([7, -1200], "i4"))
    for text in ("U", "S", "U2", "O"):
        np.testing.assert_array_equal(c.read(dtype=text), np.array([7, -1200], "i4").astype(text), strict=True)
    with pytest.raises(ArgumentError, match="cannot be converted to dtype=<U1: The string"):
        a.read("t", dtype="U1")
    b = gzarr.create_array(tmp_path / "b", data=np.array(["1.5", "2", "x"]), chunks=2)
    np.testing.assert_array_equal(b.read(slice(2), dtype="f8"), [1.5, 2.0])
    with pytest.raises(ArgumentError, match="cannot be converted to dtype=float64: could not convert string"):
        b.read(dtype="f8")
    for texts in (np.array(["1", "333"]), np.array([b"1", b"333"]), np.array(["1", "333"], np.dtypes.StringDType())):
        with pytest.raises(ArgumentError, match="cannot be converted to dtype=uint8: Python integer 333 out of bounds"):
            gzarr.array(texts).read(dtype="u1")


def test_names_of_types(tmp_path: Path) -> None:
    a = gzarr.create_array(tmp_path / "a", data=np.arange(7, dtype="u1"), chunks=3)
    assert a.read(dtype=float).dtype == np.dtype("f8")
    assert a.read(dtype=">f4").dtype == np.dtype(">f4")
    assert a.read(dtype="bfloat16").dtype == np.dtype(ml_dtypes.bfloat16)
    assert a.read(dtype="float32").tolist() == a.read(dtype=np.float32).tolist() == list(range(7))
    for wrong in ("float33", 5.5, {"a": 1}):
        with pytest.raises(ArgumentError, match="neither a NumPy dtype nor a Zarr data type"):
            a.read(dtype=wrong)


#: Those of ml_dtypes that Zarr has no name for are not among them.
OTHER_NUMBERS = tuple(
    name
    for name in dir(ml_dtypes)
    if name not in ("finfo", "iinfo", "int1", "uint1") and isinstance(getattr(ml_dtypes, name), type)
)
TARGETS = ("bool", "u1", "i4", "f2", "f4", ">f4", "f8", "c8", "O", "bfloat16", "float8_e5m2", "int4")


@pytest.mark.parametrize(
    "options",
    [{}, {"zarr_format": 2, "order": "F"}, {"chunks": (2, 4), "shards": (4, 4)}, {"chunks": [[1, 4], [4]]}],
    ids=["v3", "v2", "shards", "rectilinear"],
)
@pytest.mark.parametrize("stored", OTHER_NUMBERS)
def test_types_of_ml_dtypes_are_converted(stored: str, options: dict[str, Any]) -> None:
    # One of the types has no zero, and NaNs as objects are not equal.
    data = (np.arange(20).reshape(5, 4) % 3 // 2 + (stored == "float8_e8m0fnu")).astype(getattr(ml_dtypes, stored))
    a = gzarr.create_array({}, data=data, device="cpu", **{"chunks": (2, 3), **options})
    for name in (*TARGETS, stored):
        dtype = np.dtype(getattr(ml_dtypes, name, name))
        if not np.can_cast(a.dtype, dtype, "unsafe"):
            with pytest.raises(ArgumentError, match=f"{stored} cannot be converted to dtype={dtype}"):
                a.read(dtype=dtype)
            continue
        expected = converted(a[...], dtype)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # Of NumPy, of the imaginary part that is lost.
            warnings.simplefilter("ignore")
            for selection in (..., (slice(4, None, -2), 1), np.array([3, 0, 3])):
                np.testing.assert_array_equal(a.read(selection, dtype=dtype), expected[selection], strict=True)
            rows, columns = [4, 0], [3, 1]
            np.testing.assert_array_equal(a.oindex.read((rows, columns), dtype=dtype), expected[np.ix_(rows, columns)])
            np.testing.assert_array_equal(a.vindex.read((rows, columns), dtype=dtype), expected[rows, columns])
            np.testing.assert_array_equal(a.view[1:, ::2].read(dtype=dtype), expected[1:, ::2], strict=True)
            np.testing.assert_array_equal(np.asarray(a, dtype), expected, strict=True)
            out = np.empty(a.shape, dtype)
            a.read(out=out, dtype=dtype)
        np.testing.assert_array_equal(out, expected, strict=True)


def test_outputs_and_indexers(device: TestedDevice, tmp_path: Path) -> None:
    data = np.arange(40, dtype="u2").reshape(5, 8)
    gzarr.create_array(tmp_path / "a", data=data, chunks=(2, 3))
    a = device.open(tmp_path / "a")
    out = device.empty((5, 8), np.dtype("f4"))
    device.read(a, dtype="f4", out=out)
    np.testing.assert_array_equal(device.to_numpy(out), data)
    for dtype in ("f8", "f2", "c8", None):
        with pytest.raises(OutputError, match="has dtype float32"):
            device.read(a, dtype=dtype, out=out)
    rows, columns = [4, 0, 0], [7, 1, 2]
    np.testing.assert_array_equal(device.read(a.oindex, (rows, columns), dtype="f4"), data[np.ix_(rows, columns)])
    np.testing.assert_array_equal(device.read(a.vindex, (rows, columns), dtype="f8"), data[rows, columns])
    np.testing.assert_array_equal(device.read(a.blocks, (1, 2), dtype="i8"), data[2:4, 6:])


def test_numpy_asks_for_a_type(tmp_path: Path) -> None:
    a = gzarr.create_array(tmp_path / "a", data=np.arange(9, dtype="i4"), chunks=4, device="cpu")
    np.testing.assert_array_equal(np.asarray(a, dtype="f4"), np.arange(9, dtype="f4"), strict=True)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_selection(tmp_path: Path, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3)))
    chunks = tuple(data.draw(st.integers(1, n + 1)) for n in shape)
    stored, dtype = (
        data.draw(st.sampled_from(["u1", "i2", "u4", "f8"])),
        data.draw(st.sampled_from(["f4", "f8", "c16"])),
    )
    values = every_bit(stored, (32, 32, 32))[tuple(slice(n) for n in (*shape, *[1] * (3 - len(shape))))].reshape(shape)
    a = gzarr.create_array(tmp_path / "a", data=values, chunks=chunks, overwrite=True, device="cpu")
    bounds = [st.integers(-n - 1, n + 1) | st.none() for n in shape]
    steps = st.integers(-3, 3).filter(bool)
    selection = tuple(slice(data.draw(b), data.draw(b), data.draw(steps)) for b in bounds)
    np.testing.assert_array_equal(a.read(selection, dtype=dtype), converted(values[selection], dtype), strict=True)


@pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in")
def test_conversions_of_documents_are_compiled(tmp_path: Path) -> None:
    data = np.random.default_rng(4).integers(0, 60000, SHAPE).astype("f4")
    chain = [codec("numcodecs.astype", encode_dtype="<u2", decode_dtype="<f4"), LITTLE, codec("gzip", level=1)]
    theirs = write(tmp_path / "a", v3(SHAPE, (5, 8, 17), "float32", chain, 3.5), data)
    (tmp_path / "a" / "c" / "1" / "1" / "0").unlink()
    a = gzarr.open_array(tmp_path / "a", device="cpu")
    assert a.decode_path.startswith("cpu-native")
    expected = theirs[...]
    assert (expected == 3.5).sum() > 100
    for selection in SELECTIONS:
        np.testing.assert_array_equal(a[selection], expected[selection], strict=True)
    chain[0] = codec("cast_value", data_type="uint16")
    b = gzarr.open_array(write_ours(tmp_path / "b", v3(SHAPE, (5, 8, 17), "float32", chain), data), device="cpu")
    assert b.decode_path.startswith("cpu-native")
    np.testing.assert_array_equal(b[...], data, strict=True)


def write_ours(path: Path, document: dict[str, Any], data: np.ndarray[Any, Any]) -> Path:
    """Write with gzarr, for codecs that zarr-python has not."""
    path.mkdir(exist_ok=True)
    (path / "zarr.json").write_text(json.dumps(document))
    gzarr.open_array(path, mode="r+", device="cpu")[...] = data
    return path


def test_views(device: TestedDevice, tmp_path: Path) -> None:
    data = np.random.default_rng(5).integers(0, 60000, SHAPE).astype("u2")
    for name, options in (("chunks", {"chunks": (5, 8, 17)}), ("uneven", {"chunks": [[5, 8], [22], [10, 7]]})):
        gzarr.create_array(tmp_path / name, data=data, **options)
        view = device.open(tmp_path / name).view[2:, ::-2, 3]
        expected = data[2:, ::-2, 3]
        for dtype in ("f4", "i8", "f2", "u2"):
            np.testing.assert_array_equal(device.read(view, dtype=dtype), expected.astype(dtype))
            part = (slice(1, 9), slice(None, None, -3))
            np.testing.assert_array_equal(device.read(view, part, dtype=dtype), expected[part].astype(dtype))
        rows = ([3, 0, 3], [10, 0, 5])
        np.testing.assert_array_equal(device.read(view.vindex, rows, dtype="f8"), expected[rows].astype("f8"))


@pytest.mark.parametrize(("rule", "compiled"), [("clamp", False), ("wrap", True), (None, False)])
def test_casts_that_are_not_those_of_c_are_not_compiled(rule: str | None, compiled: bool, tmp_path: Path) -> None:
    cast = codec("cast_value", data_type="int16", **({"out_of_range": rule} if rule else {}))
    (tmp_path / "zarr.json").write_text(json.dumps(v3((6,), (6,), "uint8", [cast, LITTLE])))
    stored = np.array([-3, 0, 255, 256, 700, 7], "<i2")
    (tmp_path / "c").mkdir()
    (tmp_path / "c/0").write_bytes(stored.tobytes())
    a = gzarr.open_array(tmp_path, device="cpu")
    assert a.decode_path.startswith("cpu-native") == compiled
    if rule is None:
        with pytest.raises(ChunkError, match="not a number of uint8"):
            a[...]
        return
    expected = np.clip(stored, 0, 255).astype("u1") if rule == "clamp" else stored.astype("u1")
    np.testing.assert_array_equal(a[...], expected, strict=True)
