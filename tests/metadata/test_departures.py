"""Tolerated departures in documents: they are read as intended, and ``gzarr info --strict`` reports them."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import pytest
import zarr
from support.golden_stores import unpack

import gzarr
from gzarr.cli.main import main
from gzarr.documents.departures import collect, note

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

DATA = np.arange(12, dtype="<f8").reshape(3, 4)
V3: dict[str, Any] = {
    "zarr_format": 3, "node_type": "array", "shape": [3, 4], "data_type": "float64", "fill_value": 0,
    "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [3, 4]}},
    "chunk_key_encoding": {"name": "default"}, "codecs": ["bytes"],
}  # fmt: skip
V2: dict[str, Any] = {
    "zarr_format": 2, "shape": [3, 4], "chunks": [3, 4], "dtype": "<f8", "fill_value": 0, "order": "C",
    "filters": None, "compressor": None, "dimension_separator": ".",
}  # fmt: skip
V1: dict[str, Any] = {
    "zarr_format": 1, "shape": [3, 4], "chunks": [3, 4], "dtype": "<f8", "fill_value": 0, "order": "C",
    "compression": None, "compression_opts": None,
}  # fmt: skip
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}


def v3(chunk: bytes | None = None, **changes: Any) -> dict[str, bytes]:
    document = {**V3, "codecs": [LITTLE], **changes}
    values = {"zarr.json": json.dumps({k: v for k, v in document.items() if v is not ...}).encode()}
    return values if chunk is None else {**values, "c/0/0": chunk}


def tolerated(values: dict[str, bytes], expected: Any = DATA, **options: Any) -> list[str]:
    with collect() as found:
        array = gzarr.open_array(dict(values), device="cpu", **options)
    np.testing.assert_array_equal(array[...], expected)
    return found


@pytest.mark.parametrize(
    ("values", "where"),
    [
        (v3(DATA.tobytes(), codecs=...), "$.codecs"),
        (v3(DATA.tobytes(), codecs=[]), "$.codecs"),
        (v3(gzip.compress(DATA.tobytes()), codecs=[GZIP]), "$.codecs"),
        (
            v3(
                gzip.compress(np.ascontiguousarray(DATA.T).tobytes()),
                codecs=[{"name": "transpose", "configuration": {"order": [1, 0]}}, GZIP],
            ),
            "$.codecs",
        ),
        (
            v3(gzip.compress(DATA.tobytes()), codecs=[LITTLE, {"type": "gzip", "configuration": {"level": 1}}]),
            "$.codecs[1]",
        ),
        (v3(DATA.tobytes(), extensions=[]), "$.extensions"),
        (v3(DATA.tobytes(), data_type={"name": "float64", "fallback": "r64"}), "$.data_type"),
        (v3(DATA.tobytes(), fill_value=None), "$.fill_value"),
    ],
)
def test_draft_of_2023(values: dict[str, bytes], where: str) -> None:
    (found,) = tolerated(values)
    assert found.startswith(f"{where}: ")


def test_endian_is_the_older_name_of_bytes() -> None:
    big = {"name": "endian", "configuration": {"endian": "big"}}
    assert tolerated(v3(DATA.astype(">f8").tobytes(), codecs=[big])) == []


def test_absent_chunks_of_a_null_fill_value_are_zeros() -> None:
    assert tolerated(v3(fill_value=None, data_type="int64"), np.zeros((3, 4))) == [
        "$.fill_value: null, as in an example of the draft of 2023; missing chunks read as zeros"
    ]


def test_fallbacks_need_consent() -> None:
    values = v3(DATA.view("<i8").tobytes(), data_type={"name": "datetime", "fallback": ["made-up", "int64", "r64"]})
    with pytest.raises(gzarr.UnsupportedError, match=r"'int64'.*allow_fallback=True") as caught:
        gzarr.open_array(dict(values))
    assert caught.value.json_path == "$.data_type"
    with pytest.warns(UserWarning, match="elements are read as 'int64'"):
        tolerated(values, DATA.view("<i8"), allow_fallback=True)
    group = {"zarr.json": b'{"zarr_format": 3, "node_type": "group"}', **{f"a/{k}": v for k, v in values.items()}}
    with pytest.warns(UserWarning, match="'int64'"):
        assert gzarr.open_group(group, allow_fallback=True)["a"].dtype == "i8"
    for unknown in ([], "made-up", [{"name": "made-up"}]):
        with pytest.raises(gzarr.UnsupportedError, match="datetime"):
            gzarr.open_array(v3(data_type={"name": "datetime", "fallback": unknown}), allow_fallback=True)
    with pytest.raises(gzarr.MetadataError) as caught:
        gzarr.open_array(v3(data_type={"name": "datetime", "fallback": 3}), allow_fallback=True)
    assert caught.value.json_path == "$.data_type.fallback"


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"dimension_separator": None}, "$.dimension_separator"),
        ({"_nczarr_array": {}}, "$._nczarr_array"),
        ({"filters": ...}, "$.filters"),
        ({"compressor": ...}, "$.compressor"),
        ({"shape": [0, 4], "chunks": [0, 4]}, "$.chunks"),
    ],
)
def test_version_2(changes: dict[str, Any], where: str) -> None:
    document = {name: value for name, value in {**V2, **changes}.items() if value is not ...}
    values = {".zarray": json.dumps(document).encode(), "0.0": DATA.tobytes()}
    (found,) = tolerated(values, DATA[: document["shape"][0]])
    assert found.startswith(f"{where}: ")


def test_json() -> None:
    text = json.dumps(V2)
    assert tolerated({".zarray": text.encode(), "0.0": DATA.tobytes()}) == []
    for document, attributes, count in (
        ("\ufeff" + text, "{}", 1),
        (text, '{"a": NaN, "b": -Infinity}', 2),
        # JSON has these, but they are read, and copied, as Infinity.
        (text, '{"a": 1e400, "b": [-1e999, 1e308]}', 2),
    ):
        values = {".zarray": document.encode(), ".zattrs": attributes.encode(), "0.0": DATA.tobytes()}
        assert len(tolerated(values)) == count


def test_names_that_extensions_keep() -> None:
    group = b'{"zarr_format": 3, "node_type": "group"}'
    store = {"zarr.json": group, "a/zarr.json": group, "__b/zarr.json": group, "\u00e9_\U0001f600/zarr.json": group}
    theirs = {"__c/zarr.json": b'{"zarr_format": 3, "of": "an extension"}', "__d/e/zarr.json": group}
    # A node is one whatever its name: a copy without it would lose it.
    assert list(gzarr.open_group({**store, **theirs})) == ["__b", "a", "\u00e9_\U0001f600"]
    old = {key.replace("zarr.json", ".zgroup"): b'{"zarr_format": 2}' for key in store}
    assert list(gzarr.open_group(old)) == ["__b", "a", "\u00e9_\U0001f600"]


def test_strict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, values in {"good": v3(), "loose": v3(codecs=..., extensions=[]), "bad": v3(shape=3)}.items():
        (tmp_path / "g" / name).mkdir(parents=True)
        (tmp_path / "g" / name / "zarr.json").write_bytes(values["zarr.json"])
    (tmp_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    (tmp_path / "g" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {"x": NaN}}')
    assert main(["info", "--strict", str(tmp_path)]) == 1
    listed = capsys.readouterr().out.partition("Departures from the specification:\n")[2].splitlines()
    assert [line.split()[:2] for line in listed] == [
        ["/g", "$:"], ["/g/bad", "'g/bad/zarr.json'"], ["/g/loose", "$.extensions:"], ["/g/loose", "$.codecs:"],
    ]  # fmt: skip
    assert main(["info", str(tmp_path / "g" / "loose")]) == 0
    assert "Departures" not in capsys.readouterr().out
    assert main(["info", "--strict", str(tmp_path / "g" / "good")]) == 0
    assert "No departures" in capsys.readouterr().out


def test_nothing_is_kept_unasked_and_not_without_end() -> None:
    note("lost", "$")
    with collect() as outer:
        with collect() as inner:
            note("a", "$.b")
        assert inner == ["$.b: a"]
        for _ in range(2000):
            note("c", "$")
    assert len(outer) == 1000


@pytest.mark.parametrize(
    ("data_type", "text", "expected", "where"),
    [
        ("float64", "+Infinity", np.inf, "$.fill_value"),
        ("complex64", [1, "+Infinity"], complex(1, np.inf), "$.fill_value[1]"),
    ],
)
def test_infinity_of_the_draft_of_2023(data_type: str, text: Any, expected: Any, where: str) -> None:
    values = v3(data_type=data_type, fill_value=text)
    (found,) = tolerated(values, np.full((3, 4), expected, data_type))
    assert found.startswith(f"{where}: ")
    # What changes nothing of it leaves the document's spelling.
    array = gzarr.open_array(values, mode="r+")
    array.attrs["a"] = 1
    assert json.loads(values["zarr.json"])["fill_value"] == text
    with pytest.raises(gzarr.MetadataError):
        gzarr.open_array(v3(data_type="int8", fill_value="+Infinity"))
    texts = {"data_type": "string", "codecs": ["vlen-utf8"], "fill_value": "+Infinity"}
    assert tolerated(v3(**texts), np.full((3, 4), "+Infinity", object)) == []


def test_infinity_in_new_documents() -> None:
    """Documents follow the text of each format; zarr-python 2 wrote hierarchies of the draft's older layout."""
    for zarr_format, expected in ((2, "Infinity"), (3, "Infinity"), ("3-draft-2022", "+Infinity")):
        for dtype, value, said in (("f4", np.inf, expected), ("c8", complex(np.inf, 1), [expected, 1.0])):
            store = gzarr.MemoryStore()
            gzarr.create_array(store, path="a", shape=3, dtype=dtype, fill_value=value, zarr_format=zarr_format)
            key = {2: "a/.zarray", 3: "a/zarr.json"}.get(zarr_format, "meta/a.array.json")
            assert json.loads(bytes(store.get(key)))["fill_value"] == said
            np.testing.assert_array_equal(gzarr.open_array(store, path="a")[...], np.full(3, value, dtype))


