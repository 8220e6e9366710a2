"""Text with unpaired surrogates, as ``os.listdir`` gives names that are not UTF-8: read, and not written anew."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BAD = "M\udcfcnchen"
REFUSED = r"unpaired surrogate.*tensorstore and zarrs.*decode"


def foreign(path: Path, zarr_format: Any = 3) -> Path:
    """Make a group with an array as zarr-python writes them, with such text in names and values."""
    group = gzarr.create_group(path, zarr_format=zarr_format, attributes={"city": "München"})
    group.create_array("a", data=np.arange(4), chunks=(2,), dimension_names=["München"])
    for file in path.rglob("*"):
        if file.is_file() and "ü".encode() in file.read_bytes():
            file.write_bytes(file.read_bytes().replace("ü".encode(), b"\\udcfc"))
    return path


@pytest.mark.parametrize(
    ("write", "where"),
    [
        (lambda g: g.attrs.update({"x": BAD}), r"attributes\['x'\]"),
        (lambda g: g.attrs.put({"x": [1, {"y": BAD}]}), r"attributes\['x'\]\[1\]\['y'\]"),
        (lambda g: g.attrs.update({BAD: 1}), "attributes, a name"),
        (lambda g: g.attrs.change(lambda found: {**found, "x": BAD}), r"attributes\['x'\]"),
        (lambda g: g.attrs.change(lambda found: {**found, "x": {BAD: 1}}), r"attributes\['x'\], a name"),
        (lambda g: g.attrs.update({"x": np.array([BAD])}), r"attributes\['x'\]\[0\]"),
        (lambda g: g.create_group("b", attributes={"x": BAD}), r"attributes\['x'\]"),
        (lambda g: g.create_array("b", shape=(1,), dtype="i4", attributes={"x": BAD}), r"attributes\['x'\]"),
        (lambda g: g.create_array("b", shape=(1,), dtype="i4", dimension_names=[BAD]), r"dimension_names\[0\]"),
        (lambda g: g.create_array("b", data=g["a"], dimension_names=[BAD]), r"dimension_names\[0\]"),
        (lambda g: g.create_array("b", shape=(1,), dtype=[(BAD, "i4")]), r"metadata\["),
    ],
)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_refused(write: Callable[[Any], object], where: str, zarr_format: Any) -> None:
    group = gzarr.create_group({}, zarr_format=zarr_format, attributes={"was": "here"})
    group.create_array("a", data=np.arange(4))
    with pytest.raises(ArgumentError, match=where + "(?s:.*)" + REFUSED):
        write(group)
    assert gzarr.open_group(group.store).attrs == {"was": "here"}
    assert list(gzarr.open_group(group.store)) == ["a"]


def test_fill_values() -> None:
    with pytest.raises(ArgumentError, match="fill_value"):
        gzarr.create_array({}, shape=(1,), dtype="U9", fill_value=BAD)
    pytest.importorskip("numcodecs")
    json2 = [{"id": "json2"}]
    with pytest.raises(ArgumentError, match="fill_value"):
        gzarr.create_array({}, shape=(1,), dtype=object, filters=json2, fill_value=BAD, zarr_format=2)
    # Elements are no document.
    a = gzarr.create_array({}, data=np.array([BAD]), device="cpu")
    assert a[0] == BAD
    a = gzarr.create_array({}, data=np.array([BAD], object), dtype=object, filters=json2, zarr_format=2, device="cpu")
    assert a[0] == BAD


def test_ome_metadata(tmp_path: Path) -> None:
    for given in ({"name": BAD}, {"channels": [BAD, "b"]}):
        with pytest.raises(ArgumentError, match=REFUSED):
            gzarr.ome.create(tmp_path / "x", np.zeros((2, 8, 8), "u1"), axes="cyx", progress=False, **given)
    image = gzarr.ome.create(tmp_path / "y", np.zeros((2, 8, 8), "u1"), axes="cyx", progress=False)
    for given in ({"name": BAD}, {"channels": [BAD, "b"]}):
        with pytest.raises(ArgumentError, match=REFUSED):
            image.update_metadata(**given)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_read_and_kept(zarr_format: Any, tmp_path: Path) -> None:
    path = foreign(tmp_path / "x", zarr_format)
    group = gzarr.open_group(path, mode="r+")
    assert group.attrs["city"] == BAD
    assert gzarr.open_array(path, path="a").dimension_names == (BAD,)
    group.attrs["other"] = 1
    group.attrs.change(lambda found: {**found, "more": 2})
    group["a"].attrs["other"] = 1
    assert gzarr.open_group(path).attrs == {"city": BAD, "other": 1, "more": 2}
    with pytest.raises(ArgumentError, match=r"attributes\['town'\]"):
        group.attrs.change(lambda found: {**found, "town": found["city"]})


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("options", [{}, {"zarr_format": 2}, {"zarr_format": 3}, {"chunks": (4,)}])
def test_copied(zarr_format: Any, options: dict[str, Any], tmp_path: Path) -> None:
    """As ``NaN`` in attributes: a copy says what its source says."""
    path = foreign(tmp_path / "x", zarr_format)
    copied = gzarr.copy(path, tmp_path / "copy", progress=False, **options)
    assert copied.attrs["city"] == BAD
    assert copied["a"].dimension_names == (BAD,)
    source = gzarr.open_array(path, path="a")
    for made in (gzarr.array(source), gzarr.empty_like(source), gzarr.array(source.view[1:])):
        assert made.dimension_names == (BAD,)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_consolidated(zarr_format: Any, tmp_path: Path) -> None:
    path = foreign(tmp_path / "x", zarr_format)
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(ArgumentError, match=f"consolidated metadata of '/'.*{REFUSED}"):
        gzarr.consolidate_metadata(path)
    assert main(["consolidate", str(path), "--dry-run"]) == 2
    assert before == {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    # Names of nodes are names of members there.
    group = gzarr.create_group({}, zarr_format=zarr_format)
    group.create_group(BAD)
    with pytest.raises(ArgumentError, match=REFUSED):
        gzarr.consolidate_metadata(group.store)


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_strict_information(zarr_format: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = foreign(tmp_path / "x", zarr_format)
    assert main(["info", str(path), "--strict", "--json"]) == 1
    found = [(one["node"], one["departure"]) for one in json.loads(capsys.readouterr().out)["departures"]]
    assert [node for node, _ in found] == ["/", "/a"]
    assert all("unpaired surrogate" in text and r"M\udcfcnchen" in text for _, text in found)
    assert found[0][1].startswith("$['attributes']['city']" if zarr_format == 3 else "$['city']")
    assert main(["info", str(path), "--strict"]) == 1
    assert "unpaired surrogate" in capsys.readouterr().out
    # Pairs are one character.
    gzarr.create_group(tmp_path / "y", attributes={"x": "\U0001d400"})
    assert main(["info", str(tmp_path / "y"), "--strict"]) == 0
