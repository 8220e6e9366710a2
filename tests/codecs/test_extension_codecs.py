"""Registered codecs: against their specifications' examples, against other libraries, and on hostile bytes."""

from __future__ import annotations

import json
import math
import struct
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numcodecs
import numpy as np
import pytest
import zarr
import zfpy
from hypothesis import given, settings
from hypothesis import strategies as st
from support.zarr_arrays import BIG, LITTLE, codec, same, v2, v3
from zarr.abc.codec import ArrayArrayCodec, ArrayBytesCodec
from zarr.registry import register_codec

import gzarr
from gzarr.codecs import libzfp
from gzarr.codecs.chain import decode_chain, encode_chain
from gzarr.codecs.codec import ArrayRepresentation, BytesRepresentation
from gzarr.codecs.registry import codec_from_v2, codec_from_v3, codecs_from_v3

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

RNG = np.random.default_rng(3)


def made(name: str, **configuration: Any) -> Any:
    return codec_from_v3(codec(name, **configuration), "$")


def like(array: np.ndarray[Any, Any]) -> ArrayRepresentation:
    return ArrayRepresentation(array.shape, array.dtype)


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray[Any, Any]:
    walk = np.cumsum(RNG.standard_normal(shape), axis=-1) * 10
    return (walk if np.dtype(dtype).kind in "if" else np.abs(walk)).astype(dtype)


# -- bitround: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/bitround/sample_data ----------------


def test_bitround_rounds_as_the_sample_data_says() -> None:
    values = np.array([0, 0.1, 1.2, 12.3, 123.4, 1234.5, math.nan, math.inf, -math.inf], "f4")
    stored = bytes.fromhex("000000000000d03d0000a03f000040410000f0420000a0440000c07f0000807f000080ff")
    assert made("bitround", keepbits=3).encode(values, like(values)).astype("<f4").tobytes() == stored
    whole = np.array([0, 1, 10, 11, 100, 123, 200, 208, 209, 255], "u1")
    rounded = made("bitround", keepbits=3).encode(whole, like(whole))
    assert rounded.tolist() == [0, 1, 10, 12, 96, 128, 192, 192, 224, 224]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("keepbits", [1, 5, 9])
def test_bitround_is_that_of_numcodecs(dtype: str, keepbits: int) -> None:
    values = (RNG.standard_normal(500) * 100).astype(dtype)
    ours = made("numcodecs.bitround", keepbits=keepbits)
    assert ours == made("bitround", keepbits=keepbits)
    theirs = numcodecs.BitRound(keepbits).encode(values.copy())
    same(ours.encode(values, like(values)), theirs.view(values.dtype))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, "c8", "i4", "u8", "M8[s]"])
def test_bitround_keeps_what_has_few_bits(dtype: Any) -> None:
    values = (np.arange(32) << 3).astype(dtype)
    encoded = made("bitround", keepbits=5).encode(values, like(values))
    same(encoded, values)
    coarse = made("bitround", keepbits=1).encode(values, like(values))
    assert not np.array_equal(coarse, values)
    same(made("bitround", keepbits=1).encode(coarse, like(values)), coarse)
    nan = np.array([0x7FFFFFFF, 0xFFFFFFFF], "u4").view("f4")
    assert np.isnan(made("bitround", keepbits=2).encode(nan, like(nan))).all()


# -- packbits ----------------------------------------------------------------------------------------------------------


def test_packbits_by_hand() -> None:
    flags = np.array([1, 0, 0, 1, 1, 0, 1, 0, 1, 1], bool)
    for padding, stored in (("none", [89, 3]), ("first_byte", [6, 89, 3]), ("last_byte", [89, 3, 6])):
        ours = made("packbits", padding_encoding=padding)
        assert list(ours.encode(flags, like(flags))) == stored
        assert ours.encoded(like(flags)).nbytes == len(stored)
        same(ours.decode(bytes(stored), like(flags)), flags)
    signed = np.array([-4, 3, -1], "i2")
    ours = made("packbits", last_bit=2)
    assert list(ours.encode(signed, like(signed))) == [0b11011100, 0b1]
    same(ours.decode(ours.encode(signed, like(signed)), like(signed)), signed)
    small = np.array([-8, 7, 3], ml_dtypes.int4)
    ours = made("packbits")
    assert list(ours.encode(small, like(small))) == [0x78, 0x03]
    same(ours.decode(bytes([0x78, 0x03]), like(small)), small)


