"""A plate of OME-Zarr: made up, filtered, segmented and measured well by well, and shown in a viewer.

    python docs/examples/plate.py [DIRECTORY]
    napari --plugin napari-ome-zarr DIRECTORY/plate.ome.zarr

DIRECTORY gets a plate of 2 × 3 wells with one field of two channels each. From column to column, there are more cells,
and they are brighter in the second channel. ``neuroglancer.json`` is a state for neuroglancer, of the first field, on a
web server at http://localhost:8000 (with CORS) that has DIRECTORY.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.ndimage as ndimage

import gzarr

ROWS, COLUMNS = ("A", "B"), ("1", "2", "3")
SHAPE = (2, 512, 512)
SCALE = {"y": 0.65, "x": 0.65}
SERVER = "http://localhost:8000"


def write_plate(path: Path) -> None:
    """Write fields of cells on an uneven background."""
    gzarr.ome.create_plate(path, rows=ROWS, columns=COLUMNS, name="cells")
    y, x = np.ogrid[: SHAPE[1], : SHAPE[2]]
    for seed, (row, column) in enumerate((row, column) for row in ROWS for column in COLUMNS):
        rng = np.random.default_rng(seed)
        light = 200 + 300 * np.exp(-((y - 200) ** 2 + (x - 300) ** 2) / 60_000)
        field = np.stack([light, light]) + rng.normal(0, 5, SHAPE)
        for cy, cx in rng.uniform(15, 497, (10 * int(column), 2)):
            cell = 800 * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / 50)
            field += np.stack([cell, cell * int(column) / 4])
        gzarr.ome.create_field(
            path,
            row,
            column,
            field.astype("u2"),
            axes="cyx",
            scale=SCALE,
            units="micrometer",
            channels=["DNA", "drug"],
            chunks=(1, 128, 128),
        )


def subtract_background(x: np.ndarray) -> np.ndarray:
    """Subtract what is smooth over 64 elements."""
    low = ndimage.uniform_filter(ndimage.minimum_filter(x, (1, 65, 65)), (1, 65, 65))
    return np.maximum(x.astype("i4") - low, 0).astype("u2")


def process(path: Path, row: str, column: str) -> tuple[int, float]:
    """Filter and segment a field; return the number of its cells, and their mean brightness in the second channel."""
    image = gzarr.ome.open(path)[f"{row}/{column}"][0]
    raw = image.level(0)
    filtered = gzarr.ome.create_field(
        path,
        row,
        column,
        field="filtered",
        shape=raw.shape,
        dtype="u2",
        axes="cyx",
        scale=SCALE,
        units="micrometer",
        channels=["DNA", "drug"],
        chunks=raw.chunks,
    )
    # Blocks with a halo as wide as both filters together.
    gzarr.map_blocks(subtract_background, raw, out=filtered.level(0), halo=(0, 64, 64))
    filtered = gzarr.ome.pyramid(path, path=f"{row}/{column}/filtered")
    dna, drug = filtered.read(c="DNA"), filtered.read(c="drug")
    labels, count = ndimage.label(ndimage.gaussian_filter(dna, 1) > 200)
    gzarr.ome.create_labels(path, "cells", labels.astype("u2"), path=f"{row}/{column}/filtered", axes="yx", scale=SCALE)
    return count, float(drug[labels > 0].mean())


def neuroglancer_state() -> dict:
    """Return a state that shows the first field, with its labels."""
    field = f"{SERVER}/plate.ome.zarr/A/1/filtered"
    return {
        "dimensions": {"y": [0.65e-6, "m"], "x": [0.65e-6, "m"]},
        "layers": [
            {"type": "image", "name": "filtered", "source": f"{field}/|zarr3:"},
            {"type": "segmentation", "name": "cells", "source": f"{field}/labels/cells/|zarr3:"},
        ],
        "layout": "xy",
    }


def main(directory: Path) -> None:
    """Make the plate, and print what is in each well."""
    path = directory / "plate.ome.zarr"
    write_plate(path)
    for row in ROWS:
        for column in COLUMNS:
            count, brightness = process(path, row, column)
            print(f"well {row}{column}: {count:3} cells, {brightness:6.1f} in the second channel")
    (directory / "neuroglancer.json").write_text(json.dumps(neuroglancer_state(), indent=1))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else temporary))
