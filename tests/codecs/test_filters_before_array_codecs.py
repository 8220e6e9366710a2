"""Filters before ``pcodec`` and ``zfpy``, which take an array: the same chunks as zarr-python's, read and written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
import zarr
import zarr.codecs.numcodecs as of_version_3
from numcodecs.pcodec import PCodec
from numcodecs.zfpy import ZFPY
from support.zarr_arrays import LITTLE, codec, same, shard, v2, v3

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")

Values = np.ndarray[Any, Any]
NUMBERS: Values = (np.arange(35.0).reshape(5, 7) * 1.25) ** 1.5
PACKED = numcodecs.FixedScaleOffset(offset=3, scale=100, dtype="<f8", astype="<i4")
ZFP = ZFPY(mode=4, tolerance=-1)
#: Data type, filters and compressor of version 2.
CHAINS: dict[str, tuple[str, list[Any], Any]] = {
    "delta-pcodec": ("<i4", [numcodecs.Delta("<i4")], PCodec()),
    "delta-narrow-pcodec": ("<i4", [numcodecs.Delta("<i4", "<i2")], PCodec()),
    "packed-pcodec": ("<f8", [PACKED], PCodec()),
    "packed-zfpy": ("<f8", [PACKED], ZFP),
    "packed-delta-zfpy": ("<f8", [PACKED, numcodecs.Delta("<i4")], ZFP),
    "delta-zfpy": ("<f8", [numcodecs.Delta("<f8")], ZFP),
    "quantize-pcodec": ("<f8", [numcodecs.Quantize(2, "<f8")], PCodec()),
    "quantize-zfpy": ("<f8", [numcodecs.Quantize(2, "<f8")], ZFP),
    "quantize-pcodec-zstd": ("<f8", [numcodecs.Quantize(2, "<f8"), PCodec()], numcodecs.Zstd()),
    "delta-zfpy-zstd": ("<f8", [numcodecs.Delta("<f8"), ZFP], numcodecs.Zstd()),
    "astype-pcodec": ("<f8", [numcodecs.AsType("<f4", "<f8")], PCodec()),
    "bitround-pcodec": ("<f4", [numcodecs.BitRound(10)], PCodec()),
    "bitround-zfpy": ("<f8", [numcodecs.BitRound(10)], ZFP),
    "bitround-of-all-pcodec": ("<f4", [numcodecs.BitRound(23)], PCodec()),
    "bitround-pcodec-zstd": ("<f4", [numcodecs.BitRound(10), PCodec()], numcodecs.Zstd()),
    "dates-pcodec": ("<M8[ns]", [], PCodec()),
    "dates-delta-pcodec": ("<M8[ns]", [numcodecs.Delta("<i8")], PCodec()),
    "dates-zfpy": ("<M8[ns]", [], ZFP),
    "big-packed-pcodec": (">f8", [numcodecs.FixedScaleOffset(3, 100, ">f8", "<i4")], PCodec()),
}
#: numcodecs' zfpy takes chunks in order C, or flat ones.
REFUSED_IN_ORDER_F = ("quantize-zfpy", "dates-zfpy")
ALL = pytest.mark.parametrize("name", CHAINS)


def made_by_zarr_python(path: Path, name: str, order: Any = "C") -> tuple[Any, Values]:
    """Return an array of version 2 of zarr-python, and what is in it."""
    dtype, filters, compressor = CHAINS[name]
    array = zarr.create_array(
        path, shape=NUMBERS.shape, chunks=(2, 3), dtype=dtype, zarr_format=2, filters=filters or None,
        compressors=compressor, fill_value=0, order=order,
    )  # fmt: skip
    array[...] = NUMBERS.astype("i8").astype(dtype) if np.dtype(dtype).kind == "M" else NUMBERS.astype(dtype)
    return array, np.asarray(array[...])


def by_zarr_python(path: Path) -> Values:
    return np.asarray(zarr.open_array(path, mode="r")[...])


def near(found: Values, expected: Values) -> None:
    """Compare what was rounded on another way, or a second time."""
    assert found.dtype == expected.dtype.newbyteorder("=")
    if found.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=0.02)
    else:
        np.testing.assert_array_equal(found, expected)


@ALL
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_zarr_python_wrote(name: str, order: str, tmp_path: Path) -> None:
    if order == "F" and name in REFUSED_IN_ORDER_F:
        with pytest.raises(ValueError, match="F order arrays"):
            made_by_zarr_python(tmp_path / "a", name, order)
        return
    theirs, values = made_by_zarr_python(tmp_path / "a", name, order)
    if order == "F" and name == "bitround-zfpy":
        # numcodecs' bitround changes the order: zarr-python does not read what it wrote.
        with pytest.raises(AssertionError):
            near(values, NUMBERS.astype(CHAINS[name][0]))
        return
    ours = gzarr.open_array(tmp_path / "a", mode="r+", device="cpu")
    same(ours[...], values.astype(values.dtype.newbyteorder("=")))
    same(ours[1:4, 2:5], values[1:4, 2:5].astype(values.dtype.newbyteorder("=")))
    ours[...] = ours[...][::-1].copy()
    near(np.asarray(theirs[...]).astype(ours.dtype), values[::-1].astype(ours.dtype))
    same(ours[...], by_zarr_python(tmp_path / "a").astype(ours.dtype))


@ALL
def test_what_gzarr_wrote(name: str, tmp_path: Path) -> None:
    dtype, filters, compressor = CHAINS[name]
    _, values = made_by_zarr_python(tmp_path / "a", name)
    ours = gzarr.create_array(
        tmp_path / "b", data=values, chunks=(2, 3), zarr_format=2, filters=filters, compressors=compressor,
        device="cpu",
    )  # fmt: skip
    near(ours[...], values.astype(ours.dtype))
    same(by_zarr_python(tmp_path / "b").astype(ours.dtype), ours[...])
    listed = {path: json.loads((tmp_path / path / ".zarray").read_text()) for path in "ab"}
    for document in listed.values():
        document["ids"] = [one["id"] for one in document["filters"] or []] + [document["compressor"]["id"]]
    assert listed["a"]["ids"] == listed["b"]["ids"]
    assert listed["a"]["dtype"] == listed["b"]["dtype"] == dtype


@ALL
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_copies(name: str, zarr_format: Any, tmp_path: Path) -> None:
    """Also through the other version, and back."""
    _, values = made_by_zarr_python(tmp_path / "a", name)
    # Sums of rounded differences are others in other chunks.
    is_lossy = name in ("delta-zfpy", "delta-zfpy-zstd")
    gzarr.copy(tmp_path / "a", tmp_path / "b", zarr_format=zarr_format, chunks=(5, 3), lossy=is_lossy)
    gzarr.copy(tmp_path / "b", tmp_path / "c", zarr_format=2)
    for path in "bc":
        ours = gzarr.open_array(tmp_path / path, device="cpu")
        near(ours[...], values.astype(ours.dtype))
        if zarr_format == 2 or not name.startswith("dates"):
            same(by_zarr_python(tmp_path / path).astype(ours.dtype), ours[...])


FILTERS_3: dict[str, tuple[str, list[Any]]] = {
    "bitround": ("f4", [of_version_3.BitRound(keepbits=10)]),
    "bitround-f8": ("f8", [of_version_3.BitRound(keepbits=10)]),
    "transposed": ("f4", [zarr.codecs.TransposeCodec(order=(1, 0)), of_version_3.BitRound(keepbits=10)]),
    "quantize": ("f8", [of_version_3.Quantize(digits=2, dtype="<f8")]),
    "delta": ("f8", [of_version_3.Delta(dtype="<f8")]),
    "packed": ("f8", [of_version_3.FixedScaleOffset(offset=3, scale=100, dtype="<f8", astype="<i4")]),
}


@pytest.mark.parametrize("serializer", ["pcodec", "zfpy"])
@pytest.mark.parametrize("name", FILTERS_3)
@pytest.mark.parametrize("shards", [None, (4, 6)])
def test_version_3(name: str, serializer: str, shards: Any, tmp_path: Path) -> None:
    dtype, filters = FILTERS_3[name]
    maker: Any = of_version_3.PCodec() if serializer == "pcodec" else of_version_3.ZFPY(mode=4, tolerance=-1)
    made: dict[str, Any] = {"filters": filters, "compressors": None}
    theirs = zarr.create_array(
        tmp_path / "a", shape=(5, 7), chunks=(2, 3), shards=shards, dtype=dtype, fill_value=0, serializer=maker, **made
    )
    theirs[...] = NUMBERS.astype(dtype)
    ours = gzarr.open_array(tmp_path / "a", device="cpu")
    same(ours[...], np.asarray(theirs[...]))
    own = gzarr.create_array(tmp_path / "b", data=NUMBERS.astype(dtype), chunks=(2, 3), serializer=maker, **made)
    same(own[...], ours[...])
    same(by_zarr_python(tmp_path / "b"), own[...])


def test_in_one_shard_that_bitround_precedes(tmp_path: Path) -> None:
    """What numcodecs hands on as integers, a shard hands on to its chunks."""
    stored = PCodec().encode(numcodecs.BitRound(10).encode(NUMBERS[:4, :6].astype("f4")))
    document = v3((4, 6), (4, 6), "float32", [codec("numcodecs.bitround", keepbits=10),
                                              shard([4, 6], [codec("numcodecs.pcodec")], index=[LITTLE])])  # fmt: skip
    index = np.array([0, len(stored)], "<u8").tobytes()
    values = {"zarr.json": json.dumps(document).encode(), "c/0/0": bytes(stored) + index}
    expected = numcodecs.BitRound(10).encode(NUMBERS[:4, :6].astype("f4")).view("f4")
    same(gzarr.open_array(values, device="cpu")[...], expected)


def test_integers_in_place_of_floats_are_corrupt_without_bitround() -> None:
    document = v2((2, 3), (2, 3), "<f4", compressor={"id": "pcodec"})
    values = {".zarray": json.dumps(document).encode(), "0.0": bytes(PCodec().encode(np.arange(6, dtype="i4")))}
    with pytest.raises(gzarr.ChunkDecodeError, match="pco"):
        gzarr.open_array(values, device="cpu")[...]


@pytest.mark.parametrize("name", ["packed-pcodec", "bitround-pcodec", "delta-zfpy"])
def test_on_every_device(name: str, device: TestedDevice, tmp_path: Path) -> None:
    _, values = made_by_zarr_python(tmp_path / "a", name)
    same(device.read(device.open(tmp_path / "a")), values)


# -- the order of what the caller lists --------------------------------------------------------------------------------


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(
    "arguments",
    [
        {"filters": [numcodecs.Delta("<f8"), ZFP], "compressors": None},
        {"filters": [numcodecs.Delta("<f8"), ZFP], "compressors": "zstd"},
        {"filters": [numcodecs.Quantize(2, "<f8"), ZFP], "compressors": None},
        {"filters": [numcodecs.Delta("<f8"), PCodec()], "compressors": None},
        {"filters": [numcodecs.Delta("<f8")], "compressors": PCodec()},
        {"filters": [numcodecs.Delta("<f8")], "serializer": PCodec(), "compressors": None},
        {"codecs": [numcodecs.Delta("<f8"), ZFP]},
        {"filters": [PACKED, codec("numcodecs.delta", dtype="<i4")], "compressors": None},
    ],
    ids=str,
)
def test_the_order_is_kept(arguments: dict[str, Any], zarr_format: Any, tmp_path: Path) -> None:
    array = gzarr.create_array(tmp_path, data=NUMBERS, zarr_format=zarr_format, device="cpu", **arguments)
    given = [*arguments.get("codecs", arguments.get("filters"))]
    labels = [one.label for one in array.codecs if one.label != "bytes"]
    assert labels[0] == f"numcodecs.{given[0].codec_id}"
    np.testing.assert_allclose(gzarr.open_array(tmp_path, device="cpu")[...], NUMBERS, atol=0.02)
    same(by_zarr_python(tmp_path), array[...])


@pytest.mark.parametrize(
    ("filters", "says"),
    [
        (
            [numcodecs.Shuffle(8), PCodec()],
            r"shuffle.* makes bytes, but numcodecs.pcodec takes an array; list it first",
        ),
        ([numcodecs.Zstd(), codec("numcodecs.delta", dtype="<f8")], "zstd.* makes bytes, but numcodecs.delta takes"),
        ([numcodecs.Quantize(2, "<f4"), PCodec()], "configured for float32"),
        ([PCodec(), ZFP], "name several"),
        ([PCodec(), numcodecs.Delta("<f8")], "size must be a divisor|must come before|takes elements|bytes of other"),
    ],
    ids=str,
)
@pytest.mark.parametrize("zarr_format", [3])
def test_orders_that_make_no_sense(filters: list[Any], says: str, zarr_format: Any) -> None:
    with pytest.raises(gzarr.ArgumentError, match=says):
        gzarr.create_array({}, data=NUMBERS, zarr_format=zarr_format, filters=filters, compressors=None, device="cpu")


@pytest.mark.parametrize(
    ("dtype", "filters", "says"),
    [
        ("<f8", [numcodecs.Shuffle(8)], "before numcodecs.pcodec, .* filters of numbers only, not numcodecs.shuffle"),
        ("<f8", [numcodecs.Delta("<i8")], "own type only, '<f8' rather than '<i8'"),
        (">f8", [numcodecs.Delta(">f8")], "little-endian numbers, not '>f8'; use a data type such as '<f8'"),
        (">f8", [], "little-endian numbers, not '>f8'"),
    ],
)
def test_documents_with_other_filters(dtype: str, filters: list[Any], says: str) -> None:
    ids = [one.get_config() for one in filters]
    document = v2((2, 3), (2, 3), dtype, filters=ids, compressor={"id": "pcodec"})
    with pytest.raises(gzarr.UnsupportedError, match=says):
        gzarr.open_array({".zarray": json.dumps(document).encode()}, device="cpu")


@pytest.mark.parametrize("dtype", [">f4", ">i4"])
def test_big_endian_filters_in_version_3(dtype: str, tmp_path: Path) -> None:
    """The filters of a copy are of its own elements, which are in native byte order."""
    values = NUMBERS.astype(dtype)
    kind = dtype[1:]
    one: Any = numcodecs.Quantize(2, dtype) if kind == "f4" else numcodecs.Delta(dtype)
    gzarr.create_array(tmp_path / "a", data=values, zarr_format=2, filters=[one], compressors=None)
    gzarr.copy(tmp_path / "a", tmp_path / "b", zarr_format=3)
    near(gzarr.open_array(tmp_path / "b", device="cpu")[...], values.astype(kind))
    near(by_zarr_python(tmp_path / "b"), values.astype(kind))


# -- the name of bitround ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bitround", "numcodecs.bitround"])
def test_bitround_keeps_its_name(name: str, tmp_path: Path) -> None:
    filters: list[Any] = [codec(name, keepbits=8)]
    array = gzarr.create_array(tmp_path / "a", data=NUMBERS.astype("f4"), filters=filters, device="cpu")
    gzarr.copy(tmp_path / "a", tmp_path / "b", chunks=(2, 2))
    gzarr.copy(tmp_path / "a", tmp_path / "c", shards=(4, 4), chunks=(2, 2))
    gzarr.zeros_like(array, store=tmp_path / "d")
    gzarr.copy(tmp_path / "a", tmp_path / "e", zarr_format=2)
    for path in "abcd":
        text = (tmp_path / path / "zarr.json").read_text()
        assert f'"{name}"' in text
        if name == "numcodecs.bitround":
            same(by_zarr_python(tmp_path / path), gzarr.open_array(tmp_path / path, device="cpu")[...])
    assert json.loads((tmp_path / "e" / ".zarray").read_text())["filters"] == [{"id": "bitround", "keepbits": 8}]
    same(by_zarr_python(tmp_path / "e"), array[...])


def test_bitround_of_zarr_python_keeps_its_name(tmp_path: Path) -> None:
    given = of_version_3.BitRound(keepbits=8)
    gzarr.create_array(tmp_path / "a", data=NUMBERS.astype("f4"), filters=[given], device="cpu")
    same(by_zarr_python(tmp_path / "a"), gzarr.open_array(tmp_path / "a", device="cpu")[...])


# -- zfpy in order F ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunks", [(1, 7), (5, 1), (1, 1)])
def test_zfpy_of_lines_in_order_f(chunks: tuple[int, int], tmp_path: Path) -> None:
    """The only chunks of several dimensions in order F that numcodecs takes are also in order C."""
    theirs = zarr.create_array(
        tmp_path, shape=(5, 7), chunks=chunks, dtype="f8", zarr_format=2, order="F", filters=None,
        compressors=ZFPY(mode=4, tolerance=1e-3), fill_value=-1,
    )  # fmt: skip
    theirs[...] = NUMBERS
    ours = gzarr.open_array(tmp_path, mode="r+", device="cpu")
    same(ours[...], np.asarray(theirs[...]))
    ours[...] = NUMBERS[::-1]
    same(ours[...], np.asarray(theirs[...]))


# -- chunks without dimensions -----------------------------------------------------------------------------------------

NO_DIMENSIONS = [
    *((dtype, [codec("scale_offset", offset=1), LITTLE]) for dtype in ("int8", "int32", "int64", "float32")),
    *((dtype, [codec("scale_offset", scale=3), LITTLE]) for dtype in ("uint8", "uint16", "uint64")),
    ("int32", [codec("transpose", order=[]), codec("scale_offset", offset=1), LITTLE]),
    ("int32", [codec("scale_offset", offset=1), shard([], [LITTLE])]),
    ("int32", [shard([], [codec("scale_offset", offset=1), LITTLE])]),
    *(
        (dtype, [codec("zfp", mode="reversible")])
        for dtype in ("int8", "uint8", "int16", "uint16", "uint32", "float16")
    ),
]


@pytest.mark.parametrize(("dtype", "codecs"), NO_DIMENSIONS, ids=str)
def test_without_dimensions(dtype: str, codecs: list[Any]) -> None:
    store = gzarr.MemoryStore()
    gzarr.create_array(store, data=np.array(7, dtype), codecs=codecs, device="cpu")
    same(gzarr.open_array(store, device="cpu")[...], np.array(7, dtype))


@pytest.mark.parametrize(
    ("dtype", "value", "maker"),
    [
        (str, "ab", {"name": "vlen-utf8"}),
        (bytes, b"ab", {"name": "vlen-bytes"}),
        ("U2", np.array("ab"), LITTLE),
        ("S2", np.array(b"ab"), LITTLE),
    ],
)
def test_texts_without_dimensions_in_nested_shards(dtype: Any, value: Any, maker: Any) -> None:
    store = gzarr.MemoryStore()
    array = gzarr.create_array(
        store, shape=(), dtype=dtype, codecs=[shard([], [shard([], [maker])])], fill_value=None, device="cpu"
    )
    array[...] = value
    assert gzarr.open_array(store, device="cpu")[...] == value


# -- messages, and what follows a stream -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [str, bytes])
def test_a_codec_that_cannot_hold_texts_is_what_the_message_is_about(dtype: Any) -> None:
    source = gzarr.create_array({}, shape=3, dtype=dtype, zarr_format=2, device="cpu")
    with pytest.raises(gzarr.ArgumentError, match=r"no data type for strings, bytes .*; use one of fixed size"):
        gzarr.copy(source, {}, zarr_format="3-draft-2022", codecs=["bytes"])
    with pytest.raises(gzarr.ArgumentError, match="needs elements of fixed size"):
        gzarr.copy(source, {}, zarr_format=3, codecs=["bytes"])
