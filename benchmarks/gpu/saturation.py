"""What keeps decoders busy: rates of large batches of frames, and of reads against the size and number of waves."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

from workloads import workloads

import gpu.questions
import gpu.samples
import gpu.workloads
import gzarr
from gzarr.engines.cuda import engine, wave_plan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpu.steps import Steps
    from gzarr.engines.cuda.device_protocol import Device

_KIB, _MIB = 1 << 10, 1 << 20
#: Decoded bytes and number of frames of a batch, the smallest total first.
BATCHES = ((64 * _KIB, 1024), (_MIB, 128), (64 * _KIB, 8192), (_MIB, 1024))
#: Decoded bytes of a wave, and waves in flight.
WAVE_BYTES = tuple(n * _MIB for n in (64, 128, 256, 512, 1024))
FLIGHTS = (1, 2, 3, 4)
#: Workloads that are read in waves of each size.
SWEPT = ("u2-64-zstd", "u2-64-blosc-lz4")
#: Their size, relative to that of other workloads: several waves of the largest size.
SWEPT_SIZE = 4
READS = 3
RATES, SWEEP = "decoders at saturation", "waves"


def make_small() -> None:
    """Make batches and waves small, for a device in host memory."""
    global BATCHES, WAVE_BYTES, FLIGHTS
    BATCHES, WAVE_BYTES, FLIGHTS = ((4 * _KIB, 16), (64 * _KIB, 2)), (_MIB, 4 * _MIB), (1, 3)


def rates(steps: Steps, device: Device, seconds: float) -> None:
    """Measure decoded bytes per second of each algorithm, for batches that keep a GPU busy."""
    deadline = time.monotonic() + seconds
    data = gpu.samples.sample(4 * max(nbytes for nbytes, _ in BATCHES))
    found: list[dict[str, Any]] = []
    failed = steps.failed(RATES)
    for nbytes, count in BATCHES:
        for algorithm in gpu.samples.ALGORITHMS:
            step = f"{algorithm}, {count} frames of {nbytes} bytes"
            row: dict[str, Any] = {"algorithm": algorithm, "frame_nbytes": nbytes, "frames": count}
            if step in failed:
                found.append({**row, "error": failed[step]})
                continue
            if time.monotonic() > deadline:
                found.append({**row, "left out": "no time left"})
                continue
            steps.begin(RATES, step)
            try:
                found.append(gpu.questions.decode_rate(device, algorithm, data, nbytes, count))
            except Exception as error:  # the other rates may be measured
                found.append({**row, "error": steps.error(error)})
            steps.found(RATES, found)


def sweep(steps: Steps, device: Device, data_dir: Path, nbytes: int, seconds: float) -> None:
    """Measure reads of arrays of ``nbytes`` in waves of each size, with each number of waves in flight."""
    deadline = time.monotonic() + seconds
    found: list[dict[str, Any]] = []
    failed = steps.failed(SWEEP)
    chosen = [w for w in workloads(rows=1000) if w.name in SWEPT]
    for number, workload in enumerate(chosen):
        if time.monotonic() > deadline:
            found.append({"workload": workload.name, "left out": "no time left"})
            steps.found(SWEEP, found)
            continue
        steps.begin(SWEEP, workload.name)
        until = time.monotonic() + (deadline - time.monotonic()) / (len(chosen) - number)
        with gpu.workloads.written(gpu.workloads.tiled(workload, nbytes), data_dir) as stored:
            for wave in WAVE_BYTES:
                for flight in FLIGHTS:
                    step = f"{workload.name}, {flight} waves of {wave} bytes"
                    row: dict[str, Any] = {"workload": workload.name, "wave_nbytes": wave, "in_flight": flight}
                    if step in failed or time.monotonic() > until:
                        found.append({**row, "left out": failed.get(step, "no time left")})
                        continue
                    steps.begin(SWEEP, step)
                    try:
                        found.append({**row, **_read(device, stored.path, wave, flight)})
                    except Exception as error:  # such as for lack of memory: smaller waves may work
                        found.append({**row, "error": steps.error(error)})
                    steps.found(SWEEP, found)
    steps.found(SWEEP, found)


def _read(device: Device, path: Path, wave: int, flight: int) -> dict[str, Any]:
    """Return the median time of some reads into a reused output, and the waves that they had."""
    array = gzarr.open_array(path, device=device.name)
    stream = device.current_stream()
    times = []
    budget = device.free_bytes() // 2
    with waves(wave, flight) as made:
        out = array.read(decode="cuda", budget_bytes=budget)
        stream.synchronize()
        count, chunks = len(made), max(made, default=0)
        for _ in range(READS):
            start = time.perf_counter()
            array.read(out=out, decode="cuda", budget_bytes=budget)
            stream.synchronize()
            times.append(time.perf_counter() - start)
    median = statistics.median(times)
    return {
        "ms": 1e3 * median,
        "gb_per_s": out.nbytes / median / 1e9,
        "waves": count,
        "chunks_a_wave": chunks,
        "chunk_nbytes": math.prod(array.chunks) * array.dtype.itemsize,
    }


@contextlib.contextmanager
def waves(nbytes: int, flight: int) -> Iterator[list[int]]:
    """Make the engine read in waves of ``nbytes`` decoded bytes, ``flight`` of them at a time.

    Yields the list to which each wave's number of chunks is added. Waves are smaller where a read's budget is.
    """
    made: list[int] = []

    class Counted(engine.Wave):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(arguments[-1].chunks)

    with (
        mock.patch.object(wave_plan, "WAVE_BYTES", nbytes),
        # No wave is larger for the sake of its frames.
        mock.patch.object(wave_plan, "WAVE_FRAMES", 1),
        mock.patch.object(wave_plan, "MAX_WAVES_IN_FLIGHT", flight),
        mock.patch.object(engine, "Wave", Counted),
    ):
        yield made
