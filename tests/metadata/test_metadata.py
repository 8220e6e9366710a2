"""Documents of versions 2 and 3, compared with zarr-python's interpretation, and malformed documents."""

import json
import warnings

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from gzarr.codecs.chain import decode_chain
from gzarr.codecs.codec import ArrayRepresentation
from gzarr.codecs.sharding import ShardingIndexed
from gzarr.documents.json import MAX_DEPTH, load_document, quote
from gzarr.dtypes import fill_value
from gzarr.dtypes.properties import swap_unit
from gzarr.dtypes.v2 import parse_v2
from gzarr.dtypes.v3 import parse_v3
from gzarr.errors import MetadataError, UnsupportedError
from gzarr.metadata.model import ArrayMetadata, ChunkKeyEncoding, GroupMetadata
from gzarr.metadata.v2 import parse as v2
from gzarr.metadata.v3 import parse as v3

pytestmark = pytest.mark.filterwarnings("ignore")


def values_of(store):
    return {key: buffer.to_bytes() for key, buffer in store._store_dict.items()}


def parse(values, prefix=""):
    """Parse a node from the bytes written by zarr-python."""
    documents = {
        name: load_document(values[prefix + name], prefix + name)
        for name in ("zarr.json", ".zarray", ".zgroup", ".zattrs")
        if prefix + name in values
    }
    if "zarr.json" in documents:
        return v3.parse_node(documents["zarr.json"])
    if ".zarray" in documents:
        return v2.parse_array(documents[".zarray"], documents.get(".zattrs"))
    return v2.parse_group(documents[".zgroup"], documents.get(".zattrs"))


def read(values, metadata):
    """Read a whole array, chunk by chunk, with the host codecs."""
    out = np.empty(metadata.shape, metadata.dtype)
    out[...] = np.zeros((), metadata.dtype)[()] if metadata.fill_value is None else metadata.fill_value
    chunk = ArrayRepresentation(metadata.chunk_shape, metadata.dtype)
    for coords in np.ndindex(metadata.grid_shape):
        data = values.get(metadata.chunk_key_encoding.encode(coords))
        if data is None:
            continue
        decoded = decode_chain(metadata.codecs, data, chunk)
        assert decoded.shape == chunk.shape
        assert decoded.dtype == chunk.dtype
        where = tuple(
            slice(i * c, min((i + 1) * c, s))
            for i, c, s in zip(coords, metadata.chunk_shape, metadata.shape, strict=True)
        )
        out[where] = decoded[tuple(slice(0, w.stop - w.start) for w in where)]
    return out


def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind in "US" and not a.shape:
        return a == b  # scalars have no trailing zeros
    if a.dtype.hasobject:
        return a.tolist() == b.tolist()
    return a.dtype == b.dtype.newbyteorder("=") and a.tobytes() == b.astype(a.dtype).tobytes()


def sample(dtype, shape):
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(3)
    if dtype.kind == "O":
        return np.array([["a", "", "δé"][i % 3] * (i % 4) for i in range(int(np.prod(shape)))], object).reshape(shape)
    if dtype.kind == "U":
        return rng.choice(np.array(["", "ab", "δéf", "z" * 9]), shape).astype(dtype)
    if dtype.kind in "SV" and dtype.fields is None:
        return rng.integers(1, 255, (*shape, dtype.itemsize), np.uint8).view(dtype).reshape(shape)
    if dtype.fields is not None:
        out = np.zeros(shape, dtype)
        for name in dtype.names:
            out[name] = sample(dtype[name], shape) if dtype[name].subdtype is None else 7
        return out
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if dtype.kind in "mM":
        return rng.integers(0, 10**6, shape).astype(np.int64).view(dtype.newbyteorder("=")).astype(dtype)
    return (rng.normal(size=shape) * 50).astype(dtype)


def check_against_zarr(array, store, data):
    array[...] = data
    values = values_of(store)
    ours = parse(values)
    assert isinstance(ours, ArrayMetadata)
    assert ours.shape == array.shape
    assert ours.chunk_shape == (array.shards or array.chunks)
    assert ours.dtype == array.dtype.newbyteorder("=")
    assert ours.dtype.isnative
    assert ours.attributes == dict(array.attrs)
    expected = array.fill_value
    if expected is None or ours.fill_value is None:
        assert ours.fill_value is None
        assert expected is None
    else:
        assert same(ours.fill_value, expected), (ours.fill_value, expected)
    assert same(read(values, ours), array[...])
    return ours


DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
    *("<U5", "|S6", "<M8[ns]", "<M8[10D]", "<m8[ms]", "<M8", "|V3"),
    [("x", "<i2"), ("y", "<f8")],
    [("a", "|u1"), ("b", [("c", "<f4"), ("d", "|S3")])],
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_v3_data_types_as_zarr_python(dtype):
    store = MemoryStore()
    array = zarr.create_array(store, shape=(5, 7), chunks=(2, 3), dtype=np.dtype(dtype), attributes={"k": [1, None]})
    check_against_zarr(array, store, sample(dtype, (5, 7)))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(
    "dtype", [*DTYPES, ">i2", ">f8", ">c8", ">U4", ">M8[us]", [("x", ">i2"), ("y", "<f8"), ("z", ">u4")]], ids=str
)
def test_v2_data_types_as_zarr_python(dtype, order):
    store = MemoryStore()
    array = zarr.create_array(store, shape=(5, 7), chunks=(2, 3), dtype=np.dtype(dtype), zarr_format=2, order=order)
    ours = check_against_zarr(array, store, sample(dtype, (5, 7)))
    assert ours.zarr_format == 2
    assert (ours.codecs[0].kind == "array_to_array") == (order == "F")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_strings_as_zarr_python(zarr_format):
    store = MemoryStore()
    array = zarr.create_array(store, shape=(7,), chunks=(3,), dtype=str, zarr_format=zarr_format, fill_value="∅")
    data = sample("O", (7,))
    array[:5] = data[:5]
    values = values_of(store)
    ours = parse(values)
    assert ours.dtype == np.dtype(object)
    assert ours.fill_value == "∅"
    assert read(values, ours).tolist() == array[...].tolist()


def test_v3_bytes_of_any_length():
    document = doc(data_type="variable_length_bytes", fill_value="AQI=", codecs=["vlen-bytes"])
    assert v3.parse_array(document).fill_value == b"\x01\x02"
    assert v3.parse_array(doc(data_type="bytes", fill_value=[1, 2], codecs=["vlen-bytes"])).fill_value == b"\x01\x02"


@pytest.mark.parametrize(
    ("compressors", "label"),
    [
        (None, None),
        (zarr.codecs.ZstdCodec(level=3, checksum=True), "zstd"),
        (zarr.codecs.GzipCodec(level=5), "gzip"),
        (zarr.codecs.BloscCodec(cname="lz4", shuffle="shuffle", typesize=4), "blosc(lz4, shuffle 4)"),
        (zarr.codecs.BloscCodec(cname="zstd", shuffle="bitshuffle", typesize=4), "blosc(zstd, bitshuffle 4)"),
        (zarr.codecs.BloscCodec(cname="zlib", shuffle="noshuffle", typesize=4), "blosc(zlib)"),
        ([zarr.codecs.GzipCodec(level=1), zarr.codecs.Crc32cCodec()], "crc32c"),
        (zarr.codecs.numcodecs.LZ4(), "lz4"),
        (zarr.codecs.numcodecs.Zlib(level=2), "zlib"),
        (zarr.codecs.numcodecs.BZ2(level=2), "bz2"),
        (zarr.codecs.numcodecs.LZMA(preset=1), "lzma"),
        (zarr.codecs.numcodecs.Shuffle(elementsize=4), "numcodecs.shuffle(4)"),
        (zarr.codecs.numcodecs.CRC32(), "numcodecs.crc32"),
        (zarr.codecs.numcodecs.Adler32(), "numcodecs.adler32"),
        (zarr.codecs.numcodecs.Fletcher32(), "numcodecs.fletcher32"),
        (zarr.codecs.numcodecs.JenkinsLookup3(), "numcodecs.jenkins_lookup3"),
    ],
    ids=str,
)
@pytest.mark.parametrize("endian", ["little", "big"])
def test_v3_codecs_as_zarr_python(compressors, label, endian):
    store = MemoryStore()
    array = zarr.create_array(
        store,
        shape=(9, 10),
        chunks=(4, 6),
        dtype="int32",
        fill_value=-3,
        serializer=zarr.codecs.BytesCodec(endian=endian),
        filters=zarr.codecs.TransposeCodec(order=(1, 0)),
        compressors=compressors,
    )
    ours = check_against_zarr(array, store, sample("int32", (9, 10)))
    assert ours.codecs[0].label == "transpose(1, 0)"
    assert ours.codecs[1].label == ("bytes" if endian == "little" else "bytes(big)")
    assert (ours.codecs[-1].label if len(ours.codecs) > 2 else None) == label


@pytest.mark.parametrize(
    "codec",
    [
        zarr.codecs.numcodecs.Delta(dtype="int32", astype="int16"),
        zarr.codecs.numcodecs.FixedScaleOffset(offset=5, scale=1, dtype="int32", astype="int32"),
        zarr.codecs.numcodecs.AsType(encode_dtype="int64", decode_dtype="int32"),
    ],
    ids=str,
)
def test_v3_array_filters_as_zarr_python(codec):
    store = MemoryStore()
    array = zarr.create_array(store, shape=(9, 10), chunks=(4, 6), dtype="int32", filters=codec)
    check_against_zarr(array, store, sample("int32", (9, 10)))


