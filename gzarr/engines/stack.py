"""Outputs of a read that lie along the first axis of a few arrays: thousands of them, without an object for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]


class Stack(Sequence[Any]):
    """A sequence of views: of the first array, then of the second, and so on.

    Parameters
    ----------
    arrays
        Arrays of one kind and dtype, at least one, with any strides; the outputs lie along their first axes.
    """

    __slots__ = ("_ends", "arrays")

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays: tuple[Any, ...] = tuple(arrays)
        self._ends: IntArray = np.cumsum([len(array) for array in self.arrays])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, i: Any) -> Any:
        """Return output ``i``, an integer from 0 on."""
        which = int(np.searchsorted(self._ends, i, "right"))
        array = self.arrays[which]
        return array[i - int(self._ends[which]) + len(array), ...]

    def _addresses(self, address: Callable[[Any], int]) -> IntArray:
        return np.concatenate([address(a) + np.arange(len(a), dtype=np.int64) * a.strides[0] for a in self.arrays])

    def _strides(self) -> IntArray:
        parts = [np.broadcast_to(np.array(a.strides[1:], np.int64), (len(a), a.ndim - 1)) for a in self.arrays]
        return np.concatenate(parts)


def held_in(outputs: Sequence[Any]) -> Sequence[Any]:
    """Return the arrays that hold all outputs and nothing else."""
    return outputs.arrays if isinstance(outputs, Stack) else outputs


def nbytes(outputs: Sequence[Any]) -> int:
    """Return the bytes of all outputs together."""
    return sum(array.nbytes for array in held_in(outputs))


def addresses(outputs: Sequence[Any], address: Callable[[Any], int]) -> IntArray:
    """Return the address of each output's first element, int64 ``(g,)``, by a function that tells it for an array."""
    if isinstance(outputs, Stack):
        return outputs._addresses(address)
    return np.array([address(output) for output in outputs], np.int64)


def strides(outputs: Sequence[Any], k: int) -> IntArray:
    """Return the strides of each output of ``k`` dimensions in bytes, int64 ``(g, k)``; zeros for other outputs."""
    if isinstance(outputs, Stack):
        found = outputs._strides()
        return found if found.shape[1] == k else np.zeros((len(outputs), k), np.int64)
    result = np.zeros((len(outputs), k), np.int64)
    for i, output in enumerate(outputs):
        if len(output.strides) == k:
            result[i] = output.strides
    return result
