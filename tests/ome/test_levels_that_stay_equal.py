"""Levels that no axis of labels, or of a list of factors, makes smaller; and what decides on the levels of an image."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError
from gzarr.ome.metadata.units import meters, unit_named

LABELS = np.random.default_rng(5).integers(0, 4, (64, 64)).astype("u1")


@pytest.mark.parametrize("method", ["mode", "nearest", "max"])
def test_labels_have_a_level_for_each_of_the_image(method: str) -> None:
    store: dict[str, bytes] = {}
    image = gzarr.ome.create(
        store, np.zeros((16, 64, 64), "u1"), axes="zyx", scale=(0.25, 1, 1), levels=5, progress=False
    )
    shapes = [level.shape for level in image.levels]
    assert shapes == [(16, 64, 64), (8, 64, 64), (4, 64, 64), (2, 32, 32), (1, 16, 16)]
    flat = gzarr.ome.create_labels(store, "flat", LABELS, axes="yx", method=method, progress=False)
    one = gzarr.ome.create_labels(store, "one", LABELS[np.newaxis], method=method, progress=False)
    assert [level.shape for level in flat.levels] == [shape[1:] for shape in shapes]
    assert [level.shape for level in one.levels] == [(1, *shape[1:]) for shape in shapes]
    np.testing.assert_array_equal(flat.read(1), LABELS)
    again = gzarr.ome.pyramid(store, path="labels/one", overwrite=True, method=method, progress=False)
    for level in range(5):
        np.testing.assert_array_equal(one.read(level)[0], flat.read(level))
        np.testing.assert_array_equal(again.read(level)[0], flat.read(level))


def test_entries_of_a_list_that_reduce_nothing() -> None:
    data = np.arange(32 * 32, dtype="u2").reshape(1, 32, 32)
    options: dict[str, Any] = {"axes": "zyx", "progress": False, "method": "nearest"}
    image = gzarr.ome.create({}, data, factors=[{"z": 2}, {"y": 2, "x": 2}, {"z": 2}], **options)
    assert [level.shape for level in image.levels] == [(1, 32, 32), (1, 32, 32), (1, 16, 16)]
    np.testing.assert_array_equal(image.read(1), data)
    np.testing.assert_array_equal(image.read(2), data[:, ::2, ::2])


def test_units_count_for_the_factors() -> None:
    data = np.zeros((32, 32, 32), "u1")
    units = {"z": "micrometer", "y": "nanometer", "x": "nanometer"}
    options: dict[str, Any] = {"axes": "zyx", "levels": 2, "progress": False}
    image = gzarr.ome.create({}, data, scale=(2, 250, 250), units=units, **options)
    assert image.level(1).shape == (32, 16, 16)
    again = gzarr.ome.pyramid(image.group.store, overwrite=True, levels=2, progress=False)
    assert again.level(1).shape == (32, 16, 16)
    # Of units that are not known, numbers are all there is.
    unknown = gzarr.ome.create({}, data, scale=(2, 250, 250), units={"z": "micrometer"}, **options)
    assert unknown.level(1).shape == (16, 32, 32)


def test_levels_of_another_image_are_not_erased() -> None:
    store: dict[str, bytes] = {}
    data = np.arange(64, dtype="u1").reshape(8, 8)
    image = gzarr.ome.create(store, data, axes="yx", levels=1, progress=False)
    gzarr.create_array(store, path="1", data=data + 1, dimension_names=["y", "x"])
    group = gzarr.open_group(store, mode="r+")
    ome = dict(group.attrs["ome"])
    second = {**ome["multiscales"][0], "datasets": [{**ome["multiscales"][0]["datasets"][0], "path": "1"}]}
    group.attrs["ome"] = {**ome, "multiscales": [ome["multiscales"][0], second]}
    before = dict(store)
    for overwrite in (False, True):
        with pytest.raises(ArgumentError, match="'1' is one of another image in the same group"):
            gzarr.ome.pyramid(image.group.store, levels=2, factors=2, overwrite=overwrite, progress=False)
        assert store == before


def test_places_of_labels_that_are_not_named() -> None:
    store: dict[str, bytes] = {}
    gzarr.ome.create(
        store, np.zeros((4, 8, 8), "u1"), axes="zyx", scale=(3, 0.5, 0.5), translation=(7, 8, 9), progress=False
    )
    labels = gzarr.ome.create_labels(
        store, "cells", np.zeros((4, 8, 8), "u1"), scale={"z": 2}, translation={"y": 1}, progress=False
    )
    assert (labels.scale, labels.translation) == ((2.0, 0.5, 0.5), (7.0, 1.0, 9.0))


def test_names_of_channels_change_nothing_else() -> None:
    for dtype in ("u1", "f4"):
        image = gzarr.ome.create(
            {}, np.ones((2, 8, 8), dtype), axes="cyx", channels=["a", "b"], version="0.4", progress=False
        )
        odd = {"label": "a", "color": "#FF0000", "active": "yes", "window": {"start": 5, "end": 10, "foo": 1}, "q": 3}
        omero = image.group.attrs["omero"]
        image.group.attrs["omero"] = {**omero, "channels": [odd, omero["channels"][1]]}
        with pytest.warns(gzarr.ome.MetadataWarning, match="lacks 'min'"):
            image = gzarr.ome.open(image.group.store, mode="r+")
        image.update_metadata(channels=["new", image.channels[1]])
        assert image.group.attrs["omero"]["channels"] == [{**odd, "label": "new"}, omero["channels"][1]]


def test_types_and_units_that_are_none() -> None:
    with pytest.raises(ArgumentError, match="dtype='foo' is no NumPy dtype"):
        gzarr.ome.create({}, axes="yx", shape=(2, 2), dtype="foo")
    assert meters("Mm") is meters("Pm") is unit_named("Ms", "time") is None
    assert (meters("mm"), meters("Micron"), meters("Micrometers")) == (1e-3, 1e-6, 1e-6)
    # Where there is no other unit of that symbol, upper case means the same.
    assert [meters(unit) for unit in ("UM", "NM", "MM", "M", "IN", "\N{ANGSTROM SIGN}")] == [
        1e-6, 1e-9, 1e-3, 1.0, 0.0254, 1e-10
    ]  # fmt: skip
    assert (unit_named("MS", "time"), unit_named("Min", "time")) == ("millisecond", "minute")
