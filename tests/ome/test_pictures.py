"""Pictures of images, labels and plates, compared exactly with what NumPy computes from the elements read whole."""

from __future__ import annotations

import base64
import colorsys
import io
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL.Image
import pytest

import gzarr
from gzarr.errors import ArgumentError, NodeNotFoundError, SelectionError, StoreError, UnsupportedError
from gzarr.ome import coloring, small_pictures
from gzarr.ome.metadata.model import Channel, Window
from gzarr.ome.rendering import Look, PlannedPicture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from support.devices import TestedDevice

    Pixels = np.ndarray[Any, Any]

#: t, c, z, y, x.
DATA = np.random.default_rng(5).integers(0, 5000, (2, 3, 6, 60, 80), dtype=np.uint16)
CHANNELS = [
    Channel("DAPI", "0000FF", Window(100, 3000, 0, 65535), True),
    Channel("GFP", "00FF80", Window(0, 4095, 0, 65535), True),
    Channel("off", "FF0000", Window(0, 4095, 0, 65535), False),
]


def decoded(data: bytes) -> Pixels:
    with PIL.Image.open(io.BytesIO(data)) as image:
        assert (image.format, image.mode) == ("PNG", "RGB")
        return np.asarray(image)


def image_in(store: Any, data: Any = DATA, axes: str = "tczyx", device: str = "cpu", **options: Any) -> Any:
    options = {"channels": CHANNELS, "levels": 1, "chunks": (1, 1, 4, 32, 32), **options}
    gzarr.ome.create(store, data, axes=axes, **options)
    return gzarr.ome.open(store, device=device)


def expected(planes: Sequence[Pixels], windows: Sequence[tuple[float, float]], colors: Sequence[str]) -> Pixels:
    """Return a picture, element by element."""
    height, width = planes[0].shape
    picture = np.zeros((height, width, 3), "u1")
    for y in range(height):
        for x in range(width):
            for i in range(3):
                total = 0.0
                for plane, (low, high), color in zip(planes, windows, colors, strict=True):
                    value = (float(plane[y, x]) - low) / (high - low)
                    value = 0.0 if np.isnan(value) else min(max(value, 0.0), 1.0)
                    total += value * int(color[2 * i : 2 * i + 2], 16)
                picture[y, x, i] = round(min(total, 255.0))
    return picture


BOTH = [(100, 3000), (0, 4095)]


# -- files


def test_files(tmp_path: Path) -> None:
    image = image_in({})
    picture = image.render(file=tmp_path / "x.png")
    np.testing.assert_array_equal(decoded((tmp_path / "x.png").read_bytes()), picture)
    held = io.BytesIO()
    data = image.thumbnail(40, file=held)
    assert held.getvalue() == data
    assert decoded(data).shape == (30, 40, 3)
    with pytest.raises(StoreError, match="cannot be written"):
        image.render(file=tmp_path / "none" / "x.png")
    for wrong in (5, io.StringIO()):
        with pytest.raises(ArgumentError, match=r"^file must"):
            image.render(file=wrong)


# -- channels


def test_channels_are_added_in_their_windows_and_colours(device: TestedDevice) -> None:
    image = image_in({}, device=device.name)
    picture = image.render()
    assert type(picture).__module__.startswith("cupy") == device.is_cuda
    planes = [DATA[0, c].max(0) for c in (0, 1)]
    result = device.to_numpy(picture)
    assert result.dtype == np.uint8
    np.testing.assert_array_equal(result, expected(planes, BOTH, ["0000FF", "00FF80"]))
    one = device.to_numpy(image.render(c="off", z=2, t=1, y=slice(5, 40), x=slice(10, None)))
    np.testing.assert_array_equal(one, expected([DATA[1, 2, 2, 5:40, 10:]], [(0, 4095)], ["FF0000"]))
    two = device.to_numpy(image.render(c=[2, "GFP"], z="middle", t=-1))
    np.testing.assert_array_equal(
        two, expected([DATA[1, 2, 3], DATA[1, 1, 3]], [(0, 4095), (0, 4095)], ["FF0000", "00FF80"])
    )


