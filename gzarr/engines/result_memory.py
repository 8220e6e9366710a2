"""Memory for large results: aligned for the kernels, and recycled.

Much of a fast read can be the operating system handing out zeroed pages for its result. So the memory of a
large result that the caller has let go of is kept for the next result of about that size, as PyTorch's and CuPy's
allocators do. What is kept is offered back to the system (``MADV_FREE``: it takes the pages whenever it needs them),
never more than ``GZARR_RECYCLE_BYTES`` (default 512 MiB; 0 keeps nothing), and is let go before a result of another
size is allocated: the peak of a read is the same as without.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from .kernels import address

if TYPE_CHECKING:
    import numpy.typing as npt

#: Results smaller than this are NumPy's own business.
LARGE_BYTES = 4 << 20
DEFAULT_RECYCLE_BYTES = 512 << 20
#: A kept piece of memory serves results of at least this part of it.
_FIT = 0.75

# Steps of a deque are atomic: memory comes back in whatever thread drops the last reference, at any moment, where a
# lock could be held by that very thread.
_kept: deque[mmap.mmap] = deque()


class _Owner:
    """The base of a result array; when the last array over it goes, its memory is kept or freed."""

    __slots__ = ("__array_interface__", "memory")

    def __init__(self, memory: mmap.mmap, nbytes: int) -> None:
        self.memory: mmap.mmap | None = memory
        start = address(np.frombuffer(memory, np.uint8))
        self.__array_interface__ = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (start, False)}

    def __del__(self) -> None:
        memory, self.memory = self.memory, None
        # When the interpreter ends, this module's names may be gone already.
        if memory is not None and _keep is not None:
            _keep(memory)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a new C-contiguous array of undefined content; a large one begins at a page.

    Raises
    ------
    MemoryError, ValueError
        If it cannot be allocated.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < LARGE_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = _take(nbytes)
    if memory is None:
        return np.empty(shape, dtype)
    return np.asarray(_Owner(memory, nbytes)).view(dtype).reshape(shape)


def recycle_bytes() -> int:
    """Return the most bytes to keep: ``GZARR_RECYCLE_BYTES``, or 512 MiB.

    Raises
    ------
    ArgumentError
        If the variable is set and is not a whole number.
    """
    text = os.environ.get("GZARR_RECYCLE_BYTES", "").strip()
    if not text:
        return DEFAULT_RECYCLE_BYTES
    if not text.isdecimal():
        raise ArgumentError(f"GZARR_RECYCLE_BYTES must be a whole number of bytes, not {text!r}")
    return int(text)


def release() -> None:
    """Give all kept memory back to the system."""
    _kept.clear()


def _take(nbytes: int) -> mmap.mmap | None:
    """Return memory of at least ``nbytes``, kept or new; None where the platform has no maps to advise on."""
    if not hasattr(mmap, "MADV_FREE"):
        return None
    limit = recycle_bytes()
    while True:
        try:
            memory = _kept.pop()
        except IndexError:
            break
        if nbytes <= limit and nbytes <= len(memory) and nbytes >= _FIT * len(memory):
            return memory
        # Not of this size: it goes now, so that it never adds to a read's peak.
        del memory
    try:
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(str(error)) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Refused where the kernel has no huge pages; then small ones will do.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def _keep(memory: mmap.mmap) -> None:
    try:
        if len(memory) > recycle_bytes():
            return
        memory.madvise(mmap.MADV_FREE)
    # At exit modules are half gone, and whatever goes wrong here only means that the memory is freed.
    except (ArgumentError, OSError, AttributeError, TypeError):
        return
    _kept.append(memory)
    while sum(map(len, tuple(_kept))) > recycle_bytes():
        try:
            _kept.popleft()
        except IndexError:
            return
