"""Random reads for a while, on each device as in ``test_gpu.py``; ``GZARR_SOAK_SECONDS`` sets the time."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from support import zarr_arrays as z
from support.volumes import COMPRESSORS, volume, written

import gzarr

if TYPE_CHECKING:
    from pathlib import Path

    from support.devices import TestedDevice

pytestmark = pytest.mark.slow

SOAK_SECONDS = float(os.environ.get("GZARR_SOAK_SECONDS", "3"))


def _arrays(folder: Path) -> list[Path]:
    """Return arrays of many formats."""
    paths = [written(folder / name, name, volume("<u2", seed=i)) for i, name in enumerate(COMPRESSORS)]
    plain = volume("<f8", (50, 41), seed=30)
    zstd, gzip = z.codec("zstd", level=1, checksum=False), z.codec("gzip", level=1)
    transposed = z.codec("transpose", order=[1, 0])
    chains = {
        "raw": [z.LITTLE],
        "big": [z.BIG, gzip],
        "turned": [transposed, z.BIG, zstd, z.CRC32C],
        "sharded": [z.shard([5, 4], [z.LITTLE, z.blosc3("lz4", "bitshuffle", 8)])],
    }
    for name, codecs in chains.items():
        chunks = (20, 16) if name == "sharded" else (13, 16)
        z.write(folder / name, z.v3(plain.shape, chunks, "float64", codecs, fill=7.0), plain)
        paths.append(folder / name)
    # Some chunks are absent.
    (folder / "sharded" / "c" / "1" / "1").unlink()
    (folder / "raw" / "c" / "0" / "2").unlink()
    return paths


def _slice(random: np.random.Generator, n: int) -> slice:
    a, b = sorted(random.integers(-1, n + 2, 2).tolist())
    step = int(random.choice([1, 1, 1, 2, 3, -1, -2]))
    return slice(max(b, 0), a if a > 0 else None, step) if step < 0 else slice(max(a, 0), b, step)


def _some_read(random: np.random.Generator, shape: tuple[int, ...]) -> tuple[str, Any]:
    """Return the kind of a read, and its selection."""
    kind = str(random.choice(["basic", "basic", "orthogonal", "points", "many"]))
    if kind == "points":
        n = int(random.integers(1, 40))
        return kind, tuple(random.integers(0, size, n) for size in shape)
    if kind == "many":
        window = [int(random.integers(1, size + 1)) for size in shape]
        starts = [random.integers(0, size - w + 1, 5) for size, w in zip(shape, window, strict=True)]
        return kind, [
            tuple(slice(int(s[i]), int(s[i]) + w) for s, w in zip(starts, window, strict=True)) for i in range(5)
        ]
    items: list[Any] = []
    for size in shape[: int(random.integers(0, len(shape) + 1))]:
        which = random.random()
        if which < 0.2:
            items.append(int(random.integers(-size, size)))
        elif which < 0.5 and kind == "orthogonal":
            items.append(random.integers(0, size, int(random.integers(1, 12))))
        else:
            items.append(_slice(random, size))
    return kind, tuple(items)


def _read(array: gzarr.Array, kind: str, what: Any, **options: Any) -> Any:
    if kind == "many":
        return array.read_many(what, **options)
    how: Any = {"basic": array, "orthogonal": array.oindex, "points": array.vindex}[kind]
    return how.read(what, **options)


@pytest.mark.timeout(SOAK_SECONDS + 120)
def test_soak(tmp_path: Path, device: TestedDevice) -> None:
    """Random selections of arrays of many formats, decoded on the host or the device, in one wave and in many."""
    pairs = [(device.open(path), gzarr.open_array(path, device="cpu")) for path in _arrays(tmp_path)]
    deadline = time.monotonic() + SOAK_SECONDS
    seed = 0
    while seed < 20 or time.monotonic() < deadline:
        random = np.random.default_rng(seed)
        array, host = pairs[int(random.integers(len(pairs)))]
        kind, what = _some_read(random, array.shape)
        options: dict[str, Any] = {"decode": str(random.choice(["cuda", "cuda", "cpu", "auto"]))}
        if random.random() < 0.3:
            options["budget_bytes"] = int(random.integers(1 << 20, 4 << 20))
        result = device.to_numpy(_read(array, kind, what, **options))
        z.same(result, _read(host, kind, what), f"seed {seed}: {array.path}, {kind} {what}, {options}")
        seed += 1