def test_projections(device: TestedDevice) -> None:
    image = image_in({}, device=device.name)
    for z, plane in (
        ("max", DATA[0, 0].max(0)),
        ("mean", DATA[0, 0].astype("f8").sum(0) / 6),
        (slice(1, 5), DATA[0, 0, 1:5].max(0)),
        (slice(-2, None), DATA[0, 0, -2:].max(0)),
        (-1, DATA[0, 0, -1]),
    ):
        result = device.to_numpy(image.render(c=0, z=z))
        np.testing.assert_array_equal(result, expected([plane], BOTH[:1], ["0000FF"]))


def test_large_planes_are_read_in_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    from gzarr.ome import rendering

    monkeypatch.setattr(rendering, "_SLAB_BYTES", 1)
    image = image_in({}, chunks=(1, 1, 2, 32, 32))
    for z in (slice(1, 6), slice(None)):
        np.testing.assert_array_equal(image.render(c=0, z=z), expected([DATA[0, 0, z].max(0)], BOTH[:1], ["0000FF"]))
    assert rendering._slabs(slice(3, 9), 4, 1) == [slice(3, 4), slice(4, 8), slice(8, 9)]


def test_windows_that_no_document_has() -> None:
    """The 1st and the 99.9th percentile of the same planes, at the smallest level."""
    data = np.random.default_rng(2).normal(100, 20, (2, 8, 128, 96)).astype("f4")
    data[0, 3, 7, 9] = np.nan
    data[1, 0, 0, 0] = np.inf
    image = image_in({}, data, "czyx", channels=None, levels=3, chunks=(1, 8, 32, 32))
    small = image.read(2)
    assert small.shape[-2:] == (32, 24)
    full = [np.nanmax(data[c, 2:4], 0) for c in range(2)]
    windows = []
    for c in range(2):
        values = small[c, 0]
        low, high = np.percentile(values[np.isfinite(values)].astype("f8"), [1, 99.9])
        windows.append((float(low), float(high)))
    assert small.shape[1] == 2
    picture = image.render(z=slice(2, 4), size=100)
    np.testing.assert_array_equal(picture, expected(full, windows, ["FF00FF", "00FF00"]))
    # Of a part of the picture, they are the same.
    part = image.render(z=slice(2, 4), size=100, level="auto", y=slice(16, 48))
    small_part = image.render(z=slice(2, 4), size=10, y=slice(16, 48))
    assert part.shape == (32, 96, 3)
    assert small_part.shape[1] < 96
    np.testing.assert_array_equal(part, picture[16:48])


def test_windows_of_special_elements() -> None:
    zeros = image_in({}, np.zeros((1, 1, 1, 9, 9), "u2"), channels=None)
    assert not zeros.render().any()
    nothing = np.full((1, 1, 1, 9, 9), np.nan, "f4")
    assert not image_in({}, nothing, channels=None).render().any()
    few = np.zeros((1, 1, 1, 50, 50), "u2")
    few[..., 10, 10] = 500
    assert image_in({}, few, channels=None).render()[10, 10].tolist() == [255] * 3
    flags = few > 0
    assert image_in({}, flags, channels=None).render()[10, 10].tolist() == [255] * 3
    same = [Channel("a", "FFFFFF", Window(7, 7, 0, 9), True)]
    steps = np.arange(5 * 5).reshape(1, 1, 1, 5, 5).astype("i2")
    np.testing.assert_array_equal(image_in({}, steps, channels=same).render()[..., 0] == 255, steps[0, 0, 0] > 7)
    upside = [Channel("a", "FFFFFF", Window(0, 24, 0, 24), True, {"inverted": True})]
    np.testing.assert_array_equal(
        image_in({}, steps, channels=upside).render()[..., 0], np.rint((1 - steps[0, 0, 0] / 24) * 255)
    )


def test_photographs_are_as_they_are() -> None:
    """Three channels of bytes of which no document says anything."""
    photo = np.random.default_rng(3).integers(0, 256, (3, 40, 50), dtype="u1")
    image = image_in({}, photo, "cyx", channels=None, chunks=(3, 20, 20))
    np.testing.assert_array_equal(image.render(), np.moveaxis(photo, 0, -1))
    np.testing.assert_array_equal(image.render(c=1)[..., 0], photo[1])


