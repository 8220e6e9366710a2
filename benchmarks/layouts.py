"""What chunk size, codec and shards cost: one volume in many layouts, written and read by gzarr.

Usage: ``python benchmarks/layouts.py [--rounds N] [--scale X] [--data DIR] [--json FILE]``.

The volume is ``camera_u2`` of :mod:`fields`: 128 MiB of uint16 from a simulated camera, with its noise. Each layout is
read as a whole, as a plane across each end of its axes, and in windows of 64³ at random places, one after the other.
Layouts take turns in each round, and results go to memory that has been touched, so nothing but reading is compared.
Besides the time, the processor time of all threads is taken: on a machine that does other work, it varies less. Every
read is compared with the volume once. Files are in the page cache.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fields
import numpy as np
from report import save

import gzarr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Volume = np.ndarray[Any, Any]

_SHAPE = (256, 512, 512)
_SIDES = (16, 32, 64, 128, 256)
_WINDOW = 64
#: Windows of a measurement; their times are divided by it.
_WINDOWS = 20


def _blosc(cname: str, shuffle: str) -> list[Any]:
    return [{"name": "blosc", "configuration": {"cname": cname, "clevel": 5, "shuffle": shuffle}}]


#: Codecs with the levels that documents state; the first is gzarr's default for such elements.
CODECS: dict[str, Any] = {
    "blosc-lz4, shuffle": _blosc("lz4", "shuffle"),
    "blosc-zstd, bitshuffle": _blosc("zstd", "bitshuffle"),
    "zstd": [{"name": "zstd", "configuration": {"level": 3}}],
    "gzip": [{"name": "gzip", "configuration": {"level": 5}}],
    "none": [],
}


@dataclass
class Layout:
    """One way to store the volume, and what was measured of it.

    Attributes
    ----------
    side, sharded, codecs
        Elements along each side of a chunk, whether shards of 256³ hold the chunks, and the name of the codecs.
    chunk_nbytes, stored_nbytes, files
        Bytes of a decoded chunk, bytes in the store, and its files.
    write_ms, write_cpu_ms, read_ms, read_cpu_ms
        Milliseconds of each round, elapsed and of all threads together; of reading by the name of the access.
    """

    side: int
    sharded: bool
    codecs: str
    chunk_nbytes: int = 0
    stored_nbytes: int = 0
    files: int = 0
    write_ms: list[float] = field(default_factory=list)
    write_cpu_ms: list[float] = field(default_factory=list)
    read_ms: dict[str, list[float]] = field(default_factory=dict)
    read_cpu_ms: dict[str, list[float]] = field(default_factory=dict)

    def write(self, folder: Path, volume: Volume) -> None:
        """Write the volume to an empty folder."""
        shutil.rmtree(folder, ignore_errors=True)
        shards = tuple(min(256, n - n % self.side) for n in volume.shape) if self.sharded else None
        chunks = tuple(min(self.side, n) for n in volume.shape)
        array = gzarr.create_array(
            folder, shape=volume.shape, dtype="u2", chunks=chunks, shards=shards, codecs=CODECS[self.codecs]
        )
        elapsed, used = _timed(lambda: array.write(..., volume))
        self.write_ms.append(elapsed)
        self.write_cpu_ms.append(used)
        found = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != "zarr.json"]
        self.chunk_nbytes = int(np.prod(chunks)) * 2
        self.stored_nbytes, self.files = sum(found), len(found)

    def read(self, folder: Path, volume: Volume, out: Volume, windows: Iterable[Any], *, check: bool) -> None:
        """Read the volume in each way; ``check`` compares what was read."""
        array = gzarr.open_array(folder, device="cpu")
        middles = [n // 2 for n in volume.shape]
        accesses = {
            "whole": [(slice(None),) * 3],
            "plane z": [(middles[0], slice(None), slice(None))],
            "plane x": [(slice(None), slice(None), middles[2])],
            "window": list(windows),
        }
        for name, selections in accesses.items():
            outs = [out if name == "whole" else np.zeros(volume[selection].shape, "u2") for selection in selections]

            def work(selections: list[Any] = selections, outs: list[Any] = outs) -> None:
                for selection, one in zip(selections, outs, strict=True):
                    array.read(selection, out=one)

            elapsed, used = _timed(work)
            self.read_ms.setdefault(name, []).append(elapsed / len(selections))
            self.read_cpu_ms.setdefault(name, []).append(used / len(selections))
            if check:
                for selection, one in zip(selections, outs, strict=True):
                    np.testing.assert_array_equal(one, volume[selection])


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return the milliseconds that work takes: elapsed, and of all threads together."""
    begin, used = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - begin) * 1e3, (time.process_time() - used) * 1e3


