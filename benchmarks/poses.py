"""Patches in random poses, made from a volume: how many in a second.

    GZARR_RECYCLE_BYTES=0 python benchmarks/poses.py --json poses.json

Patches of 64³ of a volume of 512³ u2 (chunks of 64³ in plain files with Blosc-lz4, and in shards of 256³ with zstd):
rotated in any direction, scaled by 0.8 to 1.25, linear, reflected at the ends. ``gzarr.Loader`` draws them anywhere
(``jitter=True``), as many in an epoch as there are cells of its stride. ``read_affine`` makes each by itself; so do the
rivals, which read the box that a pose needs and resample it, in two threads of one process: tensorstore with SciPy or
with torch's ``grid_sample``, and gzarr's box with SciPy. ``unposed`` is the loader without poses: what there is to
reach. Rivals that are not installed are left out, and named.

Before anything is timed, each rival's patch of one pose is compared with SciPy's of the whole volume. Rounds are
interleaved; the median of patches a second is told. Files are in the page cache. With the variable, gzarr's results are
in new memory, as those of the others; without it, it uses the memory of former ones again.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import math
import os
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.ndimage as ndimage
from report import header, save

import gzarr
from gzarr.loader import Patches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LAYOUTS: dict[str, dict[str, Any]] = {"lz4": {"codecs": "blosc"}, "zstd shards": {"codecs": "zstd"}}
Pose = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]


def volume(n: int) -> np.ndarray[Any, Any]:
    """Return something like a micrograph: smooth, with noise of a camera."""
    rng = np.random.default_rng(0)
    coarse = rng.random((max(n // 16, 1),) * 3, "f4")
    smooth = ndimage.zoom(coarse, n / len(coarse), order=1)[:n, :n, :n]
    return (200 + 3000 * smooth + rng.normal(0, 8, smooth.shape).astype("f4")).astype("u2")


def poses(n: int, patch: int, seed: int) -> Iterator[Pose]:
    """Yield maps of patches that lie inside of the volume but for their corners."""
    rng = np.random.default_rng(seed)
    while True:
        q, r = np.linalg.qr(rng.normal(size=(3, 3)))
        matrix = q * np.sign(np.diag(r)) / math.exp(rng.uniform(math.log(0.8), math.log(1.25)))
        centre = rng.uniform((patch - 1) / 2, n - 1 - (patch - 1) / 2, 3)
        yield matrix, centre - matrix @ np.full(3, (patch - 1) / 2)


def box_of(pose: Pose, n: int, patch: int) -> tuple[slice, ...]:
    """Return the box that a pose needs, in the volume."""
    corners = np.array(list(itertools.product((0, patch - 1), repeat=3)))
    places = corners @ pose[0].T + pose[1]
    low = np.clip(np.floor(places.min(axis=0)).astype(int), 0, n - 1)
    high = np.clip(np.floor(places.max(axis=0)).astype(int) + 2, 1, n)
    # What is reflected at an end is inside of the box: patches lie inside but for their corners.
    return tuple(map(slice, low.tolist(), high.tolist()))


def by_scipy(box: np.ndarray[Any, Any], low: np.ndarray[Any, Any], pose: Pose, patch: int) -> np.ndarray[Any, Any]:
    """Resample a box by SciPy."""
    found: np.ndarray[Any, Any] = ndimage.affine_transform(
        box, pose[0], pose[1] - low, (patch,) * 3, order=1, mode="mirror", output="f4"
    )
    return found


def by_torch(box: np.ndarray[Any, Any], low: np.ndarray[Any, Any], pose: Pose, patch: int) -> np.ndarray[Any, Any]:
    """Resample a box by PyTorch, whose coordinates are from -1 to 1, the last axis first."""
    import torch

    torch.set_num_threads(1)
    scale = np.maximum(np.array(box.shape) - 1, 1) / 2
    centre = pose[0] @ np.full(3, (patch - 1) / 2) + pose[1] - low
    theta = np.empty((3, 4))
    theta[:, :3] = (pose[0] * (patch - 1) / 2 / scale[:, None])[::-1, ::-1]
    theta[:, 3] = (centre / scale - 1)[::-1]
    grid = torch.nn.functional.affine_grid(
        torch.from_numpy(theta[None]).float(), [1, 1, patch, patch, patch], align_corners=True
    )
    whole = torch.from_numpy(box.astype("f4"))[None, None]
    found = torch.nn.functional.grid_sample(whole, grid, padding_mode="reflection", align_corners=True)
    return np.asarray(found[0, 0].numpy())


def readers(path: str, layout: str, n: int, patch: int) -> dict[str, Any]:
    """Return a function of a pose for each rival, which returns a patch of f4."""
    a = gzarr.open_array(path, device="cpu")

    def boxed(read: Callable[[tuple[slice, ...]], Any], resample: Any) -> Callable[[Pose], Any]:
        def one(pose: Pose) -> Any:
            box = box_of(pose, n, patch)
            return resample(np.asarray(read(box)), np.array([part.start for part in box]), pose, patch)

        return one

    found: dict[str, Any] = {
        "gzarr read_affine": lambda pose: gzarr.read_affine(
            a, pose[0], offset=pose[1], shape=(patch,) * 3, boundary="reflect", dtype="f4"
        ),
        "gzarr box + SciPy": boxed(lambda box: a[box], by_scipy),
    }
    has_torch = importlib.util.find_spec("torch") is not None
    if has_torch:
        found["gzarr box + torch"] = boxed(lambda box: a[box], by_torch)
    if importlib.util.find_spec("tensorstore") is not None:
        import tensorstore

        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}
        theirs = tensorstore.open(spec).result()
        found["tensorstore + SciPy"] = boxed(lambda box: theirs[box].read().result(), by_scipy)
        if has_torch:
            found["tensorstore + torch"] = boxed(lambda box: theirs[box].read().result(), by_torch)
    return found


def rate_of_poses(one: Callable[[Pose], Any], n: int, patch: int, count: int, seed: int) -> float:
    """Return patches a second, in two threads."""
    some = list(itertools.islice(poses(n, patch, seed), count))
    with ThreadPoolExecutor(2) as pool:
        started = time.perf_counter()
        for _ in pool.map(one, some):
            pass
        return count / (time.perf_counter() - started)


def rate_of_loader(path: str, patch: int, stride: int, options: dict[str, Any]) -> float:
    """Return samples a second of one epoch."""
    sampler = Patches((patch,) * 3, stride=stride, jitter=True, **options)
    loader = gzarr.Loader(gzarr.open_array(path, device="cpu"), sampler, batch_size=8, seed=3)
    started, seen = time.perf_counter(), 0
    for batch in loader:
        seen += len(batch["data"])
    return seen / (time.perf_counter() - started)


def compared(found: dict[str, Any], data: np.ndarray[Any, Any], patch: int) -> None:
    """Compare a patch of each rival with SciPy's of the whole volume."""
    pose = next(poses(len(data), patch, 99))
    wanted = by_scipy(data, np.zeros(3), pose, patch)
    for name, one in found.items():
        # PyTorch's coordinates are of float32.
        np.testing.assert_allclose(one(pose), wanted, rtol=0, atol=20 if "torch" in name else 1e-2, err_msg=name)


