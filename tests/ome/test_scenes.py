"""Scenes: images that are in one space, of the specification, of ngff-zarr, and damaged ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dask.array
import ngff_zarr
import numpy as np
import pytest
from ngff_zarr.v06 import zarr_metadata as v06
from support import ngff_suites
from support.coordinate_systems import link, put_image, system

import gzarr
from gzarr.errors import ArgumentError

if TYPE_CHECKING:
    from pathlib import Path


def test_the_stitched_scene_of_the_specification() -> None:
    values: dict[str, bytes] = {}
    document = ngff_suites.example("0.6", "scene/scene_stitching.json")
    gzarr.open_group(values, mode="w").attrs.update(document["attributes"])
    for tile in range(4):
        put_image(values, f"tile_{tile}", scale=(1.0, 1.0))
    scene = gzarr.ome.open(values)
    assert isinstance(scene, gzarr.ome.Scene)
    assert list(scene) == [f"tile_{tile}" for tile in range(4)]
    assert len(scene) == 4
    assert scene.systems == ("world",)
    assert scene["tile_2"].shape == (8, 8)
    np.testing.assert_array_equal(scene.coordinate_map(("tile_3", 0), "world")([1, 2]), [277, 350])
    np.testing.assert_array_equal(scene.coordinate_map(("tile_3", 0), ("tile_1", 0))([1, 2]), [277, 2])
    with pytest.raises(KeyError):
        scene["tile_9"]
    with pytest.raises(ArgumentError, match="no transformation of the scene '/' refers to an image 'tile_9'"):
        scene.coordinate_map(("tile_9", 0), "world")
    assert "4 images" in repr(scene)
    assert "tile_3" in scene._repr_html_()


def test_a_scene_of_ngff_zarr(tmp_path: Path) -> None:
    """Images that ngff-zarr writes, and what relates them."""

    def multiscales(scale: float) -> Any:
        image = ngff_zarr.to_ngff_image(
            dask.array.zeros((8, 8), chunks=4, dtype="u1"),
            dims=("y", "x"),
            scale={"y": scale, "x": scale},
            translation={"y": 1.0, "x": 2.0},
        )
        return ngff_zarr.to_multiscales(image, scale_factors=[])

    def end(name: str, path: str | None = None) -> Any:
        return v06.CoordinateSystemIdentifier(name=name, path=path)

    images = {"low": multiscales(2.0), "high": multiscales(0.5)}
    world = v06.CoordinateSystem(name="world", axes=[v06.Axis(name=n, type="space") for n in "yx"])
    turned = v06.TransformSequence(
        transformations=[v06.Rotation(rotation=[[0.0, -1.0], [1.0, 0.0]]), v06.Translation(translation=[10.0, 20.0])],
        input=end("intrinsic", "high"), output=end("intrinsic", "low"),
    )  # fmt: skip
    placed = v06.Affine(affine=[[2.0, 0.0, 5.0], [0.0, 2.0, 6.0]], input=end("intrinsic", "low"), output=end("world"))
    written = ngff_zarr.NgffScene(images, [turned, placed], [world])
    written.to_ome_zarr(str(tmp_path / "scene.ome.zarr"))
    scene = gzarr.ome.open(tmp_path / "scene.ome.zarr")
    assert isinstance(scene, gzarr.ome.Scene)
    y, x = 3 * 0.5 + 1, 4 * 0.5 + 2
    np.testing.assert_allclose(
        scene.coordinate_map(("high", 0), ("low", 0))([3, 4]), [(10 - x - 1) / 2, (20 + y - 2) / 2]
    )
    center = [2 * (10 - x) + 5, 2 * (20 + y) + 6]
    np.testing.assert_allclose(scene.coordinate_map(("high", 0), "world")([3, 4]), center)
    image = scene["high"]
    assert image.system == "intrinsic"
    assert image.read_um(center, 0.5, system="world").shape == (1, 1)


def test_a_link_to_what_is_not_there() -> None:
    values: dict[str, bytes] = {}
    links = [link(("a", "physical"), "world", type="identity"), link("world", ("b", "none"), type="identity")]
    group = gzarr.open_group(values, mode="w")
    scene = {"coordinateSystems": [system("world", "yx")], "coordinateTransformations": links}
    group.attrs["ome"] = {"version": "0.6rc0", "scene": scene}
    put_image(values, "a")
    put_image(values, "b")
    found = gzarr.ome.open(values)
    assert isinstance(found, gzarr.ome.Scene)
    np.testing.assert_array_equal(found.coordinate_map(("a", 0), "world")([1, 1]), [2, 0.5])
    with pytest.raises(ArgumentError, match="no coordinate system 'none' of 'b'"):
        found.coordinate_map(("a", 0), ("b", "none"))
    with pytest.raises(ArgumentError, match="no chain"):
        found.coordinate_map(("a", 0), ("b", 0))


def test_only_images_on_the_way_are_opened() -> None:
    """Of a mosaic of many tiles, two are asked for; the others need not even be there."""
    values: dict[str, bytes] = {}
    tiles = [f"tile_{i}" for i in range(30)]
    links = [
        link((tile, "physical"), "world", type="translation", translation=[0, 9 * i]) for i, tile in enumerate(tiles)
    ]
    scene = {"coordinateSystems": [system("world", "yx")], "coordinateTransformations": links}
    gzarr.open_group(values, mode="w").attrs["ome"] = {"version": "0.6rc0", "scene": scene}
    for tile in ("tile_3", "tile_28"):
        put_image(values, tile)
    found = gzarr.ome.open(values)
    assert isinstance(found, gzarr.ome.Scene)
    np.testing.assert_array_equal(found.coordinate_map(("tile_28", 0), ("tile_3", 0))([1, 1]), [1, 451])
