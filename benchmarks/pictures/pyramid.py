"""The picture of methods in docs/imaging.md: an image and labels, and what each method makes of them at level 3.

    python benchmarks/pictures pyramid docs/figures/pyramid.svg

Its pixels depend on random numbers and filters of NumPy and SciPy, so no test compares it byte by byte.
"""

from __future__ import annotations

import base64
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import scipy.ndimage

import gzarr
from pictures.drawing import MARGIN, WIDTH, Drawing

EDGE, LEVEL = 192, 3
COLUMNS, GAP = 5, 10
ALT = (
    "An image of cells and what mean, gaussian, max and nearest make of it at level 3; labels of the cells and what "
    "mode, nearest and max make of them. With nearest, noise stays and small cells fade; with max, everything grows; "
    "with mode, labels smaller than the elements of a level vanish."
)
_STYLE = "image{image-rendering:pixelated}"


def cells() -> tuple[Any, Any]:
    """Return a made-up image of cells, and their labels."""
    rng = np.random.default_rng(3)
    y, x = np.ogrid[:EDGE, :EDGE]
    image = rng.normal(100, 12, (EDGE, EDGE))
    for cy, cx in rng.uniform(8, EDGE - 8, (45, 2)):
        image += 700 * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / rng.uniform(15, 60))
    labels, _ = scipy.ndimage.label(scipy.ndimage.gaussian_filter(image, 1) > 350)
    return image.clip(0, 65535).astype("u2"), labels.astype("u2")


def level(data: Any, method: str) -> Any:
    """Return what a method makes of an image at the level that is shown."""
    image = gzarr.ome.create({}, data, axes="yx", chunks=24, levels=LEVEL + 1, method=method)
    return image.read(level=LEVEL)


def grey(data: Any) -> Any:
    """Return an image in 16 shades."""
    shades = (np.clip((data.astype(float) - 80) / 620, 0, 1) * 15).round().astype("u1") * 17
    return np.repeat(shades[..., None], 3, axis=-1)


def png(pixels: Any) -> bytes:
    """Return pixels, uint8 of shape ``(height, width, 3)``, as PNG with a palette."""
    palette, numbers = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    height, width = pixels.shape[:2]
    bits = 4 if len(palette) <= 16 else 8
    rows = numbers.reshape(height, width).astype("u1")
    if bits == 4:
        rows = rows[:, 0::2] << 4 | rows[:, 1::2]
    lines = b"".join(b"\0" + row.tobytes() for row in rows)

    def part(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", width, height, bits, 3, 0, 0, 0)
    return b"".join([
        b"\x89PNG\r\n\x1a\n",
        part(b"IHDR", header),
        part(b"PLTE", palette.astype("u1").tobytes()),
        part(b"IDAT", zlib.compress(lines, 9)),
        part(b"IEND", b""),
    ])  # fmt: skip


def picture() -> str:
    """Return the picture, as SVG."""
    image, labels = cells()
    colours = np.random.default_rng(7).integers(90, 256, (labels.max() + 1, 3)).astype("u1")
    colours[0] = 0
    tiers = [
        [("image", grey(image)), *((m, grey(level(image, m))) for m in ("mean", "gaussian", "max", "nearest"))],
        [("labels", colours[labels]), *((m, colours[level(labels, m)]) for m in ("mode", "nearest", "max"))],
    ]
    drawing = Drawing("What each method makes of an image and of labels", ALT, style=_STYLE)
    edge = (WIDTH - 2 * MARGIN - GAP * (COLUMNS - 1)) / COLUMNS
    for row, tier in enumerate(tiers):
        for column, (title, pixels) in enumerate(tier):
            x, y = MARGIN + column * (edge + GAP), 30 + row * (edge + 34)
            size = f"{pixels.shape[0]} × {pixels.shape[1]}"
            drawing.text(x, y - 8, title, "name")
            drawing.text(x + edge, y - 8, size, "soft", "end")
            data = base64.b64encode(png(pixels)).decode()
            place = f'x="{x:g}" y="{y:g}" width="{edge:g}" height="{edge:g}"'
            drawing.add(f'<image {place} href="data:image/png;base64,{data}"/>')
    return drawing.svg(30 + 2 * edge + 34 + MARGIN)


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")