def run(folder: Path, arguments: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Measure; return patches a second of each rival for each layout."""
    n, patch, stride = arguments.size, arguments.patch, arguments.stride or arguments.patch
    data = volume(n)
    posed = {"rotate": True, "scale": (0.8, 1.25), "dtype": "f4"}
    results: dict[str, dict[str, float]] = {}
    for layout, options in LAYOUTS.items():
        path = str(folder / f"{layout.replace(' ', '-')}-{n}.zarr")
        chunk = min(arguments.chunk, n)
        shards = {"shards": (min(4 * chunk, n),) * 3} if "shards" in layout else {}
        gzarr.create_array(path, data=data, chunks=(chunk,) * 3, overwrite=True, **options, **shards)
        found = readers(path, layout, n, patch)
        compared(found, data, patch)
        works: dict[str, Callable[[int], float]] = {
            "gzarr Loader": lambda seed, path=path: rate_of_loader(path, patch, stride, posed),
            "gzarr Loader, unposed": lambda seed, path=path: rate_of_loader(path, patch, stride, {}),
        }
        for name, one in found.items():
            works[name] = lambda seed, one=one: rate_of_poses(one, n, patch, arguments.patches, seed)
        rates: dict[str, list[float]] = {name: [] for name in works}
        # The first round warms up.
        for number in range(arguments.rounds + 1):
            for name, work in works.items():
                rate = work(number)
                if number:
                    rates[name].append(rate)
        results[layout] = {name: statistics.median(each) for name, each in rates.items()}
        print(f"\n{layout}: patches of {patch}³ a second, of {n}³ u2")
        for name, rate in sorted(results[layout].items(), key=lambda item: -item[1]):
            print(f"  {name:<24} {rate:9.1f}")
        # Those that gzarr has no part in.
        if others := [rate for name, rate in results[layout].items() if not name.startswith("gzarr")]:
            ratio = results[layout]["gzarr Loader"] / max(others)
            print(f"  the loader makes {ratio:.2f} times as many as the best rival")
    return results


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512, help="edge of the volume")
    parser.add_argument("--patch", type=int, default=64, help="edge of a patch")
    parser.add_argument("--chunk", type=int, default=64, help="edge of a chunk")
    parser.add_argument("--stride", type=int, help="distance of the loader's cells; the patch's edge by default")
    parser.add_argument("--patches", type=int, default=64, help="patches of a round of those that make them one by one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="file for the results")
    parser.add_argument("--data", type=Path, help="folder for the volume; a temporary one by default")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    packages = ("numpy", "scipy", "tensorstore", "torch")
    there = [name for name in packages if importlib.util.find_spec(name) is not None]
    if missing := sorted(set(packages) - set(there)):
        print(f"left out, as they are not installed: {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="gzarr-poses-") as temporary:
        folder = arguments.data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        results = run(folder, arguments)
    if arguments.json:
        versions = {"gzarr": gzarr.__version__, **{name: metadata.version(name) for name in there}}
        document = header("poses.py", None, versions, patches_per_second=results)
        save(arguments.json, document)


if __name__ == "__main__":
    main()
