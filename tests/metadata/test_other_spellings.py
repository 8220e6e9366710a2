"""Numbers, fill values and attributes that other programs spell otherwise: they are read, and written correctly."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final

import netCDF4
import numcodecs
import numpy as np
import pycurl  # noqa: F401  (before netCDF-C loads an older libcurl, beside which it cannot be imported)
import pytest
import xarray as xr
import zarr

import gzarr
from gzarr.documents.departures import collect

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ZARR_PYTHON = tuple(map(int, zarr.__version__.split(".")[:2]))
DATA = np.arange(12, dtype="<f4").reshape(3, 4)
V2: dict[str, Any] = {
    "zarr_format": 2, "shape": [3, 4], "chunks": [3, 4], "dtype": "<f4", "fill_value": 0, "order": "C",
    "filters": None, "compressor": None, "dimension_separator": ".",
}  # fmt: skip
V3: dict[str, Any] = {
    "zarr_format": 3, "node_type": "array", "shape": [3, 4], "data_type": "float32", "fill_value": 0,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 4]}},
    "chunk_key_encoding": {"name": "default"},
    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
}  # fmt: skip
V1: dict[str, Any] = {
    "zarr_format": 1, "shape": [3, 4], "chunks": [3, 4], "dtype": "<f4", "fill_value": 0, "order": "C",
    "compression": "zlib", "compression_opts": 1,
}  # fmt: skip


def of_v1(**members: Any) -> dict[str, bytes]:
    return {"meta": json.dumps({**V1, **members}).encode(), "attrs": b"{}"}


def of_v2(attributes: Any = None, **members: Any) -> dict[str, bytes]:
    values = {".zarray": json.dumps({**V2, **members}).encode()}
    return values if attributes is None else {**values, ".zattrs": json.dumps(attributes).encode()}


def of_v3(**members: Any) -> dict[str, bytes]:
    return {"zarr.json": json.dumps({**V3, **members}).encode()}


def document(values: dict[str, bytes]) -> dict[str, Any]:
    """Return the document of an array; it must be JSON by the standard."""

    def refuse(literal: str) -> None:
        raise AssertionError(literal)

    (key,) = (key for key in ("meta", ".zarray", "zarr.json") if key in values)
    return json.loads(values[key], parse_constant=refuse)  # type: ignore[no-any-return]


def opened(values: dict[str, bytes], *expected: str) -> gzarr.Array:
    """Open an array whose departures begin with these texts."""
    with collect() as found:
        array = gzarr.open_array(values, mode="r+")
    assert len(found) == len(expected), found
    assert all(text.startswith(start) for text, start in zip(sorted(found), sorted(expected), strict=True)), found
    return array


def on_disk(values: dict[str, bytes], path: Path) -> Path:
    path.mkdir(exist_ok=True)
    for key, value in values.items():
        (path / key).parent.mkdir(exist_ok=True, parents=True)
        (path / key).write_bytes(value)
    return path


class TestQuotedIntegers:
    """netCDF-C 4.9.0 to 4.9.3 wrote ``{"id": "zlib", "level": "4"}``, and the size of a shuffle in the same way."""

    @pytest.fixture(params=[False, True], ids=["", "shuffle"])
    def hierarchy(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        """Return a store of today's netCDF-C with the parameters of those releases."""
        path = tmp_path / "a"
        with netCDF4.Dataset(f"file://{path}#mode=zarr,file", "w") as dataset:
            dataset.createDimension("y", 3)
            dataset.createDimension("x", 4)
            options: Any = {"zlib": True, "complevel": 4, "shuffle": request.param, "chunksizes": (2, 3)}
            dataset.createVariable("v", "f4", ("y", "x"), **options)[...] = DATA
        changed = json.loads((path / "v/.zarray").read_text())
        changed["compressor"]["level"] = "4"
        for one in changed["filters"] or ():
            one["elementsize"] = "4"
        (path / "v/.zarray").write_text(json.dumps(changed))
        return path

    def test_netcdf(self, hierarchy: Path) -> None:
        with netCDF4.Dataset(f"file://{hierarchy}#mode=zarr,file") as dataset:
            np.testing.assert_array_equal(dataset["v"][...], DATA)
        if not json.loads((hierarchy / "v/.zarray").read_text())["filters"]:
            # numcodecs takes the text of a level, but not that of the size of a shuffle.
            np.testing.assert_array_equal(zarr.open_array(hierarchy, path="v", mode="r")[...], DATA)
        with collect() as found:
            array = gzarr.open_array(hierarchy, path="v", mode="r+")
        assert "$.compressor.level: '4' in place of 4, as netCDF-C 4.9 writes it" in found
        np.testing.assert_array_equal(array[...], DATA)
        with xr.open_dataset(hierarchy, engine="gzarr", consolidated=False) as dataset:
            np.testing.assert_array_equal(dataset["v"].values, DATA)
            assert dataset["v"].dims == ("y", "x")
        array[1:] = DATA[1:] * 2
        array.resize((4, 4))
        array.resize((3, 4))
        written = json.loads((hierarchy / "v/.zarray").read_text())
        assert written["compressor"]["level"] == 4
        assert [one["elementsize"] for one in written["filters"] or ()] in ([], [4])
        expected = np.concatenate([DATA[:1], DATA[1:] * 2])
        np.testing.assert_array_equal(gzarr.open_array(hierarchy, path="v")[...], expected)
        np.testing.assert_array_equal(zarr.open_array(hierarchy, path="v", mode="r")[...], expected)
        with netCDF4.Dataset(f"file://{hierarchy}#mode=zarr,file") as dataset:
            np.testing.assert_array_equal(dataset["v"][...], expected)

    def test_copies(self, hierarchy: Path, tmp_path: Path) -> None:
        for i, options in enumerate(({}, {"zarr_format": 3})):
            gzarr.copy(hierarchy, tmp_path / str(i), **options)
            np.testing.assert_array_equal(zarr.open_array(tmp_path / str(i), path="v", mode="r")[...], DATA)
        assert json.loads((tmp_path / "0/v/.zarray").read_text())["compressor"] == {"id": "zlib", "level": 4}

    @pytest.mark.parametrize(
        "codec", [numcodecs.Zstd(4), numcodecs.BZ2(4), numcodecs.Zlib(4), numcodecs.GZip(4)], ids=repr
    )
    def test_codecs(self, codec: Any, tmp_path: Path) -> None:
        values = of_v2(compressor={**codec.get_config(), "level": "4"})
        values["0.0"] = bytes(codec.encode(DATA))
        np.testing.assert_array_equal(zarr.open_array(on_disk(values, tmp_path), mode="r")[...], DATA)
        array = opened(values, "$.compressor.level: '4' in place of 4")
        np.testing.assert_array_equal(array[...], DATA)
        array.resize((3, 5))
        assert document(values)["compressor"]["level"] == 4

    def test_negative(self) -> None:
        opened(of_v2(compressor={"id": "zstd", "level": "-3"}), "$.compressor.level: '-3'")

    @pytest.mark.parametrize("level", ["", "x", "4.0", " 4", "+4", "٤", "10", "-2", "9" * 30, ["4"], None, True])
    def test_other_texts(self, level: Any) -> None:
        with pytest.raises(gzarr.MetadataError, match=r"compressor\.level.*an integer from -1 to 9"):
            gzarr.open_array(of_v2(compressor={"id": "zlib", "level": level}))

    def test_version_3_has_none(self) -> None:
        gzip = {"name": "gzip", "configuration": {"level": "4"}}
        with pytest.raises(gzarr.MetadataError, match="an integer from 0 to 9"):
            gzarr.open_array(of_v3(codecs=[*V3["codecs"], gzip]))

    def test_tail_of_a_shuffle_stays_a_text(self) -> None:
        """As an integer, the size would no longer say that the last bytes are as they were."""
        filters = [{"id": "fletcher32"}, {"id": "shuffle", "elementsize": "8"}]
        values = of_v2(shape=[3, 3], chunks=[3, 3], dtype="<f8", filters=filters)
        array = opened(values, "$.filters[1].elementsize")
        array[...] = DATA[:, :3]
        array.resize((4, 3))
        assert document(values)["filters"] == filters
        np.testing.assert_array_equal(gzarr.open_array(values)[:3], DATA[:, :3])

    def test_the_callers_codec_is_not_changed(self) -> None:
        given = {"id": "zlib", "level": 4.0}
        gzarr.create_array({}, data=DATA, zarr_format=2, compressors=given)
        assert given == {"id": "zlib", "level": 4.0}
        assert type(given["level"]) is float


