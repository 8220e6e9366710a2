"""Host memory of many results of like sizes, such as the batches of an epoch, used again for the next ones.

A page of new memory costs more than to copy into it. So the memory of an array goes back to its owner once the last
array over it is gone, wherever that is, and the next array that fills most of it has it: rows that stay sparse take
another number of bytes in each batch. A consumer may thus keep an array, and hardly more memory is held than was needed
at one time.

Nor is each array of a few hundred kilobytes a mapping of its own in small pages, of which each costs a fault: several
of one size share one in huge pages. A consumer that keeps a few of them keeps all of it, but usually results of one
size are all kept or all dropped.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..engines import result_memory
from ..engines.result_memory import Owner, Returned
from .outputs import HostResults

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

#: Bytes of a mapping for several arrays.
_SHARED_BYTES: Final = 8 << 20
#: Memory is used again for arrays of at least this share of its size; rather than to hold too much, of the other.
_FIT: Final = 0.75
_LEAST_FIT: Final = 0.25
#: Too much is more than so many times what was in use at one time, and so many bytes: most of these are parts of
#: mappings, and never touched.
_MORE: Final = 1.25
_SPARE_BYTES: Final = 4 * _SHARED_BYTES


class RecycledResults(HostResults):
    """NumPy arrays in memory that is used again until :meth:`close`."""

    def __init__(self) -> None:
        # Memory that is no longer in use; any thread gives it back, at any moment.
        self._returned: Returned[Bytes] = Returned()
        # Several threads may take arrays: single operations of a deque and of a dict are atomic.
        self._kept: defaultdict[int, deque[Bytes]] = defaultdict(deque)
        # Bytes of what is in use, by identity, and the most that they were.
        self._used: dict[int, int] = {}
        self._most = 0
        self._closed = False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array, uninitialised."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < result_memory.ALIGNED_BYTES or dtype.hasobject:
            return super().empty(shape, dtype)
        for returned in self._returned.taken():
            self._keep(returned)
        memory = self._kept_for(nbytes)
        if memory is None:
            memory = self._new(nbytes)
        return self._lent(memory, nbytes).view(dtype).reshape(shape)

    def _kept_for(self, nbytes: int) -> Bytes | None:
        """Return kept memory that an array nearly fills; rather than to hold too much, also less well filled one."""
        memory = self._fitting(nbytes, _FIT)
        if memory is not None:
            return memory
        used = sum(list(self._used.values())) + nbytes
        self._most = max(self._most, used)
        kept = sum(size * len(memories) for size, memories in list(self._kept.items()))
        too_much = used + kept - int(_MORE * self._most) - _SPARE_BYTES
        if too_much > 0:
            memory = self._fitting(nbytes, _LEAST_FIT)
            if memory is None:
                self._free(too_much)
        return memory

    def _fitting(self, nbytes: int, share: float) -> Bytes | None:
        """Return the smallest kept memory of which an array takes at least a share."""
        # Of several threads, another one may have taken what was there.
        for size in sorted(size for size, kept in list(self._kept.items()) if kept and share * size <= nbytes <= size):
            try:
                return self._kept[size].pop()
            except IndexError:
                pass
        return None

    def _free(self, nbytes: int) -> None:
        """Free so many bytes of what is kept, the smallest first, which serve the fewest arrays."""
        for size in sorted(self._kept):
            while nbytes > 0:
                try:
                    self._kept[size].pop()
                except IndexError:
                    break
                nbytes -= size

    def _lent(self, memory: Bytes, nbytes: int) -> Bytes:
        """Return the first bytes of memory that is given back with the last array over it."""
        self._used[id(memory)] = len(memory)
        return np.asarray(Owner(memory.__array_interface__, memory, self._returned.giving((memory,))))[:nbytes]

    def _new(self, nbytes: int) -> Bytes:
        """Return new memory; of several arrays, the others of their mapping are kept."""
        each = -(-nbytes // result_memory.ALIGNMENT) * result_memory.ALIGNMENT
        count = _SHARED_BYTES // each
        if count < 2 or nbytes >= result_memory.LARGE_BYTES:
            memory: Bytes = super().empty((nbytes,), np.dtype(np.uint8))
            return memory
        whole = result_memory.mapped(count * each, exact=True)
        # The first ones are used first: pages behind them are not touched before they are needed.
        for i in reversed(range(1, count)):
            self._keep(whole[i * each : i * each + nbytes])
        return whole[:nbytes]

    def _keep(self, memory: Bytes) -> None:
        """Keep memory that is not in use, for a later array."""
        self._used.pop(id(memory), None)
        if not self._closed:
            self._kept[len(memory)].append(memory)

    def close(self) -> None:
        """Keep no memory any longer: what is given back later is freed."""
        self._closed = True
        self._returned.close()
        self._kept.clear()
