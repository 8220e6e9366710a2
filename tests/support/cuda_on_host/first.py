"""Imported first by a process, this puts the whole device in place: CUDA's runtime, kernels and nvCOMP in host memory.

For processes that a test starts (``ci/gpu --first support.cuda_on_host.first``). gzarr's kernels are those of
``GZARR_KERNELS``, which must be what :func:`support.cuda_on_host.kernels.use_compiled_kernels` has made, or none: then
numba-cuda's are taken to be these, because the host cannot run machine code of a GPU.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

os.environ["NUMBA_ENABLE_CUDASIM"] = "0"

from gzarr_kernels.device import ptx
from support.cuda_on_host import build, device, kernels
from support.cuda_on_host.cupy_kernels import CupyKernels
from support.cuda_on_host.nvcomp import HostNvcomp

from gzarr.engines.cuda import driver

_NO_KERNEL_IMAGE = 209


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _ours(image: int, entry: bytes, found: Any) -> int | None:
    """Fill a kernel of gzarr's; as :meth:`CupyKernels.resolve`."""
    kernel = kernels.find(ctypes.string_at(image), entry.decode())
    if kernel is None:
        return None
    ctypes.memmove(found, ctypes.byref(kernel), ctypes.sizeof(kernel))
    return 0


def _resolve(image: int, entry: bytes, found: Any) -> int:
    try:
        for find in (_cupy.resolve, _ours):
            code = find(image, entry, found)
            if code is not None:
                return code
    except Exception as error:  # it would be lost here: this is called from C
        print(f"{entry.decode()}: {type(error).__name__}: {error}", flush=True)
    return _NO_KERNEL_IMAGE


def _compiled(kernel: Any, word: int, capability: tuple[int, int]) -> Any:
    """Return what the host can run, in the place of numba-cuda's machine code."""
    from gzarr_kernels.device import target

    text = kernels.gzarr_programs().programs[target.program_name(kernel, word)].ptx
    return target.MachineCode(text.encode(), target.entry_of(text))


cuda = device.install()
_find, _enqueue = _address(cuda.library.coh_find), _address(cuda.library.coh_enqueue)
_cupy = CupyKernels(build.CACHE, _find)
_cupy.install()
kernels.set_find(_find)
_resolver = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(_resolve)
cuda.set_resolver(_resolver)
nvcomp = HostNvcomp(build.CACHE, _find, _enqueue)
nvcomp.install()
cuda.reset(late_ms=5, visible=1, capacity=4 << 30)

# Otherwise, before CUDA is initialised, the machine is asked for its GPUs.
driver.machine = lambda: driver.Machine((driver.Gpu("a GPU in host memory", "GPU-0"),), "")

if not ptx.programs():
    from gzarr_kernels.device import compiler

    compiler.compiled = _compiled
