"""What real writers wrote beside the specification, read as they, or the readers that users compare with, mean it."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numcodecs
import numpy as np
import pytest
import tensorstore
import zarr

import gzarr
from gzarr.cli.main import main

DATA = np.arange(12, dtype="<i4")
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
BLOSC = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0}


def v2(chunk: bytes, attributes: Any = None, **members: Any) -> dict[str, bytes]:
    document = {
        "zarr_format": 2,
        "shape": [12],
        "chunks": [12],
        "dtype": "<i4",
        "compressor": None,
        "fill_value": 0,
        "order": "C",
        "filters": [{"id": "shuffle", "elementsize": 0}],
        **members,
    }
    values = {".zarray": json.dumps(document).encode(), "0": bytes(chunk)}
    return values if attributes is None else {**values, ".zattrs": json.dumps(attributes).encode()}


def v3(chunk: bytes | None = None, **members: Any) -> dict[str, bytes]:
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [12],
        "data_type": "int32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [12]}},
        "chunk_key_encoding": {"name": "default"},
        "fill_value": 0,
        "codecs": [LITTLE],
        **members,
    }
    values = {"zarr.json": json.dumps(document).encode()}
    return values if chunk is None else {**values, "c/0": bytes(chunk)}


def departures(values: dict[str, bytes], tmp_path: Any, capsys: Any) -> str:
    """Return what ``info --strict`` says of an array."""
    for key, value in values.items():
        (tmp_path / key).parent.mkdir(exist_ok=True)
        (tmp_path / key).write_bytes(value)
    assert main(["info", "--strict", str(tmp_path)]) != 0
    captured = capsys.readouterr()
    return str(captured.out + captured.err)


@pytest.mark.parametrize("compressor", [None, {"id": "zlib", "level": 1}])
@pytest.mark.parametrize("attributes", [None, {}, {"units": "m"}])
def test_no_shuffle_of_numcodecs(compressor: Any, attributes: Any, tmp_path: Any, capsys: Any) -> None:
    """As in numcodecs' own fixtures: elements of 0 bytes are not shuffled."""
    chunk = bytes(numcodecs.Shuffle(0).encode(DATA))
    if compressor is not None:
        chunk = numcodecs.Zlib(1).encode(chunk)
    values = v2(chunk, attributes, compressor=compressor)
    array = gzarr.open_array(values, mode="r+")
    np.testing.assert_array_equal(array[...], DATA)
    assert "no shuffle, as numcodecs takes 0" in departures(values, tmp_path, capsys)
    np.testing.assert_array_equal(zarr.open_array(tmp_path, mode="r")[...], DATA)
    array[...] = DATA * 2
    for key, value in values.items():
        (tmp_path / key).write_bytes(value)
    np.testing.assert_array_equal(zarr.open_array(tmp_path, mode="r")[...], DATA * 2)


@pytest.mark.parametrize(
    ("attributes", "members"),
    [
        ({"_ARRAY_DIMENSIONS": ["x"]}, {}),
        ({"_nczarr_attr": {"types": {}}}, {}),
        ({"_NCZARR_ATTR": {"types": {}}}, {"compressor": None}),
        (None, {"_nczarr_array": {"dimrefs": ["/x"]}}),
        (None, {"_NCZARR_ARRAY": {"dimrefs": ["/x"]}}),
        (None, {"filters": [{"id": "shuffle", "elementsize": "0"}], "compressor": None}),
    ],
)
def test_shuffle_of_netcdf(attributes: Any, members: Any, tmp_path: Any, capsys: Any) -> None:
    members = {"compressor": {"id": "zlib", "level": 1}, **members}
    chunk = bytes(numcodecs.Shuffle(4).encode(DATA))
    chunk = chunk if members["compressor"] is None else numcodecs.Zlib(1).encode(chunk)
    values = v2(chunk, attributes, **members)
    np.testing.assert_array_equal(gzarr.open_array(values)[...], DATA)
    assert "netCDF-C derives it from the data type; read as 4" in departures(values, tmp_path, capsys)


