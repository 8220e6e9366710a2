"""Segment a volume that need not fit in memory: smooth it, find what is bright, label it, and measure the objects.

    python segment_volume.py                  on the CPU, with SciPy
    python segment_volume.py --device cuda    on a GPU, with CuPy

Makes a volume with bright blobs in a temporary directory, segments it in blocks of 64³, and prints how many objects
there are and how large they are.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import gzarr

BLOCK = 64


def make(path: Path, edge: int) -> gzarr.Array:
    """Write a volume of blobs, slab by slab."""
    volume = gzarr.create_array(path, shape=(edge,) * 3, dtype="u2", chunks=32, device="cpu")
    places = np.random.default_rng(0).uniform(0, edge, (edge**3 // 20_000, 3))
    y, x = np.ogrid[:edge, :edge]
    for begin in range(0, edge, 32):
        end = min(begin + 32, edge)
        z = np.arange(begin, end)[:, None, None]
        slab = np.zeros((end - begin, edge, edge), np.float32)
        for p in places[np.abs(places[:, 0] - begin - 16) < 40]:
            slab += np.exp(-((z - p[0]) ** 2 + (y - p[1]) ** 2 + (x - p[2]) ** 2) / 18)
        volume[begin:end] = (100 + 1000 * slab).astype("u2")
    return volume


def segment(volume: gzarr.Array, path: Path, device: str) -> tuple[gzarr.Array, np.ndarray]:
    """Return the labels 1, 2, … of the objects, as an array in a store, and a table of them."""
    if device == "cpu":
        import scipy.ndimage as ndimage
    else:
        import cupyx.scipy.ndimage as ndimage

    def bright(x):
        """Return the mask of a block with its halo."""
        return ndimage.gaussian_filter(x.astype("f4"), 1, truncate=4) > 400

    # As scipy.ndimage.label would for the whole volume.
    labels, _ = gzarr.blocks.label(volume, function=bright, halo=4, out=path, block=BLOCK, device=device)
    return labels, gzarr.blocks.measure(labels, volume)


def main() -> None:
    """Run it on a volume of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--edge", type=int, default=160)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        volume = make(Path(folder) / "volume.zarr", arguments.edge)
        labels, table = segment(volume, Path(folder) / "labels.zarr", arguments.device)
        sizes = table["area"].astype(int)
        print(f"{len(sizes)} objects of {sizes.min()} to {sizes.max()} elements in {labels.shape}")


if __name__ == "__main__":
    main()
