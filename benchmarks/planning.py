"""What an array of very many chunks costs before anything is read: time and memory by the number of chunks.

    python benchmarks/planning.py [--scale 0.01] [--json planning.json]

Each row is measured in a process of its own; memory is what ``tracemalloc`` counts at most. Nothing is stored where
that does not matter, so the store takes no time. ``--scale`` makes all numbers smaller.

======== ===============================================================================================================
plan     plan of a read of 10⁷ chunks, plain and in shards of 100, as a read makes it
window   read of 2 × 2 × 2 chunks of an array of 10⁹, and of one of 10³, of which none is stored
order    first batch of a loader over 10⁹ rows in chunks of 1,000 (10⁶ chunks); memory as its ``explain()`` says it
indexes  reads of one element in each of 2,000 shards of 4,096 chunks: what the indexes take that the array keeps, after
         100 shards for each of their chunks, and in the end
listing  names of 10⁵ chunks in a folder: ``a.nchunks_initialized``
======== ===============================================================================================================
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gzarr
from gzarr.plan import planner
from gzarr.plan.selection import parse_basic

if TYPE_CHECKING:
    from collections.abc import Callable

Row = dict[str, Any]


def traced(call: Callable[[], Any]) -> tuple[float, int]:
    """Return seconds of a call, and the bytes that it held at most; it is called twice."""
    started = time.perf_counter()
    call()
    seconds = time.perf_counter() - started
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, peak - before


def plan(scale: float, *, sharded: bool) -> Row:
    """Plan a read of all chunks."""
    chunks = int(1e7 * scale)
    kind: dict[str, Any] = {"shards": (400,)} if sharded else {}
    array = gzarr.create_array({}, shape=(4 * chunks,), chunks=(4,), dtype="u1", device="cpu", **kind)
    grid = array._reader.planned_grid

    def planned(selection: slice) -> object:
        return planner.plan([parse_basic(selection, array.shape)], grid)

    planned(np.s_[:400])
    seconds, peak = traced(lambda: planned(np.s_[:]))
    return {"chunks": chunks, "seconds": seconds, "peak_bytes": peak, "bytes_a_chunk": peak / chunks}


def window(scale: float, *, side: int) -> Row:
    """Read a window that touches eight chunks."""
    array = gzarr.create_array({}, shape=(16 * side,) * 3, chunks=(16,) * 3, dtype="u1", device="cpu")
    begin = 8 * side + 8
    box = (slice(begin, begin + 16),) * 3
    array[box]
    runs = []
    for _ in range(max(int(2000 * scale), 5)):
        started = time.perf_counter()
        array[box]
        runs.append(time.perf_counter() - started)
    return {"chunks": side**3, "microseconds": 1e6 * float(np.median(runs))}


def order(scale: float) -> Row:
    """Get the first batch of an epoch."""
    rows = int(1e9 * scale)
    array = gzarr.create_array({}, shape=(rows, 10), chunks=(1000, 10), dtype="f4", device="cpu")
    # Compiled code is loaded once.
    next(iter(gzarr.Loader(array, batch_size=256)))
    loader = gzarr.Loader(array, batch_size=256)
    started = time.perf_counter()
    batches = iter(loader)
    next(batches)
    seconds = time.perf_counter() - started
    return {"chunks": rows // 1000, "seconds": seconds, "said_bytes": loader.explain().planning_bytes}


def indexes(scale: float) -> Row:
    """Read one element of each of many shards."""
    shards, inner = max(int(2000 * scale), 8), 4096
    first = min(shards, 100)
    with tempfile.TemporaryDirectory() as folder:
        array = gzarr.create_array(
            folder, shape=(shards * inner,), chunks=(1,), shards=(inner,), dtype="u1", codecs=[], device="cpu"
        )
        array[...] = 1
        array = gzarr.open_array(folder, device="cpu")
        places = np.arange(shards) * inner
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        started = time.perf_counter()
        for place in places[:first].tolist():
            array[place]
        some = tracemalloc.get_traced_memory()[0] - before
        for place in places[first:].tolist():
            array[place]
        seconds = time.perf_counter() - started
        held = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    return {"shards": shards, "seconds": seconds, "held_bytes": held, "bytes_a_chunk": some / first / inner}


def listing(scale: float) -> Row:
    """Count the chunks that are stored."""
    chunks = int(1e5 * scale)
    with tempfile.TemporaryDirectory() as folder:
        array = gzarr.create_array(
            folder, shape=(chunks,), chunks=(1,), dtype="u1", chunk_key_encoding="v2", device="cpu"
        )
        for i in range(chunks):
            (Path(folder) / str(i)).write_bytes(b"1")
        started = time.perf_counter()
        found = array.nchunks_initialized
        seconds = time.perf_counter() - started
        assert found == chunks, (found, chunks)
    return {"chunks": chunks, "seconds": seconds, "microseconds_a_chunk": 1e6 * seconds / chunks}


ROWS: dict[str, Callable[[float], Row]] = {
    "plan": lambda scale: plan(scale, sharded=False),
    "plan, shards": lambda scale: plan(scale, sharded=True),
    "window of 10⁹": lambda scale: window(scale, side=1000),
    "window of 10³": lambda scale: window(scale, side=10),
    "order": order,
    "indexes": indexes,
    "listing": listing,
}


def main() -> None:
    """Measure all rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--row", choices=ROWS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row:
        warnings.filterwarnings("ignore", message="shuffling is coarse")
        print(json.dumps(ROWS[arguments.row](arguments.scale)))
        return
    results: dict[str, Any] = {"rows": {}, "gzarr": gzarr.__version__, "python": platform.python_version()}
    results |= {"machine": platform.machine(), "processors": os.cpu_count(), "scale": arguments.scale}
    for name in ROWS:
        command = [sys.executable, __file__, "--row", name, "--scale", str(arguments.scale)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{name}: {done.stderr}")
        row = results["rows"][name] = json.loads(done.stdout)
        print(f"{name:16}", ", ".join(f"{key} {value:,.4g}" if isinstance(value, float) else f"{key} {value:,}"
                                      for key, value in row.items()))  # fmt: skip
    if arguments.json:
        from report import save

        save(arguments.json, results)


if __name__ == "__main__":
    main()
