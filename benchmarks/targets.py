"""Measurements beside the workloads: planning, peak memory, import time and the first small read."""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from report import Target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workloads import Stored, Workload

PLANNED_CHUNKS = 100_000
IMPORTS = 7
_MIB = 2**20

_IMPORT = """
import time
start = time.perf_counter()
import gzarr
print(time.perf_counter() - start)
"""

_FIRST_READ = """
import sys, time
import gzarr
start = time.perf_counter()
gzarr.open_array(sys.argv[1], device="cpu")[tuple(slice(0, 8) for _ in range(int(sys.argv[2])))]
print(time.perf_counter() - start)
"""

# Writing 5 to clear_refs resets the peak (VmHWM) to the current value (proc(5)).
_PEAK = """
import json, sys
import gzarr

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))

array = gzarr.open_array(sys.argv[1], device="cpu")
array[tuple(slice(0, 1) for _ in array.shape)]
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as refs:
    refs.write("5")
result = array[...]
print(json.dumps({"extra": status("VmHWM") - before - result.nbytes}))
"""


def _fresh_process(code: str, *arguments: str, threads: int) -> str:
    environment = {**os.environ, "GZARR_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no output")
    return done.stdout.strip().splitlines()[-1]


def planning() -> Target:
    """Time from a selection to all columns of a read of 100,000 chunks.

    Keys of local files are not built in Python: the compiled loop builds paths from the columns. Other stores need
    keys; the additional time is in the note.
    """
    from gzarr.engines.access.sources import Sources
    from gzarr.metadata.chunk_grid import ChunkGrid
    from gzarr.metadata.model import ChunkKeyEncoding
    from gzarr.plan.planner import chunk_keys, plan
    from gzarr.plan.selection import parse_basic

    grid, chunk = (50, 50, 40), (64, 64, 64)
    assert math.prod(grid) == PLANNED_CHUNKS
    shape = tuple(g * c for g, c in zip(grid, chunk, strict=True))
    encoding = ChunkKeyEncoding("default", "/")
    times, key_times = [], []
    for _ in range(9):
        start = time.perf_counter()
        planned = plan([parse_basic((...,), shape)], ChunkGrid.regular(shape, chunk))
        sources = Sources.whole_chunks(encoding, "volume/", planned)
        planning_end = time.perf_counter()
        keys = chunk_keys(encoding, "volume/", planned.chunks)
        key_times.append(1e3 * (time.perf_counter() - planning_end))
        times.append(1e3 * (planning_end - start))
        assert len(keys) == len(sources.nbytes) == PLANNED_CHUNKS
        del planned, sources, keys
    note = f"and {statistics.median(key_times):.0f} ms to spell keys for stores that are not local files"
    return Target("planning 100,000 chunks", statistics.median(times), 30.0, "ms", note=note)


def import_time(threads: int) -> Target:
    """Time of ``import gzarr`` in fresh processes."""
    times = [float(_fresh_process(_IMPORT, threads=threads)) for _ in range(IMPORTS)]
    return Target("import gzarr", statistics.median(times), 0.15, "s", note=f"median of {IMPORTS} processes")


def first_read(stored: Stored, workload: Workload, threads: int) -> Target:
    """Time of opening and a first read of 8³ elements in fresh processes, after the import."""
    ndim = str(len(workload.dataset.shape))
    runs = [float(_fresh_process(_FIRST_READ, str(stored.path), ndim, threads=threads)) for _ in range(IMPORTS)]
    return Target("first small read", statistics.median(runs), 1.0, "s", note=workload.name)


def peak_memory(stored: Stored, workload: Workload, threads: int) -> Target:
    """Peak memory of a whole read beyond its output, in a fresh process."""
    extra = json.loads(_fresh_process(_PEAK, str(stored.path), threads=threads))["extra"]
    bound = 64 * _MIB + threads * workload.dataset.chunk_nbytes
    return Target("peak memory beyond output", extra / _MIB, bound / _MIB, "MiB", note=workload.name)


def measure(workloads: Sequence[tuple[Workload, Stored]], threads: int) -> list[Target]:
    """Return all measurements; peak memory for each of the given whole-array workloads."""
    found = []
    attempts = [planning, lambda: import_time(threads)]
    if workloads:
        workload, stored = workloads[0]
        attempts.append(lambda: first_read(stored, workload, threads))
    for workload, stored in workloads:
        attempts.append(lambda w=workload, s=stored: peak_memory(s, w, threads))  # type: ignore[misc]
    for attempt in attempts:
        try:
            found.append(attempt())
        except (RuntimeError, ImportError, OSError) as error:
            print(f"not measured: {error}", file=sys.stderr)
    return found
