"""Levels and places of labels, of images as other programs write them too."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main
from gzarr.errors import ArgumentError, MetadataError
from gzarr.ome.metadata.model import Axis, Dataset, Multiscale, Scale
from gzarr.ome.writing.existing import factors_of

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ["0.4", "0.5"]


def change_image(store: Any, change: Any) -> None:
    """Change the object of the first image of the root group."""

    def changed(found: dict[str, Any]) -> dict[str, Any]:
        part = found.get("ome", found)
        part = {**part, "multiscales": [change(part["multiscales"][0])]}
        return {**found, "ome": part} if "ome" in found else part

    gzarr.open_group(store, mode="r+").attrs.change(changed)


def with_transforms(*transforms: dict[str, Any]) -> Any:
    return lambda image: {**image, "coordinateTransformations": list(transforms)}


@pytest.mark.parametrize("version", VERSIONS)
def test_labels_are_where_an_image_with_transformations_of_all_levels_is(version: str) -> None:
    store: dict[str, Any] = {}
    options: dict[str, Any] = {"chunks": 8, "levels": 2, "version": version}
    place = {"scale": (1, 0.5, 0.5), "translation": (0, 2, 3), "units": "micrometer"}
    gzarr.ome.create(store, np.ones((2, 32, 32), "u2"), axes="cyx", **place, **options)
    scale = {"type": "scale", "scale": [1, 10, 20]}
    change_image(store, with_transforms(scale, {"type": "translation", "translation": [0, 100, 200]}))
    image = gzarr.ome.open(store)
    assert (image.scale, image.translation) == ((1, 5, 10), (0, 120, 260))
    labels = gzarr.ome.create_labels(store, "n", np.ones((32, 32), "u4"), chunks=8)
    for level, other in zip(labels.levels, image.levels, strict=True):
        assert (level.scale, level.translation) == (other.scale[1:], other.translation[1:])
    center = image.translation[1] + 50, image.translation[2] + 100
    assert labels.read_um(center, 40).shape == image.read_um(center, 40).shape[1:]


def test_a_pyramid_of_an_image_with_transformations_of_all_levels() -> None:
    """They count for the factors, and are applied once."""
    data = np.arange(32 * 64 * 64, dtype="u2").reshape(32, 64, 64)
    store: dict[str, Any] = {}
    gzarr.ome.create(store, data, axes="zyx", levels=1, chunks=(8, 16, 16), translation=(1, 2, 3))
    change_image(store, with_transforms({"type": "scale", "scale": [4, 1, 1]}))
    made = gzarr.ome.pyramid(store)
    expected = gzarr.ome.create({}, data, axes="zyx", chunks=(8, 16, 16), scale=(4, 1, 1), translation=(4, 2, 3))
    for one, other in zip(made.levels, expected.levels, strict=True):
        assert (one.shape, one.scale, one.translation) == (other.shape, other.scale, other.translation)
    assert "coordinateTransformations" in gzarr.open_group(store).attrs["ome"]["multiscales"][0]


def test_transformations_without_a_number_for_each_axis() -> None:
    store: dict[str, Any] = {}
    gzarr.ome.create(store, np.ones((32, 32), "u2"), axes="yx", chunks=8, levels=2)
    change_image(store, with_transforms({"type": "scale", "scale": [1, 1, 1]}))
    before = dict(store)
    with pytest.raises(MetadataError, match="needs 2 numbers, one for each axis, got 3"):
        gzarr.ome.create_labels(store, "n", np.ones((32, 32), "u4"))
    with pytest.raises(MetadataError, match="needs 2 numbers, one for each axis, got 3"):
        gzarr.ome.pyramid(store, overwrite=True)
    assert store == before


@pytest.mark.parametrize("version", VERSIONS)
def test_pyramids_of_labels_without_all_axes_of_their_image(version: str) -> None:
    store: dict[str, Any] = {}
    options: dict[str, Any] = {"chunks": (1, 16, 16), "levels": 3, "version": version}
    image = gzarr.ome.create(store, np.ones((2, 64, 64), "u2"), axes="cyx", factors={"x": 4, "y": 2}, **options)
    shapes = [level.shape[1:] for level in image.levels]
    labels = gzarr.ome.create_labels(store, "n", shape=(64, 64), dtype="u4", chunks=16)
    labels.level(0)[...] = 1
    for overwrite in (False, True):
        made = gzarr.ome.pyramid(store, path="labels/n", overwrite=overwrite)
        assert [level.shape for level in made.levels] == shapes
        assert (made.read(level=-1) == 1).all()


def test_optimize_makes_levels_of_labels_without_all_axes(tmp_path: Path) -> None:
    gzarr.ome.create(tmp_path / "a", np.ones((2, 64, 64), "u2"), axes="cyx", chunks=(1, 16, 16), levels=1)
    gzarr.ome.create_labels(tmp_path / "a", "n", np.ones((64, 64), "u4"), chunks=16)
    options = ["--levels", "auto", "--chunks", "y=16,x=16"]
    assert main(["optimize", str(tmp_path / "a"), str(tmp_path / "b"), *options]) == 0
    image = gzarr.ome.open(tmp_path / "b")
    assert len(image.labels["n"].levels) == len(image.levels) > 1


def by_lengths(store: Any, shape: tuple[int, ...], count: int, axes: str, unit: float = 8.0) -> Any:
    """Write an image as ome-zarr-py does: halves without the last cell, and ratios of lengths as scales."""
    group = gzarr.create_group(store)
    data = np.arange(math.prod(shape), dtype="u2").reshape(shape)
    datasets = []
    for level in range(count):
        group.create_array(str(level), data=data, chunks=32, dimension_names=list(axes))
        scale = [unit * a / b for a, b in zip(shape, data.shape, strict=True)]
        datasets.append({"path": str(level), "coordinateTransformations": [{"type": "scale", "scale": scale}]})
        cut = [slice(n // 2 * 2) for n in data.shape[-2:]]
        data = data[(..., *cut)][..., ::2, ::2]
    types = {"t": "time", "z": "space", "y": "space", "x": "space"}
    image = {"axes": [{"name": name, "type": types[name]} for name in axes], "datasets": datasets}
    group.attrs["ome"] = {"version": "0.5", "multiscales": [image]}
    return gzarr.ome.open(store, mode="r+")


def test_labels_of_images_whose_scales_are_ratios_of_lengths() -> None:
    store: dict[str, Any] = {}
    image = by_lengths(store, (108, 192), 4, "yx")
    assert image.level(3).shape == (13, 24)
    assert image.grid(3).scale[0] != image.grid(3).scale[1]
    made = gzarr.ome.create_labels(store, "n", np.ones((108, 192), "u4"), chunks=32)
    assert [level.shape for level in made.levels] == [(108, 192), (54, 96), (27, 48), (14, 24)]
    assert made.grid(3).scale == (64, 64)
    # So does a pyramid of labels that were filled later.
    later = gzarr.ome.create_labels(store, "later", shape=(108, 192), dtype="u4", chunks=32)
    later.level(0)[...] = 1
    assert len(gzarr.ome.pyramid(store, path="labels/later").levels) == 4


def test_frames_of_images_whose_scales_are_ratios_of_lengths() -> None:
    store: dict[str, Any] = {}
    image = by_lengths(store, (2, 108, 192), 4, "tyx")
    before = [image.read(level) for level in range(4)]
    frame = np.random.default_rng(0).integers(0, 4000, (108, 192)).astype("u2")
    image.append(frame, method="nearest")
    image = gzarr.ome.open(store)
    for level in range(4):
        found = image.read(level)
        assert found.shape == (3, *before[level].shape[1:])
        np.testing.assert_array_equal(found[:2], before[level])
        step, (rows, columns) = 2**level, found.shape[1:]
        np.testing.assert_array_equal(found[2], frame[::step, ::step][:rows, :columns])


def test_labels_of_images_without_transformations() -> None:
    """The lengths are all that is known of their levels."""
    store: dict[str, Any] = {}
    by_lengths(store, (108, 192), 3, "yx")
    change_image(store, lambda image: {**image, "datasets": [{"path": e["path"]} for e in image["datasets"]]})
    with pytest.warns(gzarr.ome.MetadataWarning, match="lacks 'coordinateTransformations'"):
        image = gzarr.ome.open(store)
    made = gzarr.ome.create_labels(store, "n", np.ones((108, 192), "u4"), chunks=32)
    assert [level.shape for level in made.levels] == [level.shape for level in image.levels]
    assert made.scale == image.scale


def test_levels_that_really_have_other_spacings() -> None:
    store: dict[str, Any] = {}
    by_lengths(store, (108, 192), 3, "yx")

    def stretched(image: dict[str, Any]) -> dict[str, Any]:
        first, second, third = image["datasets"]
        scale = [{"type": "scale", "scale": [20, 16]}]
        return {**image, "datasets": [first, {**second, "coordinateTransformations": scale}, third]}

    change_image(store, stretched)
    before = dict(store)
    text = (
        r"level 1 of the image has no whole factor along 'y' from level 0: .* 2.5 times as large; make the levels anew"
    )
    with pytest.raises(ArgumentError, match=text):
        gzarr.ome.create_labels(store, "n", np.ones((108, 192), "u4"))
    assert store == before
    # The remedy.
    gzarr.ome.pyramid(store, overwrite=True, levels=3)
    assert len(gzarr.ome.create_labels(store, "n", np.ones((108, 192), "u4")).levels) == 3


@pytest.mark.parametrize(
    ("before", "length", "factor"),
    [(135, 67, 2), (135, 68, 2), (7, 3, 2), (11, 5, 2), (5, 3, 2), (25, 8, 3), (8, 3, 3), (3, 1, 3), (9, 9, 1)],
)
def test_factors_by_lengths(before: int, length: int, factor: int) -> None:
    def factors(ratio: float) -> list[dict[str, int]]:
        levels = (Dataset("0", (Scale((8.0, 8.0)),)), Dataset("1", (Scale((8 * ratio, 16.0)),)))
        image = Multiscale((Axis("y", "space"), Axis("x", "space")), levels)
        return factors_of(image, lengths=lambda level: [(before, 16), (length, 8)][level])

    assert factors(before / length) == [{"y": factor, "x": 2}]
    with pytest.raises(ArgumentError, match="no whole factor along 'y'"):
        factors(before // length + 0.5)


@pytest.mark.parametrize(
    ("before", "length", "filled"),
    [(7, 2, 4), (10, 3, 4), (11, 3, 4), (13, 3, 5), (15, 2, 8), (23, 3, 8), (30, 4, 8), (270, 16, 17)],
)
def test_lengths_that_several_factors_explain(before: int, length: int, filled: int) -> None:
    """They do not say which elements became one; new levels only need the same lengths."""

    assert -(-before // filled) == length
    for ratio in (before / length, None):
        with pytest.raises(ArgumentError, match=r"no whole factor along 'y' from level 0.*make the levels anew"):
            factors_between(before, length, ratio)
        assert factors_between(before, length, ratio, same_lengths=True) == filled
    # A whole ratio is the factor.
    for same in (False, True):
        assert factors_between(before, length, filled - 1, same_lengths=same) == filled - 1


@pytest.mark.parametrize(
    ("before", "length", "factor"),
    [(5, 2, 2), (5, 3, 2), (3, 1, 2), (2, 1, 2), (1, 1, 1), (12, 4, 3), (16, 1, 16), (25, 8, 3)],
)
def test_lengths_without_scales(before: int, length: int, factor: int) -> None:
    for same in (False, True):
        assert factors_between(before, length, None, same_lengths=same) == factor


def factors_between(before: int, length: int, ratio: float | None, *, same_lengths: bool = False) -> int:
    scales = [()] * 2 if ratio is None else [(Scale((8.0,)),), (Scale((8 * ratio,)),)]
    levels = tuple(Dataset(str(level), scale) for level, scale in enumerate(scales))
    image = Multiscale((Axis("y", "space"),), levels)
    (found,) = factors_of(image, lengths=lambda level: [(before,), (length,)][level], same_lengths=same_lengths)
    return found["y"]


@pytest.mark.parametrize("step", [3, 4])
def test_frames_of_levels_that_several_factors_explain(step: int) -> None:
    """Reduced by another factor, they would be other frames than those that are there."""
    frames = np.arange(300, dtype="u2").reshape(3, 10, 10)
    store: dict[str, Any] = {}
    group = gzarr.create_group(store)
    below = frames[:2, ::step, ::step][:, :3, :3]
    datasets = []
    for level, (data, scale) in enumerate(((frames[:2], 1), (below, 10 / 3))):
        group.create_array(str(level), data=data, dimension_names=list("tyx"))
        transforms = [{"type": "scale", "scale": [1, scale, scale]}]
        datasets.append({"path": str(level), "coordinateTransformations": transforms})
    axes = [{"name": "t", "type": "time"}, {"name": "y", "type": "space"}, {"name": "x", "type": "space"}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": [{"axes": axes, "datasets": datasets}]}
    image = gzarr.ome.open(store, mode="r+")
    before = dict(store)
    with pytest.raises(ArgumentError, match=r"no whole factor along 'y' .*make the levels anew"):
        image.append(frames[2], method="nearest")
    assert store == before
    labels = gzarr.ome.create_labels(store, "n", np.ones((2, 10, 10), "u4"))
    assert [level.shape for level in labels.levels] == [level.shape for level in image.levels]
    later = gzarr.ome.create_labels(store, "later", shape=(2, 10, 10), dtype="u4")
    later.level(0)[...] = 1
    made = gzarr.ome.pyramid(store, path="labels/later")
    assert [level.shape for level in made.levels] == [level.shape for level in image.levels]
    # The remedy.
    gzarr.ome.pyramid(store, overwrite=True, levels=2, factors=step, method="nearest")
    gzarr.ome.open(store, mode="r+").append(frames[2])
    whole = gzarr.ome.create({}, frames, axes="tyx", levels=2, factors=step, method="nearest")
    np.testing.assert_array_equal(gzarr.ome.open(store).read(1), whole.read(1))
