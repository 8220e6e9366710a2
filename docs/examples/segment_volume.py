"""Segment a volume that need not fit in memory: smooth it, find what is bright, label it, and join labels over blocks.

    python segment_volume.py                  on the CPU, with SciPy
    python segment_volume.py --device cuda    on a GPU, with CuPy

Makes a volume with bright blobs in a temporary directory, segments it in three passes over blocks of 64³, and prints
how many objects there are and how large they are.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

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
    """Return the labels 1, 2, … of the objects, as an array in a store, and the size of each."""
    if device == "cpu":
        import numpy as xp
        import scipy.ndimage as ndimage
    else:
        import cupy as xp
        import cupyx.scipy.ndimage as ndimage

    def label(x, block_info):
        """Label a block on its own; labels of different blocks are different."""
        bright = ndimage.gaussian_filter(x.astype("f4"), 1, truncate=4) > 400
        labels, count = ndimage.label(bright[4:-4, 4:-4, 4:-4])
        first = block_info.number * BLOCK**3
        return xp.where(labels > 0, labels + first, 0).astype("u4"), np.arange(first + 1, first + int(count) + 1)

    def touching(x, block_info):
        """Return the pairs of labels that touch each other across the lower faces of a block."""
        pairs = [np.empty((0, 2), np.int64)]
        for axis, (before, _) in enumerate(block_info.halo):
            if before:
                inner = [slice(b, x.shape[d] - a) for d, (b, a) in enumerate(block_info.halo)]
                faces = [x[tuple(slice(i, i + 1) if d == axis else s for d, s in enumerate(inner))] for i in (0, 1)]
                both = (faces[0] > 0) & (faces[1] > 0)
                found = xp.stack([face[both] for face in faces], axis=1)
                pairs.append(np.unique(found.get() if device != "cpu" else found, axis=0))
        return np.concatenate(pairs)

    # An output like the volume, with the smoothing's halo; and a table of all labels.
    labels, numbers = gzarr.map_blocks(
        label, volume, out=path, dtype="u4", block=BLOCK, halo=4, device=device, reduce=lambda a, b: np.append(a, b)
    )
    # No output: the faces between blocks.
    pairs = gzarr.map_blocks(
        touching, labels, block=BLOCK, halo=1, boundary=None, device=device, reduce=lambda a, b: np.concatenate([a, b])
    )
    ends = np.searchsorted(numbers, pairs)
    graph = coo_array((np.ones(len(ends), bool), (ends[:, 0], ends[:, 1])), shape=(len(numbers),) * 2)
    count, joined = connected_components(graph, directed=False)

    old, new = xp.asarray(np.append(0, numbers)), xp.asarray(np.append(0, joined + 1).astype("u4"))

    def rename(x):
        """Return the final labels, and how many elements each has."""
        result = new[xp.searchsorted(old, x.ravel())].reshape(x.shape)
        sizes = xp.bincount(result.ravel(), minlength=count + 1)
        return result, sizes.get() if device != "cpu" else sizes

    # Without a halo, an array may be read and written in one pass.
    _, sizes = gzarr.map_blocks(rename, labels, out=labels, block=BLOCK, device=device, reduce=np.add)
    return labels, sizes[1:]


def main() -> None:
    """Run it on a volume of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--edge", type=int, default=160)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        volume = make(Path(folder) / "volume.zarr", arguments.edge)
        labels, sizes = segment(volume, Path(folder) / "labels.zarr", arguments.device)
        print(f"{len(sizes)} objects of {sizes.min()} to {sizes.max()} elements in {labels.shape}")


if __name__ == "__main__":
    main()