FILLS: list[tuple[Callable[..., dict[str, bytes]], dict[str, Any], Any]] = [
    *((of, {}, fill) for of in (of_v1, of_v2, of_v3) for fill in (-1.7976931348623157e308, 3.4028236e38, 10**39)),
    (of_v2, {"dtype": ">f4"}, -3.4028236e38),
    (of_v2, {"dtype": "<f2"}, 65520),
    (of_v3, {"data_type": "float16"}, 65520),
    (of_v2, {"dtype": "<c8"}, [1e40, -1e40]),
    (of_v2, {"dtype": "<c8"}, [1e40, 2]),
    (of_v3, {"data_type": "complex64"}, [1e40, "NaN"]),
]


class TestFillValuesBeyondTheRange:
    """IEEE 754 rounds them to infinity, and so do zarr-python and tensorstore."""

    @pytest.mark.parametrize(("of", "members", "fill"), FILLS)
    def test_read_as_infinity(self, of: Any, members: dict[str, Any], fill: Any, tmp_path: Path) -> None:
        values = of(**members, fill_value=fill)
        array = opened(values, "$.fill_value: ")
        expected = array[...]
        assert np.isinf(expected.view(expected.real.dtype)).any()
        if of is not of_v1:
            theirs = zarr.open_array(on_disk(values, tmp_path / "a"), mode="r")
            np.testing.assert_array_equal(theirs[...], expected)
        array.attrs["a"] = 1
        array.resize((4, 4))
        np.testing.assert_array_equal(gzarr.open_array(values)[:3], expected)
        opened(values)
        copied: dict[str, bytes] = {}
        gzarr.copy(of(**members, fill_value=fill), copied)
        for those in (values, copied):
            assert "Infinity" in str(document(those)["fill_value"])
        if of is not of_v1:
            theirs = zarr.open_array(on_disk(copied, tmp_path / "b"), mode="r")
            np.testing.assert_array_equal(theirs[...], expected)

    def test_of_a_field(self) -> None:
        fields = [{"name": "a", "data_type": "float32"}, {"name": "b", "data_type": "int8"}]
        data_type = {"name": "struct", "configuration": {"fields": fields}}
        values = of_v3(data_type=data_type, fill_value={"a": -1e40, "b": 3})
        array = opened(values, "$.fill_value: ")
        assert array[0, 0].item() == (-np.inf, 3)
        array.attrs["a"] = 1
        assert document(values)["fill_value"] == {"a": "-Infinity", "b": 3}

    def test_within_the_range(self) -> None:
        """Also between the largest number and the first that is rounded to infinity."""
        for fill in (3.4028235e38, 3.40282356779e38):
            for values in (of_v2(fill_value=fill), of_v3(fill_value=fill)):
                array = opened(values)
                assert array.fill_value == np.finfo("f4").max
                array.resize((4, 4))
                assert document(values)["fill_value"] == fill

    def test_a_number_beyond_float64(self) -> None:
        values = {".zarray": of_v2(dtype="<f8", fill_value=7)[".zarray"].replace(b"7", b"-1e400")}
        array = gzarr.open_array(values, mode="r+")
        assert array.fill_value == -np.inf
        array.resize((4, 4))
        assert document(values)["fill_value"] == "-Infinity"

    def test_refused(self) -> None:
        with pytest.raises(gzarr.ArgumentError, match="is out of the range of float32"):
            gzarr.create_array({}, shape=(2,), dtype="f4", fill_value=-1.7976931348623157e308)
        for dtype, fill in (("int8", 200), ("float8_e4m3fn", 500), ("float32", "1e40")):
            with pytest.raises(gzarr.MetadataError, match="is not a fill value"):
                gzarr.open_array(of_v3(data_type=dtype, fill_value=fill))


