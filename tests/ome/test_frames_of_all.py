"""An image's frames are those of its level 0: along each axis that can grow, and for labels and pictures, too."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError, ChunkError

FRAMES = np.arange(4 * 32 * 32, dtype="u2").reshape(4, 32, 32)


def killed(axes: str = "tyx") -> Any:
    """Return the store of an image of 3 frames after an append that was killed before level 0 grew."""
    store: dict[str, bytes] = {}
    options: dict[str, Any] = {"factors": {"y": 2, "x": 2}, "levels": 2} if axes == "zyx" else {"levels": 2}
    image = gzarr.ome.create(store, FRAMES[:3], axes=axes, progress=False, **options)
    gzarr.ome.create_labels(store, "cells", FRAMES[:3].astype("u4"), progress=False)
    gzarr.ome.create_labels(store, "all", FRAMES[:1].astype("u4"), progress=False)
    for array in (*(image.labels["cells"].level(k) for k in (1, 0)), image.level(1)):
        array.append(np.full((1, *array.shape[1:]), 7, array.dtype))
    return store


@pytest.mark.parametrize("axes", ["tyx", "zyx"])
def test_frames_beyond_level_0_are_not_read(axes: str) -> None:
    image = gzarr.ome.open(killed(axes))
    assert image.level(1).shape[0] == image.labels["cells"].level(0).shape[0] == 4
    last = {axes[0]: -1}
    np.testing.assert_array_equal(image.read(1), image.level(1)[:3])
    np.testing.assert_array_equal(image.read(1, **last), image.level(1)[2])
    cells = image.labels["cells"]
    for level in range(2):
        np.testing.assert_array_equal(cells.read(level), cells.level(level)[:3])
        np.testing.assert_array_equal(cells.read(level, **last), cells.level(level)[2])
    np.testing.assert_array_equal(cells.read("auto", pixels=16 * 16, **last), cells.level(1)[2])
    assert cells.choose_level(pixels=3 * 32 * 32) == 0
    assert image.labels["all"].read().shape == (1, 32, 32)


def test_pictures_count_the_frames_of_level_0() -> None:
    image = gzarr.ome.open(killed())
    for one in (image, image.labels["cells"]):
        for size in (16, 32):
            np.testing.assert_array_equal(one.render(t=-1, size=size), one.render(t=2, size=size))
    volume = gzarr.ome.open(killed("zyx"))
    np.testing.assert_array_equal(volume.render(z=-1, size=16), volume.render(z=2, size=16))
    # What lies beyond level 0 has the labels 7.
    cells = volume.labels["cells"]
    whole = gzarr.ome.create({}, FRAMES[:3], axes="zyx", factors={"y": 2, "x": 2}, levels=2, progress=False)
    labels = gzarr.ome.create_labels(whole.group.store, "cells", FRAMES[:3].astype("u4"), progress=False)
    np.testing.assert_array_equal(cells.render(z="max", size=16), labels.render(z="max", size=16))


def test_the_options_of_the_image_stay() -> None:
    store: dict[str, bytes] = {}
    gzarr.ome.create(store, FRAMES[:1], axes="tyx", levels=2, progress=False)
    group = gzarr.open_group(store, mode="r+", device="cpu", missing="error")
    image = gzarr.ome.Image(group, gzarr.ome.open(store).metadata)
    assert image.append(FRAMES[1]) == (2, 32, 32)
    assert image.level(1).device == "cpu"
    np.testing.assert_array_equal(image.read(), FRAMES[:2])
    for key in [key for key in store if key.startswith("0/c/")]:
        del store[key]
    with pytest.raises(ChunkError):
        image.read()


def with_labels(store: dict[str, bytes], labels: dict[str, bytes]) -> Any:
    """Return an image with labels that somebody else has written, under the name ``other``."""
    gzarr.ome.create_labels(store, "n", FRAMES.astype("u4"), progress=False)
    store.update({f"labels/other/{key}": value for key, value in labels.items()})
    group = gzarr.open_group(store, path="labels", mode="r+")
    group.attrs["ome"] = {**group.attrs["ome"], "labels": ["n", "other"]}
    return gzarr.ome.open(store)


def test_finer_labels_are_read_as_a_whole() -> None:
    store: dict[str, bytes] = {}
    labels: dict[str, bytes] = {}
    gzarr.ome.create(store, FRAMES, axes="zyx", levels=1, progress=False)
    fine = np.arange(8 * 64 * 64, dtype="u4").reshape(8, 64, 64)
    gzarr.ome.create(labels, fine, axes="zyx", scale=(0.5, 0.5, 0.5), levels=1, progress=False)
    np.testing.assert_array_equal(with_labels(store, labels).labels["other"].read(), fine)


def test_smaller_levels_of_a_wrong_scale_are_read_as_they_are() -> None:
    image = gzarr.ome.create({}, FRAMES, axes="zyx", levels=2, factors=2, progress=False)
    document = image.group.attrs["ome"]
    multiscale = document["multiscales"][0]
    datasets = [{**multiscale["datasets"][0], "path": level["path"]} for level in multiscale["datasets"]]
    image.group.attrs["ome"] = {**document, "multiscales": [{**multiscale, "datasets": datasets}]}
    with pytest.warns(gzarr.ome.MetadataWarning, match="at the same scale"):
        image = gzarr.ome.open(image.group.store)
    small = image.level(1)[...]
    np.testing.assert_array_equal(image.read(1, z=-1), small[-1])
    np.testing.assert_array_equal(image.read(1, y=slice(-3, None)), small[:, -3:])
    np.testing.assert_array_equal(image.read(1, x=[0, -1]), small[:, :, [0, -1]])
    assert image.render(size=16).shape == (16, 16, 3)


def test_labels_without_level_0_or_image_are_read() -> None:
    store: dict[str, bytes] = {}
    gzarr.ome.create(store, FRAMES, axes="tyx", levels=2, progress=False)
    expected = gzarr.ome.create_labels(store, "n", FRAMES.astype("u4"), progress=False).read(1)
    for missing in ("0/", "labels/n/0/"):
        some = {key: value for key, value in store.items() if not key.startswith(missing)}
        np.testing.assert_array_equal(gzarr.ome.open(some).labels["n"].read(1), expected)


def test_images_are_freed_with_their_labels() -> None:
    image = gzarr.ome.open(killed())
    image.labels["cells"].read()
    freed = weakref.ref(image)
    del image
    assert freed() is None


def test_labels_are_given_by_name() -> None:
    image = gzarr.ome.create({}, FRAMES[:1], axes="tyx", levels=1, progress=False)
    for wrong in (["cells"], "cells", 5):
        with pytest.raises(ArgumentError, match="labels must map names of labels to their frames"):
            image.append(FRAMES[1], labels=wrong)
    assert image.shape == (1, 32, 32)