def test_which_channels_are_shown() -> None:
    many = np.arange(8 * 4 * 4).reshape(8, 4, 4).astype("u2")
    chunks = {"chunks": (1, 4, 4)}
    window = Window(0, 200, 0, 200)
    inactive = [Channel(str(i), "FFFFFF", window, False) for i in range(8)]
    store: dict[str, Any] = {}
    image = image_in(store, many, "cyx", channels=inactive, **chunks)
    first = image.render(c=list(range(6)))
    np.testing.assert_array_equal(image.render(), first)
    some = [replace(channel, active=i in (1, 7)) for i, channel in enumerate(inactive)]
    image = image_in({}, many, "cyx", channels=some, **chunks)
    np.testing.assert_array_equal(image.render(), image.render(c=["1", "7"]))
    np.testing.assert_array_equal(image.render(), image.render(c=slice(1, 8, 6)))


def test_channels_of_which_nothing_is_said_are_active() -> None:
    """As in napari-ome-zarr and ome-zarr.js; many of them are shown as far as there is room."""
    many = np.arange(8 * 4 * 4).reshape(8, 4, 4).astype("u2")
    window = Window(0, 200, 0, 200)

    def shown_of(*active: bool | None) -> Any:
        channels = [Channel(str(i), "FFFFFF", window, one) for i, one in enumerate(active)]
        return image_in({}, many[: len(active)], "cyx", channels=channels, chunks=(1, 4, 4))

    for active, channels in (
        ((True, None, None), [0, 1, 2]),
        ((None, False, None), [0, 2]),
        ((False, None, True, None, None, None, None, None), [1, 2, 3, 4, 5, 6]),
        ((None, *[True] * 7), list(range(1, 8))),
        ((None,) * 8, list(range(6))),
    ):
        image = shown_of(*active)
        assert PlannedPicture(image, Look()).channels == channels
        np.testing.assert_array_equal(image.render(), image.render(c=channels))


def with_omero(change: Any, channels: Any = CHANNELS) -> Any:
    """Return an image whose object ``omero`` was changed by another program."""
    store: dict[str, Any] = {}
    image_in(store, DATA[0, :, 0], "cyx", channels=channels, chunks=(1, 60, 80))
    group = gzarr.open_group(store, mode="r+")
    ome = dict(group.attrs["ome"])
    change(ome["omero"])
    group.attrs["ome"] = ome
    return gzarr.ome.open(store, device="cpu")


def test_greyscale() -> None:
    """The model of the document is for all channels, and for notebooks and files as well."""
    image = with_omero(lambda omero: omero.update(rdefs={"model": "greyscale"}))
    np.testing.assert_array_equal(image.render(), expected(DATA[0, :2, 0], BOTH, ["FFFFFF"] * 2))
    np.testing.assert_array_equal(decoded(image.thumbnail(80)), image.render())
    colored = with_omero(lambda omero: omero.update(rdefs={"model": "color"}))
    np.testing.assert_array_equal(colored.render(), expected(DATA[0, :2, 0], BOTH, ["0000FF", "00FF80"]))


def test_colours_with_more_than_six_digits() -> None:
    def change(omero: Any) -> None:
        for channel, color in zip(omero["channels"], ("#0000FF", "00ff80FF", "#"), strict=True):
            channel["color"] = color

    image = with_omero(change)
    np.testing.assert_array_equal(image.render(), expected(DATA[0, :2, 0], BOTH, ["0000FF", "00FF80"]))
    np.testing.assert_array_equal(image.render(c=2), expected(DATA[0, 2:, 0], BOTH[1:], ["FFFFFF"]))
    page = image._repr_html_()
    assert "background:#0000FF;" in page
    assert "background:#00ff80;" in page


def test_default_time() -> None:
    store: dict[str, Any] = {}
    image_in(store)
    group = gzarr.open_group(store, mode="r+")
    ome = dict(group.attrs["ome"])
    ome["omero"] = {**ome["omero"], "rdefs": {"defaultT": 1, "defaultZ": 3, "model": "color"}}
    group.attrs["ome"] = ome
    image: Any = gzarr.ome.open(store, device="cpu")
    np.testing.assert_array_equal(image.render(), image.render(t=1))
    assert (image.render() != image.render(t=0)).any()


