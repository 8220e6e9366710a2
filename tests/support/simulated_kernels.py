"""Execution of kernels by the simulated device: like Numba's simulator, but without its threads.

The simulator starts one thread per GPU thread and waits for them in a busy loop, which takes a hundred times as long as
the kernel. Here, threads that do not depend on each other are called one after the other, the last one first; a block
of threads that do becomes a block of a single thread. The tests of the kernels themselves use the simulator.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray, FakeWithinKernelCUDAArray
from numba.cuda.simulator.kernelapi import Dim3, FakeCUDAAtomic, FakeCUDAShared, swapped_cuda_module

# The name ``cuda`` in a kernel's module is replaced while the kernel runs.
_ONE_KERNEL = threading.Lock()
#: A kernel that uses one of these names has threads that depend on each other.
_COOPERATION: Final = frozenset(("atomic", "local", "shared", "syncthreads"))


class _Cuda:
    """The module ``cuda`` inside a kernel."""

    def __init__(self, blocks: int, threads: int) -> None:
        self.gridDim, self.blockDim = Dim3(blocks, 1, 1), Dim3(threads, 1, 1)
        self.blockIdx, self.threadIdx = Dim3(0, 0, 0), Dim3(0, 0, 0)
        self.atomic = FakeCUDAAtomic()
        self.shared = FakeCUDAShared(0)

    def grid(self, ndim: int) -> int:
        assert ndim == 1
        return int(self.blockIdx.x * self.blockDim.x + self.threadIdx.x)

    def gridsize(self, ndim: int) -> int:
        assert ndim == 1
        return int(self.gridDim.x * self.blockDim.x)

    def syncthreads(self) -> None:
        assert self.blockDim.x == 1


def run_kernel(kernel: Any, blocks: int, threads: int, arguments: list[Any]) -> None:
    """Run a kernel of ``gzarr_kernels.device``.

    Parameters
    ----------
    kernel
        Kernel compiled for the simulator.
    blocks, threads
        Number of blocks, and of threads per block.
    arguments
        ``FakeCUDAArray`` and integers.
    """
    function = kernel.py_func
    if not _COOPERATION.isdisjoint(function.__code__.co_names):
        threads = 1
    passed = [FakeWithinKernelCUDAArray(a) if isinstance(a, FakeCUDAArray) else a for a in arguments]
    with _ONE_KERNEL:
        for block in reversed(range(blocks)):
            # Shared memory belongs to one block.
            cuda = _Cuda(blocks, threads)
            cuda.blockIdx.x = block
            with swapped_cuda_module(function, cuda):
                for cuda.threadIdx.x in reversed(range(threads)):
                    function(*passed)