PACKED = [
    ("bool", {}),
    ("bool", {"padding_encoding": "first_byte"}),
    ("int16", {"padding_encoding": "last_byte", "first_bit": 2, "last_bit": 12}),
    ("uint32", {"first_bit": 5, "last_bit": 5}),
    ("float64", {"padding_encoding": "last_byte", "first_bit": 30}),
    ("uint8", {"padding_encoding": "first_byte"}),
    ("int64", {}),
]


def _named(name: str, base: type) -> type:
    """Make a class that lets zarr-python read a document with a codec of zarrs that it lacks."""

    def keep(self: Any, data: Any) -> None:
        self.data = data

    members = {
        "is_fixed_size": False,
        "__init__": keep,
        "from_dict": classmethod(lambda cls, data: cls(data)),
        "to_dict": lambda self: self.data,
        "compute_encoded_size": lambda self, *_: None,
        "resolve_metadata": lambda self, spec: spec,
        "_decode_single": None,
        "_encode_single": None,
    }
    return type(name, (base,), members)


for _name, _base in (("packbits", ArrayBytesCodec), ("reshape", ArrayArrayCodec), ("zarrs.squeeze", ArrayArrayCodec)):
    register_codec(_name, _named(_name, _base))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("data_type", "codecs"),
    [
        *((data_type, [codec("packbits", **values)]) for data_type, values in PACKED),
        # Behind a compressor the size of what zarrs packs is not known before.
        ("uint8", [codec("packbits", padding_encoding="first_byte"), codec("zstd", level=1, checksum=False)]),
        ("int32", [codec("packbits", padding_encoding="last_byte"), codec("zstd", level=1, checksum=False)]),
        ("bool", [codec("packbits", padding_encoding="last_byte"), codec("zstd", level=1, checksum=False)]),
        ("int32", [codec("reshape", shape=[[0, 1], -1]), LITTLE]),
        ("int32", [codec("reshape", shape=[3, -1, 2]), BIG]),
        ("int32", [codec("reshape", shape=[[0], [1, 2], 1]), LITTLE]),
        ("int16", [codec("zarrs.squeeze"), LITTLE]),
    ],
    ids=lambda value: json.dumps(value[0]) if isinstance(value, list) else value,
)
def test_against_zarrs(data_type: str, codecs: list[Any], tmp_path: Path) -> None:
    data = numbers((4, 6, 10), "f8" if data_type == "bool" else data_type)
    data = data > 3 if data_type == "bool" else data
    document = v3(data.shape, (2, 3, 5) if codecs[0]["name"] != "zarrs.squeeze" else (1, 6, 1), data_type, codecs)
    document["fill_value"] = False if data_type == "bool" else 0
    if codecs[0]["name"] == "reshape" and 3 in codecs[0]["configuration"]["shape"]:
        document["chunk_grid"]["configuration"]["chunk_shape"] = [2, 3, 10]
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    with zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"}):
        array = zarr.open_array(str(tmp_path), mode="r+")
        array[...] = data
        expected = array[...]
    same(gzarr.open_array(tmp_path, device="cpu")[...], expected)
    chunk_shape = tuple(document["chunk_grid"]["configuration"]["chunk_shape"])
    chunk = np.ascontiguousarray(expected[tuple(slice(0, n) for n in chunk_shape)])
    ours = decode_chain(codecs_from_v3(codecs, "$"), (tmp_path / "c" / "0" / "0" / "0").read_bytes(), like(chunk))
    same(ours, chunk)
    again = encode_chain(codecs_from_v3(codecs, "$"), chunk, like(chunk))
    same(decode_chain(codecs_from_v3(codecs, "$"), again, like(chunk)), chunk)


