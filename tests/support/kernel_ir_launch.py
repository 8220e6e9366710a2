"""Launches of device kernels on the host, as numba-cuda compiles them for a GPU (see :mod:`cuda_on_host.kernels`).

Each access outside the arrays that a kernel was given fails the test, as does anything else that is undefined on a GPU.
"""

from __future__ import annotations

import ctypes
import random
import zlib
from functools import cache
from typing import Any, Final

import numpy as np
from gzarr_kernels.device import target
from support.cuda_on_host import c_types, kernels

#: An address that is not an array's, for arrays without elements.
_NOWHERE: Final = 0xDEAD0000


class KernelFaultError(AssertionError):
    """A kernel did something undefined on a GPU, or did not end."""


@cache
def prepare(module: str) -> kernels.Programs:
    """Return the kernels of a module, compiled if need be."""
    own = module.startswith("gzarr_kernels.")
    return kernels.gzarr_programs() if own else kernels.Programs(kernels.build(module))


def _program(kernel: Any, arguments: tuple[Any, ...]) -> tuple[kernels.Programs, str]:
    """Return the program of a kernel for arguments of these types."""
    types = [x.dtype.char if isinstance(x, np.ndarray) else "" for x in arguments]
    words = [word for word in (8, 4, 2, 1) if target.parameters(kernel.py_func, word) == types]
    assert words, f"it takes {target.parameters(kernel.py_func)}, not {types}"
    return prepare(kernel.py_func.__module__), target.program_name(kernel, words[0])


def _memories(arrays: list[np.ndarray[Any, Any]]) -> list[tuple[int, int]]:
    """Return address and size of each memory; arrays that overlap share one."""
    found: list[tuple[int, int]] = []
    for x in sorted((x for x in arrays if x.nbytes), key=lambda x: x.ctypes.data):
        assert x.flags.c_contiguous
        begin, end = x.ctypes.data, x.ctypes.data + x.nbytes
        if found and begin < sum(found[-1]):
            low = found[-1][0]
            found[-1] = (low, max(sum(found[-1]), end) - low)
        else:
            found.append((begin, end - begin))
    return found


def launch(
    kernel: Any, *arguments: Any, blocks: int, threads: int, seed: int | None = None, limit: float = 100
) -> None:
    """Run a kernel.

    Parameters
    ----------
    kernel
        Kernel of ``gzarr_kernels.device`` or of the tests.
    *arguments
        1-d arrays, and integers.
    blocks, threads
        Number of blocks, and of threads per block.
    seed
        Seed of the order of blocks and threads; by default it depends on the arguments, so that a repeated launch is
        the same.
    limit
        Seconds after which it counts as hanging.

    Raises
    ------
    KernelFaultError
        If the kernel accesses memory other than its arguments, or does something undefined on a GPU.
    """
    programs, name = _program(kernel, arguments)
    found = programs.kernel(name)
    if seed is None:
        seed = zlib.crc32(repr((kernel.py_func.__name__, blocks, threads, *map(_size, arguments))).encode())
    memories = _memories([x for x in arguments if isinstance(x, np.ndarray)])
    table = (c_types.Block * max(len(memories), 1))(*(c_types.Block(1, 0, *memory) for memory in memories))
    passed = (ctypes.c_int64 * max(len(arguments), 1))(*map(_passed, arguments))
    addresses = (ctypes.c_void_p * len(passed))(*(ctypes.addressof(passed) + 8 * i for i in range(len(passed))))
    start = c_types.Launch((blocks, 1, 1), (threads, 1, 1), 0, 0, random.Random(seed).getrandbits(64))
    fault = c_types.Fault()
    library = programs.library
    library.kernels_set_limit(limit)
    run = library.kernels_run_in
    run(
        ctypes.c_void_p(found.self),
        addresses,
        ctypes.byref(start),
        ctypes.byref(fault),
        table,
        ctypes.c_int64(len(memories)),
    )
    if fault.code:
        raise KernelFaultError(fault.message.decode())


def _passed(argument: Any) -> int:
    if not isinstance(argument, np.ndarray):
        return int(argument)
    return argument.ctypes.data if argument.nbytes else _NOWHERE


def _size(argument: Any) -> int:
    return argument.size if isinstance(argument, np.ndarray) else int(argument)
