"""Memory for large results: in huge pages, and recycled.

A fast read can spend much of its time waiting for zeroed pages from the operating system. So the memory of a large
result that the caller no longer holds is kept for the next result of about that size, as PyTorch's and CuPy's
allocators do. The system may take the kept pages back whenever it needs them (``MADV_FREE``). At most
``GZARR_RECYCLE_BYTES`` are kept (default 512 MiB; 0 keeps nothing), and kept memory is freed before a result of another
size is allocated, so the peak of a read is the same as without recycling.

New memory begins at a huge page, so that all of it except the end is in huge pages. Per byte, they cost a third of
small pages to touch and a twentieth to free. The end is in a huge page if it fills at least half of one, so a result
takes at most 1 MiB more than its elements. The threads of a read share the first touch of new memory
(:func:`take_untouched`).

Smaller results are left to NumPy, and so to the C library. glibc also keeps freed memory, up to 32 MiB, and reuses it
faster than a new mapping can be made. So with recycling off, results up to that size come from there, too. From 64 KiB
on they begin at a multiple of 64 bytes: JAX copies other memory.
"""

from __future__ import annotations

import math
import mmap
import os
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import huge_pages
from ..errors import ArgumentError
from ..huge_pages import HUGE_PAGE_BYTES, first_page, room
from .kernels import address

if TYPE_CHECKING:
    import numpy.typing as npt

#: Smaller results are allocated by NumPy.
LARGE_BYTES = 4 << 20
#: Results of at least this size begin at a multiple of :data:`ALIGNMENT`; smaller ones are copied about as fast.
ALIGNED_BYTES = 64 << 10
#: Bytes of a cache line, and of the widest vector registers.
ALIGNMENT = 64
#: With recycling off, smaller results are also allocated by NumPy: glibc makes a new mapping for each larger one.
MALLOC_BYTES = 32 << 20
DEFAULT_RECYCLE_BYTES = 512 << 20
#: Kept memory is reused for results of at least this share of its size.
_FIT = 0.75

# A deque's operations are atomic. Memory is given back at any moment, by the thread that drops the last reference,
# and that thread might already hold a lock.
_kept: deque[mmap.mmap] = deque()


class _Owner:
    """The base of a result array; when the last array over it is freed, its memory is kept or freed.

    Attributes
    ----------
    memory
        The mapping; None afterwards.
    untouched
        Whether the mapping is new and its pages have not been made ready.
    """

    __slots__ = ("__array_interface__", "memory", "untouched")

    def __init__(self, memory: mmap.mmap, nbytes: int, *, untouched: bool) -> None:
        self.memory: mmap.mmap | None = memory
        self.untouched = untouched
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (first_page(memory), False),
        }

    def __del__(self) -> None:
        memory, self.memory = self.memory, None
        # At interpreter exit, this module's names may already be gone.
        if memory is not None and _keep is not None:
            _keep(memory)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a new C-contiguous array with undefined content; a large one begins at a huge page.

    Raises
    ------
    MemoryError, ValueError
        If it cannot be allocated.
    ArgumentError
        If ``GZARR_RECYCLE_BYTES`` is invalid (:func:`recycle_bytes`).
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < ALIGNED_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    if nbytes < LARGE_BYTES or (nbytes < MALLOC_BYTES and not recycle_bytes()):
        return _aligned(shape, dtype, nbytes)
    return mapped(nbytes).view(dtype).reshape(shape)


def mapped(nbytes: int, *, exact: bool = False) -> npt.NDArray[np.uint8]:
    """Return bytes with undefined content, as of a large result of :func:`empty`.

    Parameters
    ----------
    nbytes
        Number of bytes.
    exact
        Whether new memory ends in small pages, so that it takes no more than that. For memory of several results, of
        which each could waste a part of a huge page.

    Raises
    ------
    MemoryError, ValueError, ArgumentError
        As for :func:`empty`.
    """
    if not hasattr(mmap, "MADV_FREE"):
        return _aligned((nbytes,), np.dtype(np.uint8), nbytes)
    memory = _take_kept(nbytes, recycle_bytes())
    untouched = memory is None
    if memory is None:
        memory = _map(nbytes, exact=exact)
    return np.asarray(_Owner(memory, nbytes, untouched=untouched))


def take_untouched(array: npt.NDArray[Any]) -> tuple[int, int]:
    """Return address and size in bytes of a new result's memory, once; the caller then makes its pages ready.

    Parameters
    ----------
    array
        A result of :func:`empty`, or a view of one.

    Returns
    -------
    Address and size; ``(0, 0)`` for memory that is not new, and for other arrays.
    """
    base = array.base
    owner = base.base if isinstance(base, np.ndarray) else None
    if not isinstance(owner, _Owner) or not owner.untouched:
        return 0, 0
    owner.untouched = False
    interface = owner.__array_interface__
    return interface["data"][0], interface["shape"][0]


def recycle_bytes() -> int:
    """Return the most bytes to keep: ``GZARR_RECYCLE_BYTES``, by default 512 MiB.

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


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> npt.NDArray[Any]:
    """Return a new array from NumPy's allocator that begins at a multiple of ``ALIGNMENT``."""
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    begin = -address(memory) % ALIGNMENT
    return np.ndarray(shape, dtype, memory, begin)


def _take_kept(nbytes: int, limit: int) -> mmap.mmap | None:
    """Return kept memory for ``nbytes``, or None; kept memory of other sizes is freed."""
    while True:
        try:
            memory = _kept.pop()
        except IndexError:
            return None
        if nbytes <= limit and _FIT * room(memory) <= nbytes <= room(memory):
            return memory
        # Freed now, so that it never adds to a read's peak.
        del memory


def _map(nbytes: int, *, exact: bool) -> mmap.mmap:
    """Return new memory for ``nbytes``, in huge pages where the system has them."""
    last = nbytes % HUGE_PAGE_BYTES
    # A short end is cheaper in small pages, and takes no more memory than it needs.
    more = HUGE_PAGE_BYTES if 2 * last >= HUGE_PAGE_BYTES and not exact else 0
    return huge_pages.new(nbytes, nbytes - last + more)


def _keep(memory: mmap.mmap) -> None:
    try:
        if room(memory) > recycle_bytes():
            return
        memory.madvise(mmap.MADV_FREE)
    # At exit, modules may be partly deleted. Any error here only means that the memory is freed.
    except (ArgumentError, OSError, AttributeError, TypeError):
        return
    _kept.append(memory)
    while sum(map(room, tuple(_kept))) > recycle_bytes():
        try:
            _kept.popleft()
        except IndexError:
            return
