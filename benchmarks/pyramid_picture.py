"""The picture in docs/imaging.md: an image and labels, and what each method makes of them at level 3.

python benchmarks/pyramid_picture.py docs/pyramid.png
"""

from __future__ import annotations

import sys
from typing import Any

import matplotlib as mpl
import numpy as np
import scipy.ndimage

import gzarr

mpl.use("agg")
import matplotlib.pyplot as plt

EDGE, LEVEL = 256, 3


def cells() -> tuple[Any, Any]:
    """Return a made-up image of cells, and their labels."""
    rng = np.random.default_rng(3)
    y, x = np.ogrid[:EDGE, :EDGE]
    image = rng.normal(100, 12, (EDGE, EDGE))
    for cy, cx in rng.uniform(8, EDGE - 8, (70, 2)):
        image += 700 * np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / rng.uniform(15, 60))
    labels, _ = scipy.ndimage.label(scipy.ndimage.gaussian_filter(image, 1) > 350)
    return image.clip(0, 65535).astype("u2"), labels.astype("u2")


def level(data: Any, method: str) -> Any:
    """Return what a method makes of an image at the level that is shown."""
    image = gzarr.ome.create({}, data, axes="yx", chunks=32, levels=LEVEL + 1, method=method)
    return image.read(level=LEVEL)


def main(path: str) -> None:
    """Draw."""
    image, labels = cells()
    colors = np.random.default_rng(7).uniform(0.35, 1, (labels.max() + 1, 3))
    colors[0] = 0
    panels: list[tuple[str, Any]] = [("image", image)]
    panels += [(method, level(image, method)) for method in ("mean", "gaussian", "max", "nearest")]
    panels += [("labels", colors[labels])]
    panels += [(method, colors[level(labels, method)]) for method in ("mode", "nearest", "max")]
    figure, axes = plt.subplots(2, 5, figsize=(11, 4.9), layout="constrained")
    figure.patch.set_facecolor("#888888")
    places = [*axes[0], *axes[1, :4]]
    for i, (place, (title, data)) in enumerate(zip(places, [*panels[:5], *panels[5:]], strict=False)):
        shown = {"cmap": "gray", "vmin": 80, "vmax": 700} if data.ndim == 2 else {}
        place.imshow(data, interpolation="nearest", **shown)
        size = f"{data.shape[0]} × {data.shape[1]}"
        place.set_title(f"{title}, {size}" if i in (0, 5) else f"{title}, level {LEVEL}", fontsize=9)
    for place in axes.flat:
        place.set_axis_off()
    figure.savefig(path, dpi=80)


if __name__ == "__main__":
    main(sys.argv[1])