@pytest.mark.parametrize(
    "codec",
    [zarr.codecs.numcodecs.Quantize(digits=2, dtype="float64"), zarr.codecs.numcodecs.BitRound(keepbits=10)],
    ids=str,
)
def test_v3_lossy_filters_as_zarr_python(codec):
    store = MemoryStore()
    array = zarr.create_array(store, shape=(9, 10), chunks=(4, 6), dtype="float64", filters=codec)
    check_against_zarr(array, store, sample("float64", (9, 10)))


@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("inner", [(4, 6), (2, 3), (1, 6)])
def test_shards_as_zarr_python(location, inner):
    store = MemoryStore()
    array = zarr.create_array(
        store,
        shape=(9, 10),
        shards={"shape": (4, 6), "index_location": location},
        chunks=inner,
        dtype="uint16",
        fill_value=9,
    )
    data = sample("uint16", (9, 10))
    data[:2, :6] = 9  # inner chunks that are not written
    ours = check_against_zarr(array, store, data)
    (shard,) = ours.codecs
    assert isinstance(shard, ShardingIndexed)
    assert (shard.chunk_shape, shard.index_location, shard.fill_value) == (inner, location, 9)
    assert shard.to_json() == json.loads(values_of(store)["zarr.json"])["codecs"][0]


