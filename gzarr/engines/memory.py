"""Memory that is kept for the next call, and how it is given back."""

from __future__ import annotations

import sys

from . import kernels, result_memory


def release_memory() -> None:
    """Give back all memory that gzarr keeps for later calls; results that you hold are yours and stay.

    That is: memory of large results in host memory that were let go of (at most ``GZARR_RECYCLE_BYTES``, 512 MiB by
    default), scratch buffers of threads (about 64 MiB at most), and for each CUDA device page-locked memory (1 GiB at
    most), the streams it is used on, and what CuPy's default memory pool has cached for these streams. Work on these
    streams is waited for. Other memory that CuPy's pools keep is CuPy's (``cupy.get_default_memory_pool()``).

    Any thread may call it at any time; reads and writes under way are not disturbed.

    Raises
    ------
    DeviceError
        If a device fails.
    """
    result_memory.release()
    kernels.release()
    # Without it there are no devices.
    slots = sys.modules.get("gzarr.engines.cuda.slots")
    if slots is not None:
        slots.release()
