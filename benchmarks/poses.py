"""Patches in random poses out of a stored volume: gzarr's loader beside what people write. Patches a second.

    python benchmarks/poses.py [--edge 512] [--patch 64] [--patches 192] [--rounds 5] [--json poses.json]
    python benchmarks/poses.py --edge 96 --patch 16 --patches 16 --rounds 1          # to see that it runs

A volume of 16 bits of ``edge³`` elements, in chunks of 64³: in lz4, a file each, and in zstd in shards of 256³.
Patches are rotated about any axis by any angle and scaled by 0.8 to 1.25, with linear interpolation, and are float32.
Rivals draw the same number of patches at random places. They read the box around each with tensorstore, all boxes of a
batch at once, and resample it with

    SciPy        ``scipy.ndimage.affine_transform``, order 1, in two threads
    torch        ``torch.nn.functional.grid_sample`` in two threads, where PyTorch is installed

``unposed`` are patches of gzarr's loader as they are stored. ``cold`` is gzarr without the memory of former epochs
(``GZARR_RECYCLE_BYTES=0``). Files are in the page cache. Readers take turns, medians are reported. Before anything is
timed, a batch of each rival is compared with SciPy's on the whole volume.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fields
import numpy as np

import gzarr
from gzarr.loader import Patches
from gzarr.loader.poses import checked_poses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LAYOUTS: dict[str, dict[str, Any]] = {
    "lz4": {"codecs": [{"name": "blosc", "configuration": {"cname": "lz4", "shuffle": "shuffle"}}]},
    "zstd shards": {"codecs": "zstd", "shards": 256},
}
CHUNK, BATCH, SCALE, THREADS = 64, 16, (0.8, 1.25), 2


def drawn(count: int, edge: int, patch: int, seed: int) -> Iterator[tuple[Any, Any]]:
    """Yield the matrix of each patch, and its offset: what is at ``matrix @ i + offset`` is shown at ``i``."""
    rng = np.random.default_rng(seed)
    poses = checked_poses(3, True, SCALE, None, None, None)
    for matrix in poses.matrices(rng.integers(0, 1 << 62, count)):
        centre = rng.uniform(patch / 2, edge - patch / 2, 3)
        yield matrix, centre - matrix @ np.full(3, (patch - 1) / 2)


def box_of(matrix: Any, offset: Any, edge: int, patch: int) -> tuple[Any, Any]:
    """Return the first and the last element that a patch needs, inside of the volume."""
    corners = np.stack(np.meshgrid(*[[0, patch - 1]] * 3, indexing="ij"), -1).reshape(-1, 3)
    places = corners @ matrix.T + offset
    low = np.clip(np.floor(places.min(0)).astype(int), 0, edge - 1)
    return low, np.clip(np.ceil(places.max(0)).astype(int) + 2, low + 1, edge)


def by_scipy(box: Any, matrix: Any, offset: Any, patch: int) -> Any:
    from scipy import ndimage

    return ndimage.affine_transform(box, matrix, offset, (patch,) * 3, np.float32, order=1, mode="nearest")


def by_torch(box: Any, matrix: Any, offset: Any, patch: int) -> Any:
    import torch

    size = torch.tensor(box.shape, dtype=torch.float32)
    steps = torch.arange(patch, dtype=torch.float32)
    grid = torch.stack(torch.meshgrid(steps, steps, steps, indexing="ij"), -1)
    places = grid @ torch.tensor(matrix, dtype=torch.float32).T + torch.tensor(offset, dtype=torch.float32)
    # From elements to -1 … 1, with x first.
    places = (2 * places / (size - 1) - 1).flip(-1)
    values = torch.from_numpy(box.astype(np.float32))[None, None]
    found = torch.nn.functional.grid_sample(values, places[None], padding_mode="border", align_corners=True)
    return found[0, 0].numpy()


def rival(path: str, resample: Callable[..., Any], poses: list[tuple[Any, Any]], edge: int, patch: int) -> list[Any]:
    """Return patches of rivals."""
    import tensorstore

    context = tensorstore.Context({"cache_pool": {"total_bytes_limit": 0}, "data_copy_concurrency": {"limit": THREADS}})
    spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}
    array = tensorstore.open(spec, context=context, read=True).result()
    made = []
    with ThreadPoolExecutor(THREADS) as threads:
        for begin in range(0, len(poses), BATCH):
            some = poses[begin : begin + BATCH]
            boxes = [box_of(matrix, offset, edge, patch) for matrix, offset in some]
            reads = [array[tuple(map(slice, low, high))].read() for low, high in boxes]

            def one(i: int, some: Any = some, boxes: Any = boxes, reads: Any = reads) -> Any:
                matrix, offset = some[i]
                return resample(reads[i].result(), matrix, offset - boxes[i][0], patch)

            made.append(np.stack(list(threads.map(one, range(len(some))))))
    return made


def loader(path: str, patch: int, *, posed: bool) -> gzarr.Loader:
    options: dict[str, Any] = {"rotate": True, "scale": SCALE, "dtype": "f4", "pad": "edge"} if posed else {}
    sampler = Patches((patch,) * 3, jitter=True, **options)
    return gzarr.Loader(gzarr.open_array(path, device="cpu"), sampler, batch_size=BATCH, seed=1)


def take(batches: Any, count: int) -> int:
    """Take at least so many patches, of epoch after epoch; return how many."""
    done = 0
    while done < count:
        for batch in batches:
            done += len(batch["data"])
            if done >= count:
                break
    return done


def worker(reader: str, path: str, edge: int, patch: int, count: int) -> float:
    """Return patches a second of a reader, in this process."""
    if reader in ("gzarr", "cold", "unposed"):
        batches = loader(path, patch, posed=reader != "unposed")
        take(batches, count)
        start = time.perf_counter()
        done = take(batches, count)
    else:
        resample = by_scipy if reader == "SciPy" else by_torch
        if reader == "torch":
            import torch

            torch.set_num_threads(1)
        rival(path, resample, list(drawn(BATCH, edge, patch, 0)), edge, patch)
        poses = list(drawn(count, edge, patch, 1))
        start = time.perf_counter()
        done = sum(len(batch) for batch in rival(path, resample, poses, edge, patch))
    return done / (time.perf_counter() - start)


def check(path: str, volume: Any, edge: int, patch: int, rivals: list[str]) -> None:
    """Compare a batch of each with SciPy's on the whole volume."""
    poses = list(drawn(4, edge, patch, 2))
    right = [by_scipy(volume, matrix, offset, patch) for matrix, offset in poses]
    array = gzarr.open_array(path, device="cpu")
    shape = (patch,) * 3
    for (matrix, offset), wanted in zip(poses, right, strict=True):
        found = gzarr.read_affine(array, matrix, offset=offset, shape=shape, boundary="edge", dtype="f4")
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-2)
    for name in rivals:
        for found, wanted in zip(
            rival(path, by_scipy if name == "SciPy" else by_torch, poses, edge, patch)[0], right, strict=True
        ):
            # Boxes end where the volume does; places of torch have the precision of float32.
            assert np.mean(np.abs(found - wanted) > 1e-2 * np.abs(wanted) + 1) < 1e-2, name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edge", type=int, default=512)
    parser.add_argument("--patch", type=int, default=64)
    parser.add_argument("--patches", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker is not None:
        reader, path, *numbers = arguments.worker
        print(worker(reader, path, *map(int, numbers)))
        return
    edge, patch, count = arguments.edge, arguments.patch, arguments.patches
    rivals = [name for name, module in (("SciPy", "scipy"), ("torch", "torch")) if find_spec(module)]
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        volume = fields.make(fields.camera_u2, (edge,) * 3)
        for layout, options in LAYOUTS.items():
            path = f"{folder}/{layout.replace(' ', '-')}"
            fitting = dict(options)
            if "shards" in options:
                fitting["shards"] = min(options["shards"], -(-edge // CHUNK) * CHUNK)
            gzarr.create_array(path, data=volume, chunks=CHUNK, **fitting)
            check(path, volume, edge, patch, rivals)
            seconds: dict[str, list[float]] = {name: [] for name in ("unposed", "gzarr", "cold", *rivals)}
            for _ in range(arguments.rounds):
                for reader, found in seconds.items():
                    given = [reader, path, *map(str, (edge, patch, count))]
                    environment = {**os.environ, **({"GZARR_RECYCLE_BYTES": "0"} if reader == "cold" else {})}
                    command = [sys.executable, __file__, "--worker", *given]
                    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
                    found.append(float(done.stdout))
            results[layout] = {name: statistics.median(found) for name, found in seconds.items()}
            print(f"\n{layout}: patches/s of {patch}³ from {edge}³, and as multiples of the fastest rival")
            best = max((results[layout][name] for name in rivals), default=float("nan"))
            for name, speed in results[layout].items():
                print(f"  {name:10} {speed:10,.1f} {speed / best:8.2f}", flush=True)
    if arguments.json:
        packages = {name: version(name) for name in ("numpy", "tensorstore", "scipy", "torch") if find_spec(name)}
        about = {"python": platform.python_version(), "machine": platform.machine(), **packages}
        sizes = {"edge": edge, "patch": patch, "patches": count, "rounds": arguments.rounds}
        arguments.json.write_text(json.dumps({"about": about, **sizes, "patches_per_s": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
