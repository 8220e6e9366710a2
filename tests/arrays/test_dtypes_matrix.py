"""NumPy's data types in every encoding of elements, against zarr-python, zarrs and tensorstore; and wrong types."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tensorstore as ts
import zarr
import zarrs  # noqa: F401 - registers its pipeline
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.devices import ENGINES, holds
from support.zarr_arrays import LITTLE, blosc3, codec, same, sample, shard, v2, v3, write

import gzarr
from gzarr.metadata.v2 import parse as documents_v2
from gzarr.metadata.v3 import parse as documents_v3

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

SHAPE, CHUNKS, INNER = (11, 9), (4, 6), (2, 3)
ZSTD = codec("zstd", level=1, checksum=False)
UNITS = ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as")
ZARRS = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}


@dataclass(frozen=True)
class Type:
    """A data type: its v3 ``data_type``, its NumPy dtype and a fill value."""

    v3: Any
    dtype: np.dtype[Any]
    fill: Any

    def __repr__(self) -> str:
        return str(self.dtype if isinstance(self.v3, dict) else self.v3)


def sized(name: str, size: int) -> dict[str, Any]:
    return codec(name, length_bytes=size)


def time(name: str, unit: str, factor: int = 1) -> dict[str, Any]:
    return codec(f"numpy.{name}", unit=unit, scale_factor=factor)


def struct(**fields: Any) -> dict[str, Any]:
    return codec("struct", fields=[{"name": name, "data_type": data_type} for name, data_type in fields.items()])


NUMBERS = [*(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)), "float16", "float32", "float64"]
#: What zarr-python, zarrs and tensorstore have.
SIMPLE = [
    Type("bool", np.dtype("?"), True),
    *(Type(name, np.dtype(name), 7) for name in NUMBERS),
    *(Type(name, np.dtype(name), [1.5, "-Infinity"]) for name in ("complex64", "complex128")),
]
#: What zarr-python has, and zarrs but for strings.
NUMPY = [
    Type(sized("null_terminated_bytes", 3), np.dtype("S3"), "YWI="),
    Type(sized("fixed_length_utf32", 12), np.dtype("U3"), "é∅"),
    Type(time("datetime64", "s"), np.dtype("M8[s]"), "NaT"),
    Type(time("datetime64", "us", 25), np.dtype("M8[25us]"), 4),
    Type(time("timedelta64", "ns"), np.dtype("m8[ns]"), -(2**63)),
    Type(time("timedelta64", "D", 3), np.dtype("m8[3D]"), -5),
]
RECORD = np.dtype([("x", "f4"), ("n", "i2"), ("b", "?"), ("z", "c8")])
FIELDS = {"x": "float32", "n": "int16", "b": "bool", "z": "complex64"}
MIXED = np.dtype([("r", RECORD), ("u", "u8"), ("t", "M8[ms]"), ("s", "S3"), ("w", "U2"), ("v", "V2")])
MIXED_FIELDS = {
    "r": struct(**FIELDS),
    "u": "uint64",
    "t": time("datetime64", "ms"),
    "s": sized("null_terminated_bytes", 3),
    "w": sized("fixed_length_utf32", 8),
    "v": "r16",
}
RECORD_FILL = {"x": "NaN", "n": -3, "b": True, "z": [1.0, "0x7fc00001"]}
#: Raw bytes and records, of which the others have some in some codecs.
OPAQUE = [
    Type(sized("raw_bytes", 5), np.dtype("V5"), "AQIDBAU="),
    Type("r24", np.dtype("V3"), [1, 2, 3]),
    Type(struct(**FIELDS), RECORD, RECORD_FILL),
    Type(struct(**MIXED_FIELDS), MIXED, {"r": RECORD_FILL, "u": 1, "t": "NaT", "s": "YQ==", "w": "é", "v": "AQI="}),
]


def chain(name: str, endian: Any, size: int, extra: int = 0) -> list[Any]:
    """Return codecs; ``extra`` is the length of an additional last dimension of bytes, if any."""
    last = [extra] if extra else []
    chains: dict[str, list[Any]] = {
        "bytes": [endian],
        "zstd": [endian, ZSTD],
        "blosc": [endian, blosc3("lz4", "shuffle", size)],
        "shard": [shard([*INNER, *last], [endian, ZSTD])],
        "transpose": [codec("transpose", order=[1, 0, 2][: 2 + len(last)]), endian],
    }
    return chains[name]


ENCODINGS = [
    (name, endian) for name in ("bytes", "zstd", "blosc", "shard", "transpose") for endian in ("little", "big")
]
SELECTIONS: list[Any] = [
    ...,
    (slice(2, 10), slice(None, None, -2)),
    (slice(None, None, 3), 4),
    (-1, -1),
    ([7, 0, 7],),
    (slice(3, 3), slice(1, 5)),
]


def reads(types: list[Type]) -> list[Any]:
    """Return parameters ``(case, device, threads)``: every way to read a type."""
    return [
        pytest.param(case, *engine.values, id=f"{case}-{engine.id}", marks=engine.marks)
        for engine in ENGINES
        for case in types
        if engine.values[0] == "cpu" or holds(case.dtype)
    ]


def compare(array: gzarr.Array, device: TestedDevice, expected: np.ndarray[Any, Any], what: str) -> None:
    assert array.dtype == expected.dtype
    for selection in SELECTIONS:
        # Scalars of strings forget how long they could be.
        part = np.asarray(expected[selection], expected.dtype)
        same(np.asarray(device.read(array, selection), array.dtype), part, (what, selection))
    same(device.read(array.oindex, ([8, 1], [0, 5])), expected[np.ix_([8, 1], [0, 5])], what)
    same(device.read(array.vindex, ([8, 1], [0, 5])), expected[[8, 1], [0, 5]], what)


@pytest.fixture
def engine(device: TestedDevice, threads: bool, monkeypatch: pytest.MonkeyPatch) -> TestedDevice:
    if threads:
        monkeypatch.setattr("gzarr.engines.kernels.available", frozenset)
    return device


def by_tensorstore(path: Path, driver: str = "zarr3", field: str | None = None) -> np.ndarray[Any, Any]:
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": f"{path}/"}}
    result: np.ndarray[Any, Any] = ts.open(spec if field is None else {**spec, "field": field}).result().read().result()
    return result


# -- v3


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize(("case", "device", "threads"), reads([*SIMPLE, *NUMPY]), indirect=["device"])
def test_v3(case: Type, engine: TestedDevice, threads: bool, tmp_path: Path) -> None:
    data = sample(SHAPE, case.dtype)
    for name, endian in ENCODINGS:
        path = tmp_path / f"{name}-{endian}"
        codecs = chain(name, codec("bytes", endian=endian), case.dtype.itemsize)
        reference = write(path, v3(SHAPE, CHUNKS, case.v3, codecs, case.fill), None)
        # The last row of chunks is absent, the one before holds fill values.
        reference[:7] = data[:7]
        expected = reference[...]
        same(expected[:7], data[:7])
        array = gzarr.open_array(path, device=engine.name)
        compare(array, engine, expected, path.name)
        same(array.fill_value, expected[-1, -1])
        if threads or engine.is_cuda:
            continue
        if case in SIMPLE:
            same(array[...], by_tensorstore(path), path.name)
        # zarrs 0.2.3 swaps the parts of big-endian complex numbers when it reads a part of a chunk.
        if case.dtype.kind not in "SU" and (case.dtype.kind != "c" or endian == "little"):
            with zarr.config.set(ZARRS):
                same(array[...], zarr.open_array(str(path), mode="r")[...], path.name)


def opaque_fill(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value of strings, bytes, numbers and records of them in NumPy's form."""
    if isinstance(value, dict):
        return tuple(opaque_fill(value[name], dtype[name]) for name in dtype.names or ())
    if dtype.kind == "V":
        return np.void(bytes(value) if isinstance(value, list) else base64.b64decode(value))
    if dtype.kind == "S":
        return base64.b64decode(value)
    if dtype.kind == "c":
        return np.array([value[0], np.uint32(int(value[1], 16)).view("f4")], "f4").view(dtype)[0]
    return value


