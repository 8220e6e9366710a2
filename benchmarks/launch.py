"""Host time of device work from Python: of a kernel's launch, and of a wave of a read beside staging its chunks.

    python benchmarks/launch.py

Needs CuPy and nvCOMP, but neither a GPU nor a driver: their calls are replaced by no-ops. On a GPU,
``python benchmarks/gpu questions --question launches`` measures launches with the driver's call.
"""

from __future__ import annotations

import statistics
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import cupy
import numpy as np
from gzarr_kernels.device import assemble, copies
from gzarr_kernels.operations import ALGORITHMS

from gzarr.engines.cuda.columns import Output, Placement
from gzarr.engines.cuda.cupy_device import CupyDevice
from gzarr.engines.cuda.device_program import DeviceProgram
from gzarr.engines.cuda.engine import _without_foreign
from gzarr.engines.cuda.nvcomp import NvcompDecompressor
from gzarr.engines.cuda.staging import READY, FrameFormat, Frames, Staged
from gzarr.engines.cuda.wave import Wave
from gzarr.engines.cuda.wave_plan import EXPECTED_RATIO
from gzarr.engines.cuda.wave_shape import WaveContent, shape_for
from gzarr.plan.planner import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

LAUNCHES, ROUNDS = 5000, 9
#: Decoded bytes of a wave, and of a chunk.
WAVES = ((1 << 20, 64 << 10), (64 << 20, 64 << 10), (512 << 20, 64 << 10), (512 << 20, 1 << 20))
WAVE_ROUNDS = 41


def _nothing(*arguments: Any, **named: Any) -> None:
    """Stand in for a call of the driver, or of nvCOMP."""


def _median_us(function: Callable[[], Any], rounds: int, times: int) -> float:
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(times):
            function()
        found.append((time.perf_counter() - begin) / times)
    return 1e6 * statistics.median(found)


class _HostDevice(CupyDevice):
    """A device whose memory is never touched."""

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def copy_in(self, target: Any, source: Any, stream: Any) -> None:
        """Do nothing."""

    def _function(self, kernel: Any, word: int) -> int:
        # Pretend that all kernels are compiled and loaded.
        return self._functions.setdefault((kernel, word), 1)

    def copy_out(self, target: Any, source: Any, stream: Any) -> None:
        """Do nothing."""


def wave_us(wave_nbytes: int, chunk_nbytes: int) -> float:
    """Return the microseconds of the caller's thread for a wave of zstd chunks: columns, launches and statuses."""
    n, side = wave_nbytes // chunk_nbytes, int((chunk_nbytes // 4) ** 0.5)
    shape = (chunk_nbytes // 4 // side, side)
    device = _HostDevice(0)
    stream = SimpleNamespace(ptr=0, record=_nothing, wait_event=_nothing)
    program = DeviceProgram(FrameFormat("zstd", "zstd", 0, chunk_nbytes), 0, 0, (4 * side, 4), bits=False)
    decoder = NvcompDecompressor("zstd")
    content = WaveContent(n, n, 1, EXPECTED_RATIO * chunk_nbytes, most_encoded=2 * chunk_nbytes + (64 << 10))
    sizes = shape_for(program, decoder, content, k=2, outputs=1, direct=False)
    zeros = np.zeros((n, 2), np.int64)
    target = zeros.copy()
    target[:, 0] = shape[0] * np.arange(n)
    count = np.tile(np.array(shape, np.int64), (n, 1))
    plan = Plan(
        shape, target // shape[0], np.arange(n + 1), zeros, count, target, np.zeros(n, np.int64),
        np.ones(2, np.int64), (None, None),
    )  # fmt: skip
    place = Placement(plan, 2, 4, 0, np.zeros(4, np.uint8), np.zeros(1, np.int64), (-1, -1), (-1, -1), -1, -1)
    memory = np.empty(wave_nbytes, np.uint8)
    output = Output(memory, memory.ctypes.data, 4, np.zeros(1, np.int64), np.array([[side, 1]], np.int64))
    rows, each = np.arange(n), chunk_nbytes // 2
    staged = Staged(
        rows, np.full(n, READY), np.ones(n, np.int64), np.full(n, chunk_nbytes), np.zeros(n, np.bool_),
        np.full(n, -1), n * each,
    )  # fmt: skip
    none = np.zeros(n, np.int64)
    zstd = np.full(n, ALGORITHMS["zstd"].code)
    frames = Frames(rows, zstd, each * rows, np.full(n, each - 64), none, np.full(n, chunk_nbytes), none, none)
    results = np.zeros(sizes.results_bytes, np.uint8)
    slot: Any = SimpleNamespace(
        stream=stream, decoded=None, gate=_nothing, allocate=lambda nbytes: np.empty(nbytes, np.uint8),
        results=lambda nbytes: results[:nbytes],
    )  # fmt: skip
    staging = np.zeros(sizes.staging_bytes, np.uint8)

    def one() -> None:
        wave = Wave(device, slot, program, decoder, sizes)
        wave.staging = staging
        wave.enqueue(staged, _without_foreign(staged, frames, program, decoder), place, None, output, stream)
        wave.failed_rows()
        assert len(wave.rows) == n

    with mock.patch.object(NvcompDecompressor, "run", _nothing):
        one()
        return _median_us(one, WAVE_ROUNDS, 1)


def main() -> None:
    """Print the medians of some rounds."""
    stream = SimpleNamespace(ptr=0)
    with mock.patch.object(cupy.cuda.driver, "launchKernel", _nothing):
        device = CupyDevice(0)
        for kernel, arguments, word in ((copies.copy_frames, 3, 0), (assemble.assemble, 6, 2)):
            # Pretend that it is compiled and loaded.
            device._functions[kernel, word] = 1

            def launch(kernel: Any = kernel, arguments: int = arguments, word: int = word) -> None:
                device.launch(kernel, 64, 256, stream, *range(arguments), word=word)

            us = _median_us(launch, ROUNDS, LAUNCHES)
            print(f"{kernel.py_func.__name__}, {arguments} arguments: {us:.1f} µs per launch")
        for wave_nbytes, chunk_nbytes in WAVES:
            us = wave_us(wave_nbytes, chunk_nbytes)
            size = f"{wave_nbytes >> 20} MiB in zstd chunks of {chunk_nbytes >> 10} KiB"
            print(f"a wave of {size}: {us:.0f} µs of host time")


if __name__ == "__main__":
    main()