class TestAttributesThatAreNoObject:
    @pytest.mark.parametrize("text", [b"null", b"[]"])
    @pytest.mark.parametrize("name", [".zarray", ".zgroup", "meta"])
    def test_none(self, text: bytes, name: str, tmp_path: Path) -> None:
        values = {"meta": of_v1, ".zarray": of_v2}.get(name, lambda: {name: b'{"zarr_format": 2}'})()
        key = "attrs" if name == "meta" else ".zattrs"
        values[key] = text
        with collect() as found:
            node = gzarr.open(values, mode="r+")
        assert found == [f"$: {text.decode()} in place of an object"]
        assert dict(node.attrs) == {}
        if (name, text) not in [("meta", text), (".zgroup", b"[]")]:
            # Later than 3.1, zarr-python refuses both.
            with pytest.raises(TypeError) if ZARR_PYTHON > (3, 1) else nullcontext():
                assert dict(zarr.open(on_disk(values, tmp_path), mode="r").attrs) == {}
        node.attrs["a"] = 1
        assert json.loads(values[key]) == {"a": 1}
        assert dict(gzarr.open(values).attrs) == {"a": 1}

    @pytest.mark.parametrize("attributes", [None, []])
    def test_of_version_3(self, attributes: Any, tmp_path: Path) -> None:
        values = of_v3(attributes=attributes)
        array = opened(values, "$.attributes: ")
        assert dict(array.attrs) == dict(zarr.open(on_disk(values, tmp_path), mode="r").attrs) == {}
        array.resize((3, 5))
        assert document(values)["attributes"] == {}
        array.attrs["a"] = 1
        assert document(values)["attributes"] == {"a": 1}

    @pytest.mark.parametrize("attributes", [None, []])
    def test_in_consolidated_metadata(self, attributes: Any) -> None:
        metadata = {".zgroup": {"zarr_format": 2}, ".zattrs": attributes, "a/.zarray": V2, "a/.zattrs": attributes}
        index = {"zarr_consolidated_format": 1, "metadata": metadata}
        group = gzarr.open_group({".zmetadata": json.dumps(index).encode()})
        assert dict(group.attrs) == dict(group["a"].attrs) == {}

    @pytest.mark.parametrize("attributes", [[1], 3, "x", False])
    def test_others_are_refused(self, attributes: Any) -> None:
        """Where zarr-python opens them, it fails once attributes are asked for."""
        with pytest.raises(gzarr.MetadataError, match="expected an object") as error:
            gzarr.open_array(of_v2(attributes))
        assert error.value.key == ".zattrs"
        with pytest.raises(gzarr.MetadataError, match=r"\$.attributes: expected an object"):
            gzarr.open_array(of_v3(attributes=attributes))


