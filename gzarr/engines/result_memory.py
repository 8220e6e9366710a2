"""Memory for large results: in huge pages, and recycled.

A fast read can spend much of its time waiting for zeroed pages from the operating system. So the memory of a large
result that the caller no longer holds is kept for the next result of about that size, as PyTorch's and CuPy's
allocators do. The system may take the kept pages back whenever it needs them (``MADV_FREE``). At most
``GZARR_RECYCLE_BYTES`` are kept (default 512 MiB; 0 keeps nothing), and kept memory is freed before a result of another
size is allocated, so the peak of a read is the same as without recycling. A result is kept or freed by the bound of the
last allocation before.

No Python code runs when a result is freed (:class:`Owner`, :class:`Returned`). Python would handle a signal there, and
drop what the handler raises: a time limit, or Ctrl-C, would never reach the program.

New memory begins at a huge page, so that all of it except the end is in huge pages. Per byte, they cost a third of
small pages to touch and a twentieth to free. The end is in a huge page if it fills at least half of one, so a result
takes at most 1 MiB more than its elements. The threads of a read share the first touch of new memory
(:func:`take_untouched`).

Smaller results are left to NumPy, and so to the C library. glibc also keeps freed memory, up to 32 MiB, and reuses it
faster than a new mapping can be made. So with recycling off, results up to that size come from there, too. From 64 KiB
on they begin at a multiple of 64 bytes: JAX copies other memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import sys
from collections import deque
from functools import partial
from itertools import chain, repeat, starmap
from operator import call
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np

from .. import huge_pages
from ..huge_pages import HUGE_PAGE_BYTES, first_page, room
from ..variables import number_in
from .kernels import address

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

T = TypeVar("T")

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

#: What is kept is counted in units of so many bytes.
_UNIT_BYTES: Final = 1 << 20


class Returned(Generic[T]):
    """Takes back what results no longer need, in compiled code alone, by the thread that drops the last reference.

    No operation of a deque leaves it broken for other threads, or takes a lock that this thread might already hold.

    Parameters
    ----------
    most
        Most items; for more, the oldest ones are dropped.

    Attributes
    ----------
    items
        What has been given back, in order.
    most
        As above.
    """

    def __init__(self, most: int = sys.maxsize) -> None:
        self.most = most
        self.items: deque[T] = deque(maxlen=most)
        self._take = [self.items.extend]

    def giving(self, items: tuple[T, ...], *before: Callable[[], int | None]) -> Callable[[], Any]:
        """Return a function of compiled code that calls others, and then gives items back; it works once.

        If one of the others returns a number that is not zero, the items are dropped instead.
        """
        # ``any`` goes through all that return zero or None. What takes the items is only looked up then.
        return partial(any, chain(map(call, before), map(call, self._take, (items,))))

    def taken(self) -> list[T]:
        """Return all items that have been given back until now, and keep them no longer."""
        found: list[T] = []
        # Another thread may take them, too.
        with contextlib.suppress(IndexError):
            found.extend(starmap(self.items.popleft, repeat((), len(self.items))))
        return found

    def close(self) -> None:
        """Drop all items, and take no others: these are freed with what refers to them."""
        self._take.clear()
        self.items.clear()


class Owner:
    """The base of arrays over some memory, which calls a function when the last one is freed.

    Parameters
    ----------
    interface
        The ``__array_interface__`` of the memory.
    memory
        What holds it.
    at_end
        Function of compiled code. By default nothing is done: the memory is freed.
    untouched
        Whether the memory is a new mapping whose pages have not been made ready.
    """

    # ``__del__`` is no method but a slot with a function: a signal would be handled where a method begins.
    __slots__ = ("__array_interface__", "__del__", "memory", "untouched")

    def __init__(
        self,
        interface: dict[str, Any],
        memory: Any,
        at_end: Callable[[], Any] = bool,
        *,
        untouched: bool = False,
    ) -> None:
        self.__array_interface__: dict[str, Any] = interface
        self.memory: Any = memory
        self.untouched: bool = untouched
        self.__del__: Callable[[], Any] = at_end


# Each mapping, followed by a None for each further unit of its size. So the oldest mapping is dropped as soon as all of
# them take more units than there is room for; what is left of those that were taken before goes first.
_kept: Returned[mmap.mmap | None] = Returned(0)

if hasattr(mmap, "MADV_FREE"):
    # Unlike that of a mapping, it raises no exception, which nobody could handle where memory is freed. It keeps the
    # GIL, as that does.
    _libc_madvise: Final = ctypes.PyDLL(None).madvise
    _libc_madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


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
    if nbytes < LARGE_BYTES or (nbytes < MALLOC_BYTES and not _kept_within(recycle_bytes()).most):
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
    kept = _kept_within(recycle_bytes())
    memory = _take_kept(kept, nbytes)
    untouched = memory is None
    if memory is None:
        memory = _map(nbytes, exact=exact)
    begin = first_page(memory)
    interface = {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (begin, False)}
    return np.asarray(Owner(interface, memory, _giving(kept, memory, begin), untouched=untouched))


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
    if not isinstance(owner, Owner) or not owner.untouched:
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
    return number_in("GZARR_RECYCLE_BYTES", text, least=0, unit=" of bytes")


def kept_count() -> int:
    """Return how many mappings are kept."""
    return sum(memory is not None for memory in _kept.items.copy())


def release() -> None:
    """Give all kept memory back to the system."""
    _kept.items.clear()


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int) -> npt.NDArray[Any]:
    """Return a new array from NumPy's allocator that begins at a multiple of ``ALIGNMENT``."""
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    begin = -address(memory) % ALIGNMENT
    return np.ndarray(shape, dtype, memory, begin)


def _kept_within(limit: int) -> Returned[mmap.mmap | None]:
    """Return what takes memory back, up to a limit in bytes; with another limit than before, what is kept is freed."""
    global _kept
    kept, units = _kept, min(limit // _UNIT_BYTES, sys.maxsize)
    if kept.most != units:
        kept.close()
        kept = _kept = Returned(units)
    return kept


def _take_kept(kept: Returned[mmap.mmap | None], nbytes: int) -> mmap.mmap | None:
    """Return kept memory for ``nbytes``, or None; kept memory of other sizes is freed."""
    while True:
        try:
            memory = kept.items.popleft()
        except IndexError:
            return None
        if memory is not None and _FIT * room(memory) <= nbytes <= room(memory):
            return memory
        # Freed now, so that it never adds to a read's peak.
        del memory


def _giving(kept: Returned[mmap.mmap | None], memory: mmap.mmap, begin: int) -> Callable[[], Any]:
    """Return what gives memory back; what does nothing if that is more than may be kept."""
    units = -(-room(memory) // _UNIT_BYTES)
    if units > kept.most:
        return bool
    # Memory that the system cannot take back is freed: locked one, for which the call fails.
    may_be_taken = partial(_libc_madvise, begin, room(memory), mmap.MADV_FREE)
    return kept.giving((memory, *[None] * (units - 1)), may_be_taken)


def _map(nbytes: int, *, exact: bool) -> mmap.mmap:
    """Return new memory for ``nbytes``, in huge pages where the system has them."""
    last = nbytes % HUGE_PAGE_BYTES
    # A short end is cheaper in small pages, and takes no more memory than it needs.
    more = HUGE_PAGE_BYTES if 2 * last >= HUGE_PAGE_BYTES and not exact else 0
    return huge_pages.new(nbytes, nbytes - last + more)