V2_CHAINS = [
    (None, None),
    ({"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0}, None),
    ({"id": "blosc", "cname": "zstd", "clevel": 3, "shuffle": 2, "blocksize": 0}, None),
    ({"id": "blosc", "cname": "blosclz", "clevel": 3, "shuffle": -1, "blocksize": 0}, None),
    ({"id": "zstd", "level": 3}, None),
    ({"id": "gzip", "level": 5}, None),
    ({"id": "zlib", "level": 5}, None),
    ({"id": "lz4", "acceleration": 1}, None),
    ({"id": "bz2", "level": 5}, None),
    ({"id": "lzma", "format": 1, "check": -1, "preset": 1, "filters": None}, None),
    ({"id": "lzma", "format": 3, "check": -1, "preset": None, "filters": [{"id": 33, "preset": 1}]}, None),
    ({"id": "zlib", "level": 5}, [{"id": "delta", "dtype": "<i4", "astype": "<i2"}]),
    (None, [{"id": "shuffle", "elementsize": 4}, {"id": "crc32"}]),
    (
        {"id": "zstd", "level": 1},
        [{"id": "fixedscaleoffset", "offset": 3, "scale": 1, "dtype": "<i4", "astype": "<i4"}],
    ),
    (None, [{"id": "astype", "encode_dtype": "<i8", "decode_dtype": "<i4"}, {"id": "adler32"}]),
    ({"id": "base64"}, [{"id": "fletcher32"}]),
    ({"id": "crc32c"}, [{"id": "jenkins_lookup3"}]),
    (None, [{"id": "crc32c", "location": "start"}]),
]


@pytest.mark.parametrize(("compressor", "filters"), V2_CHAINS, ids=str)
@pytest.mark.parametrize("order", ["C", "F"])
def test_v2_codecs_as_zarr_python(compressor, filters, order):
    import numcodecs

    store = MemoryStore()
    array = zarr.create_array(
        store,
        shape=(9, 10),
        chunks=(4, 6),
        dtype="<i4",
        zarr_format=2,
        order=order,
        compressors=None if compressor is None else numcodecs.get_codec(compressor),
        filters=None if filters is None else [numcodecs.get_codec(f) for f in filters],
        attributes={"_ARRAY_DIMENSIONS": ["y", "x"]},
        chunk_key_encoding={"name": "v2", "separator": "/"},
    )
    ours = check_against_zarr(array, store, sample("<i4", (9, 10)))
    assert ours.dimension_names == ("y", "x")
    assert ours.chunk_key_encoding == ChunkKeyEncoding("v2", "/")


def test_v2_packbits_and_big_endian_delta():
    import numcodecs

    for dtype, codec in [
        ("|b1", numcodecs.PackBits()),
        (">i4", numcodecs.Delta(dtype=">i4")),
        ("<f4", numcodecs.BitRound(9)),
    ]:
        store = MemoryStore()
        array = zarr.create_array(store, shape=(9,), chunks=(4,), dtype=dtype, zarr_format=2, filters=codec)
        check_against_zarr(array, store, sample(dtype, (9,)))


def test_v2_blosc_takes_the_item_size_behind_filters():
    zarray = zdoc(
        dtype="<f8",
        fill_value=0.0,
        filters=[{"id": "quantize", "digits": 1, "dtype": "<f8", "astype": "<f4"}],
        compressor={"id": "blosc", "cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
    )
    assert v2.parse_array(zarray).codecs[-1].label == "blosc(lz4, shuffle 4)"


@pytest.mark.parametrize(
    ("codec", "items"),
    [
        ({"id": "vlen-utf8"}, ["a", "", "δ", "x" * 50]),
        ({"id": "vlen-bytes"}, [b"a", b"", b"\0\1", b"x" * 50]),
        ({"id": "vlen-array", "dtype": "<i2"}, [np.arange(n, dtype="i2") for n in (1, 0, 5, 2)]),
        ({"id": "json2"}, ["a", None, {"k": [1]}, 2.5]),
        ({"id": "msgpack2"}, ["a", None, {"k": [1]}, 2.5]),
        ({"id": "pickle"}, ["a", None, {"k": (1,)}, 2j]),
        ({"id": "categorize", "labels": ["x", "y"], "dtype": "|O", "astype": "|u1"}, ["x", "y", "", "x"]),
    ],
    ids=lambda value: value["id"] if isinstance(value, dict) else "",
)
def test_v2_objects(codec, items):
    import numcodecs

    array = np.empty(4, object)
    for i, item in enumerate(items):
        array[i] = item
    data = numcodecs.get_codec(codec).encode(array)
    zarray = zdoc(
        shape=[4], chunks=[4], dtype="|O", fill_value=None, filters=[codec], compressor={"id": "zlib", "level": 1}
    )
    ours = v2.parse_array(zarray, allow_pickle=True)
    chunk = ArrayRepresentation((4,), np.dtype(object))
    decoded = ours.codecs[0].decode(np.asarray(data).tobytes() if isinstance(data, np.ndarray) else data, chunk)
    assert decoded.dtype == np.dtype(object)
    assert all(
        np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b for a, b in zip(decoded, items, strict=True)
    )
    if codec["id"] == "pickle":
        with pytest.raises(UnsupportedError, match="allow_pickle=True"):
            v2.parse_array(zarray)


# -- fill values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data_type", "value", "raw"),
    [
        ("float32", "NaN", "0000c07f"),
        ("float32", "0x7fc00001", "0100c07f"),
        ("float64", "-Infinity", "000000000000f0ff"),
        ("float16", "0x3c00", "003c"),
        ("float32", 1, "0000803f"),
        ("complex64", ["NaN", "0x3f800000"], "0000c07f0000803f"),
        ("int8", -128, "80"),
        ("uint64", 2**64 - 1, "ff" * 8),
        ("bool", True, "01"),
        ("r24", [1, 2, 255], "0102ff"),
        ("r24", "AQL/", "0102ff"),
        ({"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}, "NaT", "00" * 7 + "80"),
        ({"name": "numpy.timedelta64", "configuration": {"unit": "μs", "scale_factor": 5}}, 3, "03" + "00" * 7),
        ({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}}, "a", "61" + "00" * 7),
        ({"name": "null_terminated_bytes", "configuration": {"length_bytes": 3}}, "YQ==", "610000"),
        (
            {"name": "struct", "configuration": {"fields": [{"name": "a", "data_type": "uint8"}]}},
            {"a": 7},
            "07",
        ),
    ],
    ids=str,
)
def test_v3_fill_values(data_type, value, raw):
    ours = v3.parse_array(doc(data_type=data_type, fill_value=value))
    assert np.asarray(ours.fill_value).astype(ours.dtype.newbyteorder("<")).tobytes().hex() == raw
    again = fill_value.to_v3(ours.fill_value, ours.dtype)
    assert same(fill_value.from_v3(again, ours.dtype, ours.data_type), ours.fill_value)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        ("<f8", "NaN", np.float64("nan")),
        (">f4", "-Infinity", np.float32("-inf")),
        ("<f8", None, None),
        ("<f8", "1.5", np.float64(1.5)),
        ("<i4", 3.0, np.int32(3)),
        ("<c16", ["NaN", 1.0], np.array([np.nan, 1.0]).view("c16")[0]),
        ("<c8", 2, np.complex64(2)),
        ("|b1", 1, np.bool_(True)),
        ("|S3", "YQ==", np.bytes_(b"a")),
        ("|S3", 0, np.bytes_(b"")),
        ("|S3", "a b", np.bytes_(b"a b")),
        ("<U3", "ab", np.str_("ab")),
        (">U3", 0, np.str_("")),
        ("|V2", "AQI=", np.void(b"\x01\x02")),
        ("<M8[s]", "NaT", np.datetime64("NaT", "s")),
        ("<m8[s]", 5, np.timedelta64(5, "s")),
        ([["a", ">i2"], ["b", "|u1"]], "AAEC", np.array((1, 2), [("a", "i2"), ("b", "u1")])[()]),
        ([["a", "<i2", [2]]], "AQACAA==", np.array(([1, 2],), [("a", "i2", (2,))])[()]),
    ],
    ids=str,
)
def test_v2_fill_values(dtype, value, expected):
    ours = v2.parse_array(zdoc(dtype=dtype, fill_value=value))
    if expected is None:
        assert ours.fill_value is None
        return
    assert type(ours.fill_value) is type(expected)
    assert ours.fill_value.dtype.isnative
    assert same(ours.fill_value, np.asarray(expected, ours.dtype))
    again = fill_value.to_v2(ours.fill_value, parse_v2(dtype))
    assert same(fill_value.from_v2(again, parse_v2(dtype)), ours.fill_value)


@pytest.mark.parametrize("value", [True, False, 0, 1.5, 1e20, 2**70, -1e-7, float("nan"), float("-inf")], ids=repr)
def test_numbers_as_fill_values_of_strings_in_v2(value):
    store = MemoryStore()
    zarr.create_array(store, shape=(2,), chunks=(1,), dtype=str, zarr_format=2, fill_value="x")
    values = values_of(store)
    values[".zarray"] = json.dumps({**json.loads(values[".zarray"]), "fill_value": value}).encode()
    written = MemoryStore({key: default_buffer_prototype().buffer.from_bytes(data) for key, data in values.items()})
    expected = zarr.open_array(written, mode="r")[...].tolist()
    assert read(values, parse(values)).tolist() == expected


def test_numbers_that_python_does_not_print():
    with pytest.raises(MetadataError, match="an integer of 16610 bits> is not a fill value of strings"):
        v2.parse_array(zdoc(dtype="|O", filters=[{"id": "vlen-utf8"}], fill_value=10**5000))


# -- groups and consolidated metadata ----------------------------------------------------------------------------------


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated_as_zarr_python(zarr_format):
    store = MemoryStore()
    root = zarr.create_group(store, zarr_format=zarr_format, attributes={"k": 1})
    root.create_array("x", shape=(3,), dtype="i2", fill_value=7)
    root.create_group("a/b").create_array("y", shape=(4, 5), dtype="f4")
    zarr.consolidate_metadata(store, zarr_format=zarr_format)
    values = values_of(store)
    group = parse(values)
    assert isinstance(group, GroupMetadata)
    assert group.attributes == {"k": 1}
    if zarr_format == 2:
        nodes = v2.parse_consolidated(load_document(values[".zmetadata"], ".zmetadata"))
        assert nodes[""].attributes == {"k": 1}
        nodes = {path: node for path, node in nodes.items() if path}
    else:
        nodes = group.consolidated
    assert sorted(nodes) == ["a", "a/b", "a/b/y", "x"]
    assert isinstance(nodes["a/b"], GroupMetadata)
    assert (nodes["x"].fill_value, nodes["x"].dtype) == (7, np.dtype("i2"))
    assert nodes["a/b/y"].shape == (4, 5)


def test_consolidated_nested_groups_are_flattened():
    inner = {"kind": "inline", "must_understand": False, "metadata": {"y": doc(shape=[2], chunk=[2])}}
    nested = {"zarr_format": 3, "node_type": "group", "consolidated_metadata": inner}
    outer = {"kind": "inline", "must_understand": False, "metadata": {"g": nested}}
    group = v3.parse_group({"zarr_format": 3, "node_type": "group", "consolidated_metadata": outer})
    assert sorted(group.consolidated) == ["g", "g/y"]
    assert group.consolidated["g"].consolidated is None
    assert group.consolidated["g/y"].shape == (2,)


def test_consolidated_node_that_cannot_be_used_gives_its_error():
    inline = {"kind": "inline", "must_understand": False, "metadata": {"y": doc(codecs=["nonsense"]), "z": doc()}}
    group = v3.parse_group({"zarr_format": 3, "node_type": "group", "consolidated_metadata": inline})
    assert isinstance(group.consolidated["z"], ArrayMetadata)
    assert isinstance(group.consolidated["y"], UnsupportedError)
    assert "'y'" in str(group.consolidated["y"])
    nodes = v2.parse_consolidated({"zarr_consolidated_format": 1, "metadata": {"y/.zarray": zdoc(order="X")}})
    assert isinstance(nodes["y"], MetadataError)


@pytest.mark.parametrize("path", ["../x", "/x", "a//b", "a/./b", "", "a/.."])
def test_consolidated_paths_stay_inside(path):
    inline = {"kind": "inline", "must_understand": False, "metadata": {path: doc()}}
    with pytest.raises(MetadataError, match="not the path"):
        v3.parse_group({"zarr_format": 3, "node_type": "group", "consolidated_metadata": inline})
    if path:
        with pytest.raises(MetadataError, match="not the path"):
            v2.parse_consolidated({"zarr_consolidated_format": 1, "metadata": {f"{path}/.zarray": zdoc()}})


# -- what is refused ---------------------------------------------------------------------------------------------------


def doc(*, chunk=(2, 3), **changes):
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [4, 6],
        "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunk)}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
    }
    return {**document, **changes}


