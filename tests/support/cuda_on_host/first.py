"""Imported first by a process, this makes CUDA in host memory its CUDA, with a device that gzarr finds by itself.

For processes that a test starts (``ci/gpu --first support.cuda_on_host.first``). gzarr's kernels are those of
``GZARR_KERNELS``, which must be what :func:`support.cuda_on_host.kernels.use_compiled_kernels` has made, or none: then
numba-cuda's are taken to be these, because the host cannot run machine code of a GPU.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["NUMBA_ENABLE_CUDASIM"] = "0"

from gzarr_kernels.device import ptx
from support.cuda_on_host import kernels
from support.cuda_on_host.whole import whole

from gzarr.engines.cuda import driver


def _compiled(kernel: Any, word: int, capability: tuple[int, int]) -> Any:
    """Return what the host can run, in the place of numba-cuda's machine code."""
    from gzarr_kernels.device import target

    text = kernels.gzarr_programs().programs[target.program_name(kernel, word)].ptx
    return target.MachineCode(text.encode(), target.entry_of(text))


whole().host.reset(late_ms=5, visible=1, capacity=4 << 30)

# Otherwise, before CUDA is initialised, the machine is asked for its GPUs.
driver.machine = lambda: driver.Machine((driver.Gpu("a GPU in host memory", "GPU-0"),), "")

if not ptx.programs():
    from gzarr_kernels.device import compiler

    compiler.compiled = _compiled