WHOLE: list[tuple[dict[str, bytes], set[str]]] = [
    (of_v1(zarr_format=1.0, shape=[3.0, 4]), {"$.zarr_format", "$.shape[0]"}),
    (of_v1(chunks=[3, 4.0]), {"$.chunks[1]"}),
    (of_v2(zarr_format=2.0), {"$.zarr_format"}),
    (of_v2(shape=[3.0, 4.0], chunks=[3.0, 4.0]), {"$.shape[0]", "$.shape[1]", "$.chunks[0]", "$.chunks[1]"}),
    (of_v2(compressor={"id": "zlib", "level": 4.0}), {"$.compressor.level"}),
    (of_v2(compressor={"id": "blosc", "clevel": 4.0, "shuffle": 1.0}), {"$.compressor.clevel", "$.compressor.shuffle"}),
    (of_v2(compressor={"id": "lzma", "preset": 4.0}), {"$.compressor.preset"}),
    (
        of_v2(compressor={"id": "lzma", "format": 3, "filters": [{"id": 33, "preset": 1.0}]}),
        {"$.compressor.filters[0].preset"},
    ),
    (of_v2(filters=[{"id": "shuffle", "elementsize": 4.0}]), {"$.filters[0].elementsize"}),
    (of_v2(dtype=[["a", "<f4", [2.0, 3.0]]], fill_value=None), {"$.dtype[0][2][0]", "$.dtype[0][2][1]"}),
    (of_v2(dtype="<i4", fill_value=3.0), set()),
    (of_v3(zarr_format=3.0, shape=[3.0, 4]), {"$.zarr_format", "$.shape[0]"}),
    (
        of_v3(chunk_grid={"name": "regular", "configuration": {"chunk_shape": [3.0, 4]}}),
        {"$.chunk_grid.configuration.chunk_shape[0]"},
    ),
    (
        of_v3(chunk_grid={"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": [[1.0, 2], 4.0]}}),
        {"$.chunk_grid.configuration.chunk_shapes[0][0]", "$.chunk_grid.configuration.chunk_shapes[1]"},
    ),
    (
        of_v3(codecs=[*V3["codecs"], {"name": "gzip", "configuration": {"level": 4.0}}]),
        {"$.codecs[1].configuration.level"},
    ),
    (
        of_v3(codecs=[{"name": "transpose", "configuration": {"order": [1.0, 0]}}, *V3["codecs"]]),
        {"$.codecs[0].configuration.order[0]"},
    ),
    (
        of_v3(codecs=[{"name": "reshape", "configuration": {"shape": [[0.0, 1], 1.0]}}, *V3["codecs"]]),
        {"$.codecs[0].configuration.shape[0][0]", "$.codecs[0].configuration.shape[1]"},
    ),
    (
        of_v3(
            codecs=[
                {
                    "name": "sharding_indexed",
                    "configuration": {
                        "chunk_shape": [3.0, 2],
                        "codecs": [*V3["codecs"], {"name": "zstd", "configuration": {"level": 1.0}}],
                        "index_codecs": V3["codecs"],
                    },
                }
            ]
        ),
        {"$.codecs[0].configuration.chunk_shape[0]", "$.codecs[0].configuration.codecs[1].configuration.level"},
    ),
    (
        of_v3(
            data_type={"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 2.0}}, fill_value=5.0
        ),
        {"$.data_type.configuration.scale_factor"},
    ),
    (of_v3(data_type="r16", codecs=["bytes"], fill_value=[1.0, 255.0]), set()),
]