def zdoc(**changes):
    document = {
        "zarr_format": 2,
        "shape": [4, 6],
        "chunks": [2, 3],
        "dtype": "<i4",
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": None,
    }
    return {**document, **changes}


def shard(**changes):
    values = {
        "chunk_shape": [1, 3],
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        "index_location": "end",
    }
    return [{"name": "sharding_indexed", "configuration": {**values, **changes}}]


LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}


def bytes_and(name, **configuration):
    return [LITTLE, {"name": name, "configuration": configuration}]


def nested_shards(depth):
    codecs = [LITTLE]
    for _ in range(depth):
        codecs = shard(chunk_shape=[2, 3], codecs=codecs)
    return codecs


V3_REFUSED = [
    ({"zarr_format": 2}, "$.zarr_format"),
    ({"zarr_format": 3.5}, "$.zarr_format"),
    ({"node_type": "group"}, "$.node_type"),
    ({"shape": [4]}, "$.chunk_grid.configuration.chunk_shape"),
    ({"shape": [-1, 6]}, "$.shape[0]"),
    ({"shape": [2**63, 6]}, "$.shape[0]"),
    ({"shape": [True, 6]}, "$.shape[0]"),
    ({"shape": "46"}, "$.shape"),
    ({"shape": [1] * 40}, "$.shape"),
    ({"chunk": [0, 3]}, "$.chunk_grid.configuration.chunk_shape[0]"),
    ({"chunk": [2.5, 3]}, "$.chunk_grid.configuration.chunk_shape[0]"),
    ({"chunk": [2**20, 2**20]}, "$.chunk_grid.configuration.chunk_shape"),
    ({"chunk_grid": {"name": "rectangular", "configuration": {}}}, "$.chunk_grid"),
    ({"chunk_grid": {"name": "regular"}}, "$.chunk_grid.configuration"),
    ({"chunk_key_encoding": {"name": "odd"}}, "$.chunk_key_encoding"),
    (
        {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "-"}}},
        "$.chunk_key_encoding.configuration.separator",
    ),
    ({"data_type": "float1"}, "$.data_type"),
    ({"data_type": {"name": "int32", "configuration": {"x": 1}}}, "$.data_type.configuration"),
    ({"data_type": "r7"}, "$.data_type"),
    ({"data_type": "r99999999999"}, "$.data_type"),
    ({"data_type": None}, "$.data_type"),
    ({"fill_value": 2**31}, "$.fill_value"),
    ({"fill_value": 0.5}, "$.fill_value"),
    ({"fill_value": 10**5000}, "$.fill_value"),
    ({"data_type": "float16", "fill_value": "1e6"}, "$.fill_value"),
    ({"codecs": None}, "$.codecs"),
    ({"codecs": "bytes"}, "$.codecs"),
    ({"codecs": ["bytes"]}, "$.codecs[0].configuration"),
    ({"codecs": [LITTLE, LITTLE]}, "$.codecs"),
    ({"codecs": [*bytes_and("gzip", level=1)[::-1]]}, "$.codecs[1]"),
    ({"codecs": ["vlen-utf8"]}, None),
    ({"codecs": bytes_and("unheard-of")}, "$.codecs[1]"),
    ({"codecs": bytes_and("numcodecs.unheard-of")}, "$.codecs[1].configuration"),
    ({"codecs": bytes_and("gzip", level=10)}, "$.codecs[1].configuration.level"),
    ({"codecs": bytes_and("gzip", level=True)}, "$.codecs[1].configuration.level"),
    ({"codecs": bytes_and("gzip", level=1, window=3)}, "$.codecs[1].configuration.window"),
    ({"codecs": bytes_and("zstd", level=23)}, "$.codecs[1].configuration.level"),
    ({"codecs": bytes_and("zstd", level=3, checksum=1)}, "$.codecs[1].configuration.checksum"),
    ({"codecs": bytes_and("crc32c", bits=1)}, "$.codecs[1].configuration.bits"),
    (
        {"codecs": bytes_and("blosc", cname="lz5", clevel=1, shuffle="noshuffle")},
        "$.codecs[1].configuration.cname",
    ),
    (
        {"codecs": bytes_and("blosc", cname="lz4", clevel=1, shuffle="shuffle", typesize=0)},
        "$.codecs[1].configuration.typesize",
    ),
    ({"codecs": [{"name": "bytes", "configuration": {"endian": "middle"}}]}, "$.codecs[0].configuration.endian"),
    ({"codecs": [{"name": "bytes", "extra": 1}]}, "$.codecs[0]"),
    ({"codecs": [{"configuration": {}}]}, "$.codecs[0].name"),
    ({"codecs": [3]}, "$.codecs[0]"),
    (
        {"codecs": [{"name": "transpose", "configuration": {"order": [0, 0]}}, LITTLE]},
        "$.codecs[0].configuration.order",
    ),
    ({"codecs": [{"name": "transpose", "configuration": {"order": [0]}}, LITTLE]}, "$.codecs[0].configuration.order"),
    (
        {"codecs": [{"name": "transpose", "configuration": {"order": [1, -1]}}, LITTLE]},
        "$.codecs[0].configuration.order",
    ),
    ({"codecs": [LITTLE, {"name": "transpose", "configuration": {"order": [1, 0]}}]}, "$.codecs[1]"),
    ({"codecs": shard(chunk_shape=[1, 2])}, "$.codecs[0].configuration.chunk_shape[1]"),
    ({"codecs": shard(chunk_shape=[1])}, "$.codecs[0].configuration.chunk_shape"),
    ({"codecs": shard(chunk_shape=[0, 3])}, "$.codecs[0].configuration.chunk_shape"),
    ({"codecs": shard(codecs=[])}, "$.codecs[0].configuration.codecs"),
    ({"codecs": shard(codecs=["bytes"])}, "$.codecs[0].configuration.codecs[0].configuration"),
    ({"codecs": shard(index_codecs=bytes_and("gzip", level=1))}, "$.codecs[0].configuration.index_codecs"),
    ({"codecs": shard(index_location="middle")}, "$.codecs[0].configuration.index_location"),
    ({"codecs": nested_shards(20)}, None),
    ({"storage_transformers": [{"name": "x"}]}, "$.storage_transformers[0]"),
    ({"dimension_names": ["x"]}, "$.dimension_names"),
    ({"dimension_names": ["x", 1]}, "$.dimension_names"),
    ({"attributes": [1]}, "$.attributes"),
    ({"surprise": 1}, "$.surprise"),
    ({"surprise": {"must_understand": True}}, "$.surprise"),
    ({"consolidated_metadata": {"kind": "inline", "metadata": {}}}, "$.consolidated_metadata"),
]


