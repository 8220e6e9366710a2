"""What is tolerated in documents: that it is read as it was meant, and that ``gzarr info --strict`` tells."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.cli import main
from gzarr.documents.departures import collect, note

if TYPE_CHECKING:
    from pathlib import Path

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
LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
GZIP = {"name": "gzip", "configuration": {"level": 1}}


def v3(chunk: bytes | None = None, **changes: Any) -> dict[str, bytes]:
    document = {**V3, "codecs": [LITTLE], **changes}
    values = {"zarr.json": json.dumps({k: v for k, v in document.items() if v is not ...}).encode()}
    return values if chunk is None else {**values, "c/0/0": chunk}


def tolerated(values: dict[str, bytes], expected: Any = DATA, **options: Any) -> list[str]:
    with collect() as found:
        array = gzarr.open_array(dict(values), **options)
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
    assert tolerated(v3(fill_value=None), np.zeros((3, 4))) == [
        "$.fill_value: null, as in an example of the draft of 2023: absent chunks read as zeros"
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
    assert main.main(["info", "--strict", str(tmp_path)]) == 1
    listed = capsys.readouterr().out.partition("Departures from the specification:\n")[2].splitlines()
    assert [line.split()[:2] for line in listed] == [
        ["/g", "$:"], ["/g/bad", "'g/bad/zarr.json'"], ["/g/loose", "$.extensions:"], ["/g/loose", "$.codecs:"],
    ]  # fmt: skip
    assert main.main(["info", str(tmp_path / "g" / "loose")]) == 0
    assert "Departures" not in capsys.readouterr().out
    assert main.main(["info", "--strict", str(tmp_path / "g" / "good")]) == 0
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