@pytest.mark.parametrize(("value", "expected"), [(0, False), (1, True), (0.0, False), (1.0, True)])
def test_numbers_for_truth(value: Any, expected: bool, tmp_path: Any, capsys: Any) -> None:
    values = v3(data_type="bool", fill_value=value, codecs=[{"name": "bytes"}])
    assert gzarr.open_array(values)[...].tolist() == [expected] * 12
    assert f"{value} in place of {str(expected).lower()}" in departures(values, tmp_path, capsys)
    np.testing.assert_array_equal(zarr.open_array(tmp_path, mode="r")[...], expected)
    with pytest.raises(gzarr.MetadataError, match="expected true or false"):
        gzarr.open_array(v3(data_type="bool", fill_value=2, codecs=[{"name": "bytes"}]))


@pytest.mark.parametrize("sharded", [False, True])
def test_a_shuffle_of_blosc_without_a_size(sharded: bool, tmp_path: Any, capsys: Any) -> None:
    codecs: list[Any] = [LITTLE, {"name": "blosc", "configuration": BLOSC}]
    if sharded:
        index = [LITTLE, {"name": "crc32c"}]
        inner = {"chunk_shape": [6], "codecs": codecs, "index_codecs": index, "index_location": "end"}
        codecs = [{"name": "sharding_indexed", "configuration": inner}]
    values = v3(codecs=codecs)
    array = gzarr.open_array(values, mode="r+")
    assert "shuffle 4" in array.decode_path
    array[...] = DATA
    assert "without a typesize" in departures(values, tmp_path, capsys)
    np.testing.assert_array_equal(zarr.open_array(tmp_path, mode="r")[...], DATA)
    np.testing.assert_array_equal(gzarr.open_array(values)[...], DATA)


@pytest.mark.parametrize("codec", [{"name": "gzip"}, {"name": "gzip", "configuration": {}}])
def test_gzip_without_a_level(codec: Any, tmp_path: Any, capsys: Any) -> None:
    values = v3(numcodecs.GZip(5).encode(DATA), codecs=[LITTLE, codec])
    np.testing.assert_array_equal(gzarr.open_array(values)[...], DATA)
    assert "gzip without a level" in departures(values, tmp_path, capsys)


@pytest.mark.parametrize("data_type", ["float16", "float32", "float64"])
def test_null_of_javascript(data_type: str, tmp_path: Any, capsys: Any) -> None:
    """As zarrita.js writes it by default, and before 0.7 for NaN; it reads zeros in either case."""
    values = v3(data_type=data_type, fill_value=None)
    array = gzarr.open_array(values)
    assert array[...].tolist() == [0] * 12
    assert array.fill_value is None
    assert "missing chunks read as zeros" in departures(values, tmp_path, capsys)
    assert gzarr.copy(tmp_path, {}, device="cpu")[...].tolist() == [0] * 12


def transposed(order: Any, *, sharded: bool) -> dict[str, Any]:
    """Return members of a document with a transposition of 2 × 3 × 2 elements."""
    codecs: list[Any] = [{"name": "transpose", "configuration": {} if order is ... else {"order": order}}, LITTLE]
    if sharded:
        index = [{"name": "transpose", "configuration": {"order": "F"}}, LITTLE, {"name": "crc32c"}]
        codecs = [
            {
                "name": "sharding_indexed",
                "configuration": {"chunk_shape": [1, 3, 2], "codecs": codecs, "index_codecs": index},
            }
        ]
    grid = {"name": "regular", "configuration": {"chunk_shape": [2, 3, 2]}}
    return {"shape": [2, 3, 2], "chunk_grid": grid, "codecs": codecs}


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize(
    ("order", "axes"), [("C", [0, 1, 2]), ("F", [2, 1, 0]), (..., [0, 1, 2])], ids=["C", "F", "none"]
)
def test_named_orders_of_a_transposition(
    order: Any, axes: list[int], sharded: bool, tmp_path: Any, capsys: Any
) -> None:
    """As zarrita.py and zarrita.js write them; tensorstore reads the names, and zarr-python integers only."""
    values = v3(**transposed(order, sharded=sharded))
    said = departures(values, tmp_path, capsys)
    assert f"in place of {axes}, as in a draft" in said
    assert ("in place of [3, 2, 1, 0]" in said) == sharded
    data = DATA.reshape(2, 3, 2)
    array = gzarr.open_array(tmp_path, mode="r+")
    array[...] = data
    array.attrs["written"] = "again"
    document = json.loads((tmp_path / "zarr.json").read_text())
    assert document["codecs"] == json.loads(values["zarr.json"])["codecs"]
    if order is not ...:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path)}}
        np.testing.assert_array_equal(tensorstore.open(spec).result().read().result(), data)
    # The same chunks under a document with integers, and a copy, by zarr-python.
    copied: dict[str, bytes] = {}
    gzarr.copy(tmp_path, copied, chunks=(1, 3, 2) if sharded else (2, 3, 1), device="cpu")
    spelled = transposed(axes, sharded=sharded)["codecs"]
    if sharded:
        spelled[0]["configuration"]["index_codecs"][0]["configuration"]["order"] = [3, 2, 1, 0]
    (tmp_path / "zarr.json").write_text(json.dumps({**document, "codecs": spelled}))
    np.testing.assert_array_equal(zarr.open_array(tmp_path, mode="r")[...], data)
    found = json.loads(copied["zarr.json"])["codecs"][0]["configuration"]
    assert (found["codecs"][0]["configuration"] if sharded else found)["order"] == axes
    np.testing.assert_array_equal(gzarr.open_array(copied)[...], data)