@pytest.mark.parametrize(("changes", "json_path"), V3_REFUSED, ids=lambda value: quote(value)[:60])
def test_v3_refused(changes, json_path):
    with pytest.raises(MetadataError) as error:
        v3.parse_array(doc(**changes))
    assert json_path in (None, error.value.json_path), str(error.value)
    assert len(str(error.value)) < 1000


# Without "codecs": the draft of 2023, see test_departures.
@pytest.mark.parametrize("name", sorted(doc().keys() - {"codecs"}))
def test_v3_missing_members(name):
    document = doc()
    del document[name]
    with pytest.raises(MetadataError, match=name):
        v3.parse_array(document)


def test_v3_understood_without_understanding():
    ours = v3.parse_array(
        doc(
            surprise={"must_understand": False, "name": "x"},
            storage_transformers=[],
            codecs=[LITTLE, {"name": "unheard-of", "must_understand": False}, {"name": "crc32c"}],
            chunk_key_encoding="v2",
        )
    )
    assert [codec.label for codec in ours.codecs] == ["bytes", "crc32c"]
    assert ours.chunk_key_encoding == ChunkKeyEncoding("v2", ".")
    assert v3.parse_array(doc()).chunk_key_encoding == ChunkKeyEncoding("default", "/")
    assert v3.parse_array(doc(data_type="uint8", codecs=["bytes", "crc32c"])).codecs[0].label == "bytes"


