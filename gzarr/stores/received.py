"""Memory for what a thread receives: slabs in huge pages, which are used again.

Memory from the C library would be new to most answers, and the system has to clear new pages first. So answers lie one
after the other in slabs. A slab is used again when nobody holds an answer in it any more.
"""

from __future__ import annotations

import mmap
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np

from .. import huge_pages

if TYPE_CHECKING:
    from typing import Any

#: Bytes of a slab. A larger answer has memory of its own.
SLAB_BYTES: Final = 4 << 20
#: Most slabs that are kept without an answer in them; the system may take their pages back (``MADV_FREE``).
_MOST_KEPT: Final = 16
#: Answers begin at multiples of this.
_ALIGNMENT: Final = 64

# A deque's operations are atomic: memory is given back by the thread that drops the last reference.
_kept: deque[mmap.mmap] = deque(maxlen=_MOST_KEPT)


class _Slab:
    """What all answers in a slab hold."""

    __slots__ = ("__array_interface__", "memory")

    def __init__(self, memory: mmap.mmap) -> None:
        self.memory = memory
        self.__array_interface__ = {
            "version": 3,
            "shape": (SLAB_BYTES,),
            "typestr": "|u1",
            "data": (huge_pages.first_page(memory), False),
        }

    def __del__(self) -> None:
        # At interpreter exit, this module's names may already be gone. An error means that the memory is freed.
        with suppress(OSError, AttributeError, TypeError):
            self.memory.madvise(mmap.MADV_FREE)
            _kept.append(self.memory)


class Received:
    """Memory of one thread; not thread-safe, but for what it returns."""

    def __init__(self) -> None:
        self._slab: memoryview | None = None
        self._next = SLAB_BYTES

    def take(self, nbytes: int) -> memoryview:
        """Return memory for an answer, with undefined content.

        Raises
        ------
        MemoryError
            If it cannot be allocated.
        """
        if nbytes > SLAB_BYTES or not hasattr(mmap, "MADV_FREE"):
            return _view(np.empty(nbytes, np.uint8))
        if self._slab is None or self._next + nbytes > SLAB_BYTES:
            # The old one must be free to be used again.
            self._slab = None
            try:
                memory = _kept.popleft()
            except IndexError:
                memory = huge_pages.new(SLAB_BYTES, SLAB_BYTES)
            self._slab, self._next = _view(np.asarray(_Slab(memory))), 0
        begin = self._next
        self._next += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return self._slab[begin : begin + nbytes]


def _view(array: Any) -> memoryview:
    return memoryview(array)