def test_other_names_of_orders() -> None:
    for order in ("K", "c", None, 1, ["F"], {}):
        with pytest.raises(gzarr.MetadataError) as caught:
            gzarr.open_array(v3(**transposed(order, sharded=False)))
        assert caught.value.json_path == "$.codecs[0].configuration.order"


NAMED_TWICE: dict[str, dict[str, Any]] = {
    "adler32": {},
    "astype": {"encode_dtype": "int64", "decode_dtype": "int32"},
    "blosc": {"cname": "lz4", "clevel": 5, "shuffle": 1, "blocksize": 0},
    "bz2": {"level": 1},
    "crc32": {},
    "crc32c": {},
    "delta": {"dtype": "int32"},
    "fixedscaleoffset": {"scale": 2, "offset": 1, "dtype": "int32", "astype": "int32"},
    "fletcher32": {},
    "gzip": {"level": 1},
    "jenkins_lookup3": {"initval": 0},
    "lz4": {"acceleration": 1},
    "lzma": {"preset": 1},
    "shuffle": {"elementsize": 4},
    "zlib": {"level": 3},
    "zstd": {"level": 1},
}


@pytest.mark.parametrize("name", sorted(NAMED_TWICE))
@pytest.mark.parametrize("sharded", [False, True])
def test_codecs_of_numcodecs_with_their_names_in_their_configuration(
    name: str, sharded: bool, tmp_path: Any, capsys: Any
) -> None:
    """As zarr-python 3.0.0 and 3.0.1 write them with numcodecs 0.14."""
    codec = {"name": f"numcodecs.{name}", "configuration": {"id": name, **NAMED_TWICE[name]}}
    filters = name in ("astype", "delta", "fixedscaleoffset")
    codecs: list[Any] = [codec, LITTLE] if filters else [LITTLE, codec]
    where = "$.codecs"
    if sharded:
        where = "$.codecs[0].configuration.codecs"
        index = [LITTLE, {"name": "crc32c"}]
        inner = {"chunk_shape": [6], "codecs": codecs, "index_codecs": index, "index_location": "end"}
        codecs = [{"name": "sharding_indexed", "configuration": inner}]
    values = v3(codecs=codecs)
    said = f"{where}[{0 if filters else 1}].configuration.id: the codec's name once more"
    assert said in departures(values, tmp_path, capsys)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zarr.open_array(tmp_path, mode="r+")[...] = DATA
    array = gzarr.open_array(tmp_path, mode="r+")
    np.testing.assert_array_equal(array[...], DATA)
    array.attrs["written"] = "again"
    assert '"id"' not in (tmp_path / "zarr.json").read_text()
    np.testing.assert_array_equal(gzarr.open_array(tmp_path)[...], DATA)


