"""CuPy's default pool, watched: each block that it gives out is known with its exact size, until it comes back."""

from __future__ import annotations

import ctypes
from typing import Any


def watch(library: ctypes.CDLL) -> None:
    """Make CuPy's current allocator one that takes memory from the default pool, and tells the runtime of it."""
    import cupy
    from cupy.cuda import get_current_stream

    pool = cupy.get_default_memory_pool()
    # With the interpreter's lock: it makes an object of Python.
    told = ctypes.PyDLL(library._name).coh_pool_watch
    told.restype = ctypes.py_object
    told.argtypes = [ctypes.c_size_t, ctypes.c_size_t, ctypes.c_size_t]

    def malloc(nbytes: int) -> Any:
        pointer = pool.malloc(nbytes)
        if nbytes:
            # CuPy's memory object dies, gives the block back, and drops this, which tells of it, all in one breath.
            pointer.mem.watched = told(pointer.ptr, nbytes, get_current_stream().ptr)
        return pointer

    # As the pool's own method has it: what gzarr goes by.
    setattr(malloc, "__self__", pool)  # noqa: B010
    cupy.cuda.set_allocator(malloc)