@pytest.mark.parametrize(("case", "device", "threads"), reads(OPAQUE), indirect=["device"])
def test_v3_opaque(case: Type, engine: TestedDevice, threads: bool, tmp_path: Path) -> None:
    """The chunks are written as bytes, with one more dimension."""
    size = case.dtype.itemsize
    expected = np.empty(SHAPE, case.dtype)
    expected[...] = np.array(opaque_fill(case.fill, case.dtype), case.dtype)
    expected[:8] = sample(SHAPE, case.dtype)[:8]
    for name, endian in ENCODINGS:
        path = tmp_path / f"{name}-{endian}"
        stored = expected[:8].astype(case.dtype.newbyteorder(endian)).view("u1").reshape(8, SHAPE[1], size)
        order = codec("bytes", endian=endian)
        document = v3((*SHAPE, size), (*CHUNKS, size), "uint8", chain(name, order, size, size), 0)
        write(path, {**document, "chunk_key_encoding": codec("v2", separator="/")}, None)[:8] = stored
        for key in list(path.glob("*/*/0")):
            # Without the key's last part, which is the dimension of bytes.
            chunk = key.read_bytes()
            key.unlink()
            key.parent.rmdir()
            key.parent.write_bytes(chunk)
        document = v3(SHAPE, CHUNKS, case.v3, chain(name, order, size), case.fill)
        (path / "zarr.json").write_text(json.dumps({**document, "chunk_key_encoding": codec("v2", separator="/")}))
        array = gzarr.open_array(path, device=engine.name)
        compare(array, engine, expected, path.name)
        for field in case.dtype.names or ():
            same(array[field], expected[field], (path.name, field))
        if case.dtype == RECORD and not threads:
            for field in RECORD.names or ():
                same(array[field], by_tensorstore(path, field=field), (path.name, field))