def test_names_of_other_formats(tmp_path: Path) -> None:
    """Refused before anything is read; a file that is open may have any name."""
    image = image_in({})
    plate = plate_in({}, channels=None, levels=1)
    for name in ("x.jpg", "x.TIFF", "a.png.jpeg"):
        for write in (image.render, image.thumbnail, plate.thumbnail, next(iter(plate.values())).thumbnail):
            with pytest.raises(ArgumentError, match=r"PNG files: end the name in \.png, not in \."):
                write(file=tmp_path / name)
    assert not list(tmp_path.iterdir())
    for name in ("x", "x.PNG", "x.v2"):
        image.thumbnail(20, file=str(tmp_path / name))
    with (tmp_path / "x.jpg").open("wb") as held:
        image.thumbnail(20, file=held)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


# -- levels and sizes


def test_levels_that_suit_a_size() -> None:
    data = np.random.default_rng(4).integers(0, 200, (1, 1, 4, 300, 500), dtype="u1")
    window = [Channel("a", "FFFFFF", Window(0, 255, 0, 255), True)]
    image = image_in({}, data, channels=window, levels=4, chunks=(1, 1, 4, 64, 64))
    assert [level.shape[-1] for level in image.levels] == [500, 250, 125, 63]
    for size, level in ((1000, 0), (500, 0), (251, 0), (250, 1), (126, 1), (125, 2), (64, 2), (63, 3), (10, 3)):
        picture = image.render(size=size)
        step = -(-image.level(level).shape[-1] // (2 * size))
        whole = image.render(level=level)[::step, ::step]
        np.testing.assert_array_equal(picture, whole)
        assert max(picture.shape) <= max(2 * size, size)
    np.testing.assert_array_equal(image.render(level=-1), image.render(level=3))
    # Selections count elements of the first level.
    part = image.render(size=60, y=slice(0, 128), x=slice(256, 384), z=2)
    assert part.shape == (64, 64, 3)
    z = 2 if image.level(1).shape[2] == 4 else 1
    np.testing.assert_array_equal(part, image.render(level=1, z=z)[:64, 128:192])


@pytest.mark.parametrize(
    ("shape", "size"), [((60, 80), 40), ((60, 80), 33), ((7, 300), 20), ((300, 2), 7), ((5, 5), 9)]
)
def test_smaller_pictures(shape: tuple[int, int], size: int) -> None:
    pixels = np.random.default_rng(6).integers(0, 256, (*shape, 3), dtype="u1")
    result = coloring.smaller(pixels, size)
    longest = max(shape)
    if longest <= size:
        np.testing.assert_array_equal(result, pixels)
        return
    wanted = tuple(max(1, round(n * size / longest)) for n in shape)
    assert result.shape == (*wanted, 3)
    # Means over parts of pixels: as many times as large, and then whole ones.
    tall = np.repeat(np.repeat(pixels.astype("f8"), wanted[0], 0), wanted[1], 1)
    cells = tall.reshape(wanted[0], shape[0], wanted[1], shape[1], 3).mean((1, 3))
    assert np.abs(cells - result).max() <= 0.5 + 1e-9
    nearest = coloring.smaller(pixels, size, mixed=False)
    colors = {tuple(color) for color in pixels.reshape(-1, 3).tolist()}
    assert {tuple(color) for color in nearest.reshape(-1, 3).tolist()} <= colors


def test_thumbnails() -> None:
    image = image_in({})
    np.testing.assert_array_equal(decoded(image.thumbnail()), image.render())
    np.testing.assert_array_equal(decoded(image.thumbnail(45, c=0)), coloring.smaller(image.render(c=0), 45))
    assert decoded(image.thumbnail(32)).shape == (24, 32, 3)
    # Of more than twice as many elements, some are left out.
    np.testing.assert_array_equal(decoded(image.thumbnail(32, c=0)), coloring.smaller(image.render(c=0)[::2, ::2], 32))


# -- labels


def test_labels(device: TestedDevice) -> None:
    labels = np.arange(40 * 30).reshape(40, 30).astype("i4") - 5
    store: dict[str, Any] = {}
    image_in(store, labels[None].astype("u2"), "zyx", channels=None, chunks=(1, 20, 20))
    own = {7: (255, 0, 10, 255), 900: (0, 200, 0, 128), -2: (1, 2, 3, 255), 2**40: (9, 9, 9, 255)}
    gzarr.ome.create_labels(store, "cells", labels[None], colors=own)
    cells: Any = gzarr.ome.open(store, path="labels/cells", device=device.name)
    picture = cells.render()
    assert type(picture).__module__.startswith("cupy") == device.is_cuda
    result = device.to_numpy(picture)
    for y in range(40):
        for x in range(30):
            value = int(labels[y, x])
            if value in own:
                red, green, blue, alpha = own[value]
                color = [round(part * alpha / 255) for part in (red, green, blue)]
            elif value == 0:
                color = [0, 0, 0]
            else:
                i = value % 256 * 159 % 256
                hue = colorsys.hsv_to_rgb(i / 256, 0.6 if i % 2 else 0.9, 1.0 if i % 3 else 0.8)
                color = [round(part * 255) for part in hue]
            assert result[y, x].tolist() == color, value
    small = decoded(cells.thumbnail(10))
    colors = {tuple(color) for color in result.reshape(-1, 3).tolist()}
    assert {tuple(color) for color in small.reshape(-1, 3).tolist()} <= colors


@pytest.mark.parametrize("dtype", ["bool", "u1", "i8", "u8"])
def test_labels_of_all_types(dtype: str) -> None:
    top = 1 if dtype == "bool" else int(np.iinfo(dtype).max)
    labels = (
        np.array([[0, 1], [top, top - 1]]).astype(dtype) if dtype != "u8" else np.array([[0, 1], [top, top - 1]], "u8")
    )
    result = coloring.painted(labels, {top: (1, 2, 3, 255), -1: (5, 5, 5, 255), 2**70: (5, 5, 5, 255)})
    assert result[1, 0].tolist() == [1, 2, 3]
    assert result[0, 0].tolist() == [0, 0, 0]
    assert dtype == "bool" or result[0, 1].any()
    assert len(np.unique(coloring.palette(), axis=0)) > 250


# -- what is refused


def test_arguments() -> None:
    image = image_in({})
    for options, text in (
        ({"c": 3}, "no channel 3"),
        ({"c": []}, "at least one channel"),
        ({"c": 1.5}, "takes an integer"),
        ({"z": "min"}, "'max', 'mean', 'middle'"),
        ({"z": 6}, "no plane 6"),
        ({"z": slice(3, 3)}, "nothing is selected"),
        ({"z": slice(0, 6, 2)}, "without a step"),
        ({"t": 2}, "no index 2"),
        ({"t": slice(0, 1)}, "takes an integer"),
        ({"y": 3}, "takes a slice"),
        ({"y": slice(0, 9, 2)}, "without a step"),
        ({"x": slice(80, 90)}, "nothing is selected"),
        ({"w": 3}, "has the axes"),
        ({"Z": 3}, "chosen by z="),
        ({"level": 1}, "has levels 0 to 0"),
        ({"level": "best"}, "has levels"),
        ({"size": 0}, "number of pixels"),
        ({"size": 2.5}, "number of pixels"),
    ):
        with pytest.raises(ArgumentError, match=text):
            image.render(**options)
    with pytest.raises(SelectionError, match="no channel"):
        image.render(c="RFP")
    flat = image_in({}, DATA[0, 0, 0], "yx", channels=None, chunks=(20, 20))
    np.testing.assert_array_equal(flat.render(z="max").shape, (60, 80, 3))
    for options, text in (({"z": 0}, "two axes of space only"), ({"c": 0}, "no axis of channels")):
        with pytest.raises(ArgumentError, match=text):
            flat.render(**options)
    group = gzarr.create_group(store := {})  # type: ignore[var-annotated]
    group.create_array("0", data=DATA[:, 0, 0, 0])
    axes = [{"name": "t", "type": "time"}, {"name": "x", "type": "space"}]
    scale = [{"type": "scale", "scale": [1, 1]}]
    multiscales = [{"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": scale}]}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": multiscales}
    with pytest.warns(gzarr.ome.MetadataWarning):
        line: Any = gzarr.ome.open(store, device="cpu")
    with pytest.raises(ArgumentError, match="needs two of space"):
        line.render()


