"""How the simulated device runs a kernel: in Numba's simulator, or without its threads where none are needed."""

from __future__ import annotations

import itertools
import threading
from typing import Any, Final

from numba.cuda.simulator.cudadrv.devicearray import FakeCUDAArray, FakeWithinKernelCUDAArray
from numba.cuda.simulator.kernelapi import Dim3, swapped_cuda_module

# Numba's simulator runs one kernel at a time in a process.
_ONE_KERNEL = threading.Lock()
#: What threads of a block need each other for.
_COOPERATION: Final = frozenset(("atomic", "local", "shared", "syncthreads"))


class _OneThread:
    """What ``cuda`` is inside a kernel whose threads run one after the other."""

    def __init__(self, blocks: int, threads: int) -> None:
        self.gridDim, self.blockDim = Dim3(blocks, 1, 1), Dim3(threads, 1, 1)
        self.blockIdx, self.threadIdx = Dim3(0, 0, 0), Dim3(0, 0, 0)

    def grid(self, ndim: int) -> int:
        assert ndim == 1
        return int(self.blockIdx.x * self.blockDim.x + self.threadIdx.x)

    def gridsize(self, ndim: int) -> int:
        assert ndim == 1
        return int(self.gridDim.x * self.blockDim.x)


def run_kernel(kernel: Any, blocks: int, threads: int, arguments: list[Any]) -> None:
    """Run a kernel of ``gzarr_kernels.device``.

    The simulator starts a thread for each of the GPU's and waits for them in a busy loop, which takes a hundred times
    as long as the kernel. Where threads need nothing of each other, they are called here, the last one first.

    Parameters
    ----------
    kernel
        Compiled for the simulator.
    blocks, threads
        Of the launch.
    arguments
        ``FakeCUDAArray`` and integers.
    """
    function = kernel.py_func
    with _ONE_KERNEL:
        if not _COOPERATION.isdisjoint(function.__code__.co_names):
            kernel[blocks, threads](*arguments)
            return
        cuda = _OneThread(blocks, threads)
        passed = [FakeWithinKernelCUDAArray(a) if isinstance(a, FakeCUDAArray) else a for a in arguments]
        with swapped_cuda_module(function, cuda):
            for cuda.blockIdx.x, cuda.threadIdx.x in itertools.product(
                reversed(range(blocks)), reversed(range(threads))
            ):
                function(*passed)
