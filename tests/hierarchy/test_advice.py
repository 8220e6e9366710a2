"""What errors advise can be done where they are raised; and what new nodes have that nobody named."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def opened(**arguments: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda store: gzarr.open(store, path="x", **arguments)


ONE = {"shape": 1, "dtype": "u1"}
CALLS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "create_array": (lambda store: gzarr.create_array(store, path="x", **ONE), "pass overwrite=True"),
    "group": (lambda store: gzarr.open_group(store, mode="a").create_array("x", **ONE), "pass overwrite=True"),
    "save": (lambda store: gzarr.save(store, [1], path="x"), "pass overwrite=True"),
    "open": (opened(mode="w-", **ONE), "open with mode='w'"),
    "open_array": (lambda store: gzarr.open_array(store, path="x", mode="w-", **ONE), "open with mode='w'"),
    "open_group": (lambda store: gzarr.open_group(store, path="x", mode="w-"), "open with mode='w'"),
    "setitem": (
        lambda store: gzarr.open_group(store, mode="a").__setitem__("x", [2]),
        r"call create_array\('x', \.\.\., overwrite=True\) of the group",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_how_an_existing_node_is_erased(name: str) -> None:
    call, advice = CALLS[name]
    store: dict[str, Any] = {}
    gzarr.create_array(store, path="x", data=[1])
    with pytest.raises(gzarr.ArgumentError, match=f"already; {advice} to erase it with everything below it$"):
        call(store)


@pytest.mark.parametrize("name", ["create_array", "open_array", "setitem", "require_array", "require_array of a group"])
def test_how_chunks_without_an_array_are_erased(name: str) -> None:
    call, advice = {
        **CALLS,
        "require_array": (lambda store: gzarr.require_array(store, path="x", **ONE), CALLS["open"][1]),
        "require_array of a group": (
            lambda store: gzarr.open_group(store, mode="a").require_array("x", **ONE),
            CALLS["setitem"][1],
        ),
    }[name]
    store: dict[str, Any] = {"x/c/0": b"\0"}
    with pytest.raises(gzarr.ArgumentError, match=f"would be a chunk of it; {advice} to erase such chunks$"):
        call(store)


@pytest.mark.skipif(os.fsdecode(b"\xff") != "\udcff", reason="names of files are not UTF-8 here")
def test_names_that_archives_cannot_have(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # What is logged on the way fits in a file of UTF-8.
    caplog.set_level("INFO", "gzarr")
    name = os.fsdecode(b"n\xff")
    source = gzarr.create_group({})
    source.create_array(name, data=[1])
    with pytest.raises(gzarr.ArgumentError, match=r"'n\\udcff/c/0' has characters that UTF-8 cannot encode.* zip"):
        gzarr.copy(source, tmp_path / "x.zip", progress=False)
    assert "n\\udcff" in caplog.text


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore:The data type")
def test_dates_in_records_are_not_a_time(zarr_format: Any, tmp_path: Path) -> None:
    # Version 3 has no fields of arrays.
    inner = np.dtype([("d", ">m8[ms]", (2,) if zarr_format == 2 else ()), ("i", "i2")])
    dtype = np.dtype([("t", "M8[s]"), ("x", "f4"), ("s", "U3"), ("r", inner)])
    folder = tmp_path / "a"
    gzarr.create_array(folder, shape=2, dtype=dtype, zarr_format=zarr_format)
    found = gzarr.open_array(folder)[...]
    assert np.isnat(found["t"]).all()
    assert np.isnat(found["r"]["d"]).all()
    assert found["x"].tolist() == [0, 0]
    assert found["r"]["i"].tolist() == [0, 0]
    assert found["s"].tolist() == ["", ""]
    flat = np.dtype([("t", "M8[s]"), ("x", "f4")])
    gzarr.create_array(tmp_path / "b", shape=2, dtype=flat, zarr_format=zarr_format)
    theirs: Any = pytest.importorskip("zarr").open_array(tmp_path / "b", mode="r")[...]
    assert np.isnat(theirs["t"]).all()
    assert theirs["x"].tolist() == [0, 0]


@pytest.mark.parametrize("name", ["create", "create_plate"])
def test_the_version_of_an_image_in_a_hierarchy_of_another_format(name: str) -> None:
    call: dict[str, Callable[[dict[str, Any], str], Any]] = {
        "create": lambda store, version: gzarr.ome.create(
            store, np.zeros((4, 4), "u1"), path="x", axes="yx", version=version
        ),
        "create_plate": lambda store, version: gzarr.ome.create_plate(
            store, path="x", rows=["A"], columns=["1"], version=version
        ),
    }
    formats: list[tuple[Any, str, str]] = [(2, "0.5", "0.4"), (3, "0.4", "0.5")]
    for zarr_format, version, advised in formats:
        store: dict[str, Any] = {}
        gzarr.create_group(store, zarr_format=zarr_format)
        with pytest.raises(gzarr.ArgumentError, match=f"have the same; pass version='{advised}'$"):
            call[name](store, version)
        call[name](store, advised)


@pytest.mark.parametrize("name", ["zarr_format", "path", "layout", "object_nbytes", "device"])
def test_arguments_that_arrays_in_groups_do_not_have(name: str) -> None:
    group = gzarr.create_group({})
    text = (
        "an array in a group has the format of the group" if name == "zarr_format" else "the arguments for a new array"
    )
    unknown: dict[str, Any] = {name: 3}
    for create in (group.create_array, group.require_array):
        with pytest.raises(gzarr.ArgumentError, match=f"there is no argument '{name}'; {text}"):
            create("x", shape=1, dtype="u1", **unknown)
    assert "x" not in group


def test_attributes_that_json_lacks_are_those_of_a_node() -> None:
    attrs = gzarr.create_group({}, path="a/b").attrs
    wrong = {"x": np.nan}
    changes: list[Callable[[], Any]] = [
        lambda: attrs.change(lambda found: {**found, **wrong}),
        lambda: attrs.put(wrong),
        lambda: attrs.update(wrong),
        lambda: attrs.setdefault("x", np.nan),
    ]
    for change in changes:
        with pytest.raises(gzarr.ArgumentError, match=r"^'/a/b': attributes\['x'\]: JSON has no nan"):
            change()
