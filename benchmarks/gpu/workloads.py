"""The workloads of ``gpu.read``: those of ``read.py``, larger, and three of published pipelines.

A small part of each array is made and written by zarr-python; the rest of the array repeats it, chunk file by chunk
file. Every copy is a separate file, so that reading causes the same memory traffic as with different data.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fields
import numpy as np
from workloads import Dataset, Region, Rows, Windows, Workload, store, workloads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from workloads import Access

#: Approximate size of the generated part, in bytes.
BASE_NBYTES = 32 << 20
#: Most files of an array: with chunks of a few kilobytes, there would be hundreds of thousands.
MOST_FILES = 40_000
#: The workloads that decide most, the most important first: the others differ from them in a way that matters less.
MAIN = (
    "u2-64-zstd", "u2-64-blosc-lz4", "f4-era5-blosc-zstd-bit", "f4-shards-of-400-zstd", "u2-64-raw", "u2-32-blosc-lz4",
    "500 windows 64³", "u2-64-gzip",
)  # fmt: skip
_COPIERS = 16

_LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
_ZSTD = {"name": "zstd", "configuration": {"level": 3, "checksum": False}}


def layers_f4(shape: tuple[int, ...], start: int, stop: int) -> npt.NDArray[np.float32]:
    """A simulation's scalar field of many layers: sixteen different ones, repeated with growing offsets."""
    several = fields.pressure_f4((16, *shape[1:]), 0, 16)
    numbers = np.arange(start, stop)
    drift = (numbers // 16 / 4096.0).astype(np.float32)
    return several[numbers % 16] + drift.reshape(-1, *[1] * (len(shape) - 1))


def published() -> list[Dataset]:
    """Return the arrays of published pipelines."""
    blosc = {"cname": "zstd", "clevel": 5, "shuffle": "bitshuffle", "typesize": 4, "blocksize": 0}
    return [
        Dataset(
            "f4-era5-blosc-zstd-bit",
            fields.weather_f4,
            "f4",
            (64, 721, 1440),
            (1, 721, 1440),
            (_LITTLE, {"name": "blosc", "configuration": blosc}),
            scaled_axes=(0,),
        ),
        Dataset(
            "f4-shards-of-400-zstd",
            layers_f4,
            "f4",
            (400, 512, 512),
            (1, 512, 512),
            (_LITTLE, _ZSTD),
            shard_shape=(400, 512, 512),
            scaled_axes=(0,),
        ),
        Dataset(
            "f4-few-large-zstd",
            fields.weather_f4,
            "f4",
            (10, 128, 1280, 640),
            (1, 1, 1280, 640),
            (_LITTLE, _ZSTD),
            scaled_axes=(0, 1),
        ),
    ]


@dataclass(frozen=True)
class Tiled:
    """A workload on an array that repeats a small one.

    Attributes
    ----------
    base
        The small array.
    repeats
        Number of repetitions along each axis.
    workload
        The reads; the dataset is the whole array.
    """

    base: Dataset
    repeats: tuple[int, ...]
    workload: Workload

    def take(self, base: npt.NDArray[Any], selection: Any) -> npt.NDArray[Any]:
        """Return a selection of the whole array, given the elements of the small one."""
        items = [*selection] if isinstance(selection, tuple) else [selection]
        shape = self.workload.dataset.shape
        if Ellipsis in [item for item in items if not isinstance(item, np.ndarray)]:
            at = next(i for i, item in enumerate(items) if item is Ellipsis)
            items[at : at + 1] = [slice(None)] * (len(shape) - len(items) + 1)
        items += [slice(None)] * (len(shape) - len(items))
        indices = [np.arange(n)[item] % b for n, b, item in zip(shape, base.shape, items, strict=True)]
        found = base[np.ix_(*map(np.atleast_1d, indices))]
        return found.reshape([index.size for index in indices if index.ndim])

    def expected(self, base: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
        """Yield the expected result of each read."""
        access = self.workload.access
        if isinstance(access, Region):
            yield self.take(base, access.selection)
        elif isinstance(access, Windows):
            yield np.stack([self.take(base, s) for s in access.selections()])
        else:
            for batch in access.batches:
                yield self.take(base, batch)


def tiled(workload: Workload, nbytes: int, base_nbytes: int = BASE_NBYTES) -> Tiled:
    """Return a workload on an array of about ``nbytes``, of which about ``base_nbytes`` are made.

    Parameters
    ----------
    workload
        Workload whose dataset defines everything except the size along its scaled axes; sizes along all of these but
        the first stay the same or shrink.
    nbytes, base_nbytes
        Sizes in bytes; at least one chunk (one shard) is made.
    """
    dataset = workload.dataset
    outer = dataset.shard_shape or dataset.chunk_shape
    blocks = [-(-n // o) if axis in dataset.scaled_axes else 1 for axis, (n, o) in _sizes(dataset)]
    made = [1] * len(blocks)
    itemsize = np.dtype(dataset.dtype).itemsize
    unit = itemsize * math.prod(o if axis in dataset.scaled_axes else n for axis, (n, o) in _sizes(dataset))
    files = math.prod(-(-n // o) for axis, (n, o) in _sizes(dataset) if axis not in dataset.scaled_axes)
    most = max(1, min(min(base_nbytes, nbytes) // unit, MOST_FILES // 4 // files))
    for axis in reversed(dataset.scaled_axes):
        bound = most // math.prod(made)
        # A power of two, so that a part that exists already is repeated as often as it fits.
        made[axis] = blocks[axis] if blocks[axis] <= bound else 1 << max(0, bound.bit_length() - 1)
    shape = tuple(
        m * o if axis in dataset.scaled_axes else n for (axis, (n, o)), m in zip(_sizes(dataset), made, strict=True)
    )
    base = dataclasses.replace(dataset, shape=shape)
    factor = min(max(1, round(nbytes / base.nbytes)), max(1, MOST_FILES // (files * math.prod(made))))
    repeats = [1] * len(blocks)
    for axis in reversed(dataset.scaled_axes):
        first = axis == dataset.scaled_axes[0]
        left = max(1, round(factor / math.prod(repeats)))
        repeats[axis] = left if first else max(1, min(left, blocks[axis] // made[axis]))
    whole = dataclasses.replace(dataset, shape=tuple(n * r for n, r in zip(shape, repeats, strict=True)))
    access = fitted(workload.access, dataset.shape, whole.shape)
    assert all(n % o == 0 or r == 1 for n, o, r in zip(shape, outer, repeats, strict=True))
    return Tiled(base, tuple(repeats), Workload(workload.name, whole, access))


def _sizes(dataset: Dataset) -> list[tuple[int, tuple[int, int]]]:
    outer = dataset.shard_shape or dataset.chunk_shape
    return list(enumerate(zip(dataset.shape, outer, strict=True)))


def fitted(access: Access, old: tuple[int, ...], new: tuple[int, ...]) -> Access:
    """Return reads for an array of another shape: the same number, spread over it in the same way."""
    if isinstance(access, Windows):
        shape = tuple(min(w, n) for w, n in zip(access.shape, new, strict=True))
        room = np.array([[(n - w) / max(o - v, 1) for n, w, o, v in zip(new, shape, old, access.shape, strict=True)]])
        starts = np.minimum((access.starts * room).astype(np.int64), np.array(new) - np.array(shape))
        return Windows(starts, shape)
    if isinstance(access, Rows):
        return Rows(access.batches * new[0] // old[0])
    items = [min(i, n - 1) if isinstance(i, int) else i for i, n in zip(access.selection, new, strict=False)]
    return Region(tuple(items))


def all_workloads(nbytes: int, rows: int = 5_000) -> list[Tiled]:
    """Return every workload at about ``nbytes`` per array, the published ones first."""
    ours = [Workload(dataset.name, dataset) for dataset in published()]
    return [tiled(workload, nbytes) for workload in [*ours, *workloads(rows=rows)]]


@dataclass(frozen=True)
class OnDisk:
    """An array written by :func:`written`.

    Attributes
    ----------
    path
        Path of the array.
    base
        Elements that it repeats.
    stored_nbytes
        Size of its chunks in bytes.
    """

    path: Path
    base: npt.NDArray[Any]
    stored_nbytes: int


@contextlib.contextmanager
def written(tiles: Tiled, data_dir: Path) -> Iterator[OnDisk]:
    """Write the array below ``data_dir`` for a while; the part made by zarr-python stays."""
    import zarr

    made = store(tiles.base, data_dir)
    base: Any = zarr.open_array(str(made.path), mode="r")[...]
    home = Path(tempfile.mkdtemp(prefix=".tiled-", dir=data_dir))
    try:
        path = home / "array.zarr"
        path.mkdir()
        name, document = tiles.workload.dataset.document()
        (path / name).write_text(json.dumps(document))
        copies = _copies(tiles, made.path, path)
        for folder in {target.parent for _, target in copies}:
            folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(_COPIERS) as pool:
            list(pool.map(lambda pair: shutil.copyfile(*pair), copies, chunksize=64))
        yield OnDisk(path, base.astype(tiles.base.dtype, copy=False), made.stored_nbytes * math.prod(tiles.repeats))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _copies(tiles: Tiled, source: Path, target: Path) -> Sequence[tuple[Path, Path]]:
    """Return the copies of each file; absent chunks stay absent."""
    dataset = tiles.base
    outer = dataset.shard_shape or dataset.chunk_shape
    grid = tuple(-(-n // o) for n, o in zip(dataset.shape, outer, strict=True))

    def key(at: Sequence[int]) -> str:
        return ".".join(map(str, at)) if dataset.zarr_format == 2 else "c/" + "/".join(map(str, at))

    found = []
    for at in np.ndindex(*grid):
        file = source / key(at)
        if file.exists():
            tiles_of = (
                [a + t * g for a, t, g in zip(at, tile, grid, strict=True)] for tile in np.ndindex(*tiles.repeats)
            )
            found += [(file, target / key(to)) for to in tiles_of]
    return found


def matches(result: Any, tiles: Tiled, base: Any) -> bool:
    """Return whether a whole read is right; ``result`` and ``base`` are both on the host, or both on a device."""
    dataset = tiles.workload.dataset
    if tuple(result.shape) != dataset.shape or result.dtype != base.dtype:
        return False
    for tile in np.ndindex(*tiles.repeats):
        where = tuple(slice(t * n, (t + 1) * n) for t, n in zip(tile, base.shape, strict=True))
        if not bool((result[where] == base).all()):
            return False
    return True
