"""Connected components of one block, found and written by compiled code."""

from __future__ import annotations

import functools
import itertools
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.slots import components as C

from ..engines import kernels
from ..errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]

#: Most elements of a block: runs are counted in 32 bits.
MOST_ELEMENTS: Final = 1 << 31
#: Runs that there is memory for at first; a block with more of them gets more.
_FEW_RUNS: Final = 1 << 16

_own = threading.local()


class Components:
    """The components of a block.

    Those of the last block of a thread only: the next one uses the same memory.

    Parameters
    ----------
    block
        The block, of at least one axis, of booleans or integers.
    background
        Value of the elements that belong to no component.
    by_value
        Whether only equal elements are of one component.
    connectivity
        Most axes along which neighbours differ.

    Attributes
    ----------
    count
        Number of components; they are 1, 2, … in the order of their first elements.

    Raises
    ------
    ArgumentError
        If the block has too many elements.
    """

    def __init__(self, block: npt.NDArray[Any], background: int, *, by_value: bool, connectivity: int) -> None:
        if block.size >= MOST_ELEMENTS:
            raise ArgumentError(
                f"a block of shape {block.shape} has more than {MOST_ELEMENTS - 1} elements; pass block=, for smaller "
                "ones"
            )
        # Where the kernel reads; this holds it.
        self._block = bits_of(block)
        *leading, length = self._block.shape
        self._lengths = np.array([*leading, length], np.int64)
        neighbours = _neighbours(tuple(leading), connectivity)
        rows = self._block.size // max(length, 1)
        self._job = job = np.zeros(C.SIZE, np.int64)
        job[C.SOURCE], job[C.WIDTH] = kernels.address(self._block), self._block.itemsize
        job[C.BACKGROUND], job[C.BY_VALUE] = bits_of_value(background, block.dtype), by_value
        job[C.LEADING], job[C.LENGTHS] = len(leading), kernels.address(self._lengths)
        job[C.ROWS], job[C.LENGTH] = rows, length
        job[C.NEIGHBOURS], job[C.NEIGHBOUR_COUNT] = kernels.address(neighbours), len(neighbours)
        self._coords = np.zeros(max(len(leading), 1), np.int64)
        self._starts = np.empty(rows + 1, np.int32)
        job[C.COORDS], job[C.STARTS] = kernels.address(self._coords), kernels.address(self._starts)
        most = rows * (length if by_value else (length + 1) // 2)
        capacity = max(getattr(_own, "capacity", 0), min(_FEW_RUNS, most), 1)
        while True:
            self._take_memory(capacity)
            kernels.call("components", "find", kernels.address(job))
            if job[C.RUNS] >= 0:
                break
            capacity = min(4 * capacity, most)
        self.count: int = int(job[C.COUNT])

    def _take_memory(self, capacity: int) -> None:
        """Make room for a number of runs; this thread's memory is used again."""
        if getattr(_own, "capacity", 0) < capacity:
            _own.runs, _own.capacity = np.empty((3, capacity), np.int32), capacity
        begins, ends, parents = _own.runs
        job = self._job
        job[C.CAPACITY], job[C.BEGINS] = _own.capacity, kernels.address(begins)
        job[C.ENDS], job[C.PARENTS] = kernels.address(ends), kernels.address(parents)

    def describe(self) -> tuple[IntArray, npt.NDArray[np.uint64]]:
        """Return the first element of each component, in C order of the block, and its bits."""
        firsts, values = np.empty(self.count, np.int64), np.empty(self.count, np.uint64)
        self._job[C.FIRSTS], self._job[C.VALUES] = kernels.address(firsts), kernels.address(values)
        kernels.call("components", "describe", kernels.address(self._job))
        return firsts, values

    def paint(
        self, dtype: np.dtype[Any], box: Sequence[slice] | None = None, numbers: npt.NDArray[np.uint64] | None = None
    ) -> npt.NDArray[Any]:
        """Return the number of each element's component, 0 where there is none.

        Parameters
        ----------
        dtype
            uint16, uint32 or uint64.
        box
            Part of the block; None for all of it.
        numbers
            Other numbers: of component ``i`` it is ``numbers[i]``.
        """
        extents = [(0, int(n)) for n in self._lengths] if box is None else [(s.start, s.stop) for s in box]
        target = np.empty([end - begin for begin, end in extents], dtype)
        if not target.size:
            return target
        job, of_box = self._job, np.array(extents, np.int64)
        job[C.BOX], job[C.TARGET], job[C.TARGET_WIDTH] = (
            kernels.address(of_box),
            kernels.address(target),
            target.itemsize,
        )
        job[C.NUMBERS] = 0 if numbers is None else kernels.address(numbers)
        kernels.call("components", "paint", kernels.address(job))
        return target


def bits_of(block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return integers or booleans as unsigned ones of the same bits, C-contiguous."""
    block = np.ascontiguousarray(block, block.dtype.newbyteorder("="))
    return block.view(f"u{block.itemsize}")


def bits_of_value(value: int, dtype: np.dtype[Any]) -> int:
    """Return the bits of a value of an integer type, as an int64."""
    bits = int(np.array(value, dtype.newbyteorder("=")).view(f"u{dtype.itemsize}"))
    return bits - (1 << 64) if bits >= 1 << 63 else bits


@functools.lru_cache(64)
def _neighbours(leading: tuple[int, ...], connectivity: int) -> IntArray:
    """Return the rows before a row whose elements may be neighbours of its own, as ``slots/components.py`` says."""
    strides = [int(np.prod(leading[d + 1 :], dtype=np.int64)) for d in range(len(leading))]
    found = []
    for place in itertools.product((-1, 0, 1), repeat=len(leading)):
        differing = sum(map(abs, place))
        if place < (0,) * len(leading) and differing <= connectivity:
            before = -sum(p * stride for p, stride in zip(place, strides, strict=True))
            found.append([int(differing < connectivity), before, *place])
    return np.array(found, np.int64).reshape(-1, C.NEIGHBOUR_SIZE + len(leading))


def united(count: int, pairs: IntArray) -> IntArray:
    """Return for each member the first one that it is joined with, directly or not."""
    parents = np.arange(count, dtype=np.int64)
    pairs = np.ascontiguousarray(pairs, np.int64)
    kernels.call("components", "unite", kernels.address(parents), count, kernels.address(pairs), len(pairs))
    return parents
