"""What the examples of docs/imaging.md need, and what must come of them; see :mod:`support.page_data`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.page_data import Here

    Values = np.ndarray[Any, Any]

_AXES: list[dict[str, str]] = [
    {"name": "c", "type": "channel"},
    *({"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"),
]
_CHANNELS = {"channels": [{"label": "DAPI"}, {"label": "GFP"}]}


def _write_image(group: gzarr.Group, data: Values, **more: Any) -> None:
    """Write an image of two levels; not by ``gzarr.ome``."""
    scales = [1, 2, 0.5, 0.5], [1, 2, 1, 1]
    shapes = [{"type": "scale", "scale": scale[-data.ndim :]} for scale in scales]
    datasets = [{"path": str(level), "coordinateTransformations": [shape]} for level, shape in enumerate(shapes)]
    multiscales = [{"axes": _AXES[-data.ndim :], "datasets": datasets}]
    group.attrs["ome"] = {"version": "0.5", "multiscales": multiscales, **more}
    group.create_array("0", data=data)
    group.create_array("1", data=data[..., ::2, ::2].copy())


def images(here: Here) -> Iterator[None]:
    data = np.arange(2 * 10 * 80 * 80, dtype="u4").reshape(2, 10, 80, 80)
    image = gzarr.create_group("image.ome.zarr")
    _write_image(image, data, omero=_CHANNELS)
    labels = image.create_group("labels", attributes={"ome": {"version": "0.5", "labels": ["nuclei"]}})
    _write_image(labels.create_group("nuclei"), data[0] % 7, **{"image-label": {"colors": [{"label-value": 1}]}})
    rows, columns = [{"name": "A"}, {"name": "B"}], [{"name": "1"}, {"name": "2"}, {"name": "3"}]
    wells = [{"path": "A/1", "rowIndex": 0, "columnIndex": 0}, {"path": "B/3", "rowIndex": 1, "columnIndex": 2}]
    parts = {"plate": {"rows": rows, "columns": columns, "wells": wells}}
    plate = gzarr.create_group("plate.ome.zarr", attributes={"ome": {"version": "0.5", **parts}})
    well = plate.create_group("B/3", attributes={"ome": {"version": "0.5", "well": {"images": [{"path": "0"}]}}})
    _write_image(well.create_group("0"), data + 1, omero=_CHANNELS)
    yield
    names = here.names
    np.testing.assert_array_equal(names["field"], data[0, ..., ::2, ::2][..., 10:21])
    np.testing.assert_array_equal(names["mask"], data[0, 3] % 7)
    np.testing.assert_array_equal(names["x"], data[0] + 1)


def systems(here: Here) -> Iterator[None]:
    def document(names: str, *further: Any, more: str = "") -> dict[str, Any]:
        systems = [
            {"name": name, "axes": [{"name": n, "type": "space"} for n in names]} for name in ("own", more) if name
        ]
        ends = {"input": {"path": "0"}, "output": {"name": "own"}}
        only = {"type": "scale", "scale": [0.5] * len(names), **ends}
        levels = [{"path": "0", "coordinateTransformations": [only]}]
        image = {"coordinateSystems": systems, "datasets": levels}
        if further:
            image["coordinateTransformations"] = list(further)
        return {"ome": {"version": "0.6rc0", "multiscales": [image]}}

    stage = {"type": "translation", "translation": [10, 30, 30], "input": {"name": "own"}, "output": {"name": "stage"}}
    image = gzarr.create_group({}, attributes=document("zyx", stage, more="stage"))
    image.create_array("0", data=np.zeros((4, 8, 8), "u1"))
    tiles = [f"tile_{i}" for i in range(4)]
    links = [
        {"type": "translation", "translation": [0, 100 * i], "input": {"path": tile, "name": "own"},
         "output": {"name": "world"}}
        for i, tile in enumerate(tiles)
    ]  # fmt: skip
    world = [{"name": "world", "axes": [{"name": n, "type": "space"} for n in "yx"]}]
    parts = {"coordinateSystems": world, "coordinateTransformations": links}
    group = gzarr.create_group("tiles.ome.zarr", attributes={"ome": {"version": "0.6rc0", "scene": parts}})
    for tile in tiles:
        group.create_group(tile, attributes=document("yx")).create_array("0", data=np.zeros((8, 8), "u1"))
    here.names.update(gzarr=gzarr, image=gzarr.ome.open(image))
    yield
    np.testing.assert_array_equal(here.names["to_pixels"]([12.5, 40, 40]), [5, 20, 20])
    assert here.names["x"].shape == (2, 9, 9)
    assert here.names["tile"].shape == (4, 4)
    assert list(here.names["scene"]) == tiles
    np.testing.assert_array_equal(here.names["m"]([0, 0]), [0, 400])


def new_images(here: Here) -> Iterator[None]:
    volume = np.arange(2 * 20 * 200 * 300, dtype="u2").reshape(2, 20, 200, 300)
    here.names.update(gzarr=gzarr, volume=volume, labels=(volume // 9000).astype("i4"))
    frames = volume[0, :5]
    masks = (frames > 100).astype("u4")
    here.names.update(first_frames=frames[:3], first_masks=masks[:3], frame=frames[3], mask=masks[4])
    gzarr.ome.create("image.ome.zarr", volume[0], axes="zyx", levels=1)
    gzarr.create_array("data.zarr", path="raw", data=volume[0])
    yield
    image = gzarr.ome.open("new.ome.zarr")
    np.testing.assert_array_equal(image.read(level=0), volume)
    assert len(image.labels["nuclei"].levels) == len(image.levels) > 1
    assert gzarr.ome.open("image.ome.zarr").level(1).shape == (20, 100, 150)
    assert len(gzarr.ome.open("image.ome.zarr").levels) == 4
    assert list(gzarr.ome.open("plate.ome.zarr")) == ["B/3"]
    movie = gzarr.ome.open("movie.ome.zarr")
    assert [level.shape[0] for level in (*movie.levels, *movie.labels["cells"].levels)] == [5] * 6
    assert (image.name, image.scale, image.channels[0].color) == ("embryo 7", (1, 2.5, 0.5, 0.5), "00FFFF")
    assert [channel.label for channel in image.channels] == ["DAPI", "mCherry"]
    assert image.labels["nuclei"].image_label.properties == ({"label-value": 1, "class": "mitotic"},)
