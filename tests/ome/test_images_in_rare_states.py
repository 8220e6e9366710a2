"""Images in states that are rare: interrupted, changed meanwhile, mirrored, saturated, without fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ArgumentError, MetadataError, StoreError
from gzarr.ome.metadata.model import Channel, Window
from gzarr.ome.writing.pyramid import Downsampling, Pyramid

FRAMES = np.random.default_rng(3).integers(1, 60000, (5, 20, 22), dtype="u2")


class Interrupting(dict[str, Any]):
    """A mapping in which something happens after a key was set."""

    key = ""
    error: BaseException | None = None

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        if key == self.key and self.error is not None:
            error, self.error = self.error, None
            raise error


def series(store: Any) -> Any:
    gzarr.ome.create(store, FRAMES[:3], axes="tyx", levels=2, progress=False)
    gzarr.ome.create_labels(store, "n", FRAMES[:3], progress=False)
    return gzarr.ome.open(store, mode="r+")


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError], ids=["interrupt", "time-out"])
@pytest.mark.parametrize(
    ("key", "count"), [("0/zarr.json", 4), ("1/zarr.json", 3), ("labels/n/0/zarr.json", 3)], ids=["0", "1", "labels"]
)
def test_an_append_that_fails_after_a_document_was_written(key: str, count: int, error: type[BaseException]) -> None:
    store = Interrupting()
    image = series(store)
    store.key, store.error = key, error()
    with pytest.raises((KeyboardInterrupt, StoreError)) as caught:
        image.append(FRAMES[3], labels={"n": FRAMES[3]})
    assert any("have the new frames already" in note for note in getattr(caught.value, "__notes__", [])) == (count == 4)
    again = gzarr.ome.open(store, mode="r+")
    for opened in (image, again):
        assert {level.shape[0] for level in (*opened.levels, *opened.labels["n"].levels)} == {count}
    again.append(FRAMES[4], labels={"n": FRAMES[4]})
    chosen = FRAMES[[*range(count), 4]]
    whole: dict[str, Any] = {}
    expected = gzarr.ome.create(whole, chosen, axes="tyx", levels=2, progress=False)
    masks = gzarr.ome.create_labels(whole, "n", chosen, progress=False)
    for level in range(2):
        np.testing.assert_array_equal(gzarr.ome.open(store).read(level), expected.read(level))
        np.testing.assert_array_equal(gzarr.ome.open(store).labels["n"].read(level), masks.read(level))


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_metadata_that_change_while_levels_are_made(version: str) -> None:
    store: dict[str, Any] = {}
    options: dict[str, Any] = {"axes": "yx", "chunks": (16, 16), "version": version, "progress": False}
    image = gzarr.ome.create(store, FRAMES[0], levels=1, name="old", **options)
    steps = Pyramid(store, Downsampling(2)).steps()
    next(steps)
    image.update_metadata(name="new", scale=(0.5, 0.4), units="um")
    for _ in steps:
        pass
    found = gzarr.ome.open(store)
    expected = gzarr.ome.create({}, FRAMES[0], levels=2, scale=(0.5, 0.4), units="um", **options)
    assert (found.name, found.units, len(found.levels)) == ("new", expected.units, 2)
    assert [found.grid(level) for level in range(2)] == [expected.grid(level) for level in range(2)]


@pytest.mark.parametrize("begun", [False, True])
def test_another_image_that_is_written_while_levels_are_made(*, begun: bool) -> None:
    store: dict[str, Any] = {}
    gzarr.ome.create(store, FRAMES[0], axes="yx", levels=2, chunks=16, progress=False)
    steps = Pyramid(store, Downsampling(2), overwrite=True).steps()
    if begun:
        next(steps)
    attributes = gzarr.open_group(gzarr.ome.create({}, FRAMES, axes="tyx", levels=1, progress=False).group.store).attrs
    gzarr.open_group(store, mode="r+").attrs.update(dict(attributes))
    with pytest.raises(MetadataError, match="another image was written while levels were made"):
        list(steps)
    assert dict(gzarr.open_group(store).attrs) == dict(attributes)
    assert "1/zarr.json" in store


@pytest.mark.parametrize("channels", [None, ["m"]], ids=["without channels", "channels"])
@pytest.mark.parametrize("z", ["max", "mean"])
@pytest.mark.parametrize("dtype", ["bool", "u1", "i2", "u8"])
def test_elements_that_are_all_the_largest(dtype: str, z: str, channels: list[str] | None) -> None:
    largest = True if dtype == "bool" else np.iinfo(dtype).max
    image = gzarr.ome.create({}, np.full((3, 8, 8), largest, dtype), axes="zyx", channels=channels, progress=False)
    assert (image.render(z=z) == 255).all()
    if channels is not None:
        window = image.channels[0].window
        assert window.end == window.max == float(largest)
        assert window.start < window.end


def test_means_below_the_largest_element() -> None:
    mask = np.stack([np.zeros((8, 8), bool), np.ones((8, 8), bool)])
    image = gzarr.ome.create({}, mask, axes="zyx", progress=False)
    assert (image.render(z="mean") == 128).all()


def test_a_mask_whose_smallest_level_is_true() -> None:
    mask = np.ones((64, 64), bool)
    mask[5, 5] = False
    image = gzarr.ome.create({}, mask, axes="yx", channels=["mask"], chunks=32, progress=False)
    assert image.channels[0].window == Window(0, 1, 0, 1)
    np.testing.assert_array_equal(image.render(level=0)[..., 1], np.where(mask, 255, 0))


@pytest.mark.parametrize("window", [Window(0, 1, 0, 1), Window(1, 0, 0, 1)], ids=["rising", "falling"])
@pytest.mark.parametrize("inverted", [False, True], ids=["plain", "inverted"])
@pytest.mark.parametrize("z", ["max", "mean", 0])
def test_what_is_no_number_is_black(window: Window, inverted: bool, z: Any) -> None:
    planes = np.array([[[np.nan, 0], [1, np.nan]], [[np.nan, 0], [1, 0.5]]], "f4")
    channel = Channel("a", "FFFFFF", window, True, {"inverted": inverted})
    image = gzarr.ome.create({}, planes, axes="zyx", channels=[channel], progress=False)
    bright = np.array([[0, 0], [1, 0.5 if z == "max" else 0]])
    if inverted != (window.start > window.end):
        bright = 1 - bright
    bright[0, 0] = 0
    if z != "max":
        bright[1, 1] = 0
    np.testing.assert_array_equal(image.render(z=z)[..., 0], np.rint(bright * 255))


@pytest.mark.parametrize("part", [slice(-5, None, -1), slice(-4, -9, -2), slice(-5, 1, -1)], ids=str)
def test_slices_that_begin_before_the_first_frame(part: slice) -> None:
    store: dict[str, Any] = {}
    series(store)
    # As a killed append leaves it.
    gzarr.open_array(store, path="1", mode="r+").append(np.zeros((1, 10, 11), "u2"))
    image = gzarr.ome.open(store)
    assert image.read(0, t=part).shape == FRAMES[:3][part].shape == (0, 20, 22)
    assert image.read(1, t=part).shape == (0, 10, 11)


@pytest.mark.filterwarnings("ignore:.*expected numbers above 0")
def test_images_whose_coordinates_fall_along_an_axis() -> None:
    store: dict[str, Any] = {}
    gzarr.ome.create(store, FRAMES[0], axes="yx", levels=2, chunks=8, progress=False)

    def mirrored(found: dict[str, Any]) -> dict[str, Any]:
        (image,) = found["ome"]["multiscales"]
        for level, entry in enumerate(image["datasets"]):
            entry["coordinateTransformations"] = [{"type": "scale", "scale": [-(2.0**level), 2.0**level]}]
        return found

    gzarr.open_group(store, mode="r+").attrs.change(mirrored)
    image = gzarr.ome.open(store, mode="r+")
    image.update_metadata(translation={"X": 5})
    image.update_metadata(scale={"x": 3})
    assert [level.scale for level in image.levels] == [(-1, 3), (-2, 6)]
    assert image.translation == (0, 5)
    with pytest.raises(ArgumentError, match="scale must be 2 positive numbers"):
        image.update_metadata(scale={"y": -1})
    # Both axes are reduced at first: y is the finer one.
    image.update_metadata(scale={"x": 1})
    made = gzarr.ome.pyramid(store, overwrite=True, levels=2, progress=False)
    assert [level.scale for level in made.levels] == [(-1, 1), (-2, 2)]
    assert made.level(1).shape == (10, 11)


def test_a_well_without_fields() -> None:
    group = gzarr.create_group({})
    group.attrs["ome"] = {"version": "0.5", "well": {"images": []}}
    well = gzarr.ome.Well(group, gzarr.ome.metadata.parse(group.attrs))
    with pytest.raises(ArgumentError, match="has no fields yet"):
        well.thumbnail()
    assert "0 fields" in repr(well)
    assert well._repr_html_()
