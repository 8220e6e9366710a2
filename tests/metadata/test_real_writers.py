"""What real writers wrote beside the specification, read as they, or the readers that users compare with, mean it."""

from __future__ import annotations

import json
from typing import Any

import numcodecs
import numpy as np
import pytest
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
    values = v3(data_type=data_type, fill_value=None)
    array = gzarr.open_array(values)
    assert np.isnan(array[...]).all()
    assert np.isnan(array.fill_value)
    assert "read as NaN" in departures(values, tmp_path, capsys)
    assert gzarr.open_array(v3(fill_value=None))[...].tolist() == [0] * 12