def test_v3_no_dimensions_and_no_elements():
    assert v3.parse_array(doc(shape=[], chunk=[])).grid_shape == ()
    assert v3.parse_array(doc(shape=[0, 6])).grid_shape == (0, 2)
    assert v3.parse_array(doc(shape=[0, 6], chunk=[0, 6])).chunk_shape == (1, 6)
    assert v3.parse_array(doc(shape=[2**62, 2**62])).size == 2**124


V2_REFUSED = [
    ({"zarr_format": 3}, "$.zarr_format"),
    ({"shape": None}, "$.shape"),
    ({"chunks": [2]}, "$.chunks"),
    ({"chunks": [0, 3]}, "$.chunks[0]"),
    ({"chunks": [2**21, 2**21]}, "$.chunks"),
    ({"dtype": "i4"}, "$.dtype"),
    ({"dtype": "|i4"}, "$.dtype"),
    ({"dtype": "<i3"}, "$.dtype"),
    ({"dtype": "<f16"}, "$.dtype"),
    ({"dtype": "|S0"}, "$.dtype"),
    ({"dtype": "|V9999999999"}, "$.dtype"),
    ({"dtype": "<M8[fortnight]"}, "$.dtype"),
    ({"dtype": []}, "$.dtype"),
    ({"dtype": [["a", "<i4"], ["a", "<i4"]]}, "$.dtype[1]"),
    ({"dtype": [["a", "|O"]]}, "$.filters"),
    ({"dtype": [["a", "<i4", [-1]]]}, "$.dtype[0][2]"),
    ({"dtype": [["a", "<i4", [2**30, 2**30]]]}, "$.dtype"),
    ({"dtype": [["a"]]}, "$.dtype[0]"),
    ({"dtype": "|O"}, "$.filters"),
    ({"dtype": "|O", "filters": [{"id": "shuffle"}]}, "$.filters[0]"),
    ({"dtype": "|O", "compressor": {"id": "zlib"}}, "$.compressor"),
    ({"filters": [{"id": "delta", "dtype": "<i4"}, {"id": "vlen-utf8"}]}, "$.filters[1]"),
    ({"filters": {"id": "delta"}}, "$.filters"),
    ({"filters": [{"id": "delta"}]}, "$.filters[0]"),
    ({"filters": [{"id": "delta", "dtype": "|O"}]}, "$.filters[0].dtype"),
    ({"filters": [{"id": "delta", "dtype": "V2000000000"}]}, "$.filters[0].dtype"),
    ({"filters": [{"id": "delta", "dtype": "<f8"}], "chunks": [1, 1]}, "$.filters[0]"),
    ({"filters": [{"id": "shuffle", "elementsize": 5}]}, "$.filters[0]"),
    ({"filters": [{"id": "bitround", "keepbits": 3}]}, "$.filters"),
    ({"compressor": {}}, "$.compressor.id"),
    ({"compressor": "zlib"}, "$.compressor"),
    ({"compressor": {"id": "unheard-of"}}, "$.compressor"),
    ({"compressor": {"id": "zlib", "level": 11}}, "$.compressor.level"),
    ({"compressor": {"id": "zlib", "speed": 1}}, "$.compressor.speed"),
    ({"compressor": {"id": "blosc", "shuffle": 3}}, "$.compressor.shuffle"),
    ({"compressor": {"id": "lzma", "format": 3}}, "$.compressor.filters"),
    ({"order": "A"}, "$.order"),
    ({"dimension_separator": "-"}, "$.dimension_separator"),
    ({"fill_value": "x"}, "$.fill_value"),
    ({"dtype": "|V3", "fill_value": "AQ=="}, "$.fill_value"),
    ({"dtype": "<c8", "fill_value": [1]}, "$.fill_value"),
    ({"dtype": "<M8[s]", "fill_value": 2**63}, "$.fill_value"),
]