def test_packbits_refuses() -> None:
    flags = np.zeros(10, bool)
    with pytest.raises(ValueError, match="states 5 bits of padding, expected 6"):
        made("packbits", padding_encoding="first_byte").decode(bytes([5, 0, 0]), like(flags))
    with pytest.raises(ValueError, match="got 1 bytes, expected 2"):
        made("packbits").decode(b"\0", like(flags))
    with pytest.raises(gzarr.MetadataError, match="last_bit"):
        made("packbits", first_bit=4, last_bit=3)
    with pytest.raises(gzarr.MetadataError, match="has bits 0 to 0"):
        made("packbits", first_bit=1).encoded(like(flags))
    with pytest.raises(gzarr.MetadataError, match="takes numbers"):
        made("packbits").encoded(like(np.zeros(2, "S3")))


# -- reshape -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "chunk", "expected"),
    [
        ([[0, 1], [2], 3], (100, 50, 64, 3), (5000, 64, 3)),  # the specification's example
        ([-1], (2, 3), (6,)),
        ([[0, 1], 10, [3, 4]], (2, 3, 10, 4, 5), (6, 10, 20)),
        ([[], 6], (2, 3), (1, 6)),
        ([], (1, 1), ()),
        ([-1, [1]], (4, 2), (4, 2)),
    ],
)
def test_reshape(shape: list[Any], chunk: tuple[int, ...], expected: tuple[int, ...]) -> None:
    ours = made("reshape", shape=shape)
    array = np.arange(math.prod(chunk)).reshape(chunk)
    assert ours.encoded(like(array)).shape == expected
    encoded = ours.encode(array, like(array))
    same(encoded, array.reshape(expected))
    same(ours.decode(encoded, like(array)), array)


@pytest.mark.parametrize(
    "shape", [[[1], [0]], [[1, 0], 10, [3, 4]], [[3, 4], 10, [0, 1]], [-1, -1], [0], [-2], [1.5], ["1"], "x", [True]]
)
def test_reshape_configured_wrongly(shape: Any) -> None:
    with pytest.raises(gzarr.MetadataError, match="'shape'"):
        made("reshape", shape=shape)


@pytest.mark.parametrize(
    ("shape", "chunk"),
    [([5], (2, 3)), ([-1, 4], (2, 3)), ([[2]], (2, 3)), ([2, [0], 3], (2, 3)), ([3, [1]], (3, 2, 2))],
)
def test_reshape_that_does_not_fit(shape: list[Any], chunk: tuple[int, ...]) -> None:
    with pytest.raises(gzarr.MetadataError, match="reshape"):
        made("reshape", shape=shape).encoded(like(np.zeros(chunk)))


# -- n5_default --------------------------------------------------------------------------------------------------------


def _n5(*behind: Any, order: tuple[int, ...] = (1, 0)) -> Any:
    return made("n5_default", codecs=[codec("transpose", order=list(order)), BIG, *behind])


@pytest.mark.parametrize("behind", [[], [codec("gzip", level=1)], [codec("zstd", level=0)]])
def test_n5_blocks_are_whole_or_cut(behind: list[Any]) -> None:
    chunk = np.arange(12, dtype="u2").reshape(3, 4)
    ours = _n5(*behind)
    for cut in (chunk, chunk[:2], chunk[:, :1], chunk[:2, :3]):
        # N5's first dimension is the fastest.
        body = cut.T.astype(">u2").tobytes()
        for step in behind:
            body = bytes(codec_from_v3(step, "$").encode(body, BytesRepresentation(len(body))))
        header = struct.pack(">HHII", 0, 2, *cut.shape)
        expected = np.zeros_like(chunk)
        expected[: cut.shape[0], : cut.shape[1]] = cut
        same(ours.decode(header + body, like(chunk)), expected)
        assert len(header + body) <= ours.encoded(like(chunk)).limit_nbytes
    same(ours.decode(ours.encode(chunk, like(chunk)), like(chunk)), chunk)
    assert codec_from_v3(ours.to_json(), "$") == ours