def has_floats(value: Any) -> bool:
    if isinstance(value, list | dict):
        return any(map(has_floats, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


class TestFormatsAsTexts:
    """The webknossos library writes ``{"zarr_format": "2"}`` into each ``.zgroup``."""

    GROUPS: Final = (
        ({".zgroup": b'{"zarr_format": "2"}', ".zattrs": b'{"a": 1}'}, 2),
        ({"zarr.json": b'{"zarr_format": "3", "node_type": "group", "attributes": {"a": 1}}'}, 3),
    )

    @pytest.mark.parametrize(("values", "number"), GROUPS, ids=["2", "3"])
    def test_groups(self, values: dict[str, bytes], number: int, tmp_path: Path) -> None:
        values = dict(values)
        with collect() as found:
            group = gzarr.open_group(values, mode="r+")
        assert found == [f"$.zarr_format: '{number}' in place of {number}"]
        assert (group.zarr_format, dict(group.attrs)) == (number, {"a": 1})
        group["x"] = DATA
        copied = gzarr.copy(group, tmp_path / "copy")
        np.testing.assert_array_equal(copied["x"][...], DATA)
        gzarr.consolidate_metadata(values)
        for path in (on_disk(values, tmp_path / "own") if number == 3 else None, tmp_path / "copy"):
            if path is not None:
                theirs = zarr.open_group(path, mode="r")
                assert dict(theirs.attrs) == {"a": 1}
                np.testing.assert_array_equal(theirs["x"][...], DATA)

    @pytest.mark.parametrize("values", [of_v1(zarr_format="1"), of_v2(zarr_format="2"), of_v3(zarr_format="3")])
    def test_arrays(self, values: dict[str, bytes]) -> None:
        values = dict(values)
        array = opened(values, "$.zarr_format: ")
        array.resize((4, 4))
        assert type(document(values)["zarr_format"]) is int
        assert opened(values).zarr_format == array.zarr_format

    def test_in_consolidated_metadata(self) -> None:
        documents = {f"{i}/.zarray": {**V2, "zarr_format": "2"} for i in range(2)}
        index = {"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": "2"}, **documents}}
        group = gzarr.open_consolidated({".zmetadata": json.dumps(index).encode()})
        for node in (group, group["0"], group["1"]):
            (found,) = (value for name, value in node.metadata.document.items() if name != ".zattrs")
            assert found["zarr_format"] == 2

    @pytest.mark.parametrize("wrong", ["3", "2.0", " 2", "", "two"])
    def test_other_texts_are_refused(self, wrong: str) -> None:
        with pytest.raises(gzarr.MetadataError, match=r"\$.zarr_format: expected 2, got"):
            gzarr.open_group({".zgroup": json.dumps({"zarr_format": wrong}).encode()})