@pytest.mark.parametrize("text", ["NO", "YES", "no", "On", "TRUE", "0"])
def test_checksums_as_gdal_writes_them(text: str) -> None:
    wanted = text in ("YES", "On", "TRUE")
    chunk = bytes(numcodecs.Zstd(1).encode(DATA))
    codec = {"name": "zstd", "configuration": {"level": 1, "checksum": text}}
    new = v3(chunk, codecs=[LITTLE, codec])
    assert tolerated(new)[0].startswith("$.codecs[1].configuration.checksum: ")
    document = {**V2, "compressor": {"id": "zstd", "level": 1, "checksum": text}}
    old = {".zarray": json.dumps(document).encode(), "0.0": chunk}
    assert tolerated(old)[0].startswith("$.compressor.checksum: ")
    for values, key in ((new, "c/0/0"), (old, "0.0")):
        gzarr.open_array(values, mode="r+")[...] = DATA + 1
        # A bit of the frame's header: https://www.rfc-editor.org/rfc/rfc8878#section-3.1.1.1.1
        assert bool(values[key][4] & 4) == wanted
        np.testing.assert_array_equal(np.frombuffer(numcodecs.Zstd().decode(values[key])).reshape(3, 4), DATA + 1)


@pytest.mark.parametrize("value", ["", "maybe", 1, None])
def test_other_checksums_are_refused(value: Any) -> None:
    document = {**V2, "compressor": {"id": "zstd", "level": 1, "checksum": value}}
    with pytest.raises(gzarr.MetadataError, match="true or false"):
        gzarr.open_array({".zarray": json.dumps(document).encode()})


