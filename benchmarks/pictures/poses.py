"""The picture of docs/poses.md: one cell in the poses of nine epochs, and a cell of two images with other elements.

    python benchmarks/pictures poses docs/figures/poses.svg

All patches are batches of ``gzarr.Loader``. Their pixels depend on random numbers of NumPy, so no test compares the
file byte by byte.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import numpy as np

import gzarr
from gzarr.loader import Patches
from pictures.drawing import MARGIN, WIDTH, Drawing
from pictures.pyramid import png

EDGE, POSES, GAP = 64, 9, 8
#: Micrometres that are shown, and the two images' distances of elements.
SIDE = 32.0
ANISOTROPIC, FINE = (2.0, 0.5), (0.5, 0.5)
ALT = (
    "One cell in the poses of nine epochs: rotated, larger or smaller, flipped. Below, a cell of two images, one with "
    "elements of 2 by 0.5 micrometres and one of 0.5 by 0.5: as they are stored, the first one is squeezed; with "
    "spacing= both have one shape."
)
_STYLE = "image{image-rendering:pixelated}"


def cell(scale: tuple[float, float]) -> Any:
    """Return an image of a made-up cell, u2, whose elements have the distances ``scale`` in micrometres."""
    count = [round(SIDE / step) for step in scale]
    y, x = (((np.arange(n) + 0.5) * step - SIDE / 2) for n, step in zip(count, scale, strict=True))
    y, x = y[:, np.newaxis], x[np.newaxis, :]
    body = ((y + 0.3 * x) / 7) ** 2 + (x / 11) ** 2
    image = 120 + 420 * np.exp(-(body**3)) + 500 * np.exp(-((y - 1) ** 2 + (x + 4) ** 2) / 6)
    for cy, cx in ((2, 4), (-2, 6), (-1, 1), (-4, -3), (4, -7)):
        image += 300 * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / 0.8)
    return image.clip(0, 1000).astype("u2")


def poses() -> list[Any]:
    """Return the patches of a cell in nine epochs."""
    array = gzarr.create_array({}, data=np.pad(cell(FINE), 48, mode="edge"), chunks=32)
    patches = Patches(
        (EDGE, EDGE), where=[(48, 48)], rotate=True, scale=(0.7, 1.4), flip=True, shift=6, pad="edge"
    )  # fmt: skip
    loader = gzarr.Loader(array, patches, batch_size=1, seed=4)
    return [batch["data"][0] for _ in range(POSES) for batch in loader]


def voxels() -> list[tuple[str, Any]]:
    """Return a cell of two images as it is stored, and with elements of one size."""
    shown = []
    for scale in (ANISOTROPIC, FINE):
        image = gzarr.ome.create({}, cell(scale), axes="yx", scale=scale, units="micrometer", chunks=16, levels=1)
        for spacing in (None, FINE):
            shape = image.shape if spacing is None else (EDGE, EDGE)
            loader = gzarr.Loader(image, Patches(shape, spacing=spacing, pad="edge"), batch_size=1)
            (batch,) = loader
            step = " × ".join(f"{number:g}" for number in scale)
            text = f"{step} µm, as stored" if spacing is None else "spacing=(0.5, 0.5)"
            shown.append((text, batch["data"][0]))
    return shown


def grey(data: Any) -> Any:
    """Return an image in 16 shades, and an even number of columns."""
    shades = (np.clip((data.astype(float) - 80) / 800, 0, 1) * 15).round().astype("u1") * 17
    return np.repeat(shades[..., None], 3, axis=-1)


def picture() -> str:
    """Return the picture, as SVG."""
    drawing = Drawing("A cell in nine poses, and two images of other resolutions", ALT, style=_STYLE)

    def add(pixels: Any, x: float, y: float, width: float) -> None:
        data = base64.b64encode(png(grey(pixels))).decode()
        height = width * pixels.shape[0] / pixels.shape[1]
        place = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
        drawing.add(f'<image {place} href="data:image/png;base64,{data}"/>')

    width = WIDTH - 2 * MARGIN
    edge = (width - GAP * (POSES - 1)) / POSES
    drawing.text(MARGIN, 22, "one cell in nine epochs: rotate=True, scale=(0.7, 1.4), flip=True, shift=6", "name")
    for i, patch in enumerate(poses()):
        add(patch, MARGIN + i * (edge + GAP), 32, edge)
    top = 32 + edge + 34
    tiles = voxels()
    edge = (width - GAP * (len(tiles) - 1)) / len(tiles)
    for i, (text, pixels) in enumerate(tiles):
        x = MARGIN + i * (edge + GAP)
        drawing.text(x, top - 10, text, "name")
        drawing.text(x + edge, top - 10, f"{pixels.shape[0]} × {pixels.shape[1]}", "soft", "end")
        add(pixels, x, top, edge)
    return drawing.svg(top + edge + MARGIN)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
