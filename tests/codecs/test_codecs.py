"""Codecs in host memory: against numcodecs in both directions, against corrupt bytes, and within bounds."""

import bz2
import gzip
import lzma
import tracemalloc
import zlib

import ml_dtypes
import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.chain import decode_chain, encode_chain, representations
from gzarr.codecs.codec import ArrayRepresentation, BytesRepresentation, Operation
from gzarr.codecs.registry import codec_from_v2, codec_from_v3, codecs_from_v3
from gzarr.codecs.sharding import EMPTY
from gzarr.codecs.transpose import TransposeCodec
from gzarr.errors import MetadataError, UnsupportedError

DATA = (np.arange(6000, dtype="<i4") // 7 % 251).astype("<i4")
RAW = DATA.tobytes()
SIZE = BytesRepresentation(len(RAW))
UNSURE = BytesRepresentation(None, 10 * len(RAW))

V2 = [
    *(
        {"id": "blosc", "cname": c, "clevel": 5, "shuffle": s}
        for c in ("lz4", "lz4hc", "blosclz", "zstd", "zlib")
        for s in (0, 1, 2)
    ),
    {"id": "blosc", "cname": "lz4", "clevel": 0, "shuffle": 1},
    {"id": "blosc", "cname": "lz4", "clevel": 9, "shuffle": 1, "blocksize": 256},
    {"id": "zstd", "level": 0},
    {"id": "zstd", "level": 100},
    {"id": "zstd", "level": -5, "checksum": True},
    {"id": "gzip", "level": 1},
    {"id": "zlib", "level": 9},
    {"id": "lz4", "acceleration": 10},
    {"id": "bz2", "level": 1},
    {"id": "lzma", "preset": 0},
    {"id": "lzma", "format": 2, "preset": 0},
    {"id": "lzma", "format": 3, "filters": [{"id": 33, "preset": 1}]},
    {"id": "shuffle", "elementsize": 4},
    {"id": "shuffle", "elementsize": 1},
    {"id": "crc32"},
    {"id": "crc32", "location": "end"},
    {"id": "crc32c"},
    {"id": "crc32c", "location": "start"},
    {"id": "adler32"},
    {"id": "fletcher32"},
    {"id": "jenkins_lookup3", "initval": 3},
    {"id": "base64"},
    {"id": "delta", "dtype": "<i4", "astype": "<i2"},
    {"id": "astype", "encode_dtype": "<i8", "decode_dtype": "<i4"},
    {"id": "fixedscaleoffset", "offset": 1, "scale": 2, "dtype": "<i4", "astype": "<i4"},
]


def name(config):
    return "-".join(str(value) for value in config.values())


@pytest.mark.parametrize("config", V2, ids=name)
@pytest.mark.parametrize("size", [SIZE, UNSURE], ids=["known", "unknown"])
def test_against_numcodecs(config, size):
    theirs = numcodecs.get_codec(config)
    ours = codec_from_v2(config, "$.compressor")
    assert ours.kind == "bytes_to_bytes"
    encoded = np.asarray(memoryview(theirs.encode(DATA)).cast("B")).tobytes()
    for data in (encoded, bytearray(encoded), np.frombuffer(encoded, np.uint8)):
        assert bytes(ours.decode(data, size)) == RAW
    again = bytes(ours.encode(DATA, SIZE))
    assert bytes(memoryview(np.ascontiguousarray(theirs.decode(again))).cast("B")) == RAW
    expected = ours.encoded(SIZE)
    assert expected.nbytes in (None, len(encoded))
    assert expected.limit_nbytes is None or expected.limit_nbytes >= len(encoded)
    assert ours == codec_from_v2(config, "$")
    assert hash(ours) == hash(codec_from_v2(config, "$"))


@pytest.mark.parametrize("config", V2, ids=name)
def test_corrupt_bytes(config):
    """Whatever is done to the bytes, the result has the right number of bytes or is a ValueError."""
    ours = codec_from_v2(config, "$.compressor")
    encoded = bytes(ours.encode(DATA, SIZE))
    rng = np.random.default_rng(5)
    cases = [
        b"",
        b"\0",
        encoded[:4],
        encoded[: len(encoded) // 2],
        encoded[:-1],
        encoded + b"\1",
        b"\xff" * len(encoded),
    ]
    for _ in range(40):
        damaged = bytearray(encoded)
        for at in rng.integers(0, min(len(damaged), int(rng.choice([24, len(damaged)]))), 3):
            damaged[at] = rng.integers(256)
        cases.append(bytes(damaged))
    for data in cases:
        try:
            output = ours.decode(data, SIZE)
        except ValueError as error:
            assert str(error)  # noqa: PT017
        else:
            assert len(bytes(output)) == len(RAW)


@pytest.mark.parametrize(
    "config", [c for c in V2 if c["id"] not in ("shuffle", "astype", "delta", "fixedscaleoffset")], ids=name
)
def test_truncation_is_always_seen(config):
    ours = codec_from_v2(config, "$.compressor")
    encoded = bytes(ours.encode(DATA, SIZE))
    # A raw LZMA stream does not need the last bytes of its end.
    for cut in (
        (len(encoded) // 2, len(encoded)) if config.get("format") == 3 else (1, 4, len(encoded) // 2, len(encoded))
    ):
        with pytest.raises(ValueError):
            ours.decode(encoded[:-cut], SIZE)


@pytest.mark.parametrize(
    "config", [c for c in V2 if c["id"] in ("blosc", "zstd", "gzip", "zlib", "lz4", "bz2", "lzma")], ids=name
)
@pytest.mark.parametrize("lie", [-4, 4])
def test_another_size_than_expected(config, lie):
    ours = codec_from_v2(config, "$.compressor")
    encoded = ours.encode(DATA, SIZE)
    with pytest.raises(ValueError, match=str(len(RAW) + lie)):
        ours.decode(encoded, BytesRepresentation(len(RAW) + lie))


BOMB = 64 << 20


@pytest.mark.parametrize(
    ("config", "bomb"),
    [
        ({"id": "gzip"}, lambda zeros: gzip.compress(zeros, 9)),
        ({"id": "zlib"}, lambda zeros: zlib.compress(zeros, 9)),
        ({"id": "bz2"}, lambda zeros: bz2.compress(zeros, 9)),
        ({"id": "lzma"}, lambda zeros: lzma.compress(zeros, preset=0)),
        ({"id": "zstd"}, lambda zeros: numcodecs.Zstd(1).encode(zeros)),
        ({"id": "lz4"}, lambda zeros: numcodecs.LZ4().encode(zeros)),
        ({"id": "blosc"}, lambda zeros: numcodecs.Blosc().encode(zeros)),
    ],
)
def test_bombs_are_not_unpacked(config, bomb):
    ours = codec_from_v2(config, "$.compressor")
    data = bomb(bytes(BOMB))
    for size in (BytesRepresentation(1000), BytesRepresentation(None, 1000)):
        tracemalloc.start()
        with pytest.raises(ValueError):
            ours.decode(data, size)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 << 20


@pytest.mark.parametrize("config", [{"id": "zstd"}, {"id": "gzip"}, {"id": "lz4"}, {"id": "lzma"}, {"id": "bz2"}])
def test_lying_metadata_allocates_nothing_much(config):
    """A terabyte chunk from a few bytes is refused before any such amount of memory is allocated."""
    ours = codec_from_v2(config, "$.compressor")
    encoded = ours.encode(DATA, SIZE)
    tracemalloc.start()
    with pytest.raises(ValueError):
        ours.decode(encoded, BytesRepresentation(2**40))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 << 20


def test_several_members_and_frames():
    half = len(RAW) // 2
    parts = RAW[:half], b"", RAW[half:]
    for config, pack in [
        ({"id": "gzip"}, gzip.compress),
        ({"id": "bz2"}, bz2.compress),
        ({"id": "lzma"}, lzma.compress),
        ({"id": "zstd"}, lambda part: numcodecs.Zstd(3).encode(part) if part else b"\x50\x2a\x4d\x18\x03\0\0\0abc"),
    ]:
        ours = codec_from_v2(config, "$.compressor")
        data = b"".join(pack(part) for part in parts)
        for size in (SIZE, UNSURE):
            assert bytes(ours.decode(data, size)) == RAW


def test_many_small_gzip_members():
    ours = codec_from_v2({"id": "gzip"}, "$")
    assert bytes(ours.decode(gzip.compress(b"") * 900 + gzip.compress(RAW), SIZE)) == RAW
    with pytest.raises(ValueError, match="members"):
        ours.decode(gzip.compress(b"") * 500_000 + gzip.compress(RAW), SIZE)


def test_gzip_padding_and_garbage():
    ours = codec_from_v2({"id": "gzip"}, "$")
    assert bytes(ours.decode(gzip.compress(RAW) + bytes(5000), SIZE)) == RAW
    with pytest.raises(ValueError):
        ours.decode(gzip.compress(RAW) + b"garbage", SIZE)


def test_zstd_frame_without_content_size():
    def raw_block(data, *, last):
        return ((len(data) << 3) | last).to_bytes(3, "little") + data

    # Magic, a descriptor without content size, a window of 1 MiB, blocks that are not compressed.
    frame = b"\x28\xb5\x2f\xfd\x00\x50" + raw_block(RAW[:20000], last=0) + raw_block(RAW[20000:], last=1)
    ours = codec_from_v3({"name": "zstd", "configuration": {"level": 1}}, "$")
    assert bytes(ours.decode(frame, SIZE)) == RAW
    assert bytes(ours.decode(frame + frame, BytesRepresentation(None))) == RAW + RAW
    with pytest.raises(ValueError, match="more than"):
        ours.decode(frame, BytesRepresentation(None, 1000))


def test_crc32c_is_verified():
    ours = codec_from_v3("crc32c", "$")
    encoded = bytes(ours.encode(b"123456789", BytesRepresentation(9)))
    assert encoded[-4:] == bytes.fromhex("839206e3")  # the check value of the polynomial, RFC 3720
    for i in range(len(encoded)):
        damaged = bytearray(encoded)
        damaged[i] ^= 1
        with pytest.raises(ValueError, match="checksum"):
            ours.decode(damaged, BytesRepresentation(9))


@pytest.mark.parametrize("dtype", ["u1", "<i4", "f8", "c8", "U3", "M8[s]", "S5", "?"])
@pytest.mark.parametrize("endian", ["little", "big"])
def test_bytes(dtype, endian):
    array = np.arange(24).astype("u1").view("S1") if dtype == "S5" else np.arange(24)
    array = array.astype(dtype).reshape(2, 3, 4)
    chunk = ArrayRepresentation(array.shape, array.dtype)
    codec = BytesCodec(endian)
    expected = array.astype(array.dtype.newbyteorder("<" if endian == "little" else ">")).tobytes()
    assert codec.encoded(chunk) == BytesRepresentation(len(expected))
    assert bytes(codec.encode(array.T.copy().T, chunk)) == expected
    decoded = codec.decode(expected, chunk)
    assert decoded.dtype == array.dtype
    assert np.array_equal(decoded, array)
    with pytest.raises(ValueError, match="expected"):
        codec.decode(expected + b"\0", chunk)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_transpose(order):
    array = np.arange(24).reshape(2, 3, 4)
    chunk = ArrayRepresentation(array.shape, array.dtype)
    codec = TransposeCodec(order)
    encoded = codec.encode(array, chunk)
    assert codec.encoded(chunk).shape == encoded.shape == array.transpose(order).shape
    assert np.array_equal(encoded, array.transpose(order))
    assert np.array_equal(codec.decode(encoded, chunk), array)
    assert codec.operations(chunk) == (Operation("transpose", order),)


def test_labels_and_operations():
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    blosc = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0}
    codecs = codecs_from_v3(
        [
            {"name": "transpose", "configuration": {"order": [1, 0]}},
            little,
            {"name": "blosc", "configuration": blosc},
            {"name": "zstd", "configuration": {"level": 1}},
            {"name": "gzip", "configuration": {"level": 1}},
            {"name": "numcodecs.zlib", "configuration": {"level": 1}},
            {"name": "numcodecs.lz4", "configuration": {}},
            {"name": "crc32c"},
            {"name": "numcodecs.delta", "configuration": {"dtype": "<i4"}},
        ],
        "$.codecs",
    )
    labels = [
        "transpose(1, 0)",
        "bytes",
        "blosc(lz4, shuffle 4)",
        "zstd",
        "gzip",
        "zlib",
        "lz4",
        "crc32c",
        "numcodecs.delta",
    ]
    assert [codec.label for codec in codecs] == labels
    steps = representations(codecs[:8], ArrayRepresentation((2, 3), np.dtype("i4")))
    names = [codec.operations(step)[0].name for codec, step in zip(codecs[:8], steps[:8], strict=True)]
    assert names == ["transpose", "bytes", "blosc", "zstd", "gzip", "zlib", "lz4", "crc32c"]
    assert [step.name for step in codecs[8].operations(steps[0]) or ()] == ["delta"]
    assert codec_from_v2({"id": "shuffle", "elementsize": 8}, "$").operations(SIZE) == (Operation("shuffle", (8,)),)
    again = codecs_from_v3([codec.to_json() for codec in codecs], "$.codecs")
    assert again == codecs


def test_two_compressors_are_bounded():
    """The input of a second compressor has no fixed size, but it has a limit."""
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    codecs = codecs_from_v3([little, *[{"name": "gzip", "configuration": {"level": 1}}] * 2], "$.codecs")
    chunk = ArrayRepresentation((1000,), np.dtype("<i4"))
    array = np.arange(1000, dtype="<i4")
    data = encode_chain(codecs, array, chunk)
    assert np.array_equal(decode_chain(codecs, data, chunk), array)
    with pytest.raises(ValueError, match="more than"):
        decode_chain(codecs, gzip.compress(bytes(10 << 20)), chunk)


def test_numcodecs_that_are_missing():
    for config in ({"id": "pcodec"}, {"id": "zfpy"}):
        if config["id"] in numcodecs.registry.codec_registry:
            continue
        with pytest.raises(UnsupportedError, match="pip install"):
            codec_from_v2(config, "$", first=True)


class Reverse(numcodecs.abc.Codec):
    """A third-party codec, registered with numcodecs."""

    codec_id = "test-reverse"

    def encode(self, buf):
        return bytes(memoryview(buf).cast("B"))[::-1]

    def decode(self, buf, out=None):
        return bytes(memoryview(buf).cast("B"))[::-1]


def test_codecs_registered_with_numcodecs():
    numcodecs.register_codec(Reverse)
    try:
        ours = codec_from_v2({"id": "test-reverse"}, "$")
        assert bytes(ours.decode(RAW[::-1], SIZE)) == RAW
        with pytest.raises(ValueError, match="expected"):
            ours.decode(RAW[:-4], SIZE)
        with pytest.raises(MetadataError):
            codec_from_v2({"id": "test-reverse", "speed": 3}, "$")
    finally:
        del numcodecs.registry.codec_registry["test-reverse"]


@pytest.mark.parametrize("name", ["float8_e5m2", "complex32", "bfloat16", "int4"])
@pytest.mark.parametrize("configuration", [{"scale": 1, "offset": 0}, {"scale": 1, "offset": 0, "dtype": "<f4"}])
def test_filters_of_numcodecs_refuse_types_of_ml_dtypes(name, configuration):
    filters = [{"name": "numcodecs.fixedscaleoffset", "configuration": configuration}]
    with pytest.raises(gzarr.GzarrError, match=f"numcodecs.fixedscaleoffset (takes numbers of NumPy|.*{name})"):
        gzarr.create_array({}, shape=4, dtype=getattr(ml_dtypes, name), filters=filters)


def test_bitround_of_version_2_takes_numbers_of_numpy():
    with pytest.raises(gzarr.ArgumentError, match="bitround needs floating-point numbers"):
        gzarr.create_array(
            {}, shape=4, dtype=ml_dtypes.float8_e5m2, zarr_format=2, filters=[{"id": "bitround", "keepbits": 1}]
        )


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_bitround_of_version_2_rounds_numbers_in_any_byte_order(kind: str) -> None:
    values = np.random.default_rng(0).normal(size=50).astype(kind)
    rounded = numcodecs.BitRound(3).encode(values)
    for order in "<>":
        store: dict[str, bytes] = {}
        gzarr.create_array(
            store, data=values.astype(f"{order}{kind}"), zarr_format=2, chunks=(50,), compressors=None,
            filters=[{"id": "bitround", "keepbits": 3}],
        )  # fmt: skip
        assert bytes(store["0"]) == rounded.astype(rounded.dtype.newbyteorder(order)).tobytes()
        assert np.array_equal(gzarr.open_array(store)[...], rounded.view(kind))


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        ("vlen-utf8", b"\xff\xff\xff\x7f"),
        ("vlen-utf8", b"\x04\0\0\0" + b"\xff\xff\xff\x7f" * 4),
        ("vlen-bytes", b"\x04\0\0\0" + b"\xff\xff\xff\xff" * 4),
        ("vlen-utf8", b"\x04\0\0\0" + b"\x01\0\0\0\xff" * 4),
        ("json2", b'["a", "|O", [1000000000000]]'),
        ("json2", b'["a", "|O", [-4]]'),
        ("json2", b'["a", "b", "c", "d", "V2000000000", [4]]'),
        ("json2", b'["a", "|O", [4]]'),
        ("json2", b"[" * 100_000),
        ("json2", b"nonsense"),
        ("msgpack2", b"\xdd\xff\xff\xff\xff"),
        ("msgpack2", b""),
        ("pickle", b"nonsense"),
    ],
)
def test_objects_that_lie(codec, data):
    config = {"id": codec}
    ours = codec_from_v2(config, "$", allow_pickle=True, first=True, objects=True)
    tracemalloc.start()
    with pytest.raises(ValueError):
        ours.decode(data, ArrayRepresentation((4,), np.dtype(object)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_one_object_is_not_the_first_of_several():
    """numcodecs' msgpack2 takes apart a list that is the element of an array without dimensions."""
    codec = codec_from_v2({"id": "msgpack2"}, "$", first=True, objects=True)
    chunk = ArrayRepresentation((), np.dtype(object))
    data = bytes(numcodecs.MsgPack().encode(np.fromiter([[1, 2]], object, 1).reshape(())))
    with pytest.raises(ValueError, match="2 items"):
        codec.decode(data, chunk)


def test_keys_of_msgpack_that_can_be_made_to_collide():
    """As in numcodecs, only strings and bytes are keys."""
    codec = codec_from_v2({"id": "msgpack2"}, "$", first=True, objects=True)
    data = numcodecs.MsgPack().encode(np.array([{1: "x"}], object))
    with pytest.raises(ValueError, match="int is not allowed for map key"):
        codec.decode(data, ArrayRepresentation((1,), np.dtype(object)))


# -- shards ------------------------------------------------------------------------------------------------------------

SHARD = ArrayRepresentation((4, 6), np.dtype("u2"))


def sharding(*, location="end", inner=("crc32c",), chunk_shape=(2, 3)):
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    values = {
        "chunk_shape": list(chunk_shape),
        "codecs": [little, *inner],
        "index_codecs": [little, {"name": "crc32c"}],
        "index_location": location,
    }
    return codec_from_v3({"name": "sharding_indexed", "configuration": values}, "$")


@pytest.mark.parametrize("location", ["start", "end"])
def test_shard_round_trip(location):
    codec = sharding(location=location)
    array = np.arange(24, dtype="u2").reshape(4, 6)
    data = bytes(codec.encode(array, SHARD))
    assert np.array_equal(codec.decode(data, SHARD), array)
    assert codec.index_nbytes(SHARD.shape) == 16 * 4 + 4
    part = data[:68] if location == "start" else data[-68:]
    index = codec.decode_index(part, SHARD.shape, shard_nbytes=len(data))
    assert index.shape == (2, 2, 2)
    assert index.dtype == np.uint64
    assert (index[..., 1] == 2 * 3 * 2 + 4).all()


def index_of(*entries):
    codec = sharding()
    body = np.array(entries, "<u8").tobytes()
    return codec, bytes(codec.index_codecs[1].encode(body, BytesRepresentation(len(body))))


@pytest.mark.parametrize(
    "entry",
    [(0, 10**6), (10**6, 1), (EMPTY, 0), (0, EMPTY), (2**64 - 16, 16), (2**63, 2**63), (84, 17), (EMPTY - 1, EMPTY)],
)
def test_shard_index_entries_are_checked(entry):
    codec, index = index_of((0, 16), (EMPTY, EMPTY), entry, (16, 16))
    with pytest.raises(ValueError, match=r"inner chunk \(1, 0\)"):
        codec.decode_index(index, SHARD.shape, shard_nbytes=100)
    with pytest.raises(ValueError, match=r"inner chunk \(1, 0\)"):
        codec.decode(bytes(100 - len(index)) + index, SHARD)


def test_shard_index_that_is_damaged():
    codec, index = index_of(*[(EMPTY, EMPTY)] * 4)
    assert (codec.decode_index(index, SHARD.shape) == EMPTY).all()
    with pytest.raises(ValueError, match="shard index: crc32c"):
        codec.decode_index(index[:-1] + b"\0", SHARD.shape)
    with pytest.raises(ValueError, match="expected 68"):
        codec.decode_index(index[:-1], SHARD.shape)
    with pytest.raises(ValueError, match="too few"):
        codec.decode(b"\0" * 10, SHARD)


def test_shard_without_inner_chunks_is_fill_value():
    codec, index = index_of(*[(EMPTY, EMPTY)] * 4)
    assert (codec.decode(index, SHARD) == 0).all()
    assert (codec.with_fill_value(np.uint16(7)).decode(index, SHARD) == 7).all()


def test_nested_shards():
    inner = sharding(chunk_shape=(1, 3)).to_json()
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    values = {"chunk_shape": [2, 3], "codecs": [inner], "index_codecs": [little], "index_location": "start"}
    codec = codec_from_v3({"name": "sharding_indexed", "configuration": values}, "$").with_fill_value(np.uint16(3))
    assert codec.codecs[0].fill_value == 3
    array = np.arange(24, dtype="u2").reshape(4, 6)
    assert np.array_equal(codec.decode(codec.encode(array, SHARD), SHARD), array)


def test_inner_chunk_that_is_damaged_is_named():
    codec = sharding()
    data = bytearray(codec.encode(np.arange(24, dtype="u2").reshape(4, 6), SHARD))
    data[2 * 16 + 3] ^= 1
    with pytest.raises(ValueError, match=r"inner chunk \(1, 0\): crc32c"):
        codec.decode(data, SHARD)