@pytest.mark.parametrize(
    ("dtype", "value", "expected", "count"),
    [
        ("|S3", "YWI=", b"ab", 0),
        ("|S3", "a b", b"a b", 1),
        ("|S3", "a", b"a", 1),
        ("|S3", "no base64", b"no ", 2),
        ("|S3", "YWJjZA==", b"abc", 1),
        ("|S3", 0, b"", 1),
        ("|V3", "YWJj", b"abc", 0),
        ("|V3", 0, bytes(3), 1),
        ([["a", "|S3"]], "YWJj", b"abc", 0),
    ],
)
def test_fill_values_of_bytes(dtype: Any, value: Any, expected: bytes, count: int) -> None:
    values = {".zarray": json.dumps({**V2, "dtype": dtype, "fill_value": value}).encode()}
    with collect() as found:
        array = gzarr.open_array(values, device="cpu")
    assert np.asarray(array.fill_value, array.dtype).tobytes() == expected.ljust(3, b"\0")
    assert len(found) == count
    assert all(text.startswith("$.fill_value: ") for text in found)


@pytest.mark.parametrize("dtype", ["|V3", [["a", "|S3"]]])
def test_only_byte_strings_may_be_text(dtype: Any) -> None:
    with pytest.raises(gzarr.MetadataError) as caught:
        gzarr.open_array({".zarray": json.dumps({**V2, "dtype": dtype, "fill_value": "a b"}).encode()})
    assert caught.value.json_path == "$.fill_value"


