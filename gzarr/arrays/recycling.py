"""Host memory of many results of a few sizes, such as the batches of an epoch, used again for the next ones.

A page of new memory costs more than to copy into it. So the memory of an array goes back to its owner once the last
array over it is gone, wherever that is, and the next array of its size has it. A consumer may thus keep an array, and
no more memory is held than was needed at one time.

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
from .outputs import HostResults

if TYPE_CHECKING:
    import numpy.typing as npt

    Bytes = npt.NDArray[np.uint8]

#: Bytes of a mapping for several arrays.
_SHARED_BYTES: Final = 8 << 20


class _Lent:
    """The base of an array; gives its memory back when the last array over it is gone."""

    __slots__ = ("__array_interface__", "_memory", "_owner")

    def __init__(self, memory: Bytes, owner: RecycledResults) -> None:
        self._memory, self._owner = memory, owner
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        self._owner.take_back(self._memory)


def lent(memory: Bytes, owner: RecycledResults) -> Bytes:
    """Return an array over memory that goes back to its owner with the last array over it."""
    return np.asarray(_Lent(memory, owner))


class RecycledResults(HostResults):
    """NumPy arrays in memory that is used again until :meth:`close`."""

    def __init__(self) -> None:
        # Memory is given back in any thread, at any moment: a deque's operations are atomic.
        self._kept: defaultdict[int, deque[Bytes]] = defaultdict(deque)
        self._closed = False

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array, uninitialised."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes < result_memory.ALIGNED_BYTES or dtype.hasobject:
            return super().empty(shape, dtype)
        try:
            memory = self._kept[nbytes].pop()
        except IndexError:
            memory = self._new(nbytes)
        return lent(memory, self).view(dtype).reshape(shape)

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
            self.take_back(whole[i * each : i * each + nbytes])
        return whole[:nbytes]

    def take_back(self, memory: Bytes) -> None:
        """Keep memory for the next array of its size."""
        if not self._closed:
            self._kept[len(memory)].append(memory)

    def close(self) -> None:
        """Keep no memory any longer: what is given back later is freed."""
        self._closed = True
        self._kept.clear()
