"""Data for tests of programs that use a GPU: an array, and compressors for each decoder of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from support import zarr_arrays as z

if TYPE_CHECKING:
    from pathlib import Path

SHAPE, CHUNKS = (40, 30, 21), (16, 10, 21)
#: By name: compressors of Zarr v2, at least one for each decoder of a device.
COMPRESSORS: dict[str, dict[str, Any]] = {
    "zstd": {"id": "zstd", "level": 3},
    "lz4": {"id": "lz4", "acceleration": 1},
    "gzip": {"id": "gzip", "level": 3},
    "zlib": {"id": "zlib", "level": 3},
    **{
        f"blosc-{cname}-{shuffle}": {"id": "blosc", "cname": cname, "clevel": 5, "shuffle": shuffle, "blocksize": 0}
        for cname in ("lz4", "lz4hc", "zstd", "zlib")
        for shuffle in (0, 1, 2)
    },
}


def volume(dtype: str = "<u4", shape: tuple[int, ...] = SHAPE, seed: int = 4) -> np.ndarray[Any, Any]:
    steps = np.random.default_rng(seed).integers(-2, 4, shape)
    return (np.cumsum(steps, axis=-1) + 300).astype(dtype)


def written(path: Path, compressor: str, data: np.ndarray[Any, Any]) -> Path:
    z.write(path, z.v2(data.shape, CHUNKS, data.dtype.str, COMPRESSORS[compressor]), data)
    return path
