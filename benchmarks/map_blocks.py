"""Filters over a stored volume, block after block: ``gzarr.map_blocks`` beside dask, zarr-python and tensorstore.

    python benchmarks/map_blocks.py                         eight minutes
    python benchmarks/map_blocks.py --edge 256 --rounds 1
    python benchmarks/map_blocks.py --json map_blocks.json

A volume of 512³ u2 in chunks of 64³ (Blosc-lz4), blocks of 128³; the results are stored in the same way, by every
rival. Each runs in a process of its own, which first does the work once, untimed, with results that are stored
elsewhere. No file is replaced or deleted meanwhile: ext4 writes a file that replaces another at once, and passes over
inodes that were freed within the last minutes, one by one, whenever it creates a file. The benchmark waits until it no
longer does. Rounds are interleaved, the
median is reported. Every result is compared with the filter of the whole volume. Work:

    box filter     5³, halo of 2 elements, mirrored at the ends
    threshold      halo of 2 elements that it does not need, as of a filter whose work is nothing
    no halo        the same threshold, without a halo

Rivals:

    dask           ``map_overlap`` (``map_blocks`` without a halo) and ``to_zarr``, threads
    zarr-python    a loop over blocks; and the same loop in two threads
    tensorstore    two blocks are read ahead and written behind, computing in the caller's thread; and the same in two
                   threads
    gzarr          ``map_blocks``; in one thread; and without the memory of former blocks (``GZARR_RECYCLE_BYTES=0``)
    limit          no rival: what nobody can leave out, in one thread and in memory. C libraries decode each chunk and
                   encode each result once, and the function is called for each block. Its CPU time, divided by the
                   number of threads, is the least time that anybody can take.
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
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fields
import numpy as np
import scipy.ndimage
from disk import empty, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Box = tuple[slice, ...]

CHUNK, BLOCK = 64, 128
THREADS = 2


def box_filter(x: Any) -> Any:
    """Return means of 5³ elements."""
    return scipy.ndimage.uniform_filter(x, 5)


def threshold(x: Any) -> Any:
    """Return which elements are bright."""
    return (x > 1000).view("u1")


#: Function, halo and data type of results.
WORK: dict[str, tuple[Callable[[Any], Any], int, str]] = {
    "box filter": (box_filter, 2, "u2"),
    "threshold": (threshold, 2, "u1"),
    "no halo": (threshold, 0, "u1"),
}


def blocks(edge: int) -> Iterator[Box]:
    """Yield the blocks of a cube."""
    parts = [slice(i, min(i + BLOCK, edge)) for i in range(0, edge, BLOCK)]
    yield from itertools.product(parts, repeat=3)


def window(box: Box, edge: int, halo: int) -> Box:
    """Return a block with its halo, within the cube."""
    return tuple(slice(max(s.start - halo, 0), min(s.stop + halo, edge)) for s in box)


def computed(name: str, read: Any, box: Box, edge: int) -> Any:
    """Return the result of a block for its window."""
    function, halo, _ = WORK[name]
    pads = [(max(halo - s.start, 0), max(s.stop + halo - edge, 0)) for s in box]
    x = np.pad(read, pads, mode="symmetric") if any(map(any, pads)) else read
    result = function(x)
    return result[tuple(slice(halo, n - halo) for n in result.shape)]


# -- the rivals; each opens its arrays before the time starts


def run_gzarr(name: str, source: str, target: str, **options: Any) -> Callable[[], object]:
    """``gzarr.map_blocks``."""
    import gzarr

    function, halo, _ = WORK[name]
    a, out = gzarr.open_array(source, device="cpu"), gzarr.open_array(target, mode="r+", device="cpu")
    return lambda: gzarr.map_blocks(function, a, out=out, block=BLOCK, halo=halo, **options)


def run_dask(name: str, source: str, target: str) -> Callable[[], object]:
    """``dask.array.map_overlap``."""
    import dask
    import dask.array as da
    import zarr

    function, halo, dtype = WORK[name]
    out = zarr.open_array(target, mode="r+")
    dask.config.set(scheduler="threads", num_workers=THREADS)

    def work() -> None:
        x = da.from_zarr(source, chunks=(BLOCK,) * 3)
        y = (
            x.map_overlap(function, depth=halo, boundary="reflect", dtype=dtype)
            if halo
            else x.map_blocks(function, dtype=dtype)
        )
        da.store(y, out, lock=False)

    return work


def run_zarr(name: str, source: str, target: str, threads: int = 1) -> Callable[[], object]:
    """A loop over blocks with zarr-python."""
    import zarr

    a, out = zarr.open_array(source, mode="r"), zarr.open_array(target, mode="r+")
    edge, halo = a.shape[0], WORK[name][1]

    def one(box: Box) -> None:
        out[box] = computed(name, a[window(box, edge, halo)], box, edge)

    def work() -> None:
        if threads == 1:
            for box in blocks(edge):
                one(box)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(one, blocks(edge)))

    return work


def run_tensorstore(name: str, source: str, target: str, threads: int = 1) -> Callable[[], object]:
    """Reads ahead and writes behind, with tensorstore."""
    import tensorstore

    limits = {"data_copy_concurrency": {"limit": THREADS}, "file_io_concurrency": {"limit": 2 * THREADS}}
    context = tensorstore.Context(limits)

    def opened(path: str) -> Any:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": path}}
        return tensorstore.open(spec, context=context, open=True).result()

    a, out = opened(source), opened(target)
    edge, halo = a.shape[0], WORK[name][1]

    def some(boxes: list[Box]) -> None:
        reads: deque[Any] = deque()
        writes: deque[Any] = deque()
        for i in range(len(boxes) + 2):
            if i < len(boxes):
                reads.append(a[window(boxes[i], edge, halo)].read())
            if i >= 2:
                box = boxes[i - 2]
                writes.append(out[box].write(computed(name, reads.popleft().result(), box, edge)))
            if len(writes) > 2:
                writes.popleft().result()
        for write in writes:
            write.result()

    def work() -> None:
        boxes = list(blocks(edge))
        if threads == 1:
            some(boxes)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(some, [boxes[i::threads] for i in range(threads)]))

    return work


def run_limit(name: str, source: str, target: str) -> Callable[[], object]:
    """Decoding, computing and encoding alone: nothing is read, placed, put together or written."""
    import numcodecs
    import zarr

    def codec(array: Any) -> Any:
        (compressor,) = (compressor.to_dict() for compressor in array.compressors)
        options = compressor["configuration"]
        if compressor["name"] == "zstd":
            return numcodecs.Zstd(**options)
        shuffle = ("noshuffle", "shuffle", "bitshuffle").index(options["shuffle"])
        return numcodecs.Blosc(options["cname"], options["clevel"], shuffle, options["blocksize"])

    numcodecs.blosc.set_nthreads(1)
    a, out = zarr.open_array(source, mode="r"), zarr.open_array(target, mode="r")
    decoder, encoder = codec(a), codec(out)
    edge, (function, halo, _) = a.shape[0], WORK[name]
    values = [path.read_bytes() for path in Path(source, "c").rglob("*") if path.is_file()]
    windows = [np.ascontiguousarray(a[window(box, edge, halo)]) for box in blocks(edge)]
    chunk = np.empty((CHUNK,) * 3, a.dtype)

    def work() -> None:
        for value in values:
            decoder.decode(value, out=chunk)
        for x in windows:
            result = function(x)[(slice(BLOCK),) * 3]
            for begin in itertools.product(*(range(0, n, CHUNK) for n in result.shape)):
                encoder.encode(np.ascontiguousarray(result[tuple(slice(i, i + CHUNK) for i in begin)]))

    return work


LIMIT = "limit"
RIVALS: dict[str, Callable[[str, str, str], Callable[[], object]]] = {
    "dask": run_dask,
    "zarr-python": run_zarr,
    "zarr-python, threads": lambda *a: run_zarr(*a, threads=THREADS),
    "tensorstore": run_tensorstore,
    "tensorstore, threads": lambda *a: run_tensorstore(*a, threads=THREADS),
    "gzarr": run_gzarr,
    "gzarr, one thread": lambda *a: run_gzarr(*a, overlap=False),
    "gzarr, fresh memory": run_gzarr,
    LIMIT: run_limit,
}
OWN = tuple(rival for rival in RIVALS if rival.startswith("gzarr"))


def worker(name: str, rival: str, source: str, untimed: str, target: str) -> None:
    """Run one rival once to warm up and once timed; print seconds, seconds of processors, and MiB."""
    RIVALS[rival](name, source, untimed)()
    work = RIVALS[rival](name, source, target)
    # What was written before is not written to the disk meanwhile.
    os.sync()
    start, cpu = time.perf_counter(), time.process_time()
    work()
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    # Unlike that of getrusage(), this peak is not that of the process which began this one.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(json.dumps([seconds, cpu, int(peak.split()[1]) / 1024]))


def make(folder: Path, edge: int) -> Any:
    """Write the volume; return it."""
    import gzarr

    data = fields.camera_u2((edge,) * 3, 0, edge)
    gzarr.create_array(folder / "source", data=data, chunks=CHUNK, codecs="auto", device="cpu")
    return data


def measure(folder: Path, data: Any, names: list[str], rivals: list[str], rounds: int) -> dict[str, Any]:
    """Return medians by work and rival."""
    import gzarr

    found: dict[str, dict[str, list[list[float]]]] = {name: {rival: [] for rival in rivals} for name in names}
    for name in names:
        function, _, dtype = WORK[name]
        expected = function(data)
        for round, rival in itertools.product(range(rounds), rivals):
            targets = [str(folder / name / f"{round} {rival} {run}") for run in ("untimed", "timed")]
            for target in targets:
                out = gzarr.create_array(target, shape=data.shape, dtype=dtype, chunks=CHUNK, device="cpu")
            recycled = {"GZARR_RECYCLE_BYTES": "0"} if "fresh" in rival else {}
            done = subprocess.run(
                [sys.executable, __file__, "--worker", name, rival, str(folder / "source"), *targets],
                env={**os.environ, **recycled}, stdout=subprocess.PIPE, text=True, check=True,
            )  # fmt: skip
            found[name][rival].append(json.loads(done.stdout.splitlines()[-1]))
            if not round and rival != LIMIT:
                np.testing.assert_array_equal(out[...], expected)
            for target in targets:
                empty(Path(target))
    return {
        name: {
            rival: dict(
                zip(("seconds", "cpu_seconds", "mib"), map(statistics.median, zip(*runs, strict=True)), strict=True)
            )
            for rival, runs in by.items()
        }
        for name, by in found.items()
    }


def table(results: dict[str, Any]) -> str:
    """Return the figures as text."""
    lines = []
    for name, by in results.items():
        lines.append(f"\n{name:24}{'seconds':>9}{'CPU s':>9}{'MiB':>7}")
        lines += [f"  {r:22}{x['seconds']:9.2f}{x['cpu_seconds']:9.2f}{x['mib']:7.0f}" for r, x in by.items()]
        others = {r: x["seconds"] for r, x in by.items() if r not in (*OWN, LIMIT)}
        if others and "gzarr" in by:
            fastest = min(others, key=lambda r: others[r])
            own = by["gzarr"]["seconds"]
            lines.append(f"  gzarr is {others[fastest] / own:.2f} times as fast as the fastest rival, {fastest}")
            if "dask" in others:
                lines[-1] += f", and {others['dask'] / own:.2f} times as fast as dask"
        if LIMIT in by and "gzarr" in by:
            least = by[LIMIT]["cpu_seconds"] / THREADS
            times = f"gzarr takes {own / least:.2f} times as long"
            lines.append(f"  codecs and filter alone: {least:.2f} s in {THREADS} threads; {times}")
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edge", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--rivals", nargs="+", choices=RIVALS, default=list(RIVALS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(*arguments.worker)
        return
    with tempfile.TemporaryDirectory() as name:
        data = make(Path(name), arguments.edge)
        settle(Path(name))
        results = measure(Path(name), data, arguments.work, arguments.rivals, arguments.rounds)
    print(
        f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}, {arguments.edge}³ u2"
    )
    print(table(results))
    if arguments.json:
        from report import header, save

        versions = {package: version(package) for package in ("gzarr", "dask", "zarr", "tensorstore", "scipy")}
        facts = header("map_blocks.py", None, versions, rounds=arguments.rounds, edge=arguments.edge)
        save(arguments.json, {**facts, "workloads": results})


if __name__ == "__main__":
    main()
