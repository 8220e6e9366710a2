"""Host time of launching a device kernel from Python: the driver's call is replaced by a no-op.

    python benchmarks/launch.py

Needs CuPy, but neither a GPU nor a driver. On a GPU, ``benchmarks/gpu_questions.py --question launches`` measures the
time with the driver's call.
"""

from __future__ import annotations

import statistics
import time
from types import SimpleNamespace
from unittest import mock

import cupy
from gzarr_kernels.device import assemble, copies

from gzarr.engines.cuda.cupy_device import CupyDevice

LAUNCHES, ROUNDS = 5000, 9


def _nothing(*arguments: int) -> None:
    """Stand in for ``cuLaunchKernel``."""


def main() -> None:
    """Print the median of some rounds."""
    stream = SimpleNamespace(ptr=0)
    with mock.patch.object(cupy.cuda.driver, "launchKernel", _nothing):
        device = CupyDevice(0)
        for kernel, arguments, word in ((copies.copy_frames, 3, 0), (assemble.assemble, 6, 2)):
            # Pretend that it is compiled and loaded.
            device._functions[kernel, word] = 1
            rounds = []
            for _ in range(ROUNDS):
                begin = time.perf_counter()
                for _ in range(LAUNCHES):
                    device.launch(kernel, 64, 256, stream, *range(arguments), word=word)
                rounds.append((time.perf_counter() - begin) / LAUNCHES)
            us = 1e6 * statistics.median(rounds)
            print(f"{kernel.py_func.__name__}, {arguments} arguments: {us:.1f} µs per launch")


if __name__ == "__main__":
    main()
