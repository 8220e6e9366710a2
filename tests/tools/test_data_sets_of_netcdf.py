"""Data sets of netCDF-C are its own after changes: it reads the names, the lengths and the members that are there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np
import pycurl  # noqa: F401  (before netCDF-C loads an older libcurl, beside which it cannot be imported)
import pytest
import tensorstore
import zarr

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

VALUES = np.arange(10, dtype="f4").reshape(5, 2)
MORE = np.full((3, 2), 7, "f4")


def opened(path: Path, mode: Any = "r") -> Any:
    return netCDF4.Dataset(f"file://{path}#mode=nczarr,file", mode)


def written(path: Path) -> None:
    with opened(path, "w") as root:
        root.createDimension("t", None)
        root.createDimension("y", 2)
        group = root.createGroup("g")
        group.createDimension("z", 5)
        for place, name, first in ((root, "u", "t"), (root, "v", "t"), (group, "w", "t"), (group, "x", "z")):
            place.createVariable(name, "f4", (first, "y"), chunksizes=(2, 2))[0:5] = VALUES


def before_4_9_3(path: Path) -> None:
    """Move the members of NCZarr from the attributes to the documents, as older versions write them."""
    for file in path.rglob(".zattrs"):
        attributes = json.loads(file.read_text())
        members = {name: attributes.pop(name) for name in list(attributes) if name.startswith("_nczarr_")}
        document = next(file.with_name(name) for name in (".zarray", ".zgroup") if file.with_name(name).exists())
        document.write_text(json.dumps({**json.loads(document.read_text()), **members}))
        file.write_text(json.dumps(attributes))


def read(path: Path) -> dict[str, list[Any]]:
    """Return the elements of all variables by path."""
    with opened(path) as root:
        places = {"": root, **{f"{name}/": group for name, group in root.groups.items()}}
        return {at + name: one[:].tolist() for at, place in places.items() for name, one in place.variables.items()}


def test_text_stays_text(tmp_path: Path) -> None:
    path, copy = tmp_path / "a", tmp_path / "b"
    text = '°C \u2028\x7f\x01"\\ \U0001f600'
    with opened(path, "w") as root:
        root.title = "Tüftle"
        root.createDimension("höhe", 3)
        variable = root.createVariable("Å", "f4", ("höhe",))
        variable[:] = 1
        variable.units = "°C"
    gzarr.copy(path, copy, device="cpu")
    gzarr.open_group(path, mode="r+").attrs["note"] = text
    gzarr.open_array(path, path="Å", mode="r+").attrs["note"] = text
    gzarr.consolidate_metadata(path)
    for place in (path, copy):
        with opened(place) as root:
            assert root.title == "Tüftle"
            assert root["Å"].units == "°C"
            assert root["Å"].dimensions == ("höhe",)
    assert zarr.open_group(path, mode="r")["Å"].attrs["note"] == text
    assert gzarr.open_group(path).attrs["note"] == text


def test_documents_of_version_3_are_text(tmp_path: Path) -> None:
    text = "é\u2028\x7f\0\U0001f600"
    gzarr.create_array(
        tmp_path, data=VALUES, attributes={text: [text]}, dimension_names=[text, "y"], zarr_format=3, device="cpu"
    )
    assert "é\u2028\x7f\\u0000\U0001f600".encode() in (tmp_path / "zarr.json").read_bytes()
    assert dict(zarr.open_array(tmp_path, mode="r").attrs) == {text: [text]}
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": str(tmp_path)}}
    assert tensorstore.open(spec).result().domain.labels[1] == "y"
    assert gzarr.open_array(tmp_path).dimension_names == (text, "y")


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("separately", [False, True])
def test_dimensions_follow_shapes(older: bool, separately: bool, tmp_path: Path) -> None:
    written(tmp_path)
    if older:
        before_4_9_3(tmp_path)

    def array(name: str) -> Any:
        if separately:
            return gzarr.open_array(tmp_path / name, mode="r+", device="cpu")
        return gzarr.open_array(tmp_path, path=name, mode="r+", device="cpu")

    for name in ("u", "v", "g/w"):
        array(name).append(MORE)
    longer = [*VALUES.tolist(), *MORE.tolist()]
    assert read(tmp_path) == {"u": longer, "v": longer, "g/w": longer, "g/x": VALUES.tolist()}
    array("g/x").resize((3, 2))
    assert read(tmp_path)["g/x"] == VALUES[:3].tolist()
    with opened(tmp_path) as root:
        assert root.dimensions["t"].isunlimited()


@pytest.mark.parametrize("older", [False, True])
def test_lists_follow_members(older: bool, tmp_path: Path) -> None:
    written(tmp_path)
    if older:
        before_4_9_3(tmp_path)
    root = gzarr.open_group(tmp_path, mode="r+", device="cpu")
    del root["v"]
    assert sorted(read(tmp_path)) == ["g/w", "g/x", "u"]
    root.move("u", "renamed")
    root.move("g/w", "w")
    assert sorted(read(tmp_path)) == ["g/x", "renamed", "w"]
    # It has nothing of NCZarr, and netCDF-C passes over it.
    root.create_array("new", data=VALUES, dimension_names=["t", "y"])
    assert sorted(read(tmp_path)) == ["g/x", "renamed", "w"]
    del root["g"]
    assert sorted(read(tmp_path)) == ["renamed", "w"]
    with opened(tmp_path) as found:
        assert not found.groups


def stored(dimension: str) -> dict[str, bytes]:
    """Return a data set with one array, whose first dimension has a given path."""
    values: dict[str, bytes] = {}
    members = {"dimensions": {"t": 5, "y": 2}, "arrays": ["u"], "groups": []}
    attributes = {"_nczarr_superblock": {"version": "2.0.0"}, "_nczarr_group": members}
    root = gzarr.create_group(values, zarr_format=2, attributes=attributes, device="cpu")
    array = root.create_array("u", data=VALUES, chunks=(2, 2))
    array.attrs["_nczarr_array"] = {"dimension_references": [dimension, "/y"]}
    return values


@pytest.mark.parametrize("dimension", ["/absent/t", "/../t"])
def test_dimensions_that_cannot_follow(dimension: str) -> None:
    """The array has changed by then: an error would say that it has not."""
    values = stored(dimension)
    with pytest.warns(UserWarning, match=r"shape of '/u' in .* is \(8, 2\) now, and its dimensions"):
        gzarr.open_array(values, path="u", mode="r+", device="cpu").append(MORE)
    assert gzarr.open_array(values, path="u", device="cpu")[...].tolist() == [*VALUES.tolist(), *MORE.tolist()]


def test_members_of_a_damaged_group_are_erased() -> None:
    values = stored("/t")
    root = gzarr.open_group(values, mode="r+", device="cpu")
    values[".zattrs"] = values[".zattrs"][:-5]
    del root["u"]
    assert sorted(values) == [".zattrs", ".zgroup"]
