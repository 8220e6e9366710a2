"""Measurements beside the workloads: from open to the first array in a fresh process, and the host's time per chunk."""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import gpu_workloads
from workloads import workloads

import gzarr
from gzarr.engines.cuda import slots
from gzarr.engines.cuda.staging import Staging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gzarr.engines.cuda.device_protocol import Device

#: The workload of many small chunks, in which the host's part is visible.
MANY_CHUNKS = "u2-32-blosc-lz4"
PROCESSES = 3
READS = 5

# CUDA's context exists already, as in any process that uses a GPU; modules are imported.
_FIRST_ARRAY = """
import json, sys, time
import cupy
cupy.zeros(1).get()
import gzarr
start = time.perf_counter()
array = gzarr.open_array(sys.argv[1], device="cuda")
result = array[tuple(slice(0, n) for n in array.chunks)]
cupy.cuda.get_current_stream().synchronize()
print(json.dumps(1e3 * (time.perf_counter() - start)))
"""


def measure(device: Device, data_dir: Path, nbytes: int, seconds: float) -> tuple[float | None, float | None]:
    """Return milliseconds from open to the first array, and the host's microseconds per chunk; None if not measured."""
    deadline = time.monotonic() + seconds
    (workload,) = [w for w in workloads(rows=1000) if w.name == MANY_CHUNKS]
    first = host = None
    with gpu_workloads.written(gpu_workloads.tiled(workload, nbytes), data_dir) as stored:
        try:
            host = host_us(device, stored.path, deadline)
        except (gzarr.GzarrError, MemoryError) as error:
            print(f"host, a chunk: not measured: {error}", file=sys.stderr)
        try:
            first = first_array_ms(stored.path, deadline)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            print(f"open to first array: not measured: {error}", file=sys.stderr)
    return first, host


def first_array_ms(path: Path, deadline: float) -> float:
    """Return the median of some processes, without the first, which may compile and measure rates.

    Raises
    ------
    RuntimeError
        If a process failed; the message has its output.
    """
    times: list[float] = []
    for number in range(PROCESSES + 1):
        left = deadline - time.monotonic()
        if left < 1 and len(times) > 1:
            break
        done = subprocess.run(
            [sys.executable, "-c", _FIRST_ARRAY, str(path)],
            capture_output=True, text=True, timeout=max(left, 20), check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["no output"])[-1])
        times += [json.loads(done.stdout.strip().splitlines()[-1])] if number else []
    return statistics.median(times)


def host_us(device: Device, path: Path, deadline: float = math.inf) -> float:
    """Return the microseconds per chunk of a read's own thread, besides reading files and waiting.

    The time of staging (native threads read and divide into frames) and of waiting for the device is subtracted from
    that of the whole read into a reused output.
    """
    array = gzarr.open_array(path, device="cuda")
    stream = device.current_stream()
    out = array.read(decode="cuda")
    stream.synchronize()
    times = []
    with _apart(device) as spent:
        for _ in range(READS):
            spent.clear()
            start = time.perf_counter()
            array.read(out=out, decode="cuda")
            elapsed = time.perf_counter() - start
            stream.synchronize()
            times.append(elapsed - sum(spent))
            if time.monotonic() > deadline:
                break
    # Shards count by their inner chunks.
    chunks = math.prod(-(-n // c) for n, c in zip(array.shape, array.chunks, strict=True))
    return 1e6 * statistics.median(times) / chunks


@contextlib.contextmanager
def _apart(device: Device) -> Iterator[list[float]]:
    """Collect in a list the seconds of every call of staging, and of every wait for an event of the device."""
    spent: list[float] = []

    def timed(call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                return call(*arguments)
            finally:
                spent.append(time.perf_counter() - start)

        return run

    make_event, stage = device.event, Staging.stage

    def event() -> Any:
        made = make_event()
        made.synchronize = timed(made.synchronize)
        return made

    # Idle slots have events from before.
    slots.release()
    with contextlib.ExitStack() as undo:
        undo.callback(slots.release)
        undo.callback(setattr, Staging, "stage", stage)
        undo.callback(delattr, device, "event")
        Staging.stage = timed_method(stage, timed)  # type: ignore[method-assign]
        device.event = event  # type: ignore[method-assign]
        yield spent


def timed_method(method: Callable[..., Any], timed: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method whose calls are timed."""
    run = timed(method)

    def call(self: Any, *arguments: Any) -> Any:
        return run(self, *arguments)

    return call
