"""Data sets of netCDF-C are its own after changes: it reads the names, the lengths and the members that are there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np
import pycurl  # noqa: F401  (before netCDF-C loads an older libcurl, beside which it cannot be imported)
import pytest
import tensorstore
import zarr

import gzarr
from gzarr.errors import ArgumentError
from gzarr.metadata.conventions import nczarr_dimensions

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


def read_apart(path: Path) -> Any:
    """Return values and types of attributes as another process reads them: netCDF-C may end it."""
    program = f"""
import json, netCDF4
with netCDF4.Dataset("file://{path}#mode=nczarr,file") as root:
    found = {{name: [str(one.getncattr(name)), str(one.getncattr(name).__class__.__name__)]
             for one in (root, *root.variables.values()) for name in one.ncattrs()}}
    print(json.dumps(found))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("how", ["array", "array with data", "group", "open"])
@pytest.mark.parametrize("older", [False, True])
def test_what_is_replaced_is_not_listed(how: str, older: bool, tmp_path: Path) -> None:
    written(tmp_path)
    if older:
        before_4_9_3(tmp_path)
    root = gzarr.open_group(tmp_path, mode="r+", device="cpu")
    if how == "array":
        root.create_array("v", shape=(5, 2), dtype="f4", overwrite=True)
    elif how == "array with data":
        root.create_array("v", data=VALUES, overwrite=True)
    elif how == "group":
        root.create_group("v", overwrite=True)
    else:
        gzarr.open_array(tmp_path, path="v", mode="w", shape=(5, 2), dtype="f4", zarr_format=2, device="cpu")
    assert sorted(read(tmp_path)) == ["g/w", "g/x", "u"]
    root.create_array("g", data=VALUES, overwrite=True)
    assert sorted(read(tmp_path)) == ["u"]


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("kind", ["directory", "values", "separately"])
def test_groups_move_with_their_dimensions(kind: str, older: bool, tmp_path: Path) -> None:
    written(tmp_path)
    if older:
        before_4_9_3(tmp_path)
    store: Any = tmp_path
    if kind == "values":
        store = {str(file.relative_to(tmp_path)): file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    root = gzarr.open_group(store, mode="r+", device="cpu")
    if kind == "separately":
        inner = gzarr.open_group(tmp_path / "g", mode="r+", device="cpu")
        inner.move("x", "y")
        inner.move("y", "x")
    root.move("g", "gg")
    assert nczarr_dimensions(root["gg/x"].metadata) == ["/gg/z", "/y"]  # type: ignore[arg-type]
    assert nczarr_dimensions(root["gg/w"].metadata) == ["/t", "/y"]  # type: ignore[arg-type]
    with pytest.raises(
        ArgumentError, match=r"'/gg/x' in .* has the dimension '/gg/z' of NCZarr, .* in '/gg' and below"
    ):
        root.move("gg/x", "x")
    assert sorted(root) == ["gg", "u", "v"]
    if kind != "values":
        expected = {name: VALUES.tolist() for name in ("u", "v", "gg/w", "gg/x")}
        assert read(tmp_path) == expected


@pytest.mark.skipif(sys.platform == "win32", reason="symbolic links")
@pytest.mark.parametrize("dimension", ["g/z", "y"])
def test_a_move_does_not_change_what_a_link_leads_to(dimension: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        with opened(tmp_path / name, "w") as root:
            root.createDimension("y", 5)
            root.createGroup("g").createDimension("z", 5)
            root["g"].createVariable("x", "f4", (dimension[-1],))[:] = VALUES[:, 0]
    shutil.rmtree(tmp_path / "b/g")
    (tmp_path / "b/g").symlink_to("../a/g")
    before = {file: file.read_bytes() for file in (tmp_path / "a").rglob("*") if file.is_file()}
    group = gzarr.open_group(tmp_path / "b", mode="r+", device="cpu")
    group.move("g", "h")
    assert {file: file.read_bytes() for file in (tmp_path / "a").rglob("*") if file.is_file()} == before
    expected = f"/{dimension}".replace("/g/", "/h/")
    assert nczarr_dimensions(group["h/x"].metadata) == [expected]  # type: ignore[arg-type]
    assert not (tmp_path / "b/g").is_symlink()
    # Where all paths stay as they are, the link is moved.
    assert (tmp_path / "b/h").is_symlink() == (dimension == "y")
    assert read(tmp_path / "b") == {"h/x": VALUES[:, 0].tolist()}


def test_an_array_that_leaves_its_data_set_is_in_no_list(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with opened(tmp_path / name, "w") as root:
            root.createDimension(name, 5)
            root.createVariable(f"of_{name}", "f4", (name,))[:] = VALUES[:, 0]
    folder = gzarr.create_group(tmp_path, zarr_format=2)
    folder.move("a/of_a", "b/moved")
    assert folder["b/moved"][...].tolist() == VALUES[:, 0].tolist()
    lists = [folder[name].attrs["_nczarr_group"]["arrays"] for name in ("a", "b")]
    assert lists == [[], ["of_b"]]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", ["text", "str"]),
        ("", ["", "str"]),
        (["a"], ['["a"]', "str"]),
        ([1, "a"], ['[1,"a"]', "str"]),
        (2.5, ["2.5", "float64"]),
        (300, ["300", "int32"]),
        (7, ["7", "uint8"]),
    ],
    ids=str,
)
def test_changed_attributes_have_types_of_their_own(value: Any, expected: list[str], tmp_path: Path) -> None:
    with opened(tmp_path, "w") as root:
        root.createDimension("x", 2)
        root.setncattr("n", np.uint8(1))
        root.createVariable("v", "f4", ("x",)).setncattr("m", np.uint8(1))
    group = gzarr.open_group(tmp_path, mode="r+", device="cpu")
    group.attrs["n"] = value
    group["v"].attrs["m"] = value
    group.attrs["empty"] = []
    group.attrs["new"] = [1, "a"]
    found = read_apart(tmp_path)
    assert found["n"] == found["m"] == expected
    assert found["empty"] == ["[]", "str"]
    assert found["new"] == ['[1,"a"]', "str"]


def test_nodes_that_lose_their_members_are_not_listed(tmp_path: Path) -> None:
    written(tmp_path)
    group = gzarr.open_group(tmp_path, mode="r+", device="cpu")
    group["v"].attrs.put({"a": 1})
    group["g"].attrs.clear()
    assert sorted(read(tmp_path)) == ["u"]