def test_elements_that_cannot_be_shown() -> None:
    group = gzarr.create_group(store := {})  # type: ignore[var-annotated]
    group.create_array("0", data=np.zeros((4, 4), "c8"))
    axes = [{"name": name, "type": "space"} for name in "yx"]
    scale = [{"type": "scale", "scale": [1, 1]}]
    multiscales = [{"axes": axes, "datasets": [{"path": "0", "coordinateTransformations": scale}]}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": multiscales}
    image: Any = gzarr.ome.open(store, device="cpu")
    with pytest.raises(UnsupportedError, match="cannot be shown"):
        image.render()
    assert "<img" not in image._repr_html_()


@pytest.mark.parametrize("shape", [(0, 4, 5), (2, 0, 5), (2, 4, 0), (0, 0, 0)])
def test_images_without_elements(shape: tuple[int, ...]) -> None:
    gzarr.ome.create(store := {}, np.zeros(shape, "u1"), axes="cyx")  # type: ignore[var-annotated]
    image: Any = gzarr.ome.open(store, device="cpu")
    text = "nothing is selected" if shape[0] else "has no channels; a picture needs at least one channel"
    for make in (image.render, image.thumbnail):
        with pytest.raises(ArgumentError, match=text):
            make()
    with pytest.raises(ArgumentError):
        image.render(c=slice(0, 0))
    assert shown(image) is None
    assert str(shape) in image._repr_html_()
    gzarr.ome.create_plate(store := {}, rows="A", columns="1")
    gzarr.ome.create_field(store, "A", 1, np.zeros(shape, "u1"), axes="cyx")
    plate: Any = gzarr.ome.open(store, device="cpu")
    assert shown(plate) is None
    with pytest.raises(ArgumentError, match=text):
        plate.thumbnail()


# -- plates


def plate_in(store: Any, **options: Any) -> Any:
    gzarr.ome.create_plate(store, rows="AB", columns=[1, 2, 3])
    for i, (row, column) in enumerate((("A", 1), ("B", 3))):
        for field in range(2):
            gzarr.ome.create_field(
                store,
                row,
                column,
                (DATA[0, :, :, :30] // (i + 1))[..., :: 1 - 2 * field],
                axes="czyx",
                chunks=(1, 6, 30, 32),
                **options,
            )
    return gzarr.ome.open(store, device="cpu")


def test_plates_and_wells() -> None:
    plate = plate_in({}, channels=None, levels=1)
    picture = decoded(plate.thumbnail(122, c=0))
    # Tiles of 39 pixels: of 30 × 80 elements, 15 × 39.
    assert picture.shape == (2 * 16 + 1, 3 * 40 + 1, 3)
    assert (picture[[0, 16, 32]] == 96).all()
    assert (picture[:, [0, 40, 80, 120]] == 96).all()
    assert (picture[1:16, 41:80] == 40).all()
    first = plate["A/1"][0]
    window = tuple(float(one) for one in np.percentile(DATA[0, 0, :, :30].max(0).astype("f8"), [1, 99.9]))
    assert first.render(c=0).shape == (30, 80, 3)
    for at, data in ((picture[1:16, 1:40], DATA[0, 0, :, :30]), (picture[17:32, 81:120], DATA[0, 0, :, :30] // 2)):
        # Both with the window of the first.
        # 80 elements are more than twice 39 pixels.
        whole = expected([data.max(0)[::2, ::2]], [window], ["FFFFFF"])  # type: ignore[list-item]
        np.testing.assert_array_equal(at, coloring.smaller(whole, 39))
    other = decoded(plate.thumbnail(122, c=0, field=1))
    assert (other != picture).any()
    fields = decoded(plate["B/3"].thumbnail(163, c=0))
    assert fields.shape == (30 + 2, 2 * 81 + 1, 3)
    with pytest.raises(ArgumentError, match="field must be"):
        plate.thumbnail(field=-1)
    with pytest.raises(ArgumentError, match="number of pixels"):
        plate.thumbnail(0)
    gzarr.ome.create_plate(empty := {}, rows="A", columns=[1])  # type: ignore[var-annotated]
    with pytest.raises(ArgumentError, match="no wells yet"):
        gzarr.ome.open(empty).thumbnail()  # type: ignore[union-attr,call-arg]


def test_wells_that_are_not_there() -> None:
    store: dict[str, Any] = {}
    plate_in(store, channels=None, levels=1)
    for key in [key for key in store if key.startswith("A/1/")]:
        del store[key]
    plate: Any = gzarr.ome.open(store, device="cpu")
    with pytest.raises(NodeNotFoundError):
        plate["A/1"]
    picture = decoded(plate.thumbnail(122))
    assert (picture[1:16, 1:40] == 40).all()
    assert (picture[17:32, 81:120] != 40).any()


# -- notebooks


def shown(node: Any) -> Pixels | None:
    found = re.findall(
        r'<img src="data:image/png;base64,([A-Za-z0-9+/=]+)" width="(\d+)" height="(\d+)"', node._repr_html_()
    )
    if not found:
        return None
    ((data, width, height),) = found
    pixels = decoded(base64.b64decode(data))
    assert pixels.shape == (int(height), int(width), 3)
    return pixels


def test_html(device: TestedDevice, tmp_path: Path) -> None:
    image = image_in(tmp_path / "x.zarr", device=device.name, levels=2)
    pixels = shown(image)
    assert pixels is not None
    host: Any = gzarr.ome.open(tmp_path / "x.zarr", device="cpu")
    np.testing.assert_array_equal(pixels, host.render(level=1))
    gzarr.ome.create_labels(tmp_path / "x.zarr", "cells", DATA[:, :1] // 500)
    assert shown(host.labels["cells"]) is not None
    plate = shown(plate_in({}, channels=None, levels=1))
    assert plate is not None
    assert plate.shape == (2 * 31 + 1, 3 * 81 + 1, 3)


def test_html_reads_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most so many chunks and bytes, else the plane in the middle, else nothing."""
    store: dict[str, Any] = {}
    image = image_in(store, levels=1, chunks=(1, 1, 1, 30, 40))
    # Two channels of 6 planes of 4 chunks.
    monkeypatch.setattr(small_pictures, "MOST_CHUNKS", 48)
    np.testing.assert_array_equal(shown(image), image.render())
    monkeypatch.setattr(small_pictures, "MOST_CHUNKS", 47)
    np.testing.assert_array_equal(shown(image), image.render(z="middle"))
    monkeypatch.setattr(small_pictures, "MOST_CHUNKS", 7)
    assert shown(image) is None
    monkeypatch.setattr(small_pictures, "MOST_CHUNKS", 48)
    monkeypatch.setattr(small_pictures, "MOST_BYTES", 8 * 30 * 40 * 2)
    np.testing.assert_array_equal(shown(image), image.render(z="middle"))
    monkeypatch.setattr(small_pictures, "MOST_BYTES", 8 * 30 * 40 * 2 - 1)
    assert shown(image) is None


def test_html_of_plates_reads_little(monkeypatch: pytest.MonkeyPatch) -> None:
    plate = plate_in({}, channels=None, levels=1)
    # Two wells, each with three channels of 3 chunks.
    monkeypatch.setattr(small_pictures, "MOST_CHUNKS", 18)
    assert shown(plate) is not None
    monkeypatch.setattr(small_pictures, "MOST_CHUNKS", 17)
    assert shown(plate) is None
    monkeypatch.setattr(small_pictures, "MOST_CHUNKS", 18)
    monkeypatch.setattr(small_pictures, "MOST_WELLS", 1)
    assert shown(plate) is None
    monkeypatch.setattr(small_pictures, "MOST_WELLS", 2)
    monkeypatch.setattr(small_pictures, "MOST_SECONDS", -1)
    assert shown(plate) is None


def test_html_of_damaged_images(tmp_path: Path) -> None:
    image = image_in(tmp_path / "x.zarr")
    assert shown(image) is not None
    for file in (tmp_path / "x.zarr" / "0" / "c").rglob("*"):
        if file.is_file():
            file.write_bytes(b"damaged")
    assert shown(image) is None
    assert "gzarr.ome.Image" in image._repr_html_()