@pytest.mark.parametrize("endian", ["little", "big", None])
@pytest.mark.parametrize("sharded", [False, True])
def test_base64_of_records_is_in_the_codecs_byte_order(endian: str | None, sharded: bool, tmp_path: Path) -> None:
    """Documents with the older name "structured", and fields as pairs; without byte order, fields are little-endian."""
    value = np.zeros((), RECORD)
    value[()] = (1.5, -3, True, 2 - 1j)
    fill = base64.b64encode(value.astype(RECORD.newbyteorder(endian or "little")).tobytes()).decode()
    order = {"name": "bytes"} if endian is None else codec("bytes", endian=endian)
    codecs = [shard([*INNER], [order])] if sharded else [order]
    data_type = codec("structured", fields=[[name, data_type] for name, data_type in FIELDS.items()])
    (tmp_path / "zarr.json").write_text(json.dumps(v3(SHAPE, CHUNKS, data_type, codecs, fill)))
    array = gzarr.open_array(tmp_path)
    assert array[0, 0] == array.fill_value == value[()]
    if endian is not None:
        for field in RECORD.names or ():
            same(array[field], by_tensorstore(tmp_path, field=field), field)


# -- v2

V2_TYPES = [
    *("|b1", "|i1", "|u1", *(f"<{kind}{n}" for kind in "iu" for n in (2, 4, 8)), "<f2", "<f4", "<f8", "<c8", "<c16"),
    *("|S3", "<U3", "|V5", *(f"<M8[{unit}]" for unit in UNITS), "<m8[7us]", "<m8[D]"),
]


@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
@pytest.mark.parametrize("dtype", V2_TYPES)
def test_v2(dtype: str, tmp_path: Path) -> None:
    fills: dict[str, Any] = {"b": True, "c": [2.0, "NaN"], "S": "YWI=", "U": "é∅", "V": "AQIDBAU=", "M": -(2**63)}
    for order, stored in (("C", dtype), ("F", dtype.replace("<", ">"))):
        for name, compressor in (("raw", None), ("zlib", {"id": "zlib", "level": 1})):
            document = v2(SHAPE, CHUNKS, stored, compressor, order=order, fill=fills.get(dtype[1], 7))
            reference = write(tmp_path / f"{order}{name}", document, None)
            reference[:7] = sample(SHAPE, dtype)[:7]
            expected = reference[...]
            array = gzarr.open_array(tmp_path / f"{order}{name}")
            for selection in SELECTIONS:
                part = np.asarray(expected[selection], expected.dtype)
                same(np.asarray(array[selection], array.dtype), part, (stored, name, selection))
            if dtype[1] in "biufc":
                same(array[...], by_tensorstore(tmp_path / f"{order}{name}", "zarr"), (stored, name))


