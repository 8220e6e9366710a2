"""Shared parts of the tests of writing from a device: the device, arrays on it, arrays to write to, stored values."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numcodecs
import numpy as np
import zarr
from support import devices
from support import zarr_arrays as z

import gzarr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.watched_device import WatchedDevice

SHAPE, CHUNKS = (40, 33, 21), (16, 10, 21)
COMPRESSORS: dict[str, Any] = {
    "raw": None,
    "zstd": numcodecs.Zstd(1),
    "lz4": numcodecs.LZ4(),
    "gzip": numcodecs.GZip(1),
    "zlib": numcodecs.Zlib(1),
    **{
        f"blosc-{name}-{shuffle}": numcodecs.Blosc(name, 5, shuffle)
        for name in ("lz4", "zstd")
        for shuffle in (0, 1, 2)
    },
    "blosc-stored": numcodecs.Blosc("lz4", 0, 1),
}


@contextmanager
def on_host() -> Iterator[WatchedDevice]:
    """CUDA in host memory, as the device of this thread."""
    with devices.on_host() as made, made:
        yield made


def on(device: WatchedDevice, values: Any) -> Any:
    """Return a copy of values on the device, a CuPy array, which every stream may use."""
    values = np.asarray(values, order="C")
    stream = device.current_stream()
    result = device.empty(values.shape, values.dtype, stream)
    result.set(values)
    stream.synchronize()
    return result


def writable(store: Any, **options: Any) -> gzarr.Array:
    opened = gzarr.open_array(store, mode="r+", device="cuda")
    return gzarr.Array(opened.metadata, opened.store, opened.path, device="cuda", mode="r+", **options)


def make(path: Path, **options: Any) -> gzarr.Array:
    options = {"shape": SHAPE, "chunks": CHUNKS, "dtype": "i4", "fill_value": 7, **options}
    zarr.create_array(path, **options)
    return writable(path)


def check(path: Path, expected: np.ndarray[Any, Any], what: Any = "") -> None:
    """Compare stored values with the expected ones, by two readers."""
    z.same(gzarr.open_array(path, device="cpu")[...], expected, what)
    theirs = np.asarray(zarr.open_array(path, mode="r")[...])
    z.same(theirs.astype(theirs.dtype.newbyteorder("=")), expected, what)


def data_of(dtype: Any, shape: tuple[int, ...] = SHAPE, seed: int = 1) -> np.ndarray[Any, Any]:
    return z.sample(shape, np.dtype(dtype).newbyteorder("="), seed)


def encoded(device: WatchedDevice) -> int:
    """Return the number of frames that the device has compressed."""
    return sum(n for what, n in device.counts.items() if what.startswith("encoded frames"))
