"""Metadata of images that are there are changed in one write, and only as the specification allows."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import gzarr
from gzarr.errors import ArgumentError, ReadOnlyError, UnsupportedError
from gzarr.ome.metadata.model import Channel, Window
from gzarr.ome.metadata.parse import parse

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ["0.4", "0.5"]
DATA = np.arange(2 * 8 * 32 * 32, dtype="u2").reshape(2, 8, 32, 32)


def make(store: Any, version: str, **options: Any) -> Any:
    place = {"scale": (1, 2, 0.5, 0.25), "translation": (0, 10, 3, -1), "units": "micrometer"}
    gzarr.ome.create(
        store,
        DATA,
        axes="czyx",
        version=version,
        chunks=(1, 4, 8, 8),
        levels=3,
        channels=["a", "b"],
        **place,
        **options,
    )
    return gzarr.ome.open(store, mode="r+", path=options.get("path", ""))


def check_rules(image: Any) -> None:
    found = parse(image.group.attrs, zarr_format=image.group.zarr_format)
    assert not found.errors
    assert [str(problem) for problem in found.problems if problem.is_rule] == []


@pytest.mark.parametrize("version", VERSIONS)
def test_places(version: str) -> None:
    store: dict[str, Any] = {}
    image = make(store, version)
    elements = {key: value for key, value in store.items() if "/c/" in key or key[-1].isdigit()}
    image.update_metadata(scale={"z": 3, "x": 0.5}, translation=(0, 0, 6, 1))
    expected = gzarr.ome.create(
        {},
        DATA,
        axes="czyx",
        version=version,
        chunks=(1, 4, 8, 8),
        factors=[{"x": 2}, {"y": 2, "x": 2}],
        scale=(1, 3, 0.5, 0.5),
        translation=(0, 0, 6, 1),
    )
    assert image.version == version
    for found in (image, gzarr.ome.open(store)):
        assert found.units == (None, *["micrometer"] * 3)
        for one, other in zip(found.levels, expected.levels, strict=True):
            np.testing.assert_allclose(one.scale, other.scale)
            np.testing.assert_allclose(one.translation, other.translation)
        check_rules(found)
    image.update_metadata(units={"z": "nanometer", "x": None}, name="new")
    image.update_metadata(translation={"y": 0})
    again = gzarr.ome.open(store)
    assert again.units == (None, "nanometer", "micrometer", None)
    assert (again.name, again.scale, again.translation) == ("new", (1, 3, 0.5, 0.5), (0, 0, 0, 1))
    image.update_metadata(units="millimeter")
    assert gzarr.ome.open(store).units == (None, *["millimeter"] * 3)
    assert {key: value for key, value in store.items() if key in elements} == elements


@pytest.mark.parametrize("version", VERSIONS)
def test_channels(version: str) -> None:
    store: dict[str, Any] = {}
    image = make(store, version)
    image.group.attrs["own"] = 1
    root = image.group.attrs.asdict()
    part = root if version == "0.4" else root["ome"]
    part["omero"]["rdefs"] = {"model": "color"}
    part["omero"]["channels"][0]["family"] = "linear"
    part["multiscales"][0]["mine"] = 5
    image.group.attrs.put(root)
    before = gzarr.ome.open(store).channels
    image.update_metadata(channels=["DAPI", "GFP"])
    assert image.channels == tuple(replace(c, label=n) for c, n in zip(before, ("DAPI", "GFP"), strict=True))
    window = Window(1, 2, 0, 9)
    image.update_metadata(channels=[replace(image.channels[0], color="0000FF"), Channel("GFP", "00FF00", window)])
    again = gzarr.ome.open(store)
    assert again.channels == image.channels
    assert [(c.label, c.color) for c in again.channels] == [("DAPI", "0000FF"), ("GFP", "00FF00")]
    assert again.channels[0].extra == {"family": "linear"}
    assert again.channels[1].window == window
    root = again.group.attrs.asdict()
    part = root if version == "0.4" else root["ome"]
    assert (root["own"], part["omero"]["rdefs"], part["multiscales"][0]["mine"]) == (1, {"model": "color"}, 5)
    assert again.read(c="GFP", z=0).shape == (32, 32)
    check_rules(again)
    # An image without any gets colours and windows.
    bare = gzarr.ome.create({}, DATA, axes="czyx", levels=1)
    bare.update_metadata(channels=["a", "b"])
    assert [c.window.max for c in bare.channels] == [65535, 65535]


@pytest.mark.parametrize("version", VERSIONS)
def test_labels(version: str) -> None:
    store: dict[str, Any] = {}
    make(store, version)
    gzarr.ome.create_labels(store, "cells", DATA[0].astype("u8"), colors={1: (1, 2, 3, 4)})
    labels = gzarr.ome.open(store, mode="r+").labels["cells"]
    labels.update_metadata(properties={np.uint64(2**60 + 1): {"class": "nucleus", "area": 7}, 2: {}})
    assert labels.image_label.properties == (
        {"label-value": 2**60 + 1, "class": "nucleus", "area": 7},
        {"label-value": 2},
    )
    assert [c.value for c in labels.image_label.colors] == [1]
    labels.update_metadata(colors={2**60: (0, 0, 0, 255), 3: (9, 9, 9, 9)}, properties={})
    again = gzarr.ome.open(store).labels["cells"]
    assert again.image_label == labels.image_label
    assert ([c.value for c in again.image_label.colors], again.image_label.properties) == ([2**60, 3], ())
    assert again.image_label.source == "../../"
    check_rules(again)


def test_what_is_refused(tmp_path: Path) -> None:
    store: dict[str, Any] = {}
    image = make(store, "0.5")
    gzarr.ome.create_labels(store, "cells", DATA[0].astype("u4"))
    labels = gzarr.ome.open(store, mode="r+").labels["cells"]
    before = dict(store)
    channel = image.channels[0]
    for one, changes, text in (
        (image, {"scale": (1, 2, 3)}, "scale must have a value for each of the axes c, z, y, x"),
        (image, {"scale": {"q": 1}}, "has the axes c, z, y, x, not 'q'"),
        (image, {"scale": {"z": 0}}, "positive numbers"),
        (image, {"scale": {"z": float("nan")}}, "positive numbers"),
        (image, {"translation": {"z": "a"}}, "numbers"),
        (image, {"units": {"z": 3}}, "units must be texts"),
        (image, {"name": 3}, "OME-Zarr 0.5 does not allow that"),
        (image, {"channels": ["a"]}, "channels must be 2 names or Channel"),
        (image, {"channels": "ab"}, "channels must be a list"),
        (image, {"channels": [channel, replace(channel, color="red")]}, "six hexadecimal digits"),
        (image, {"channels": [channel, replace(channel, active="no")]}, "does not allow that"),
        (image, {"colors": {1: (0, 0, 0, 0)}}, "is not a label image"),
        (labels, {"colors": {1: (0, 0, 0, 256)}}, "does not allow that"),
        (labels, {"colors": {0.5: (0, 0, 0, 0)}}, "labels are integers"),
        (labels, {"colors": [1]}, "colors must map"),
        (labels, {"properties": {1: 3}}, "properties must map"),
        (labels, {"properties": {1.5: {}}}, "labels are integers"),
        (labels, {"properties": {1: {"a": object()}}}, "a"),
    ):
        with pytest.raises(ArgumentError, match=text):
            one.update_metadata(**changes)
        assert store == before
    with pytest.raises(ReadOnlyError, match=r"mode='r\+'"):
        gzarr.ome.open(store).update_metadata(name="a")
    with pytest.raises(ArgumentError, match="a group has its own mode"):
        gzarr.ome.open(gzarr.open_group(store), mode="r+")
    # A rule that is broken already is no hindrance, and a place that nobody knows is not guessed.
    document = json.loads(store["zarr.json"])
    affine = {"type": "affine", "affine": [[1]]}
    document["attributes"]["ome"]["multiscales"][0]["datasets"][1]["coordinateTransformations"] = [affine]
    store["zarr.json"] = json.dumps(document).encode()
    with pytest.warns(gzarr.ome.MetadataWarning):
        image = gzarr.ome.open(store, mode="r+")
    image.update_metadata(name="still")
    with pytest.raises(UnsupportedError):
        image.update_metadata(scale={"z": 1})
    assert json.loads(store["zarr.json"])["attributes"]["ome"]["multiscales"][0]["name"] == "still"


@pytest.mark.parametrize("version", VERSIONS)
def test_transformations_of_the_image_as_a_whole(version: str) -> None:
    """They become part of those of the levels."""
    store: dict[str, Any] = {}
    image = make(store, version)
    root = image.group.attrs.asdict()
    part = root if version == "0.4" else root["ome"]
    part["multiscales"][0]["coordinateTransformations"] = [{"type": "scale", "scale": [5.0, 1.0, 2.0, 1.0]}]
    image.group.attrs.put(root)
    image = gzarr.ome.open(store, mode="r+")
    assert image.scale == (5, 2, 1, 0.25)
    places = [(level.scale, level.translation) for level in image.levels]
    image.update_metadata(scale={"z": 4})
    again = gzarr.ome.open(store)
    assert again.scale == (5, 4, 1, 0.25)
    for level, (scale, translation) in zip(again.levels, places, strict=True):
        assert level.scale == (scale[0], 2 * scale[1], *scale[2:])
        np.testing.assert_allclose(level.translation, translation)
    assert not again.multiscale.transforms


@pytest.mark.parametrize("version", VERSIONS)
def test_consolidated_metadata_stays_true(tmp_path: Path, version: str) -> None:
    image = make(tmp_path, version, path="a")
    gzarr.consolidate_metadata(tmp_path)
    image.update_metadata(name="new", scale={"z": 7})
    assert gzarr.ome.open(tmp_path, path="a").name == "new"
    read: Any = zarr.open_group(tmp_path, mode="r")["a"].attrs.asdict()
    assert read.get("ome", read)["multiscales"][0]["name"] == "new"
    gzarr.consolidate_metadata(tmp_path, path="a")
    image.update_metadata(name="newer")
    read = zarr.open_group(tmp_path / "a", mode="r").attrs.asdict()
    assert read.get("ome", read)["multiscales"][0]["name"] == "newer"
    assert gzarr.ome.open(tmp_path / "a").name == "newer"


def test_threads_lose_no_change() -> None:
    store: dict[str, Any] = {}
    make(store, "0.5")

    def work(number: int) -> None:
        image = gzarr.ome.open(store, mode="r+")
        if number % 2:
            image.update_metadata(scale={"zyx"[number // 2]: number + 1})
        else:
            image.update_metadata(units={"zyx"[number // 2]: "nanometer"})

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    image = gzarr.ome.open(store)
    assert (image.scale, image.units) == ((1, 2, 4, 6), (None, *["nanometer"] * 3))


def labels_in(store: Any) -> Any:
    gzarr.ome.create(store, DATA[0], axes="zyx", levels=1)
    return gzarr.ome.create_labels(store, "cells", np.ones(DATA[0].shape, "u4"))


def test_properties_of_numpy() -> None:
    """Arrays become lists, and numbers are numbers, as in all attributes; what is no JSON is said to be none."""
    labels = labels_in({})
    labels.update_metadata(properties={np.int64(1): {"center": np.arange(3), "area": np.float32(2), "more": [{}]}})
    assert labels.image_label.properties == ({"label-value": 1, "center": [0, 1, 2], "area": 2, "more": [{}]},)
    before = labels.group.attrs.asdict()
    for wrong, text in (
        ({1, 2}, "a set is not JSON"),
        ([{1, 2}], "a set is not JSON"),
        (np.ma.masked_array([1], mask=[True]), "masked"),
        (np.array(["2020"], "M8[D]"), "a ndarray is not JSON"),
        (np.array([np.nan]), "JSON has no nan"),
        (float("nan"), "JSON has no nan"),
    ):
        with pytest.raises(ArgumentError, match=text):
            labels.update_metadata(properties={1: {"v": wrong}})
    with pytest.raises(ArgumentError, match="name: expected a string"):
        labels.update_metadata(name=np.arange(3))
    with pytest.raises(ArgumentError, match="name: expected a string"):
        gzarr.ome.create({}, DATA[0], axes="zyx", name=np.arange(3))  # type: ignore[arg-type]
    assert labels.group.attrs.asdict() == before


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("wrong", [[], [1], [["rdefs", 1]], None, "x", 5])
def test_objects_of_other_types_are_replaced(version: str, wrong: Any) -> None:
    store: dict[str, Any] = {}
    image = make(store, version)
    root = image.group.attrs.asdict()
    part = root if version == "0.4" else root["ome"]
    part["omero"] = part["image-label"] = wrong
    image.group.attrs.put(root)
    with pytest.warns(gzarr.ome.MetadataWarning):
        image = gzarr.ome.open(store, mode="r+")
    with pytest.raises(ArgumentError, match="is not a label image"):
        image.update_metadata(properties={1: {}})
    image.update_metadata(channels=["DAPI", "GFP"])
    assert [channel.label for channel in image.channels] == ["DAPI", "GFP"]
    found = image.group.attrs.asdict()
    part = found if version == "0.4" else found["ome"]
    assert list(part["omero"]) == ["channels"]
    assert part["image-label"] == wrong


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_what_others_wrote_that_is_no_json_stays(version: Any) -> None:
    store: dict[str, Any] = {}
    data = np.linspace(5, 9, 4096).reshape(64, 64)
    gzarr.ome.create(store, data, axes="yx", levels=1, channels=["a"], version=version)
    key = ".zattrs" if version == "0.4" else "zarr.json"
    document = json.loads(store[key])
    top = document if version == "0.4" else document["attributes"]["ome"]
    top["omero"]["channels"][0]["window"]["start"] = np.nan
    store[key] = json.dumps(document).encode()
    image = gzarr.ome.open(store, mode="r+")
    image.update_metadata(name="k")
    assert len(gzarr.ome.pyramid(store, levels=3).levels) == 3
    assert b"NaN" in store[key]
    with pytest.raises(gzarr.ArgumentError):
        image.update_metadata(name=np.nan)
