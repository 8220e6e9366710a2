"""Filters that the compiled loop applies when it writes: the bytes of numcodecs, and of the codecs in host memory."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st
from support import zarr_arrays as z

import gzarr
from gzarr.codecs.codec import ArrayRepresentation
from gzarr.engines.cpu import native_write, write_threads
from gzarr.plan.encode_program import analyse_encoding
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from pathlib import Path

    from gzarr.engines.write_request import WriteRequest

pytestmark = pytest.mark.skipif("files" not in native_write.available(), reason="needs Linux and the encoders' wheels")

FLOATS = ("f2", "f4", "f8")
INTEGERS = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")


@dataclass(frozen=True)
class Filter:
    """A filter by its name and parameters in numcodecs, and the data type of elements."""

    name: str
    dtype: str
    parameters: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}-{self.dtype}-{'-'.join(str(value) for _, value in self.parameters)}"

    @property
    def v2(self) -> z.Json:
        return {"id": self.name, **dict(self.parameters)}


def delta(dtype: str, made: str) -> Filter:
    return Filter("delta", dtype, (("dtype", np.dtype(dtype).str), ("astype", np.dtype(made).str)))


def packed(dtype: str, made: str, scale: float, offset: float) -> Filter:
    types = ("dtype", np.dtype(dtype).str), ("astype", np.dtype(made).str)
    return Filter("fixedscaleoffset", dtype, (("offset", offset), ("scale", scale), *types))


FILTERS = [
    *(delta(dtype, dtype) for dtype in (*INTEGERS, "f4", "f8")),
    *(Filter("bitround", dtype, (("keepbits", bits),)) for dtype in FLOATS for bits in (0, 1, 7, 9)),
    *(Filter("bitround", dtype, (("keepbits", 22),)) for dtype in ("f4", "f8")),
    *(
        Filter("quantize", dtype, (("digits", digits), ("dtype", np.dtype(dtype).str)))
        for dtype in ("f4", "f8")
        # The scale of the last two is subnormal as f4, and 0.
        for digits in (-3, 0, 1, 2, 12, -44, -50)
    ),
    *(
        packed(dtype, made, scale, offset)
        for dtype in ("f4", "f8")
        for made in ("i1", "u1", "i2", "u2", "i4", dtype)
        for scale, offset in ((1, 0), (10, 0.5), (0.01, -3), (-1.5, 2), (2.0**40, 1e-3))
    ),
    Filter("packbits", "b1"),
    *(Filter("fletcher32", dtype) for dtype in ("u1", "i2", "f4")),
]


@pytest.fixture(autouse=True)
def _only_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if anything falls back to host threads."""

    def refuse(request: WriteRequest, rows: Any = None) -> None:
        pytest.fail(f"{request.node}: written by host threads")

    monkeypatch.setattr(write_threads, "write", refuse)


