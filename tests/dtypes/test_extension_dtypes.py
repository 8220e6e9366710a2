"""Data types that NumPy has through ml_dtypes, against tensorstore and the bytes that the registry states.

Source: https://github.com/zarr-developers/zarr-extensions/tree/main/data-types
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import tensorstore as ts
from support.devices import ENGINES, holds
from support.zarr_arrays import BIG, LITTLE, blosc3, codec, same, shard, v2, v3

import gzarr
from gzarr.dtypes import fill_value
from gzarr.dtypes.properties import clear_spare_bits, has_spare_bits, storage
from gzarr.dtypes.v2 import parse_v2
from gzarr.dtypes.v3 import parse_v3
from gzarr.metadata.v2 import parse as documents_v2
from gzarr.metadata.v3 import parse as documents_v3

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

#: Types that tensorstore has too.
SHARED = (
    *("bfloat16", "float8_e3m4", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2"),
    *("float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn", "int2", "int4"),
)
#: Stored bits of an element.
BITS = {"int2": 2, "uint2": 2, "int4": 4, "uint4": 4, "float4_e2m1fn": 4, "float6_e2m3fn": 6, "float6_e3m2fn": 6}
ALL = (*SHARED, "uint2", "uint4", "float6_e2m3fn", "float6_e3m2fn", "float8_e4m3")
COMPLEX = {"complex_bfloat16": (ml_dtypes.bcomplex32, "bfloat16"), "complex_float16": (ml_dtypes.complex32, "float16")}
ZSTD = codec("zstd", level=1, checksum=False)
SHAPE, CHUNKS = (13, 20), (4, 6)


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name))


def every_pattern(name: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return elements of every bit pattern, or as many as fit, including NaNs and infinities."""
    dtype = dtype_of(name)
    n = int(np.prod(shape))
    bits = BITS.get(name, 8 * dtype.itemsize)
    patterns = np.arange(n) * (1 if bits <= 8 else 65536 // n + 1) % 2**bits
    return patterns.astype(f"u{dtype.itemsize}").view(dtype).reshape(shape)


def selections() -> list[Any]:
    return [..., (slice(3, 11), slice(None, None, -3)), 7, (-1, -1), ([5, 0, 12],), (slice(2, 2), 1)]


# -- the same as tensorstore

CHAINS: dict[str, list[Any]] = {
    "bytes": [],
    "zstd": [ZSTD],
    "blosc": [blosc3("lz4", "shuffle", 2)],
    "gzip": [codec("gzip", level=1)],
}


def chain(name: str, endian: dict[str, Any]) -> list[Any]:
    if name == "shard":
        return [shard([2, 3], [endian, ZSTD])]
    if name == "transpose":
        return [codec("transpose", order=[1, 0]), endian, ZSTD]
    return [endian, *CHAINS[name]]


def fill_for(name: str) -> Any:
    # tensorstore 0.1.86 makes 2**-64 of 1 in this type.
    return "NaN" if name == "float8_e8m0fnu" else 1


def by_tensorstore(path: Path, document: dict[str, Any], data: np.ndarray[Any, Any]) -> Any:
    """Write an array, leave its last row of chunks absent, and return tensorstore's view of it."""
    driver, key = ("zarr3", "zarr.json") if document["zarr_format"] == 3 else ("zarr", ".zarray")
    path.mkdir(parents=True)
    (path / key).write_text(json.dumps(document))
    array = ts.open({"driver": driver, "kvstore": {"driver": "file", "path": f"{path}/"}}).result()
    array[:12].write(data[:12]).result()
    return array


READS = [
    pytest.param(name, *engine.values, id=f"{name}-{engine.id}", marks=engine.marks)
    for engine in ENGINES
    for name in SHARED
    if engine.values[0] == "cpu" or holds(dtype_of(name))
]


@pytest.mark.parametrize(("name", "device", "threads"), READS, indirect=["device"])
def test_v3_as_tensorstore(
    name: str, device: TestedDevice, threads: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if threads:
        monkeypatch.setattr("gzarr.engines.kernels.available", frozenset)
    dtype = dtype_of(name)
    data = every_pattern(name, SHAPE)
    fill = fill_for(name)
    for chain_name in ("zstd", "blosc", "shard") if device.is_cuda else (*CHAINS, "shard", "transpose"):
        for endian in (LITTLE, BIG) if dtype.itemsize > 1 else (LITTLE, BIG, {"name": "bytes"}):
            path = tmp_path / f"{chain_name}-{endian.get('configuration', {}).get('endian')}"
            reference = by_tensorstore(path, v3(SHAPE, CHUNKS, name, chain(chain_name, endian), fill), data)
            expected = reference.read().result()
            same(expected[:12], data[:12])
            array = gzarr.open_array(path, device=device.name)
            assert array.dtype == dtype
            for selection in selections():
                same(device.read(array, selection), expected[selection], (path.name, selection))
            same(device.read(array.vindex, ([0, 12, 7], [1, 19, 7])), expected[[0, 12, 7], [1, 19, 7]], path.name)
            same(array.fill_value, np.array(float(fill)).astype(dtype), path.name)


@pytest.mark.parametrize("name", SHARED)
def test_v2_as_tensorstore(name: str, tmp_path: Path) -> None:
    data = every_pattern(name, SHAPE)
    for order in "CF":
        for i, compressor in enumerate((None, {"id": "zlib", "level": 1})):
            path = tmp_path / f"{order}{i}"
            # It writes numbers of this type so.
            fill = "Ag==" if name == "float4_e2m1fn" else fill_for(name)
            expected = by_tensorstore(path, v2(SHAPE, CHUNKS, name, compressor, order=order, fill=fill), data)
            for selection in selections():
                same(gzarr.open_array(path)[selection], expected.read().result()[selection], (order, selection))


# -- bits that do not count


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("codecs", [[LITTLE], [{"name": "bytes"}, ZSTD], [shard([2, 5], [BIG])]], ids=len)
def test_high_bits_are_ignored(name: str, codecs: list[Any], tmp_path: Path) -> None:
    """Elements are equal to those without the high bits, and have the same bytes in memory."""
    written = every_pattern("float8_e5m2", (16, 20)).view("u1")
    by_tensorstore(tmp_path / "a", v3((16, 20), (4, 5), "uint8", codecs, 0), written)
    document = json.loads((tmp_path / "a" / "zarr.json").read_text())
    (tmp_path / "a" / "zarr.json").write_text(json.dumps({**document, "data_type": name}))
    expected = (written & (2 ** BITS[name] - 1)).view(dtype_of(name))[:12]
    array = gzarr.open_array(tmp_path / "a")
    same(array[:12], expected)
    assert (array[:12].astype("f4") == expected.astype("f4")).all()


@pytest.mark.parametrize("name", ALL)
def test_numbers(name: str, tmp_path: Path) -> None:
    """Elements read are numbers of ml_dtypes: they calculate and print like its own."""
    own = np.array([-1, 0, 1, 1.5, 2]).astype("f4").astype(dtype_of(name))
    store = {
        "zarr.json": json.dumps(v3((5,), (5,), name, [LITTLE], 1)).encode(),
        "c/0": own.tobytes(),
    }
    result = gzarr.open_array(store)[...]
    assert result.dtype.type is getattr(ml_dtypes, name)
    assert str(result) == str(own)
    same(result.astype("f8"), own.astype("f8"))
    assert name in repr(gzarr.open_array(store))


# -- complex numbers


@pytest.mark.parametrize("endian", [LITTLE, BIG], ids=["little", "big"])
@pytest.mark.parametrize("name", COMPLEX)
def test_small_complex_numbers(name: str, endian: dict[str, Any]) -> None:
    dtype, part = np.dtype(COMPLEX[name][0]), np.dtype(COMPLEX[name][1])
    parts = np.array([1.0, -2.5, 0.0, -0.0, np.inf, 96.0]).astype(part)
    stored = parts.view("u2").astype(">u2" if endian is BIG else "<u2")
    document = v3((6,), (3,), name, [endian], [1.5, "NaN"])
    array = gzarr.open_array({"zarr.json": json.dumps(document).encode(), "c/0": stored.tobytes()})
    result = array[...]
    assert result.dtype == dtype
    same(result.view(part)[:6], parts)
    same(result[3:].view(part), np.array([1.5, np.nan] * 3).astype(part))
    assert complex(result[0]) == 1 - 2.5j
    assert fill_value.to_v3(array.fill_value, array.dtype) == [1.5, "NaN"]


@pytest.mark.parametrize(("name", "plain"), [("complex_float32", "c8"), ("complex_float64", "c16")])
def test_other_names_of_complex_numbers(name: str, plain: str) -> None:
    dtype, text = parse_v3(name)
    assert (dtype, text) == (np.dtype(plain), name)


@pytest.mark.parametrize("name", ["complex_float8_e5m2", "complex_float4_e2m1fn", "int1", "float8", "float128"])
def test_types_that_numpy_has_not(name: str) -> None:
    with pytest.raises(gzarr.UnsupportedError, match=name) as caught:
        parse_v3(name)
    assert caught.value.json_path == "$.data_type"


# -- in structured types


@pytest.mark.parametrize("threads", [False, True], ids=["native", "threads"])
@pytest.mark.parametrize("endian", ["little", "big"])
def test_fields(endian: str, threads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if threads:
        monkeypatch.setattr("gzarr.engines.kernels.available", frozenset)
    inner = {"name": "struct", "configuration": {"fields": [{"name": "n", "data_type": "int4"}]}}
    types = {"b": "bfloat16", "f": "float32", "z": "complex_bfloat16", "e": "float8_e5m2", "s": inner}
    fields = [{"name": name, "data_type": data_type} for name, data_type in types.items()]
    document = v3(
        (4,),
        (2,),
        {"name": "struct", "configuration": {"fields": fields}},
        [codec("bytes", endian=endian)],
        {"b": "0x7fc1", "f": 2.5, "z": [1.0, "-Infinity"], "e": "NaN", "s": {"n": -8}},
    )
    order = "<" if endian == "little" else ">"
    rows = [(0x3FC0, 1.25, 0x3F80, 0xC000, 0x3C, 0xFF), (0xFF80, -8.0, 0x0000, 0x4040, 0x7C, 0x57)]
    chunk = b"".join(struct.pack(f"{order}HfHHBB", *row) for row in rows)
    array = gzarr.open_array({"zarr.json": json.dumps(document).encode(), "c/0": chunk})
    rows += [(0x7FC1, 2.5, 0x3F80, 0xFF80, 0x7E, 0x08)] * 2
    columns = list(zip(*rows, strict=True))
    same(array["b"].view("u2"), np.array(columns[0], "u2"))
    same(array["f"], np.array(columns[1], "f4"))
    same(array["z"].view("u2"), np.array([row[2:4] for row in rows], "u2").ravel())
    same(array["e"].view("u1"), np.array(columns[4], "u1"))
    same(array[...]["s"]["n"].view("u1"), np.array(columns[5], "u1") & 15)
    same(array[::-2]["b"].astype("f4"), array["b"][::-2].astype("f4"))
    assert fill_value.to_v3(array.fill_value["e"], array.dtype["e"]) == "NaN"


def test_layout_of_storage() -> None:
    dtype = np.dtype([("a", ml_dtypes.bfloat16), ("b", [("c", ml_dtypes.int4, (2, 3)), ("d", "<M8[s]")]), ("e", "S3")])
    plain = storage(dtype)
    assert plain == np.dtype([("a", "u2"), ("b", [("c", "u1", (2, 3)), ("d", "<M8[s]")]), ("e", "S3")])
    assert storage(plain) == plain
    assert storage(dtype.newbyteorder(">")) == plain.newbyteorder(">")
    assert has_spare_bits(dtype)
    assert not has_spare_bits(plain)
    elements = np.full(2 * plain.itemsize, 0xFF, np.uint8).view(plain)
    clear_spare_bits(elements, dtype)
    assert elements.view("u1").tolist() == 2 * ([255] * 2 + [15] * 6 + [255] * 11)


# -- fill values

FILLS: list[tuple[str, Any, str]] = [
    # What the registry says that "NaN" is; bytes of the number, most significant first.
    ("bfloat16", "NaN", "7fc0"),
    ("float8_e3m4", "NaN", "78"),
    ("float8_e4m3", "NaN", "7c"),
    ("float8_e4m3b11fnuz", "NaN", "80"),
    ("float8_e4m3fn", "NaN", "7f"),
    ("float8_e4m3fnuz", "NaN", "80"),
    ("float8_e5m2", "NaN", "7e"),
    ("float8_e5m2fnuz", "NaN", "80"),
    ("float8_e8m0fnu", "NaN", "ff"),
    ("bfloat16", "0xffc1", "ffc1"),
    ("bfloat16", "Infinity", "7f80"),
    ("bfloat16", "-Infinity", "ff80"),
    ("bfloat16", -0.0, "8000"),
    ("bfloat16", 1, "3f80"),
    ("bfloat16", 3.39e38, "7f7f"),
    ("bfloat16", 1e39, "7f80"),
    ("float8_e5m2", -1e6, "fc"),
    ("float8_e5m2", "-Infinity", "fc"),
    ("float8_e4m3", "Infinity", "78"),
    ("float8_e4m3fn", 448, "7e"),
    ("float8_e8m0fnu", 2.0, "80"),
    ("float8_e8m0fnu", "0x00", "00"),
    ("float4_e2m1fn", -6, "0f"),
    ("float4_e2m1fn", "0xf7", "07"),
    ("float6_e2m3fn", 7.5, "1f"),
    ("float6_e3m2fn", -28.0, "3f"),
    ("int4", -8, "08"),
    ("int4", 7, "07"),
    ("int2", -1, "03"),
    ("uint4", 15, "0f"),
    ("uint2", 3.0, "03"),
]


@pytest.mark.parametrize(("name", "value", "expected"), FILLS)
def test_fill_values(name: str, value: Any, expected: str) -> None:
    document = v3((3,), (2,), name, [LITTLE], value)
    metadata = documents_v3.parse_array(document)
    assert np.asarray(metadata.fill_value).dtype == metadata.dtype == dtype_of(name)
    assert metadata.fill_value.tobytes()[::-1].hex() == expected
    # An absent chunk is made of it.
    result = gzarr.open_array({"zarr.json": json.dumps(document).encode()})[...]
    assert result.tobytes() == metadata.fill_value.tobytes() * 3
    again = fill_value.to_v3(metadata.fill_value, metadata.dtype)
    assert fill_value.from_v3(again, metadata.dtype, name).tobytes() == metadata.fill_value.tobytes()
    if not isinstance(value, str):
        assert documents_v2.parse_array(v2((3,), (2,), name, fill=value)).fill_value == metadata.fill_value


WRONG_FILLS: list[tuple[str, Any]] = [
    *((name, value) for name in ("bfloat16", "float8_e5m2", "float4_e2m1fn") for value in (True, [], {}, "", "1")),
    *((name, "0x123") for name in ("bfloat16", "float8_e5m2")),
    ("bfloat16", 10**400),
    ("float8_e4m3fn", "Infinity"),
    ("float8_e4m3fnuz", "-Infinity"),
    ("float8_e4m3fn", 500),
    ("float8_e8m0fnu", "Infinity"),
    ("float8_e8m0fnu", 0),
    ("float8_e8m0fnu", -1.0),
    *((name, value) for name in ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn") for value in ("NaN", "Infinity")),
    ("float4_e2m1fn", 6.5),
    ("float6_e2m3fn", -8),
    ("float6_e3m2fn", 1e9),
    *(("int4", value) for value in (8, -9, 0.5, "1", "NaN", True, [1], "0x07")),
    ("int2", 2),
    ("int2", -3),
    ("uint4", -1),
    ("uint4", 16),
    ("uint2", 4),
    ("complex_bfloat16", 1.0),
    ("complex_bfloat16", [1.0]),
]


@pytest.mark.parametrize(("name", "value"), WRONG_FILLS)
def test_wrong_fill_values(name: str, value: Any) -> None:
    with pytest.raises(gzarr.MetadataError, match=name) as caught:
        documents_v3.parse_array(v3((3,), (2,), name, [LITTLE], value))
    assert caught.value.json_path == "$.fill_value"


def test_wrong_value_of_a_field() -> None:
    inner = {"name": "struct", "configuration": {"fields": [{"name": "n", "data_type": "int4"}]}}
    data_type = {"name": "struct", "configuration": {"fields": [{"name": "s", "data_type": inner}]}}
    with pytest.raises(gzarr.MetadataError, match=r"^\$.fill_value.s.n: 8 is not .* from -8 to 7") as caught:
        documents_v3.parse_array(v3((3,), (2,), data_type, [LITTLE], {"s": {"n": 8}}))
    assert caught.value.json_path == "$.fill_value.s.n"


# -- documents


@pytest.mark.parametrize("name", [*ALL, *COMPLEX])
def test_no_configuration(name: str) -> None:
    assert parse_v3({"name": name})[0] == parse_v3({"name": name, "configuration": {}})[0] == parse_v3(name)[0]
    with pytest.raises(gzarr.MetadataError) as caught:
        parse_v3({"name": name, "configuration": {"bits": 4}})
    assert caught.value.json_path == "$.data_type.configuration"


def test_two_bytes_need_an_order() -> None:
    for name in ("bfloat16", *COMPLEX):
        fill = 0 if name == "bfloat16" else [0, 0]
        with pytest.raises(gzarr.MetadataError, match="endian"):
            documents_v3.parse_array(v3((3,), (2,), name, [{"name": "bytes"}], fill))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(gzarr.UnsupportedError, match=r"'bfloat16'.*'gzarr\[ml-dtypes\]'") as caught:
        gzarr.open_array({"zarr.json": json.dumps(v3((3,), (2,), "bfloat16", [LITTLE], 0)).encode()})
    assert caught.value.json_path == "$.data_type"
    with pytest.raises(gzarr.UnsupportedError, match=r"gzarr\[ml-dtypes\]") as caught:
        parse_v2([["a", "<i2"], ["b", "int4"]])
    assert caught.value.json_path == "$.dtype[1][1]"


def test_with_an_old_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ml_dtypes, "bcomplex32")
    with pytest.raises(gzarr.UnsupportedError, match=rf"ml_dtypes {ml_dtypes.__version__}; a newer one"):
        parse_v3("complex_bfloat16")


def test_the_package_is_imported_when_a_document_names_it() -> None:
    code = """
import json, sys, gzarr
document = json.loads(sys.argv[1])
read = lambda: gzarr.open_array({"zarr.json": json.dumps(document).encode()}, device="cpu")[...]
read()
assert "ml_dtypes" not in sys.modules
document["data_type"] = "int4"
print(read().dtype)
"""
    document = json.dumps(v3((3,), (2,), "float32", [LITTLE], 0))
    done = subprocess.run([sys.executable, "-c", code, document], capture_output=True, text=True, timeout=100)
    assert done.stdout == "int4\n", done.stderr


# -- on a GPU


@pytest.mark.parametrize("name", ALL)
def test_bfloat16_alone_is_on_a_gpu(name: str, device: TestedDevice) -> None:
    assert holds(dtype_of(name)) == (name == "bfloat16")
    store = {"zarr.json": json.dumps(v3((3,), (2,), name, [LITTLE], 1)).encode()}
    array = gzarr.open_array(store, device=device.name)
    if device.is_cuda and name != "bfloat16":
        for read in (lambda: array[...], lambda: array.oindex[[1]], lambda: array.read_many([0])):
            with pytest.raises(gzarr.DeviceError, match=rf'{name}.*device="cpu"'):
                read()
        array = gzarr.open_array(store, device="auto")
        assert array.device == "cpu"
    same(device.to_numpy(array[...]), np.ones(3).astype(dtype_of(name)))