@pytest.mark.parametrize(("changes", "json_path"), V2_REFUSED, ids=lambda value: quote(value)[:60])
def test_v2_refused(changes, json_path):
    with pytest.raises(MetadataError) as error:
        v2.parse_array(zdoc(**changes))
    assert error.value.json_path == json_path, str(error.value)


def test_v2_unknown_members_and_attributes():
    assert v2.parse_array(zdoc(extra=1), {"_ARRAY_DIMENSIONS": ["x"], "k": 1}).dimension_names is None
    with pytest.raises(MetadataError):
        v2.parse_array(zdoc(), [1])
    with pytest.raises(MetadataError):
        v2.parse_group({"zarr_format": 3})
    with pytest.raises(UnsupportedError):
        v2.parse_consolidated({"zarr_consolidated_format": 2, "metadata": {}})


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "empty"),
        (b"{", "not valid JSON"),
        (b"[]", "expected a JSON object"),
        (b'{"a": 1, "a": 2}', "'a' occurs twice"),
        (b'{"a": {"b": 1, "b": 1}}', "'b' occurs twice"),
        (b'{"a": "\xff"}', "UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b'{"a": ' * 200 + b"1" + b"}" * 200, f"more than {MAX_DEPTH} deep"),
        (b'{"a": ' + b"[" * 100_000, "too deep"),
        (b'{"a": ' + b"1" * 5000 + b"}", "digits"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_json_refused(data, match):
    with pytest.raises(MetadataError, match=match) as error:
        load_document(data, "a/zarr.json")
    assert error.value.key == "a/zarr.json"
    assert "a/zarr.json" in str(error.value)


def test_json_understood():
    assert load_document(b'\xef\xbb\xbf{"a": [NaN, -Infinity]}', "k")["a"][1] == float("-inf")
    assert np.isnan(
        v2.parse_array(load_document(json.dumps(zdoc(dtype="<f4", fill_value=np.nan)).encode(), "k")).fill_value
    )


def test_json_too_long(monkeypatch):
    monkeypatch.setattr("gzarr.documents.json.MAX_DOCUMENT_BYTES", 10)
    with pytest.raises(MetadataError, match="more than 10"):
        load_document(b'{"a": 1234567}', "k")


def test_data_types_and_units():
    assert parse_v3("float64") == (np.dtype("f8"), "float64")
    assert parse_v3("r16")[0] == np.dtype("V2")
    units = {"<c8": 4, ">U3": 4, "|S9": 1, "|b1": 1, "<M8[s]": 8, "<f2": 2}
    assert {text: swap_unit(parse_v2(text)) for text in units} == units
    assert swap_unit(parse_v2([["a", "<i2"], ["b", "<u2", [3]]])) == 2
    assert swap_unit(parse_v2([["a", "<i2"], ["b", "<u4"]])) is None


def test_operations_of_bytes():
    def operation(dtype, **changes):
        ours = v2.parse_array(zdoc(dtype=dtype, fill_value=None, **changes))
        codec = next(codec for codec in ours.codecs if codec.kind == "array_to_bytes")
        steps = codec.operations(ArrayRepresentation((2, 3), ours.dtype))
        return None if steps is None else steps[0].params

    assert operation("<i4") == (0,)
    assert operation(">i4") == (4,)
    assert operation(">c16") == (8,)
    assert operation(">U7") == (4,)
    assert operation([["a", ">i4"], ["b", ">f4"]]) == (4,)
    assert operation([["a", ">i4"], ["b", ">f8"]]) is None
    assert operation([["a", ">i4"], ["b", "<f4"]]) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert operation("|S3") == (0,)