def elements(dtype: str, raw: bytes) -> np.ndarray[Any, Any]:
    """Return elements of any bits; at least one."""
    if np.dtype(dtype).kind == "b":
        return np.frombuffer(raw or b"\1", np.uint8) % 3 == 0
    itemsize = np.dtype(dtype).itemsize
    whole = (raw + bytes(itemsize))[: max(len(raw) // itemsize, 1) * itemsize]
    return np.frombuffer(whole, dtype)


def some(dtype: str, n: int = 1000) -> np.ndarray[Any, Any]:
    """Return elements of any bits, then ordinary numbers, then the ends of the type."""
    random = np.random.default_rng(5)
    ends = [0, 1]
    kind = np.dtype(dtype).kind
    if kind == "f":
        limits = np.finfo(dtype)
        ends = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, np.inf, -np.inf, np.nan, limits.max, -limits.max, limits.tiny]
    elif kind in "iu":
        ends = [np.iinfo(dtype).max, np.iinfo(dtype).min, 0]
    ordinary = (
        random.normal(scale=30, size=n).astype(dtype) if kind == "f" else random.integers(0, 100, n).astype(dtype)
    )
    return np.concatenate(
        [elements(dtype, random.bytes(n * np.dtype(dtype).itemsize)), ordinary, np.array(ends, dtype)]
    )


def unaligned(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the same elements at an odd address."""
    memory = np.zeros(values.nbytes + 1, np.uint8)
    moved = memory[1:].view(values.dtype)
    moved[...] = values
    return moved


def made(document: z.Json, store: dict[str, bytes]) -> gzarr.Array:
    """Return the array of a document in a store, for writing."""
    store["zarr.json" if document["zarr_format"] == 3 else ".zarray"] = json.dumps(document).encode()
    opened = gzarr.open_array(store, device="cpu")
    return gzarr.Array(
        opened.metadata, MemoryStore(store), opened.path, device="cpu", mode="r+", write_empty_chunks=True
    )


def stored(values: np.ndarray[Any, Any], document: z.Json) -> bytes:
    """Return the bytes of the only chunk of an array, written by gzarr."""
    store: dict[str, bytes] = {}
    made(document, store)[...] = values
    key = "c/" + "/".join("0" * values.ndim) if document["zarr_format"] == 3 else ".".join("0" * values.ndim)
    return bytes(store[key])


def encoded(values: np.ndarray[Any, Any], *filters: z.Json) -> bytes:
    """Return what numcodecs makes of elements."""
    found: Any = values
    with np.errstate(all="ignore"):
        for one in filters:
            found = numcodecs.get_codec(dict(one)).encode(found)
    return bytes(found) if isinstance(found, bytes) else np.ascontiguousarray(found).tobytes()


def name_v3(dtype: str) -> str:
    return np.dtype(dtype).name


@pytest.mark.parametrize("one", FILTERS, ids=str)
def test_the_bytes_of_numcodecs(one: Filter) -> None:
    @given(st.binary(max_size=200))
    def check(raw: bytes) -> None:
        compare(elements(one.dtype, raw))

    def compare(values: np.ndarray[Any, Any]) -> None:
        document = z.v2(values.shape, values.shape, values.dtype.str, filters=[one.v2])
        assert stored(values, document) == encoded(values, one.v2)

    compare(some(one.dtype))
    compare(unaligned(some(one.dtype)))
    check()


# In version 3, numcodecs.bitround is gzarr's own codec, which keeps NaNs (below).
@pytest.mark.parametrize("one", [one for one in FILTERS if one.name != "bitround"], ids=str)
def test_the_bytes_in_version_3(one: Filter) -> None:
    values = some(one.dtype)[: 2 * 3 * 41].reshape(6, 41)
    own = z.codec(f"numcodecs.{one.name}", **dict(one.parameters))
    codecs = [z.LITTLE, own] if one.name == "fletcher32" else [own, z.LITTLE]
    document = z.v3(values.shape, values.shape, name_v3(one.dtype), codecs)
    assert stored(values, document) == encoded(values, one.v2)
    # In the order of what was transposed before.
    turned = z.codec("transpose", order=[1, 0])
    document = z.v3(values.shape, values.shape, name_v3(one.dtype), [turned, *codecs])
    assert stored(values, document) == encoded(np.ascontiguousarray(values.T), one.v2)


def test_filters_of_wider_elements_than_the_array() -> None:
    # Large enough that the level of zstd is chosen by a trial, on pieces of chunks that have no whole number of them.
    values = np.random.default_rng(0).integers(0, 100, 16_000_004).astype("i2")
    store: dict[str, bytes] = {}
    filters = [{"id": "delta", "dtype": "<i8"}]
    array = gzarr.create_array(
        store,
        shape=values.shape,
        dtype="i2",
        chunks=999_996,
        zarr_format=2,
        filters=filters,
        compressors="zstd",
        device="cpu",
    )
    array[...] = values
    np.testing.assert_array_equal(array[...], values)
    chunk = numcodecs.get_codec({"id": "zstd"}).decode(store["3"])
    assert bytes(chunk) == encoded(values[3 * 999_996 : 4 * 999_996].view("i8"), *filters)


CHAINS = {
    "delta-zstd": ([delta("i4", "i4").v2], {"id": "zstd", "level": 1}),
    "delta-shuffle-zlib": ([delta("i4", "i4").v2, {"id": "shuffle", "elementsize": 4}], {"id": "zlib", "level": 1}),
    "shuffle-fletcher32-zstd": (
        [{"id": "shuffle", "elementsize": 4}, {"id": "fletcher32"}],
        {"id": "zstd", "level": 1},
    ),
    "fletcher32-twice": ([{"id": "fletcher32"}] * 2, None),
    "delta-twice": ([delta("i4", "i4").v2] * 2, {"id": "lz4", "acceleration": 1}),
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("chain", CHAINS)
def test_chains_are_read_by_zarr_python(chain: str, order: str, tmp_path: Path) -> None:
    filters, compressor = CHAINS[chain]
    values = np.cumsum(np.random.default_rng(1).integers(-3, 9, (50, 31)), axis=1).astype("i4")
    document = z.v2((50, 31), (20, 13), "<i4", compressor, filters, order)
    (tmp_path / ".zarray").write_text(json.dumps(document))
    gzarr.open_array(tmp_path, mode="r+", device="cpu")[...] = values
    np.testing.assert_array_equal(np.asarray(zarr.open_array(tmp_path, mode="r")[...]), values)
    np.testing.assert_array_equal(gzarr.open_array(tmp_path, device="cpu")[...], values)


def by_host(values: np.ndarray[Any, Any], codecs: Any) -> bytes:
    """Return what the codecs make of elements in host memory."""
    found: Any = values
    representation: Any = ArrayRepresentation(values.shape, values.dtype)
    for one in codecs:
        found = one.encode(found, representation)
        representation = one.encoded(representation)
    return bytes(np.ascontiguousarray(found).data.cast("B"))


OWN: list[tuple[str, list[z.Json]]] = [
    *((dtype, [z.codec("bitround", keepbits=bits)]) for dtype in FLOATS for bits in (0, 3, 9)),
    ("c8", [z.codec("bitround", keepbits=3)]),
    *(
        (dtype, [z.codec("scale_offset", offset=offset, scale=scale)])
        for dtype in ("f4", "f8")
        for offset, scale in ((0, 1), (5, 0.1), (-1e30, 1e-20), (0.1, 1e30))
    ),
]
#: With the bytes codec in their place.
PACKED = [
    *(("b1", {"padding_encoding": place}) for place in ("none", "first_byte", "last_byte")),
    *(
        (dtype, {"padding_encoding": place, "first_bit": first, "last_bit": last})
        for dtype, first, last in (
            ("u1", 0, 0),
            ("u1", 0, 7),
            ("i1", 2, 6),
            ("u2", 0, 11),
            ("i2", 3, 14),
            ("u4", 0, 31),
            ("i4", 5, 29),
            ("i8", 0, 40),
            ("u8", 1, 63),
            ("u8", 0, 62),
            ("u8", 0, 31),
            ("i8", 8, 40),
            ("f4", 16, 31),
            ("c8", 16, 31),
        )
        for place in ("none", "last_byte")
    ),
]


@pytest.mark.parametrize(
    ("dtype", "codecs"),
    [
        *((dtype, [*codecs, z.LITTLE]) for dtype, codecs in OWN),
        *((dtype, [z.codec("packbits", **options)]) for dtype, options in PACKED),
    ],
    ids=lambda value: (
        value if isinstance(value, str) else "-".join(str(v) for c in value for v in c["configuration"].values())
    ),
)
def test_the_bytes_of_codecs_in_host_memory(dtype: str, codecs: list[z.Json]) -> None:
    fill: Any = {"b": False, "c": [0, 0]}.get(np.dtype(dtype).kind, 0)

    @given(st.binary(max_size=200))
    def check(raw: bytes) -> None:
        compare(elements(dtype, raw))

    def compare(values: np.ndarray[Any, Any]) -> None:
        document = z.v3(values.shape, values.shape, name_v3(dtype), codecs, fill=fill)
        store: dict[str, bytes] = {}
        ours = made(document, store)
        ours[...] = values
        with np.errstate(all="ignore"):
            assert bytes(store["c/0"]) == by_host(values, ours.metadata.codecs)

    compare(some(dtype))
    check()


NAN_TO = {"encode": [["NaN", 7]]}
CASTS: list[tuple[str, dict[str, Any]]] = [
    *(
        (dtype, {"data_type": made, **rules})
        for dtype in ("f4", "f8")
        for made in ("int8", "uint8", "int16", "uint16", "int32", "uint32")
        for rules in (
            {},
            {"out_of_range": "clamp"},
            {"scalar_map": NAN_TO},
            {"out_of_range": "clamp", "scalar_map": NAN_TO},
        )
    ),
    *((dtype, {"data_type": "float64"}) for dtype in ("f4", "i1", "u2", "i4")),
    *((dtype, {"data_type": "float32"}) for dtype in ("i2", "u1", "i4", "u8")),
    ("f8", {"data_type": "float32", "out_of_range": "clamp"}),
    *((dtype, {"data_type": "int32", "out_of_range": "wrap"}) for dtype in ("i8", "u2", "i1")),
    ("u2", {"data_type": "uint64"}),
]


@pytest.mark.parametrize(("dtype", "rules"), CASTS, ids=str)
def test_casts(dtype: str, rules: dict[str, Any]) -> None:
    @given(st.binary(max_size=200))
    def check(raw: bytes) -> None:
        compare(elements(dtype, raw))

    def compare(values: np.ndarray[Any, Any]) -> None:
        document = z.v3(values.shape, values.shape, name_v3(dtype), [z.codec("cast_value", **rules), z.LITTLE])
        store: dict[str, bytes] = {}
        ours = made(document, store)
        try:
            with np.errstate(all="ignore"):
                wanted = by_host(values, ours.metadata.codecs)
        except ValueError:
            with pytest.raises(gzarr.ChunkWriteError, match="an element is not a number, infinite or out of the range"):
                ours[...] = values
            assert "c/0" not in store
        else:
            ours[...] = values
            assert bytes(store["c/0"]) == wanted

    compare(some(dtype))
    if np.dtype(dtype).kind == "f":
        # What most arrays hold, and the limits of the types.
        whole = np.array([-0.5, 0.5, 1.5, 2.5, 126.4, -0.0, 100.49], dtype)
        compare(np.tile(whole, 30))
        for limit in (7, 8, 15, 16, 31, 32):
            for value in (2.0**limit, 2.0**limit - 1, 2.0**limit - 0.5, 2.0**limit - 0.75, -(2.0**limit) - 0.5):
                compare(np.append(whole, np.array([value], dtype)))
        compare(np.append(whole, np.array([np.nan], dtype)))
        compare(np.append(whole, np.array([-np.inf], dtype)))
    check()


def test_packed_fields_of_climate_models() -> None:
    values = 280 + np.random.default_rng(0).normal(scale=30, size=(40, 50))
    values[3:7, 5] = np.nan
    store: dict[str, bytes] = {}
    array = gzarr.create_array(
        store,
        shape=values.shape,
        dtype="f8",
        chunks=(20, 25),
        codecs=[
            z.codec("scale_offset", offset=280, scale=500),
            z.codec("cast_value", data_type="int16", out_of_range="clamp", scalar_map=PACKED_NAN),
            z.LITTLE,
            z.codec("zstd", level=1, checksum=False),
        ],
        fill_value=280,
        device="cpu",
    )
    array[...] = values
    whole = np.clip(np.rint((values - 280) * 500), -(2**15), 2**15 - 1)
    packed = np.where(np.isnan(whole), -(2**15), whole).astype("<i2")
    assert (packed.min(), packed.max()) == (-(2**15), 2**15 - 1)
    for row in range(2):
        for column in range(2):
            chunk = numcodecs.get_codec({"id": "zstd"}).decode(store[f"c/{row}/{column}"])
            expected = packed[20 * row :, 25 * column :][:20, :25]
            np.testing.assert_array_equal(np.frombuffer(chunk, "<i2").reshape(20, 25), expected)
    found = np.asarray(array[...])
    assert np.isnan(found[3:7, 5]).all()
    inside = np.abs(whole) < 2**15 - 1
    np.testing.assert_allclose(found[inside], values[inside], atol=0.001)


PACKED_NAN = {"encode": [["NaN", -32768]], "decode": [[-32768, "NaN"]]}


@pytest.mark.parametrize(
    ("dtype", "codecs"),
    [
        # Casts that round otherwise, wrap or map other numbers.
        ("f4", [z.codec("cast_value", data_type="int16", rounding="towards-zero"), z.LITTLE]),
        ("f4", [z.codec("cast_value", data_type="int16", out_of_range="wrap"), z.LITTLE]),
        ("f4", [z.codec("cast_value", data_type="int16", scalar_map={"encode": [["Infinity", 7]]}), z.LITTLE]),
        ("f4", [z.codec("cast_value", data_type="int64"), z.LITTLE]),
        ("f2", [z.codec("cast_value", data_type="float64"), z.LITTLE]),
        ("i4", [z.codec("cast_value", data_type="int16"), z.LITTLE]),
        ("i4", [z.codec("cast_value", data_type="uint32", out_of_range="wrap"), z.LITTLE]),
        # Bytes that are swapped after a filter, and dimensions that are.
        ("i4", [z.codec("numcodecs.delta", dtype="<i4"), z.BIG]),
        ("i4", [z.codec("numcodecs.delta", dtype="<i4"), z.codec("transpose", order=[1, 0]), z.LITTLE]),
        # Differences of other types, in which numcodecs has another arithmetic.
        ("i4", [z.codec("numcodecs.delta", dtype="<i4", astype="<i2"), z.LITTLE]),
        ("i4", [z.codec("numcodecs.delta", dtype="<i4", astype="<i8"), z.LITTLE]),
        ("i4", [z.codec("numcodecs.delta", dtype="<i4", astype="<f4"), z.LITTLE]),
        ("f2", [z.codec("numcodecs.delta", dtype="<f2"), z.LITTLE]),
        ("f4", [z.codec("numcodecs.quantize", dtype="<f4", digits=60), z.LITTLE]),
        ("f4", [z.codec("numcodecs.bitround", keepbits=23), z.LITTLE]),
        ("f4", [z.codec("numcodecs.fixedscaleoffset", offset=0, scale=1, dtype="<f4", astype="<u4"), z.LITTLE]),
        ("i4", [z.codec("numcodecs.fixedscaleoffset", offset=0, scale=1, dtype="<i4", astype="<u1"), z.LITTLE]),
        ("f4", [z.codec("numcodecs.fixedscaleoffset", offset=0, scale=1e60, dtype="<f4", astype="<u1"), z.LITTLE]),
        ("i4", [z.codec("bitround", keepbits=3), z.LITTLE]),
        ("i4", [z.codec("scale_offset", offset=1, scale=2), z.LITTLE]),
    ],
)
def test_what_is_left_to_host_threads(dtype: str, codecs: list[z.Json]) -> None:
    array = made(z.v3((4, 6), (4, 6), name_v3(dtype), codecs), {})
    chunk = ArrayRepresentation((4, 6), np.dtype(dtype))
    assert analyse_encoding(array.metadata.codecs, chunk, native_write.available()) is None