@pytest.mark.parametrize("name", ["<f16", ">f16", "<f12", "<c32", "<c24"])
def test_long_double(name: str) -> None:
    with pytest.raises(gzarr.UnsupportedError, match="long double") as caught:
        documents_v2.parse_array(v2((3,), (2,), name))
    assert caught.value.json_path == "$.dtype"


@pytest.mark.parametrize(("value", "number"), [("nan", np.nan), ("-inf", -np.inf), ("Infinity", np.inf), ("1e3", 1e3)])
def test_v2_numbers_as_strings(value: str, number: float) -> None:
    for dtype in ("<f4", ">f8", "<f2"):
        same(documents_v2.parse_array(v2((3,), (2,), dtype, fill=value)).fill_value, np.array(number, dtype))


# -- elements that are objects, or that CuPy has not

OBJECTS: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("string", v3((4,), (2,), "string", [{"name": "vlen-utf8"}], "∅"), ["∅"] * 4),
    ("bytes", v3((4,), (2,), "bytes", [{"name": "vlen-bytes"}], "AQI="), [b"\1\2"] * 4),
    ("bytes-3.0", v3((4,), (2,), "variable_length_bytes", [{"name": "vlen-bytes"}], [3]), [b"\3"] * 4),
    ("v2-utf8", v2((4,), (2,), "|O", filters=[{"id": "vlen-utf8"}], fill="x"), ["x"] * 4),
    ("v2-bytes", v2((4,), (2,), "|O", filters=[{"id": "vlen-bytes"}], fill="eA=="), [b"x"] * 4),
    ("v2-json", v2((4,), (2,), "|O", filters=[{"id": "json2"}], fill={"a": [1]}), [{"a": [1]}] * 4),
    (
        "v2-categorize",
        v2(
            (4,),
            (2,),
            "|O",
            filters=[{"id": "categorize", "labels": ["a", "b"], "dtype": "|O", "astype": "|u1"}],
            fill="",
        ),
        [""] * 4,
    ),
]


@pytest.mark.parametrize(("name", "document", "expected"), OBJECTS, ids=[entry[0] for entry in OBJECTS])
def test_objects(name: str, document: dict[str, Any], expected: list[Any], device: TestedDevice) -> None:
    key = "zarr.json" if document["zarr_format"] == 3 else ".zarray"
    store = {key: json.dumps(document).encode()}
    if device.is_cuda:
        array = gzarr.open_array(store, device=device.name)
        for read in (lambda: array[...], lambda: array.oindex[[1]], lambda: array.read_many([0, 1])):
            with pytest.raises(gzarr.DeviceError, match=r'device="cpu"'):
                read()
    array = gzarr.open_array(store, device="auto")
    assert array.device == "cpu"
    assert array[...].tolist() == expected


def test_categorize(tmp_path: Path) -> None:
    labels = {"id": "categorize", "labels": ["a", "∅"], "dtype": "|O", "astype": "|u1"}
    for dtype in ("|O", "<U3"):
        document = v2((4,), (4,), dtype, filters=[{**labels, "dtype": dtype}], fill="")
        array = gzarr.open_array({".zarray": json.dumps(document).encode(), "0": b"\2\0\1\2"})
        assert array[...].tolist() == ["∅", "", "a", "∅"]


@pytest.mark.parametrize("case", [*NUMPY, *OPAQUE], ids=repr)
def test_types_that_cupy_has_not(case: Type, device: TestedDevice) -> None:
    store = {"zarr.json": json.dumps(v3((3,), (2,), case.v3, [LITTLE], case.fill)).encode()}
    if device.is_cuda:
        array = gzarr.open_array(store, device=device.name)
        for read in (lambda: array[...], lambda: array.vindex[[0]], lambda: array.read_many([0])):
            with pytest.raises(gzarr.DeviceError, match=r'device="cpu"'):
                read()
    assert gzarr.open_array(store, device="auto")[...].shape == (3,)


# -- wrong data types and fill values

