"""Attributes of data sets of netCDF-C that have changed: it reads all numbers of a list, and any fill value."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import netCDF4
import numpy as np
import pycurl  # noqa: F401  (before netCDF-C loads an older libcurl, beside which it cannot be imported)
import pytest

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

VALUES = np.arange(4, dtype="u1")
#: Lists, with the type in which netCDF-C reads them.
LISTS: list[tuple[list[Any], str]] = [
    ([0, 0.5], "float64"),
    ([0.5, 1], "float64"),
    ([1, 2**40], "int64"),
    ([1, 2**31], "uint32"),
    ([2**31, -1], "int64"),
    ([-1, 2**31], "int64"),
    ([1, 2**63], "uint64"),
    ([-1, 2**63], "float64"),
    ([2**63 - 1, -(2**40)], "int64"),
    ([True, 300], "int32"),
    ([True, 0.5], "float64"),
    ([True, False], "uint8"),
    ([1, 2], "int32"),
    ([0.5, "NaN"], "float64"),
    (["NaN", 0.5], "float64"),
    ([1, "Infinity", "-Infinity"], "float64"),
]
#: Fill values of bytes, with the type in which netCDF-C reads them.
FILL_VALUES: list[tuple[Any, str]] = [
    (3, "uint8"),
    (255, "uint8"),
    (-1, "int32"),
    (300, "int32"),
    (2.5, "float64"),
    (200.0, "float64"),
    ("x", "str"),
    ([-1], "int32"),
]


def written(path: Path, dtype: str = "u1") -> None:
    with netCDF4.Dataset(f"file://{path}#mode=nczarr,file", "w") as root:
        root.createDimension("x", 4)
        root.setncattr("n", np.int16(1))
        variable = root.createVariable("v", dtype, ("x",), fill_value=9)
        variable.setncatts({"n": np.int16(1), "f": np.float32(1)})
        variable[:] = VALUES


def read(path: Path) -> Any:
    """Return attributes with their types, and elements, as another process reads them: netCDF-C may end it."""
    program = f"""
import json, netCDF4
def said(node):
    found = {{name: node.getncattr(name) for name in node.ncattrs()}}
    return {{name: [str(getattr(one, "dtype", "str")), one.tolist() if hasattr(one, "tolist") else str(one)]
             for name, one in found.items()}}
with netCDF4.Dataset("file://{path}#mode=nczarr,file") as root:
    root["v"].set_auto_mask(False)
    print(json.dumps([said(root), said(root["v"]), root["v"][:].tolist()]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def as_numbers(values: list[Any], dtype: str) -> list[Any]:
    found: list[Any] = np.array([float(one) if isinstance(one, str) else one for one in values], dtype).tolist()
    return found


def test_lists_of_numbers(tmp_path: Path) -> None:
    """Also as those of attributes that had a type, and in copies from version 3."""
    path, new, back = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    written(path)
    gzarr.copy(path, new, zarr_format=3)
    lists = {f"list{i}": values for i, (values, _) in enumerate(LISTS)} | {"n": [1, 2.5]}
    for place in (path, new):
        group = gzarr.open_group(place, mode="r+", device="cpu")
        for node in (group, group["v"]):
            node.attrs.update(lists)
    gzarr.copy(new, back, zarr_format=2)
    for place in (path, back):
        of_group, of_array, elements = read(place)
        assert elements == VALUES.tolist()
        for found in (of_group, of_array):
            assert found["n"] == ["float64", [1, 2.5]]
            for i, (values, dtype) in enumerate(LISTS):
                assert repr(found[f"list{i}"]) == repr([dtype, as_numbers(values, dtype)])


def test_numbers_that_no_type_holds_are_text(tmp_path: Path) -> None:
    written(tmp_path)
    group = gzarr.open_group(tmp_path, mode="r+", device="cpu")
    group.attrs.update({"large": [1, 2**70], "one": [2**70], "text": [0.5, "NaN", "a"]})
    found, _, _ = read(tmp_path)
    assert found["large"] == ["str", f"[1,{2**70}]"]
    assert found["one"] == ["str", f"[{2**70}]"]
    assert found["text"] == ["str", '[0.5,"NaN","a"]']


@pytest.mark.parametrize(
    ("value", "dtype"), [(2**24, "float32"), (0.1, "float32"), (2**24 + 1, "int32"), (1e300, "float64")]
)
def test_types_that_would_lose_a_number_are_not_kept(value: Any, dtype: str, tmp_path: Path) -> None:
    written(tmp_path)
    gzarr.open_array(tmp_path, path="v", mode="r+", device="cpu").attrs["f"] = value
    _, found, _ = read(tmp_path)
    assert found["f"] == [dtype, np.array(value, dtype).tolist()]


@pytest.mark.parametrize(("value", "dtype"), FILL_VALUES, ids=str)
def test_fill_values_of_other_types(value: Any, dtype: str, tmp_path: Path) -> None:
    """netCDF-C takes them for the array's type, and refuses the array, or ends the process, if they are not."""
    written(tmp_path)
    gzarr.open_array(tmp_path, path="v", mode="r+", device="cpu").attrs["_FillValue"] = value
    _, attributes, elements = read(tmp_path)
    expected = "b'x'" if value == "x" else value[0] if isinstance(value, list) else value
    assert attributes["_FillValue"] == [dtype, expected]
    assert elements == VALUES.tolist()


def test_fill_values_of_other_types_in_copies(tmp_path: Path) -> None:
    path, new, back = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    written(path)
    gzarr.copy(path, new, zarr_format=3)
    gzarr.open_array(new, path="v", mode="r+", device="cpu").attrs["_FillValue"] = -1
    gzarr.copy(new, back, zarr_format=2)
    _, attributes, elements = read(back)
    assert attributes["_FillValue"] == ["int32", -1]
    assert elements == VALUES.tolist()


@pytest.mark.parametrize("value", ["NaN", -1, 2.5])
def test_fill_values_of_the_arrays_type_are_its_own(value: Any, tmp_path: Path) -> None:
    written(tmp_path, "f4")
    array = gzarr.open_array(tmp_path, path="v", mode="r+", device="cpu")
    del array.attrs["_FillValue"]
    array.attrs["_FillValue"] = value
    _, attributes, _ = read(tmp_path)
    assert repr(attributes["_FillValue"]) == repr(["float32", float(value)])