def test_n5_blocks_that_lie() -> None:
    chunk = np.arange(12, dtype="u2").reshape(3, 4)
    body = chunk.T.astype(">u2").tobytes()
    for header, reason in (
        ((1, 2, 3, 4), "mode 1"),
        ((0, 3, 3, 4), "with 3 dimensions"),
        ((0, 2, 4, 4), "larger than the chunk"),
        ((0, 2, 2**32 - 1, 2**32 - 1), "larger than the chunk"),
        ((0, 2, 3, 3), "expected 18"),
    ):
        with pytest.raises(ValueError, match=reason):
            _n5().decode(struct.pack(">HHII", *header) + body, like(chunk))
    with pytest.raises(ValueError, match="too few"):
        _n5().decode(b"\0" * 11, like(chunk))
    nested: Any = codec("n5_default", codecs=[LITTLE])
    for _ in range(40):
        nested = codec("n5_default", codecs=[codec("transpose", order=[1, 0]), nested])
    for codecs in (
        [BIG],
        [codec("transpose", order=[0, 1]), BIG],
        [codec("transpose", order=[1, 0]), LITTLE],
        [nested],
    ):
        with pytest.raises(gzarr.MetadataError, match=r"n5_default|nested"):
            made("n5_default", codecs=codecs)


# -- zfp, pcodec, imagecodecs ------------------------------------------------------------------------------------------

ZFP = [
    ({"mode": "fixed_accuracy", "tolerance": 0.01}, {"tolerance": 0.01}, {"mode": 4, "tolerance": 0.01}),
    ({"mode": "fixed_rate", "rate": 9.0}, {"rate": 9.0}, {"mode": 2, "rate": 9}),
    ({"mode": "fixed_precision", "precision": 20}, {"precision": 20}, {"mode": 3, "precision": 20}),
    ({"mode": "reversible"}, {}, {"mode": 4, "tolerance": -1}),
]


@pytest.mark.parametrize(("values", "of_zfpy", "of_numcodecs"), ZFP, ids=lambda value: value.get("mode", ""))
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("shape", [(100,), (17, 23), (5, 6, 7), (3, 4, 5, 6)])
def test_zfp_is_that_of_zfpy(shape: Any, dtype: str, values: Any, of_zfpy: Any, of_numcodecs: Any) -> None:
    array = numbers(shape, dtype)
    ours = made("zfp", **values)
    stored = zfpy.compress_numpy(array, write_header=False, **of_zfpy)
    whole = zfpy.compress_numpy(array, **of_zfpy)
    expected = zfpy.decompress_numpy(whole)
    same(ours.decode(stored, like(array)), expected)
    assert bytes(ours.encode(array, like(array))) == stored
    assert len(stored) <= ours.encoded(like(array)).limit_nbytes
    theirs = numcodecs.get_codec({"id": "zfpy", **of_numcodecs})
    for header in (codec_from_v2({"id": "zfpy", **of_numcodecs}, "$"), made("numcodecs.zfpy", **of_numcodecs)):
        assert bytes(theirs.encode(array)) == bytes(header.encode(array, like(array))) == whole
        same(header.decode(whole, like(array)), expected)
        assert codec_from_v3(header.to_json(), "$") == header
        assert len(whole) <= header.encoded(like(array)).limit_nbytes
    assert codec_from_v3(ours.to_json(), "$") == ours == made("zarrs.zfp", **values)


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "u4", "u8", "f2"])
def test_zfp_promotes_and_demotes(dtype: str) -> None:
    array = numbers((6, 9), dtype)
    ours = made("zfp", mode="reversible")
    same(ours.decode(ours.encode(array, like(array)), like(array)), array)
    if dtype in ("i1", "u1"):
        ends = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
        middle = 128 if dtype == "u1" else 0
        promoted = ((ends.astype("i8") - middle) << 23).astype("i4")
        assert bytes(ours.encode(ends, like(ends))) == zfpy.compress_numpy(promoted, write_header=False)


def test_zfp_of_zero_dimensions_and_expert_mode() -> None:
    array = np.array(2.5, "f4")
    ours = made("zfp", mode="reversible")
    same(ours.decode(ours.encode(array, like(array)), like(array)), array)
    array = numbers((8, 8), "f8")
    ours = made("zfp", mode="expert", minbits=1, maxbits=13, maxprec=19, minexp=-2)
    encoded = ours.encode(array, like(array))
    assert len(encoded) == 8  # 4 blocks of at most 13 bits, in words of 64
    assert np.isfinite(ours.decode(encoded, like(array))).all()
    for values in ({"minbits": 14}, {"maxbits": 0}, {"maxprec": 65}, {"minexp": "x"}):
        with pytest.raises(gzarr.MetadataError, match=next(iter(values))):
            made("zfp", **{"mode": "expert", "minbits": 1, "maxbits": 13, "maxprec": 19, "minexp": -2, **values})
    with pytest.raises(gzarr.MetadataError, match="at most 4 dimensions"):
        ours.encoded(like(np.zeros((1,) * 5)))