def test_order_of_version_1() -> None:
    stores, expected = unpack("v1/zarr-python-1.1.0.tar.xz")
    noted = {"blosc": 0, "other": 0}
    for name, values in stores.items():
        meta = json.loads(values["meta"])
        with collect() as found:
            array = gzarr.open_array(dict(values), device="cpu")
        text = [text for text in found if text.startswith("$.order: ")]
        several = meta["order"] == "F" and array.ndim > 1
        assert bool(text) == (several and meta["compression"] != "blosc"), name
        if several:
            noted["blosc" if meta["compression"] == "blosc" else "other"] += 1
        # Its own writer's elements, either way.
        if array.dtype.kind not in "UO":
            np.testing.assert_array_equal(array[...], expected[name], name)
    assert all(noted.values()), noted
    line = {**V1, "shape": [3], "chunks": [3], "order": "F"}
    assert tolerated({"meta": json.dumps(line).encode(), "0": DATA[0, :3].tobytes()}, DATA[0, :3]) == []
    several = {"meta": json.dumps({**V1, "order": "F"}).encode(), "0.0": DATA.tobytes()}
    (found,) = tolerated(several)
    assert "order C, as zarr-python 1" in found


class TestShuffleOfNetcdf:
    """Its element size is the array's, whatever the document states; ``test_golden.py`` has arrays that it wrote."""

    @staticmethod
    def values(size: Any = 0, data: np.ndarray[Any, Any] = DATA, **changes: Any) -> dict[str, bytes]:
        chunk = numcodecs.Zlib(1).encode(numcodecs.Shuffle(data.dtype.itemsize).encode(data))
        shuffle = {"id": "shuffle", "elementsize": size}
        document = {**V2, "dtype": data.dtype.str, "filters": [shuffle], "compressor": {"id": "zlib", "level": 1}}
        attributes = json.dumps({"_ARRAY_DIMENSIONS": ["y", "x"]}).encode()
        return {".zarray": json.dumps({**document, **changes}).encode(), ".zattrs": attributes, "0.0": bytes(chunk)}

    @pytest.mark.parametrize("size", [0, "0", "4"])
    def test_reads(self, size: Any, device: TestedDevice) -> None:
        for dtype in ("<i2", ">f8", "<c8", "|u1"):
            data = DATA.astype(dtype)
            values = self.values(size, data)
            (found,) = tolerated(values, data)
            assert found.startswith("$.filters[0].elementsize: ")
            array = device.open(values)
            assert f"numcodecs.shuffle({data.dtype.itemsize})" in gzarr.open_array(values, device="cpu").decode_path
            np.testing.assert_array_equal(device.read(array), data)
            np.testing.assert_array_equal(device.read(array, np.s_[1:, ::2]), data[1:, ::2])

    def test_other_sizes_are_meant(self) -> None:
        chunk = bytes(numcodecs.Shuffle(2).encode(DATA))
        document = {**V2, "filters": [{"id": "shuffle", "elementsize": 2}]}
        assert tolerated({".zarray": json.dumps(document).encode(), "0.0": chunk}) == []
        for wrong in (-1, 1.5, "x", "-1", None, True):
            with pytest.raises(gzarr.MetadataError, match="elementsize"):
                gzarr.open_array(self.values(wrong))

    def test_elements_at_the_end(self, device: TestedDevice) -> None:
        """After a checksum, the last bytes are not a whole element: they stay in place."""
        plain = np.frombuffer(numcodecs.Fletcher32().encode(DATA), "u1")
        whole = plain.size // 8 * 8
        chunk = bytes(numcodecs.Shuffle(8).encode(plain[:whole])) + plain[whole:].tobytes()
        filters = [{"id": "fletcher32"}, {"id": "shuffle", "elementsize": 0}]
        document = {**V2, "filters": filters, "_nczarr_array": {"dimrefs": ["/y", "/x"]}}
        values = {".zarray": json.dumps(document).encode(), "0.0": chunk}
        assert plain.size > whole
        np.testing.assert_array_equal(device.read(device.open(values)), DATA)
        gzarr.open_array(values, mode="r+")[...] = DATA
        assert values["0.0"] == chunk

    def test_changes_keep_the_meaning(self) -> None:
        values = self.values()
        array = gzarr.open_array(values, mode="r+")
        array[...] = DATA * 3
        array.attrs["a"] = 1
        array.resize((6, 4))
        array[3:] = DATA
        document = json.loads(values[".zarray"])
        assert (document["filters"], document["shape"]) == ([{"id": "shuffle", "elementsize": 0}], [6, 4])
        for key, expected in (("0.0", DATA * 3), ("1.0", DATA)):
            chunk = numcodecs.Shuffle(8).decode(numcodecs.Zlib().decode(values[key]))
            np.testing.assert_array_equal(np.frombuffer(chunk).reshape(3, 4), expected)

    def test_copies(self, tmp_path: Path) -> None:
        values = self.values()
        same: dict[str, bytes] = {}
        gzarr.copy(values, same)
        assert json.loads(same[".zarray"]) == json.loads(values[".zarray"])
        assert same["0.0"] == values["0.0"]
        for i, changes in enumerate(({"zarr_format": 3}, {"zarr_format": 3, "codecs": "auto"}, {"chunks": (2, 2)})):
            gzarr.copy(values, tmp_path / str(i), **changes)
            # In other documents the size is said, so that everybody reads them.
            np.testing.assert_array_equal(zarr.open_array(tmp_path / str(i), mode="r")[...], DATA)
        like = gzarr.MemoryStore()
        gzarr.empty_like(gzarr.open_array(values), like)
        assert json.loads(bytes(like.get(".zarray")))["filters"] == [{"id": "shuffle", "elementsize": 8}]

    def test_new_arrays_say_their_size(self, tmp_path: Path) -> None:
        for i, filters in enumerate(({"id": "shuffle", "elementsize": 0}, numcodecs.Shuffle(0))):
            path = tmp_path / str(i)
            gzarr.create_array(path, data=DATA, zarr_format=2, filters=filters, compressors=None)
            assert json.loads((path / ".zarray").read_text())["filters"] == [{"id": "shuffle", "elementsize": 8}]
            np.testing.assert_array_equal(zarr.open_array(path, mode="r")[...], DATA)

    def test_version_3_shuffles_nothing(self, tmp_path: Path) -> None:
        """zarr-python's version 3 codec takes 0 literally; in version 2 this is written as a size of 1."""
        shuffle = {"name": "numcodecs.shuffle", "configuration": {"elementsize": 0}}
        values = v3(DATA.tobytes(), codecs=[LITTLE, shuffle])
        assert tolerated(values) == []
        gzarr.copy(values, tmp_path, zarr_format=2)
        assert json.loads((tmp_path / ".zarray").read_text())["filters"] == [{"id": "shuffle", "elementsize": 1}]
        np.testing.assert_array_equal(zarr.open_array(tmp_path, mode="r")[...], DATA)
