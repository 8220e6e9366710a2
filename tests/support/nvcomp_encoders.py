"""Frames of nvCOMP's own encoder for CPUs, which is C++."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
import nvidia.libnvcomp

# void nvcomp::gdeflate::compressCPU(const void *const *, const size_t *, size_t, size_t, void *const *, size_t *, int)
# Before nvCOMP 6 without the outer namespace.
_COMPRESS = ("_ZN6nvcomp8gdeflate11compressCPUEPKPKvPKmmmPKPvPmi", "_ZN8gdeflate11compressCPUEPKPKvPKmmmPKPvPmi")
_MAX_BYTES = 64 << 10


@cache
def _compress() -> ctypes._CFuncPtr:
    (path,) = (path for folder in nvidia.libnvcomp.__path__ for path in Path(folder).glob("lib*/libnvcomp_cpu.so.*"))
    library = ctypes.CDLL(str(path))
    function = next(getattr(library, name) for name in _COMPRESS if hasattr(library, name))
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    function.restype, function.argtypes = None, [pointer, pointer, size, size, pointer, pointer, ctypes.c_int]
    return function


def gdeflate_frame(data: bytes, level: int = 6) -> bytes:
    """Return one GDeflate frame of at most 64 KiB."""
    assert 0 < len(data) <= _MAX_BYTES
    source = np.frombuffer(data, np.uint8)
    target = np.zeros(2 * len(data) + 4096, np.uint8)
    sources, targets = (ctypes.c_void_p * 1)(source.ctypes.data), (ctypes.c_void_p * 1)(target.ctypes.data)
    nbytes, produced = (ctypes.c_size_t * 1)(len(data)), (ctypes.c_size_t * 1)()
    _compress()(sources, nbytes, _MAX_BYTES, 1, targets, produced, level)
    return target[: produced[0]].tobytes()