def test_zfp_headers_are_compared() -> None:
    array = numbers((12, 10), "f4")
    whole = zfpy.compress_numpy(array, tolerance=0.1)
    ours = made("numcodecs.zfpy", tolerance=0.1)
    for other in (
        np.zeros((10, 12), "f4"),
        np.zeros((12, 10), "f8"),
        np.zeros(120, "f4"),
        np.zeros((1200, 1000), "f4"),
    ):
        with pytest.raises(ValueError, match=r"header states float32 of \(12, 10\)"):
            ours.decode(whole, like(other))
    with pytest.raises(ValueError, match="no zfp header"):
        ours.decode(b"zfq" + whole[3:], like(array))
    for cut in (8, len(whole) // 2, len(whole) - 8):
        with pytest.raises(ValueError, match="zfpy"):
            ours.decode(whole[:-cut], like(array))


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libzfp, "library", lambda: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for name, values in (("zfp", {"mode": "reversible"}), ("numcodecs.zfpy", {}), ("numcodecs.pcodec", {})):
        with pytest.raises(gzarr.UnsupportedError, match=r"pip install 'gzarr\[(zfp|pcodec)\]'"):
            made(name, **values)
    with pytest.raises(gzarr.UnsupportedError, match=r"pip install 'gzarr\[imagecodecs\]'"):
        codec_from_v2({"id": "imagecodecs_no_such"}, "$")


@pytest.mark.parametrize("dtype", ["u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"])
def test_pcodec_is_that_of_numcodecs(dtype: str) -> None:
    array = numbers((40, 50), dtype)
    theirs = numcodecs.get_codec({"id": "pcodec", "level": 4})
    for ours in (codec_from_v2({"id": "pcodec", "level": 4}, "$"), made("numcodecs.pcodec", level=4)):
        encoded = bytes(theirs.encode(array))
        same(ours.decode(encoded, like(array)), array)
        assert bytes(ours.encode(array, like(array))) == encoded
        assert codec_from_v3(ours.to_json(), "$") == ours
        for other in (
            np.zeros((40, 51), dtype),
            np.zeros((40, 49), dtype),
            np.zeros((40, 50), "f8" if dtype != "f8" else "f4"),
        ):
            with pytest.raises(ValueError, match="pcodec"):
                ours.decode(encoded, like(other))


def test_imagecodecs_are_registered_when_a_document_names_them() -> None:
    # Here alone: the tests of a GPU in this module need it not.
    import imagecodecs

    image = RNG.integers(0, 256, (16, 20), dtype="u1")
    document = v2((16, 20), (16, 20), "|u1", compressor={"id": "imagecodecs_png"})
    stored = {".zarray": json.dumps(document).encode(), "0.0": imagecodecs.png_encode(image)}
    same(gzarr.open_array(stored, device="cpu")[...], image)
    ours = codec_from_v2({"id": "imagecodecs_png"}, "$")
    with pytest.raises(ValueError, match="read-only"):
        ours.encode(image, None)


# -- objects in order F ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", ["json2", "msgpack2", "pickle", "vlen-utf8"])
@pytest.mark.parametrize("shape", [(2, 3), (3, 3)])
def test_objects_in_order_f(name: str, order: str, shape: tuple[int, int]) -> None:
    """Chunks as in zarr-python 2: the codec gets an array of that order, and some codecs store its shape."""
    items = np.array([f"s{i}" for i in range(math.prod(shape))], object).reshape(shape)
    chunk = np.asarray(items, order=order)  # type: ignore[call-overload]
    stored = numcodecs.get_codec({"id": name}).encode(chunk)
    document = v2(shape, shape, "|O", filters=[{"id": name}], order=order, fill=None)
    values = {".zarray": json.dumps(document).encode(), "0.0": bytes(stored)}
    same(gzarr.open_array(values, device="cpu", allow_pickle=True)[...], items)


# -- in whole arrays, and hostile bytes --------------------------------------------------------------------------------


CHAINS = {
    "on the host": (
        np.arange(1000, 1048, dtype="u2"),
        [
            codec("scale_offset", offset=1000),
            codec("cast_value", data_type="uint8"),
            codec("reshape", shape=[[0, 1]]),
            codec("bitround", keepbits=8),
            codec("packbits", padding_encoding="last_byte", last_bit=6),
        ],
    ),
    "floats": (np.arange(-12, 12, 0.5, "f4"), [codec("scale_offset", scale=2), codec("packbits", first_bit=12)]),
    "casts": (np.arange(48.0), [codec("cast_value", data_type="int16"), codec("transpose", order=[1, 0]), BIG]),
    "flags": (np.arange(48) % 5 < 2, [codec("packbits", padding_encoding="first_byte")]),
    "signed": (np.arange(-24, 24, dtype="i4"), [codec("reshape", shape=[-1]), codec("packbits", last_bit=5)]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_them_on_every_device(name: str, device: TestedDevice, tmp_path: Path) -> None:
    values, codecs = CHAINS[name]
    codecs = [*codecs, codec("zstd", level=1)]
    data = np.random.default_rng(7).permutation(values).reshape(6, 8)
    chain = codecs_from_v3(codecs, "$")
    document = v3((6, 8), (3, 4), data.dtype.name, codecs, fill=values[0].item())
    (tmp_path / "zarr.json").write_text(json.dumps(document))
    for i in range(2):
        for j in range(2):
            part = np.ascontiguousarray(data[3 * i : 3 * i + 3, 4 * j : 4 * j + 4])
            path = tmp_path / "c" / str(i) / str(j)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes(encode_chain(chain, part, like(part))))
    same(device.read(device.open(tmp_path)), data)


N5 = [codec("transpose", order=[2, 1, 0]), BIG, codec("zstd", level=1)]
HOSTILE = [
    ("n5_default", {"codecs": N5}, "i4"),
    ("packbits", {"padding_encoding": "first_byte"}, "?"),
    ("packbits", {"first_bit": 3, "last_bit": 9}, "i2"),
    *(("zfp", values, dtype) for values, *_ in ZFP for dtype in ("f4", "i8", "u1")),
    ("zfp", {"mode": "expert", "minbits": 0, "maxbits": 16658, "maxprec": 64, "minexp": -1074}, "f8"),
    *(("numcodecs.zfpy", {}, dtype) for dtype in ("f4", "i4", "f8")),
    ("numcodecs.pcodec", {}, "f4"),
    ("numcodecs.pcodec", {}, "u2"),
]


@pytest.mark.parametrize(("name", "values", "dtype"), HOSTILE)
def test_hostile_bytes(name: str, values: dict[str, Any], dtype: str) -> None:
    """Random bytes and damaged streams give the right number of elements, or a ValueError."""
    ours = made(name, **values)
    array = np.abs(numbers((9, 7, 5), "f8")).astype(dtype)
    encoded = bytes(ours.encode(array, like(array)))

    @given(st.data())
    @settings(max_examples=80, deadline=None)
    def check(data: Any) -> None:
        damaged = bytearray(encoded)
        if data.draw(st.booleans()):
            damaged = bytearray(data.draw(st.binary(max_size=2 * len(encoded))))
        for _ in range(data.draw(st.integers(0, 4)) if damaged else 0):
            last = data.draw(st.sampled_from([min(24, len(damaged)), len(damaged)])) - 1
            damaged[data.draw(st.integers(0, last))] = data.draw(st.integers(0, 255))
        damaged = damaged[: data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))]
        try:
            result = ours.decode(bytes(damaged), like(array))
        except ValueError as error:
            assert str(error)  # noqa: PT017
        else:
            assert (result.shape, result.dtype) == (array.shape, array.dtype)

    check()


def test_unknown_codecs_are_refused() -> None:
    for name in ("conditional", "zarrs.gdeflate", "zarrs.vlen", "numcodecs.n5_wrapper"):
        with pytest.raises(gzarr.UnsupportedError, match="not known"):
            codec_from_v3({"name": name}, "$")
