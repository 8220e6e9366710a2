"""Images, labels and plates that gzarr writes, opened and compared by other libraries.

    python tests/interop/read_ome_zarr.py

In an environment of Python 3.12 or newer with gzarr and ``iohub==0.3.11 ngff-zarr==0.50.0 ome-zarr==0.21.0
ome-zarr-models==1.8.1``. Prints a line for each library and version; raises for the first difference.
"""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import ome_zarr_models
import zarr
from iohub.ngff import open_ome_zarr
from ngff_zarr import from_ngff_zarr
from ome_zarr.io import parse_url
from ome_zarr.reader import Reader

import gzarr

DATA = np.random.default_rng(0).integers(0, 60000, (2, 3, 20, 70, 90), dtype=np.uint16)
LABELS = (DATA[:, :1] // 8000).astype(np.int32)
SCALE = (1.0, 1.0, 2.0, 0.5, 0.5)
WELLS = [("A", "1"), ("B", "3")]


def write(folder: Path, version: Any) -> list[np.ndarray[Any, Any]]:
    """Write an image with labels, which grows and is described anew, and a plate; return the levels of the image."""
    options: dict[str, Any] = {"chunks": (1, 1, 8, 32, 32), "shards": (1, 1, 16, 64, 64) if version == "0.5" else None}
    image = gzarr.ome.create(
        folder / "image.zarr",
        DATA[:1],
        axes="tczyx",
        scale=(*SCALE[:3], 1, 1),
        units={"t": "second", "z": "micrometer", "y": "micrometer", "x": "micrometer"},
        channels=["a", "b", "c"],
        name="image",
        levels=4,
        version=version,
        **options,
    )
    gzarr.ome.create_labels(folder / "image.zarr", "cells", LABELS[:1], **options)
    image.append(DATA[1:], labels={"cells": LABELS[1:]})
    for part in (image, image.labels["cells"]):
        part.update_metadata(scale={"y": SCALE[3], "x": SCALE[4]})
    image.update_metadata(channels=["DAPI", "GFP", "RFP"])
    gzarr.ome.create_plate(folder / "plate.zarr", rows="AB", columns=range(1, 4), name="plate", version=version)
    for row, column in WELLS:
        gzarr.ome.create_field(
            folder / "plate.zarr", row, column, DATA, axes="tczyx", channels=["a", "b", "c"], levels=2
        )
    return [level.array[...] for level in image.levels]


def by_ome_zarr_py(folder: Path, levels: list[np.ndarray[Any, Any]]) -> None:
    nodes = list(Reader(parse_url(folder / "image.zarr"))())
    for found, expected in zip(nodes[0].data, levels, strict=True):
        np.testing.assert_array_equal(found.compute(), expected)
    transforms = list(nodes[0].metadata["coordinateTransformations"])
    assert transforms[1][0]["scale"] == [1, 1, 2, 1, 1]
    assert transforms[1][1]["translation"] == [0, 0, 0, 0.25, 0.25]
    assert nodes[0].metadata["channel_names"] == ["DAPI", "GFP", "RFP"]
    labels = next(node for node in nodes[1:] if node.data)
    np.testing.assert_array_equal(labels.data[0].compute(), LABELS)
    plate = next(node for node in Reader(parse_url(folder / "plate.zarr"))() if node.data)
    # It has all wells of the plate, side by side.
    assert plate.data[0].shape == (2, 3, 20, 2 * 70, 3 * 90)
    np.testing.assert_array_equal(plate.data[0][..., 70:, 180:].compute(), DATA)


def by_ngff_zarr(folder: Path, levels: list[np.ndarray[Any, Any]]) -> None:
    found = from_ngff_zarr(folder / "image.zarr")
    for image, expected in zip(found.images, levels, strict=True):
        np.testing.assert_array_equal(np.asarray(image.data), expected)
    assert found.images[1].scale == dict(zip("tczyx", (1, 1, 2, 1, 1), strict=True))
    assert found.images[1].translation["x"] == 0.25
    assert found.images[0].axes_units["z"] == "micrometer"


def by_iohub(folder: Path, levels: list[np.ndarray[Any, Any]]) -> None:
    with open_ome_zarr(folder / "image.zarr") as position:
        assert position.channel_names == ["DAPI", "GFP", "RFP"]
        for i, expected in enumerate(levels):
            np.testing.assert_array_equal(np.asarray(position[str(i)][:]), expected)
        assert list(position.get_effective_scale("1")) == [1, 1, 2, 1, 1]
        assert list(position.get_effective_translation("1")) == [0, 0, 0, 0.25, 0.25]
    with open_ome_zarr(folder / "plate.zarr") as plate:
        assert [name for name, _ in plate.positions()] == ["A/1/0", "B/3/0"]
        for _, position in plate.positions():
            np.testing.assert_array_equal(np.asarray(position["0"][:]), DATA)


def by_ome_zarr_models(folder: Path, levels: list[np.ndarray[Any, Any]]) -> None:
    image = ome_zarr_models.open_ome_zarr(zarr.open_group(folder / "image.zarr", mode="r"))
    assert type(image).__name__ == "Image"
    labels = ome_zarr_models.open_ome_zarr(zarr.open_group(folder / "image.zarr/labels/cells", mode="r"))
    assert type(labels).__name__ == "ImageLabel"
    for path, kind in (("", "HCS"), ("A/1", "Well"), ("A/1/0", "Image")):
        found = ome_zarr_models.open_ome_zarr(zarr.open_group(folder / "plate.zarr" / path, mode="r"))
        assert type(found).__name__ == kind, (path, type(found))


def main() -> None:
    warnings.simplefilter("ignore")
    for version in ("0.4", "0.5"):
        with tempfile.TemporaryDirectory() as folder:
            levels = write(Path(folder), version)
            for check in (by_ome_zarr_py, by_ngff_zarr, by_iohub, by_ome_zarr_models):
                check(Path(folder), levels)
                print(f"{version}: {check.__name__.removeprefix('by_')}: equal", flush=True)


if __name__ == "__main__":
    main()
