"""Measurements beside the workloads: from open to the first array in a fresh process, and the host's time per chunk."""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

from workloads import workloads

import gpu.workloads
import gzarr
from gzarr.engines.cuda.staging import Staging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gpu.steps import Steps
    from gzarr.engines.cuda.device_protocol import Device

#: The workload of many small chunks, in which the host's part is visible.
MANY_CHUNKS = "u2-32-blosc-lz4"
PROCESSES = 3
READS = 5
#: Name of these measurements together.
TARGETS = "start and host"
#: Seconds that a process may take.
PATIENCE_S = 30.0

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


def measure(steps: Steps, device: Device, data_dir: Path, nbytes: int, seconds: float) -> None:
    """Measure milliseconds from open to the first array, and the host's microseconds per chunk."""
    deadline = time.monotonic() + seconds
    (workload,) = [w for w in workloads(rows=1000) if w.name == MANY_CHUNKS]
    found: dict[str, Any] = {}
    failed = steps.failed(TARGETS)
    with gpu.workloads.written(gpu.workloads.tiled(workload, nbytes), data_dir) as stored:
        for name, figure in (
            ("host_us", lambda: host_us(device, stored.path, deadline)),
            ("first_array_ms", lambda: first_array_ms(stored.path, deadline)),
        ):
            if name in failed:
                continue
            steps.begin(TARGETS, name, 2 * PATIENCE_S)
            try:
                found[name] = figure()
            except Exception as error:  # the other one may be measured
                found[f"{name}, error"] = steps.error(error)
                print(f"{name}: not measured: {error}", file=sys.stderr)
            steps.found(TARGETS, found)


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
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
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
    """Collect in a list the seconds of this thread's calls of staging, and of its waits for events of the device."""
    spent: list[float] = []
    thread = threading.get_ident()

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            start = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                if threading.get_ident() == thread:
                    spent.append(time.perf_counter() - start)

        return run

    event = type(device.event())
    with (
        # Classes, because their objects may have no room for another method.
        mock.patch.object(event, "synchronize", timed(event.synchronize)),
        mock.patch.object(Staging, "stage", timed(Staging.stage)),
    ):
        yield spent
