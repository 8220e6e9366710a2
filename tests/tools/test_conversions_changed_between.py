"""Copies to version 3 and back of data sets of netCDF-C, which reads version 2 only, after changes in version 3."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np
import pycurl  # noqa: F401  (before netCDF-C loads an older libcurl, beside which it cannot be imported)
import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Change = Callable[[gzarr.Group], object]

VALUES = np.arange(12, dtype="f4").reshape(3, 4)


def written(path: Path) -> None:
    with netCDF4.Dataset(f"file://{path}#mode=nczarr,file", "w") as root:
        for name, length in (("t", None), ("x", 4), ("z", 2)):
            root.createDimension(name, length)
        group = root.createGroup("g")
        group.createDimension("y", 3)
        for place, name, dimensions in ((root, "u", "tx"), (root, "v", "x"), (root, "o", "z"), (group, "w", "yx")):
            one = place.createVariable(name, "f4", tuple(dimensions))
            one[0 : len(VALUES) if len(dimensions) == 2 else len(root.dimensions[dimensions])] = {
                "v": VALUES[0], "o": VALUES[0, :2]
            }.get(name, VALUES)  # fmt: skip


def before_4_9_3(path: Path) -> None:
    """Move the members of NCZarr from the attributes to the documents, as older versions write them."""
    for file in path.rglob(".zattrs"):
        attributes = json.loads(file.read_text())
        members = {
            name: attributes.pop(name)
            for name in list(attributes)
            if name.startswith("_nczarr_") and name != "_nczarr_attr"
        }
        document = next(file.with_name(name) for name in (".zarray", ".zgroup") if file.with_name(name).exists())
        document.write_text(json.dumps({**json.loads(document.read_text()), **members}))
        file.write_text(json.dumps(attributes))


def read(path: Path) -> dict[str, tuple[Any, ...]]:
    """Return dimensions and elements of the variables that netCDF-C finds, by path."""
    with netCDF4.Dataset(f"file://{path}#mode=nczarr,file") as root:
        places = {"": root, **{f"{name}/": group for name, group in root.groups.items()}}
        return {
            at + name: (one.dimensions, one[...].tolist())
            for at, place in places.items()
            for name, one in place.variables.items()
        }


def append(root: gzarr.Group) -> None:
    root["u"].append(VALUES[:1])  # type: ignore[union-attr]


def replace(root: gzarr.Group) -> None:
    root.create_array("v", shape=(5, 5), dtype="i4", overwrite=True)


@pytest.mark.parametrize("older", [False, True], ids=["attributes", "members"])
@pytest.mark.parametrize(
    ("change", "left", "new"),
    [
        (lambda root: None, "u v o g/w", {}),
        (append, "v o g/w", {"u": (("t", "x"), [*VALUES.tolist(), VALUES[0].tolist()])}),
        (lambda root: root["v"].resize(3), "u o g/w", {}),
        (lambda root: root["o"].resize(1), "u v g/w", {"o": (("z",), [0.0])}),
        (lambda root: root.move("v", "vv"), "u o g/w", {}),
        (lambda root: root.__delitem__("v"), "u o g/w", {}),
        (lambda root: root.__delitem__("g"), "u v o", {}),
        (replace, "u o g/w", {}),
        (lambda root: root.move("g", "h"), "u v o", {"h/w": (("y", "x"), VALUES.tolist())}),
    ],
    ids=["none", "append", "one of two", "shorter", "rename", "delete", "delete group", "replace", "rename group"],
)
def test_netcdf_reads_what_fits(change: Change, left: str, new: dict[str, Any], older: bool, tmp_path: Path) -> None:
    source, between, back = (tmp_path / name for name in ("a", "b", "c"))
    written(source)
    if older:
        before_4_9_3(source)
    expected = read(source)
    gzarr.copy(source, between, zarr_format=3, device="cpu")
    change(gzarr.open_group(between, mode="r+", device="cpu"))
    copied: Any = gzarr.copy(between, back, zarr_format=2, device="cpu")
    assert read(back) == {name: expected[name] for name in left.split()} | new
    # Nothing is missing in the copy.
    names = {path for path, _ in gzarr.open_group(between, device="cpu").members(None)}
    assert {path for path, _ in copied.members(None)} == names


def types_of(path: Path) -> Any:
    return json.loads(path.read_text())["_nczarr_attr"]["types"]


def test_types_of_attributes_fit(tmp_path: Path) -> None:
    source, between, back = (tmp_path / name for name in ("a", "b", "c"))
    with netCDF4.Dataset(f"file://{source}#mode=nczarr,file", "w") as root:
        root.createDimension("x", 4)
        one = root.createVariable("v", "f4", ("x",))
        # Numbers that JSON has not, several strings, and text that is JSON are written otherwise than their types say.
        for name, value in (("a", np.float32(np.nan)), ("b", [1.0, -np.inf]), ("c", "[1]"), ("m", np.uint8(1))):
            one.setncattr(name, value)
            root.setncattr(name, value)
        one.setncattr_string("d", ["p", "q"])
    gzarr.copy(source, between, zarr_format=3, device="cpu")
    gzarr.copy(between, back, zarr_format=2, device="cpu")
    for name in ("v/.zattrs", ".zattrs"):
        assert types_of(back / name) == types_of(source / name)
    group = gzarr.open_group(between, mode="r+", device="cpu")
    for node in (group, group["v"]):
        node.attrs.update(m="text", new=[1, "a"], empty=[])
    gzarr.copy(between, back, zarr_format=2, overwrite=True, device="cpu")
    for name in ("v/.zattrs", ".zattrs"):
        found, before = types_of(back / name), types_of(source / name)
        del before["m"]
        assert found == before | {"new": ">S1", "empty": ">S1"}
    # Last, for netCDF-C ends the process if they do not fit.
    with netCDF4.Dataset(f"file://{back}#mode=nczarr,file") as root:
        assert [root.getncattr(name) for name in ("m", "new", "empty")] == ["text", '[1,"a"]', "[]"]
        assert root["v"].getncattr("d") == ["p", "q"]
