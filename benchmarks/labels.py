"""Labels of a stored mask, block after block: ``gzarr.blocks.label`` beside tilewise-ccl, dask-image and a script.

    python benchmarks/labels.py                                      some fifteen minutes
    python benchmarks/labels.py --edge 128 --rounds 1
    python benchmarks/labels.py --python ENV/bin/python --json labels.json

A mask of 512³ bytes in chunks of 64³ with some 10,000 cells; labels are u4 in chunks of 64³ (Blosc-lz4, as the mask),
and neighbours share a face. Each rival runs in a process of its own, which first labels a mask of 64³, untimed. Rounds
are interleaved, the median is reported. No file is replaced or deleted by the benchmark meanwhile. Every result has the
objects of ``scipy.ndimage.label`` of the whole mask, up to their numbers; for gzarr, with them. ``--python`` is the
interpreter of the rivals, which need tilewise-ccl 0.0.7, dyna-zarr and dask-image; beside their own blocks, blocks are
of 128³, two at a time.

Rivals:

    tilewise, dask    ``label_array`` of a dask array, stored in the array that gzarr also gets
    tilewise, dyna    ``label_array`` of an array of dyna-zarr, and its writer
    dask-image        ``ndmeasure.label`` of a dask array, stored in the same way
    script            what users write: SciPy's labels of each block go to the output, in two threads, labels on both
                      sides of faces are read and joined by SciPy, and all blocks are read and written again
    gzarr             ``gzarr.blocks.label``; and in one thread (``GZARR_THREADS=1``)

``written`` is how many bytes the process wrote, divided by those of the labels that are stored: about how often each
element was written.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from disk import settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Box = tuple[slice, ...]

CHUNK, BLOCK = 64, 128
THREADS = 2
CELLS = 10_000


def blocks(shape: tuple[int, ...]) -> Iterator[Box]:
    """Yield the blocks of a volume."""
    parts = ([slice(i, min(i + BLOCK, n)) for i in range(0, n, BLOCK)] for n in shape)
    yield from itertools.product(*parts)


# -- the rivals; imports come before the time starts


def run_gzarr(source: str, target: str) -> Callable[[], object]:
    """``gzarr.blocks.label``."""
    import gzarr

    out = gzarr.open_array(target, mode="r+", device="cpu")
    return lambda: gzarr.blocks.label(source, out=out)


def run_tilewise_dask(source: str, target: str) -> Callable[[], object]:
    """``tilewise_ccl`` over dask."""
    import dask
    import dask.array as da
    import zarr
    from tilewise_ccl import label_array

    dask.config.set(scheduler="threads", num_workers=THREADS)
    out = zarr.open_array(target, mode="r+")

    def work() -> None:
        mask = da.from_zarr(source, chunks=(BLOCK,) * 3) > 0
        da.store(label_array(mask, connectivity=1, max_threads=THREADS).astype("u4"), out, lock=False)

    return work


def run_tilewise_dyna(source: str, target: str) -> Callable[[], object]:
    """``tilewise_ccl`` over dyna-zarr."""
    import zarr
    from dyna_zarr.codecs import Codecs
    from dyna_zarr.io import io
    from tilewise_ccl import label_array

    shape = zarr.open_array(source, mode="r").shape
    codec = Codecs("blosc", cname="lz4", clevel=5)

    def work() -> None:
        mask = io.read(source) > 0
        tile = tuple(min(2 * BLOCK, n) for n in shape)
        labels = label_array(mask, tile_shape=tile, connectivity=1, max_threads=THREADS)
        io.write(
            labels, target, chunks=(CHUNK,) * 3, dtype="uint32", compressor=codec, max_threads=THREADS, overwrite=True
        )

    return work


def run_dask_image(source: str, target: str) -> Callable[[], object]:
    """``dask_image.ndmeasure.label``."""
    import dask
    import dask.array as da
    import zarr
    from dask_image.ndmeasure import label

    dask.config.set(scheduler="threads", num_workers=THREADS)
    out = zarr.open_array(target, mode="r+")

    def work() -> None:
        labels, _ = label(da.from_zarr(source, chunks=(BLOCK,) * 3))
        da.store(labels.astype("u4"), out, lock=False)

    return work


def run_script(source: str, target: str) -> Callable[[], object]:
    """What users write, with zarr-python and SciPy."""
    import scipy.ndimage
    import zarr
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    mask, out = zarr.open_array(source, mode="r"), zarr.open_array(target, mode="r+")
    all_blocks = list(blocks(mask.shape))

    def work() -> None:
        def first(numbered: tuple[int, Box]) -> np.ndarray:
            i, box = numbered
            labels, count = scipy.ndimage.label(mask[box])
            out[box] = np.where(labels > 0, labels + i * BLOCK**3, 0).astype("u4")
            return np.arange(1, count + 1) + i * BLOCK**3

        with ThreadPoolExecutor(THREADS) as pool:
            numbers = np.concatenate(list(pool.map(first, enumerate(all_blocks))))
            pairs = [np.empty((0, 2), np.int64)]
            for axis in range(3):
                for at in range(BLOCK, mask.shape[axis], BLOCK):
                    planes = out[(slice(None),) * axis + (slice(at - 1, at + 1),)]
                    a, b = np.moveaxis(planes, axis, 0)
                    both = (a > 0) & (b > 0)
                    pairs.append(np.unique(np.stack([a[both], b[both]], axis=1), axis=0))
            ends = np.searchsorted(numbers, np.concatenate(pairs))
            graph = coo_array((np.ones(len(ends), bool), (ends[:, 0], ends[:, 1])), shape=(len(numbers),) * 2)
            _, joined = connected_components(graph, directed=False)
            old, new = np.append(0, numbers), np.append(0, joined + 1).astype("u4")

            def rename(box: Box) -> None:
                out[box] = new[np.searchsorted(old, out[box])]

            list(pool.map(rename, all_blocks))

    return work


RIVALS = {
    "tilewise, dask": run_tilewise_dask,
    "tilewise, dyna": run_tilewise_dyna,
    "dask-image": run_dask_image,
    "script": run_script,
    "gzarr": run_gzarr,
    "gzarr, one thread": run_gzarr,
}
OWN = ("gzarr", "gzarr, one thread")


def written_bytes() -> int:
    """Return the bytes that this process has written to files."""
    return int(Path("/proc/self/io").read_text().partition("wchar: ")[2].split()[0])


def worker(rival: str, warming: str, source: str, untimed: str, target: str) -> None:
    """Run one rival once to warm up and once timed; print seconds, seconds of processors, MiB and bytes written."""
    RIVALS[rival](warming, untimed)()
    work = RIVALS[rival](source, target)
    os.sync()
    before = written_bytes()
    start, cpu = time.perf_counter(), time.process_time()
    work()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps([seconds, cpu, int(peak.split()[1]) / 1024, written_bytes() - before]))


def scene(edge: int) -> np.ndarray:
    """Return a mask of cells of various sizes, some of which touch each other: as many a volume as 10,000 in 512³."""
    rng = np.random.default_rng(0)
    mask = np.zeros((edge,) * 3, "u1")
    for _ in range(max(CELLS * edge**3 // 512**3, 1)):
        centre, radii = rng.uniform(0, edge, 3), rng.uniform(5, 12, 3)
        box = [(max(int(c - r), 0), min(int(c + r) + 2, edge)) for c, r in zip(centre, radii, strict=True)]
        grid = np.ogrid[tuple(slice(*extent) for extent in box)]
        inside = sum(((g - c) / r) ** 2 for g, c, r in zip(grid, centre, radii, strict=True)) <= 1
        mask[tuple(slice(*extent) for extent in box)] |= inside
    return mask


def make(folder: Path, edge: int) -> tuple[np.ndarray, int]:
    """Write the masks; return the labels of SciPy and their number."""
    import scipy.ndimage

    import gzarr

    mask = scene(edge)
    codec = {"name": "blosc", "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "noshuffle", "blocksize": 0}}
    for name, data in (("source", mask), ("warming", scene(CHUNK))):
        gzarr.create_array(folder / name, data=data, chunks=CHUNK, compressors=[codec], device="cpu")
    found: tuple[np.ndarray, int] = scipy.ndimage.label(mask)
    return found


def new_target(place: str, edge: int) -> Any:
    """Create an array for labels."""
    import gzarr

    codec = {
        "name": "blosc",
        "configuration": {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 4, "blocksize": 0},
    }
    return gzarr.create_array(place, shape=(edge,) * 3, dtype="u4", chunks=CHUNK, compressors=[codec], device="cpu")


def check(found: np.ndarray, expected: np.ndarray, count: int, *, numbers: bool) -> None:
    """Compare labels with those of SciPy."""
    if numbers:
        np.testing.assert_array_equal(found, expected)
        return
    pairs = np.unique(found.ravel().astype(np.int64) << 32 | expected.ravel())
    assert len(pairs) == len(np.unique(pairs >> 32)) == len(np.unique(pairs & 0xFFFFFFFF)) == count + 1


def measure(folder: Path, edge: int, rivals: list[str], rounds: int, python: str) -> dict[str, Any]:
    """Return medians by rival."""
    import gzarr

    expected, count = make(folder, edge)
    settle(folder)
    runs: dict[str, list[list[float]]] = {rival: [] for rival in rivals}
    for round, rival in itertools.product(range(rounds), rivals):
        untimed, target = (str(folder / f"{round} {rival} {run}") for run in ("untimed", "timed"))
        new_target(untimed, CHUNK)
        new_target(target, edge)
        done = subprocess.run(
            [sys.executable if rival in OWN else python, __file__, "--worker", rival,
             str(folder / "warming"), str(folder / "source"), untimed, target],
            env={**os.environ, **({"GZARR_THREADS": "1"} if "one thread" in rival else {})},
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        seconds, cpu, mib, nbytes = json.loads(done.stdout.splitlines()[-1])
        stored = sum(path.stat().st_size for path in Path(target).rglob("*") if path.is_file())
        runs[rival].append([seconds, cpu, mib, nbytes / stored])
        if not round:
            check(gzarr.open_array(target, device="cpu")[...], expected, count, numbers=rival in OWN)
    names = ("seconds", "cpu_seconds", "mib", "written")
    found = {
        rival: dict(zip(names, map(statistics.median, zip(*of, strict=True)), strict=True))
        for rival, of in runs.items()
    }
    return {"objects": count, "rivals": found}


def table(results: dict[str, Any]) -> str:
    """Return the figures as text."""
    by = results["rivals"]
    lines = [f"{results['objects']} objects\n{'':22}{'seconds':>9}{'CPU s':>9}{'MiB':>7}{'written':>9}"]
    lines += [
        f"  {r:20}{x['seconds']:9.2f}{x['cpu_seconds']:9.2f}{x['mib']:7.0f}{x['written']:9.2f}" for r, x in by.items()
    ]
    others = {r: x["seconds"] for r, x in by.items() if r not in OWN}
    if others and "gzarr" in by:
        fastest = min(others, key=lambda r: others[r])
        times = others[fastest] / by["gzarr"]["seconds"]
        lines.append(f"  gzarr is {times:.2f} times as fast as the fastest rival, {fastest}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edge", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rivals", nargs="+", choices=RIVALS, default=list(RIVALS))
    parser.add_argument("--python", default=sys.executable, help="interpreter of the rivals")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(*arguments.worker)
        return
    with tempfile.TemporaryDirectory() as name:
        results = measure(Path(name), arguments.edge, arguments.rivals, arguments.rounds, arguments.python)
    print(f"{platform.machine()}, {os.cpu_count()} processors, {arguments.edge}³ u1")
    print(table(results))
    if arguments.json:
        from report import header, save

        packages = ("tilewise-ccl", "dyna-zarr", "dask-image", "dask", "zarr", "scipy", "numpy")
        code = f"import importlib.metadata as m, json; print(json.dumps({{p: m.version(p) for p in {packages}}}))"
        versions = json.loads(subprocess.run([arguments.python, "-c", code], capture_output=True, check=True).stdout)
        facts = header("labels.py", None, versions, rounds=arguments.rounds, edge=arguments.edge)
        save(arguments.json, {**facts, **results})


if __name__ == "__main__":
    main()
