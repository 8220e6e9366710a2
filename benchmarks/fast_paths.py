"""What the fast ways of reading and writing save: each beside the general way, which does the same without it.

    python benchmarks/fast_paths.py [--rounds 15] [FOLDER]

Each way is switched off in turn, by its own condition in gzarr, for a read or write that takes it. Both take turns, so
that other work on the machine hits both; printed are medians, and how many times as long the general way takes. The
table in ``docs/architecture.md`` says where the ways are. Ways to read from object stores are in ``remote.py``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

import gzarr
from gzarr.arrays.read import Reader
from gzarr.arrays.write import Writer
from gzarr.engines.access import files, packed
from gzarr.engines.access.access import Access
from gzarr.engines.access.shard import ShardIndexCache
from gzarr.engines.cpu import native, native_write
from gzarr.engines.cpu.engine import CpuEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Least seconds of a measurement: shorter ones are repeated.
LEAST_S = 0.02


@dataclass(frozen=True)
class Way:
    """A fast way.

    Attributes
    ----------
    name
        Name in the table of ``docs/architecture.md``, and what is read or written.
    prepare
        Function that opens the array in a folder made by :func:`make`, and returns the read or write.
    switches
        What is put in place of what to have the general way: an object, the name of its attribute, another value.
    environment
        Variables of the environment for the general way.
    """

    name: str
    prepare: Callable[[str], Callable[[], Any]]
    switches: tuple[tuple[Any, str, Any], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def make(folder: str) -> None:
    """Write the arrays: 16-bit numbers that compress like a microscope's."""
    rng = np.random.default_rng(0)
    volume = (rng.normal(1000, 30, (64, 512, 512)) + np.arange(512)).astype("u2")
    lz4 = {"cname": "lz4", "clevel": 5, "shuffle": "shuffle", "typesize": 2, "blocksize": 0}
    blosc = {"name": "blosc", "configuration": lz4}
    zstd = {"name": "zstd", "configuration": {"level": 1, "checksum": False}}
    for name, data, options in (
        ("small", volume[0, :320, :320], {"chunks": (32, 32), "compressors": zstd}),
        ("small-shards", volume[0, :320, :320], {"chunks": (32, 32), "shards": (320, 320), "compressors": zstd}),
        ("volume", volume, {"chunks": (16, 128, 128), "compressors": blosc}),
        ("raw", volume, {"chunks": (64, 256, 256), "compressors": None}),
        ("shards", volume, {"chunks": (8, 64, 64), "shards": (64, 512, 512), "compressors": zstd}),
        ("small-chunks", volume[:16], {"chunks": (1, 16, 16), "shards": (16, 512, 512), "compressors": zstd}),
        ("archive.zip", volume, {"chunks": (16, 64, 64), "compressors": zstd}),
    ):
        gzarr.create_array(f"{folder}/{name}", data=data, **options)


def _read(name: str, selection: Any, **options: Any) -> Callable[[str], Callable[[], Any]]:
    def prepare(folder: str) -> Callable[[], Any]:
        array = gzarr.open_array(f"{folder}/{name}", device="cpu")
        return lambda: array.read(selection, **options)

    return prepare


def _write(name: str, selection: Any) -> Callable[[str], Callable[[], Any]]:
    def prepare(folder: str) -> Callable[[], Any]:
        array = gzarr.open_array(f"{folder}/{name}", mode="r+", device="cpu")
        values = array[selection]
        return lambda: array.write(selection, values)

    return prepare


def _no(*arguments: Any, **named: Any) -> Any:
    return None


_ALL = np.s_[...]
_SMALL_READS = (Reader, "_fill_quickly", _no)
WAYS: Sequence[Way] = (
    Way("small reads: a file", _read("small", np.s_[:32, :32]), (_SMALL_READS,)),
    Way("small reads: 100 files", _read("small", _ALL), (_SMALL_READS,)),
    Way("small reads: a chunk of a shard", _read("small-shards", np.s_[:32, :32]), (_SMALL_READS,)),
    Way("small reads: 100 chunks of a shard", _read("small-shards", _ALL), (_SMALL_READS,)),
    Way("compiled loop: Blosc-lz4", _read("volume", _ALL), ((CpuEngine, "_program", _no),)),
    Way("rows unshuffled into the result", _read("volume", _ALL), ((native, "_dense_rows", lambda *_: 0),)),
    Way("rows written past the caches", _read("raw", _ALL), ((native, "STREAM_BYTES", 1 << 60),)),
    Way("shared first touch: new memory", _read("raw", _ALL), ((native._Job, "share_first_touch", _no),)),
    Way("recycled memory", _read("raw", _ALL), (), (("GZARR_RECYCLE_BYTES", "0"),)),
    Way("joined ranges: 512-byte chunks", _read("small-chunks", _ALL), ((files, "SPAN_BYTES", 1),)),
    Way("kept indexes: a chunk of a shard", _read("shards", np.s_[:8, :64, :64]), ((ShardIndexCache, "get", _no),)),
    Way("packed values: zip archive", _read("archive.zip", _ALL), ((packed.PackedCalls, "read", Access.read),)),
    Way("conversion while placing: u2 to f4", _read("volume", _ALL, dtype="f4"), ((Reader, "converting", _no),)),
    Way("small writes: a file", _write("small", np.s_[:32, :32]), ((Writer, "_write_quickly", _no),)),
    Way("compiled loop, writing: Blosc-lz4", _write("volume", _ALL), ((native_write, "available", frozenset),)),
    Way("partial changes in the compiled loop", _write("volume", np.s_[7]), ((native_write, "can_change", _no),)),
)


def measure(way: Way, folder: str, rounds: int) -> tuple[float, float]:
    """Return the median seconds of a way, and of the general one."""
    new_memory = {"GZARR_RECYCLE_BYTES": "0"} if "new memory" in way.name else {}
    found: tuple[list[float], list[float]] = ([], [])
    runs: list[Any] = [None, None]
    repeats = 1
    for number in range(rounds + 1):
        for general in (False, True):
            with ExitStack() as stack:
                environment = dict(way.environment) if general else {}
                stack.enter_context(mock.patch.dict(os.environ, {**new_memory, **environment}))
                for owner, name, value in way.switches if general else ():
                    stack.enter_context(mock.patch.object(owner, name, value))
                if runs[general] is None:
                    # Opened here: what is prepared once for an array has to be of the way, too.
                    runs[general] = way.prepare(folder)
                    runs[general]()
                begin = time.perf_counter()
                for _ in range(repeats):
                    runs[general]()
                seconds = (time.perf_counter() - begin) / repeats
            if number:
                found[general].append(seconds)
            elif not general:
                repeats = max(1, int(LEAST_S / seconds))
    return statistics.median(found[0]), statistics.median(found[1])


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Time each fast way of reading and writing beside the general one.")
    parser.add_argument("folder", nargs="?", help="folder for the arrays, 200 MB; by default a temporary one")
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        make(folder)
        print(f"{'way':40} {'ms':>10} {'general':>10} {'ratio':>7}")
        for way in WAYS:
            fast, general = measure(way, folder, arguments.rounds)
            print(f"{way.name:40} {1e3 * fast:10.3f} {1e3 * general:10.3f} {general / fast:7.2f}", flush=True)


if __name__ == "__main__":
    main()
