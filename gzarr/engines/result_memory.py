"""Memory for large results: in huge pages, and recycled.

Much of a fast read can be the operating system handing out zeroed pages for its result. So the memory of a
large result that the caller has let go of is kept for the next result of about that size, as PyTorch's and CuPy's
allocators do. What is kept is offered back to the system (``MADV_FREE``: it takes the pages whenever it needs them),
never more than ``GZARR_RECYCLE_BYTES`` (default 512 MiB; 0 keeps nothing), and is let go before a result of another
size is allocated: the peak of a read is the same as without.

New memory begins at a huge page, so that all of it but the end is in such pages. They cost a third of small ones per
byte, and a twentieth when they are freed. The end is in a huge page if it fills half of one: a result holds at most
1 MiB more than its elements. The threads of a read share the first touch of new memory (:func:`take_untouched`).

Smaller results are NumPy's business, which leaves them to the C library. glibc keeps freed memory for the next call
as well, up to 32 MiB, and faster than any mapping is made. So with nothing kept here, results up to that size come from
there, too.
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

#: Results smaller than this are NumPy's own business, …
LARGE_BYTES = 4 << 20
#: … and where nothing is kept here, those smaller than this: what glibc maps for itself, however much was freed before.
MALLOC_BYTES = 32 << 20
DEFAULT_RECYCLE_BYTES = 512 << 20
#: A huge page of most machines.
HUGE_PAGE_BYTES = 2 << 20
#: A kept piece of memory serves results of at least this part of it.
_FIT = 0.75

# Steps of a deque are atomic: memory comes back in whatever thread drops the last reference, at any moment, where a
# lock could be held by that very thread.
_kept: deque[mmap.mmap] = deque()


class _Owner:
    """The base of a result array; when the last array over it goes, its memory is kept or freed.

    Attributes
    ----------
    memory
        The mapping, until then.
    untouched
        Whether it is new, and nobody has made its pages ready.
    """

    __slots__ = ("__array_interface__", "memory", "untouched")

    def __init__(self, memory: mmap.mmap, nbytes: int, *, untouched: bool) -> None:
        self.memory: mmap.mmap | None = memory
        self.untouched = untouched
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (_first_page(memory), False),
        }

    def __del__(self) -> None:
        memory, self.memory = self.memory, None
        # When the interpreter ends, this module's names may be gone already.
        if memory is not None and _keep is not None:
            _keep(memory)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return a new C-contiguous array of undefined content; a large one begins at a huge page.

    Raises
    ------
    MemoryError, ValueError
        If it cannot be allocated.
    ArgumentError
        As :func:`recycle_bytes`.
    """
    nbytes = math.prod(shape) * dtype.itemsize
    if nbytes < LARGE_BYTES or dtype.hasobject or not hasattr(mmap, "MADV_FREE"):
        return np.empty(shape, dtype)
    limit = recycle_bytes()
    memory = _take_kept(nbytes, limit)
    untouched = memory is None
    if memory is None:
        if not limit and nbytes < MALLOC_BYTES:
            return np.empty(shape, dtype)
        memory = _map(nbytes)
    return np.asarray(_Owner(memory, nbytes, untouched=untouched)).view(dtype).reshape(shape)


def take_untouched(array: npt.NDArray[Any]) -> tuple[int, int]:
    """Return address and bytes of the memory of a new result, once: whoever takes it makes its pages ready.

    Parameters
    ----------
    array
        A result of :func:`empty`, or a view of one.

    Returns
    -------
    ``(0, 0)`` for memory that is not new, and for arrays of others.
    """
    base = array.base
    owner = base.base if isinstance(base, np.ndarray) else None
    if not isinstance(owner, _Owner) or not owner.untouched:
        return 0, 0
    owner.untouched = False
    interface = owner.__array_interface__
    return interface["data"][0], interface["shape"][0]


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


def _take_kept(nbytes: int, limit: int) -> mmap.mmap | None:
    """Return kept memory of at least ``nbytes``, or None; what is not of this size is let go."""
    while True:
        try:
            memory = _kept.pop()
        except IndexError:
            return None
        if nbytes <= limit and _FIT * _room(memory) <= nbytes <= _room(memory):
            return memory
        # Not of this size: it goes now, so that it never adds to a read's peak.
        del memory


def _map(nbytes: int) -> mmap.mmap:
    """Return new memory for ``nbytes``, in huge pages where the system has them, from :func:`_first_page` on."""
    last = nbytes % HUGE_PAGE_BYTES
    # A small rest is less work in small pages, and holds no more than it needs.
    nbytes_huge = nbytes - last + (HUGE_PAGE_BYTES if 2 * last >= HUGE_PAGE_BYTES else 0)
    try:
        # What is more than needed is addresses alone: it is never touched.
        memory = mmap.mmap(-1, max(nbytes, nbytes_huge) + HUGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except (OSError, OverflowError) as error:
        raise MemoryError(str(error)) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        begin = _first_page(memory) - _address(memory)
        # Refused where the kernel has no huge pages; then small ones will do.
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE, begin, nbytes_huge)
    return memory


def _room(memory: mmap.mmap) -> int:
    """Return how many bytes a mapping has for results."""
    return len(memory) - HUGE_PAGE_BYTES


def _address(memory: mmap.mmap) -> int:
    return address(np.frombuffer(memory, np.uint8))


def _first_page(memory: mmap.mmap) -> int:
    """Return the address of the first huge page of a mapping."""
    return -(-_address(memory) // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES


def _keep(memory: mmap.mmap) -> None:
    try:
        if _room(memory) > recycle_bytes():
            return
        memory.madvise(mmap.MADV_FREE)
    # At exit modules are half gone, and whatever goes wrong here only means that the memory is freed.
    except (ArgumentError, OSError, AttributeError, TypeError):
        return
    _kept.append(memory)
    while sum(map(_room, tuple(_kept))) > recycle_bytes():
        try:
            _kept.popleft()
        except IndexError:
            return