LETTERS = st.text(alphabet='abcdefghijklmnopqrstuvwxyz0123456789_.<>|=[]"SUVMOμ-+ ', max_size=12)
NAMES = st.one_of(
    LETTERS,
    st.sampled_from([*NUMBERS, "bool", "complex64", "r8", "r12", "string", "bytes", "int4", "bfloat16", "float8_e5m2"]),
    st.sampled_from(["float4_e2m1fn", "complex_bfloat16", "struct", "structured", "numpy.datetime64", "raw_bytes"]),
    st.sampled_from(["fixed_length_utf32", "null_terminated_bytes", "|b1", "<f4", ">i8", "|S5", "<U2", "|V3", "<c8"]),
    st.sampled_from(["|O", "<M8[s]", "<m8[10us]", "<f16", "|S99999999999", "r99999999999", "<M8[0s]"]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-9, 16),
    st.floats(),
    st.sampled_from(
        ["NaN", "Infinity", "-Infinity", "NaT", "", "AQID", "AQ==", "0x7fc0", "0x00", "0x7fc00000", "-1", "é"]
    ),
    LETTERS,
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["x", "name", "unit", "scale_factor", "length_bytes", "fields"]), inner, max_size=3
        ),
    ),
    max_leaves=6,
)
DATA_TYPES = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        VALUES,
        st.builds(
            lambda name, configuration: {"name": name, "configuration": configuration},
            NAMES,
            st.one_of(
                VALUES,
                st.builds(sized, st.just(""), st.integers(-1, 9)).map(lambda made: made["configuration"]),
                st.builds(
                    lambda unit, factor: {"unit": unit, "scale_factor": factor},
                    st.sampled_from([*UNITS, "μs", "generic", "B", ""]),
                    st.integers(-1, 2**31),
                ),
                st.lists(st.builds(lambda t: {"name": "x", "data_type": t}, inner), max_size=1).map(
                    lambda fields: {"fields": fields}
                ),
            ),
        ),
        st.lists(st.tuples(st.sampled_from(["x", "y", ""]), inner).map(list), max_size=2),
    ),
    max_leaves=4,
)


def check(store: dict[str, bytes], key: str) -> None:
    """Check that an array of absent chunks has its fill value, or that the document is refused with a location."""
    try:
        array = gzarr.open_array(store, device="cpu")
    except gzarr.MetadataError as error:
        refusal = error
    else:
        refusal = None
    if refusal is not None:
        assert refusal.json_path.startswith("$."), refusal
        assert refusal.key == key, refusal
        return
    result = array[...]
    assert result.dtype == array.dtype
    assert result.shape == (2,)
    if array.fill_value is None:
        return
    if not array.dtype.hasobject:
        assert result.tobytes() == 2 * np.asarray(array.fill_value, array.dtype).tobytes()
    else:
        assert all(type(value) is type(array.fill_value) for value in result)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(DATA_TYPES, VALUES, st.sampled_from([[LITTLE], [{"name": "bytes"}], [{"name": "vlen-utf8"}]]))
def test_wrong_v3_types(data_type: Any, fill: Any, codecs: list[Any]) -> None:
    check({"zarr.json": json.dumps(v3((2,), (1,), data_type, codecs, fill)).encode()}, "zarr.json")


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(DATA_TYPES, VALUES, st.sampled_from([None, [{"id": "vlen-utf8"}]]))
def test_wrong_v2_types(dtype: Any, fill: Any, filters: Any) -> None:
    check({".zarray": json.dumps(v2((2,), (1,), dtype, None, filters, fill=fill)).encode()}, ".zarray")


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from([*SIMPLE, *NUMPY, *OPAQUE]), VALUES)
def test_wrong_fill_values(case: Type, fill: Any) -> None:
    check({"zarr.json": json.dumps(v3((2,), (1,), case.v3, [LITTLE], fill)).encode()}, "zarr.json")


def test_wrong_types_are_refused_where_they_are() -> None:
    """The checks above can fail, and do not refuse everything."""
    with pytest.raises(gzarr.MetadataError) as caught:
        documents_v3.parse_array(v3((2,), (1,), struct(x="float32", y=struct(n="int33")), [LITTLE], {}))
    assert caught.value.json_path == "$.data_type.configuration.fields[1].configuration.fields[0]"
    with pytest.raises(gzarr.MetadataError) as caught:
        documents_v3.parse_array(v3((2,), (1,), struct(x="float32"), [LITTLE], {"x": "one"}))
    assert caught.value.json_path == "$.fill_value.x"
    with pytest.raises(AssertionError):
        check({"zarr.json": json.dumps(v3((3,), (1,), "int8", [LITTLE], 1)).encode()}, "zarr.json")
    check({"zarr.json": json.dumps(v3((2,), (1,), "int8", [LITTLE], 1)).encode()}, "zarr.json")