def test_other_names_in_configurations() -> None:
    bits = {"name": "numcodecs.bitround", "configuration": {"id": "bitround", "keepbits": 3}}
    assert gzarr.open_array(v3(data_type="float32", codecs=[bits, LITTLE])).dtype == np.float32
    for name, said in (("numcodecs.zlib", "gzip"), ("numcodecs.zlib", 3), ("gzip", "gzip")):
        codec = {"name": name, "configuration": {"id": said, "level": 1}}
        with pytest.raises(gzarr.MetadataError, match="does not know 'id'"):
            gzarr.open_array(v3(codecs=[LITTLE, codec]))


@pytest.mark.parametrize("order", ["C", "F"])
def test_raw_bytes_in_vlen_bytes(order: str) -> None:
    """As zarr-python 3.0.0 and 3.0.1 write them; newer versions do not read them."""
    items = [b"hello", b"\0\0\0\0\1", b"world", b"12345", b"abc\0\0", b"\0\0\0\0\0"]
    members = {"shape": [2, 3], "chunks": [2, 3], "dtype": "|V5", "fill_value": None, "order": order}
    chunk = numcodecs.VLenBytes().encode(np.array(items, object))
    values = v2(b"", filters=[{"id": "vlen-bytes"}], compressor={"id": "zstd", "level": 0}, **members)
    values["0.0"] = bytes(numcodecs.Zstd(0).encode(chunk))
    array = gzarr.open_array(values, mode="r+")
    expected = np.array(items, "V5").reshape((2, 3), order=order)  # type: ignore[call-overload]
    assert array[...].tobytes() == expected.tobytes()
    array[...] = expected[::-1]
    assert gzarr.open_array(values)[...].tobytes() == expected[::-1].tobytes()
    for wrong in (b"1234", b"123456", b""):
        chunk = numcodecs.VLenBytes().encode(np.array([wrong, *items[1:]], object))
        values["0.0"] = bytes(numcodecs.Zstd(0).encode(chunk))
        with pytest.raises(gzarr.ChunkDecodeError, match=f"an item of {len(wrong)} bytes, expected 5"):
            gzarr.open_array(values)[...]


def test_raw_bytes_in_pickles() -> None:
    values = np.array([b"hello", b"\0\0\0\0\1"], "V5")
    members = {"shape": [2], "chunks": [2], "dtype": "|V5", "fill_value": None}
    stored = v2(bytes(numcodecs.Pickle().encode(values)), filters=[{"id": "pickle", "protocol": 5}], **members)
    assert gzarr.open_array(stored, allow_pickle=True)[...].tobytes() == values.tobytes()


def test_records_are_no_raw_bytes() -> None:
    for dtype in ([["x", "|u1"]], "bfloat16"):
        with pytest.raises(gzarr.MetadataError, match="vlen-bytes holds items of any length"):
            gzarr.open_array(v2(b"", dtype=dtype, filters=[{"id": "vlen-bytes"}], fill_value=None))


@pytest.mark.parametrize("encoding", ["latin-1", "ISO-8859-1", "utf-16", "utf_16_be", "U32", "utf-32-le", "US-ASCII"])
def test_text_encodings_of_json2(encoding: str, tmp_path: Any) -> None:
    codec = numcodecs.JSON(encoding=encoding, ensure_ascii=False)
    text = "a" if "ASCII" in encoding else "\xe9"
    items = np.array([text, None, {text: [1]}, 2.5], object)
    members = {"shape": [4], "chunks": [4], "dtype": "|O", "fill_value": None}
    values = v2(bytes(codec.encode(items)), filters=[codec.get_config()], **members)
    array = gzarr.open_array(values, mode="r+")
    assert array[...].tolist() == items.tolist()
    array[0] = text * 2
    assert codec.decode(values["0"])[:2].tolist() == [text * 2, None]


@pytest.mark.parametrize(
    "encoding", ["rot13", "base64", "punycode", "idna", "unicode_escape", "utf-7", "cp037", "x" * 99, ""]
)
def test_other_encodings_of_json2(encoding: str) -> None:
    codec = {"id": "json2", "encoding": encoding}
    with pytest.raises(gzarr.MetadataError, match=r"needs one of 'ascii', 'utf-8', .* for 'encoding'") as caught:
        gzarr.open_array(v2(b"", dtype="|O", fill_value=None, filters=[codec]))
    assert caught.value.json_path == "$.filters[0].encoding"