class TestWholeNumbers:
    """JSON has one type of numbers: where an integer is asked for, 4.0 is one."""

    @pytest.mark.parametrize(("values", "places"), WHOLE)
    def test_read(self, values: dict[str, bytes], places: set[str]) -> None:
        values = dict(values)
        array = opened(values, *(f"{place}: " for place in places))
        assert has_floats(document(values))
        before = array[...]
        if array.dtype.kind in "fi":
            array[...] = before = DATA.astype(array.dtype)
        array.attrs["a"] = 1
        array.resize((4, 4))
        assert not has_floats(document(values)), document(values)
        np.testing.assert_array_equal(opened(values)[:3], before)

    def test_alike_nodes(self) -> None:
        documents = {f"{i}/.zarray": {**V2, "compressor": {"id": "zlib", "level": 4.0}} for i in range(3)}
        index = {"zarr_consolidated_format": 1.0, "metadata": {".zgroup": {"zarr_format": 2}, **documents}}
        group = gzarr.open_group({".zmetadata": json.dumps(index).encode()})
        assert not any(has_floats(group[str(i)].metadata.document) for i in range(3))
        below = {str(i): {**V3, "zarr_format": 3.0, "attributes": {"i": i}} for i in range(3)}
        root = {
            "zarr_format": 3,
            "node_type": "group",
            "consolidated_metadata": {"kind": "inline", "must_understand": False, "metadata": below},
        }
        group = gzarr.open_group({"zarr.json": json.dumps(root).encode()})
        for i in range(3):
            assert group[str(i)].metadata.document == {**V3, "attributes": {"i": i}}
            assert not has_floats(group[str(i)].metadata.document)

    def test_floats_are_left_alone(self) -> None:
        """Attributes, and parameters that are no integers."""
        scaled = {"id": "fixedscaleoffset", "offset": 1.0, "scale": 10.0, "dtype": "<f4", "astype": "<i2"}
        values = of_v2({"a": 1.0}, filters=[scaled])
        array = opened(values)
        array.attrs["b"] = 2.0
        array.resize((4, 4))
        assert type(document(values)["filters"][0]["scale"]) is float
        assert list(map(type, json.loads(values[".zattrs"]).values())) == [float, float]

    @pytest.mark.parametrize("wrong", [4.5, 2.0**53, -1.0, 1e300, True, "4"])
    def test_refused(self, wrong: Any) -> None:
        for values in (of_v2(shape=[3, wrong]), of_v3(shape=[3, wrong])):
            with pytest.raises(gzarr.MetadataError, match=r"\$.shape\[1\]: expected an integer"):
                gzarr.open_array(values)
        for values in (of_v2(zarr_format=wrong), of_v3(zarr_format=wrong)):
            with pytest.raises(gzarr.MetadataError, match=r"\$.zarr_format"):
                gzarr.open_array(values)
        if wrong != "4":
            with pytest.raises(gzarr.MetadataError, match=r"compressor\.level"):
                gzarr.open_array(of_v2(compressor={"id": "bz2", "level": wrong}))
