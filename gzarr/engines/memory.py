"""Releasing the memory that is kept for later calls."""

from __future__ import annotations

import sys

from . import kernels, result_memory


def release_memory() -> None:
    """Release all memory that gzarr keeps for later calls; results that you still hold are not affected.

    This covers the memory of large host results that you no longer hold (at most ``GZARR_RECYCLE_BYTES``, 512 MiB by
    default); scratch buffers of threads (at most about 64 MiB); and for each CUDA device, page-locked memory (at most
    2 GiB), gzarr's own streams, and the blocks that CuPy's default memory pool has cached for these streams. The
    call waits for work on these streams. Other memory in CuPy's pools is CuPy's (``cupy.get_default_memory_pool()``).
    Page-locked batches of a ``Loader(pin_memory=True)`` stay with the loader.

    Any thread may call this at any time; reads and writes in progress are not disturbed.

    Raises
    ------
    DeviceError
        If a device fails.
    """
    result_memory.release()
    kernels.release()
    # If a module is not loaded, no device has been used.
    for name in ("gzarr.engines.cuda.uploads", "gzarr.engines.cuda.slots", "gzarr.engines.cuda.streams"):
        module = sys.modules.get(name)
        if module is not None:
            module.release()