def layouts(scale: float) -> list[Layout]:
    """Return all layouts. Shards hold whole chunks, and a chunk as large as a shard needs none."""
    kinds = itertools.product(CODECS, (False, True), _SIDES)
    return [Layout(side, sharded, codecs) for codecs, sharded, side in kinds if not (sharded and side >= 256 * scale)]


def measure(folder: Path, rounds: int, scale: float) -> tuple[list[Layout], tuple[int, ...]]:
    """Write and read all layouts; return them, and the shape of the volume."""
    shape = tuple(max(_WINDOW, int(n * scale)) for n in _SHAPE)
    volume = fields.make(fields.camera_u2, shape)
    random = np.random.default_rng(0)
    starts = [tuple(random.integers(0, n - _WINDOW + 1) for n in shape) for _ in range(_WINDOWS)]
    windows = [tuple(slice(int(s), int(s) + _WINDOW) for s in start) for start in starts]
    out = np.zeros(shape, "u2")
    found = layouts(scale)
    # Kernels and libraries are loaded on first use.
    for codecs, sharded in itertools.product(CODECS, (False, True)):
        first = Layout(32, sharded, codecs)
        first.write(folder / "first.zarr", volume[:64, :64, :64])
        first.read(
            folder / "first.zarr", volume[:64, :64, :64], np.zeros((64,) * 3, "u2"), [(slice(0, 64),) * 3], check=True
        )
    for number in range(rounds):
        for i, layout in enumerate(found):
            place = folder / f"{i}.zarr"
            if not number:
                layout.write(place, volume)
            layout.read(place, volume, out, windows, check=not number)
            print(f"round {number + 1} of {rounds}: {i + 1} of {len(found)}", end="\r", file=sys.stderr)
    print(file=sys.stderr)
    return found, shape


def table(found: list[Layout], shape: tuple[int, ...]) -> str:
    """Return the medians as text."""
    nbytes = int(np.prod(shape)) * 2
    head = ["codecs", "side", "chunk KiB", "shards", "files", "ratio", "write", "whole", "plane z", "plane x", "window"]
    rows = [head]
    for one in found:
        cpu = [statistics.median(one.write_cpu_ms), *(statistics.median(times) for times in one.read_cpu_ms.values())]
        kind = [one.codecs, str(one.side), f"{one.chunk_nbytes / 1024:.0f}", "yes" if one.sharded else "no"]
        rows.append([*kind, str(one.files), f"{nbytes / one.stored_nbytes:.2f}", *(f"{ms:.3g}" for ms in cpu)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(["Milliseconds of processor time of all threads, medians:", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--scale", type=float, default=1.0, metavar="X", help="length of the volume's sides, relative")
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder for the layouts (default: a temporary one)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.data) as folder:
        found, shape = measure(Path(folder), options.rounds, options.scale)
    print("python " + " ".join(sys.argv))
    print(
        f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores; gzarr {gzarr.__version__}, volume {shape} uint16"
    )
    print(table(found, shape))
    if options.json is not None:
        document = {
            "command": "python " + " ".join(sys.argv),
            "machine": {"cores": len(os.sched_getaffinity(0)), "processor": _processor()},
            "gzarr": gzarr.__version__,
            "shape": shape,
            "layouts": [asdict(one) for one in found],
        }
        save(options.json, document)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
