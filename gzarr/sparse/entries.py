"""Entries of some rows of a sparse matrix, in memory. "Rows" are those of the compressed form, as in the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from .chosen import Columns

    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of some rows.

    Attributes
    ----------
    offsets
        int64 ``(n + 1,)`` in host memory: the entries of row ``i`` are ``offsets[i]`` to ``offsets[i + 1]``.
    indices
        int32 ``(e,)``, the column of each entry.
    values
        ``(e,)``, in native byte order.
    """

    offsets: IntArray
    indices: Any
    values: Any

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1


class Memory(Protocol):
    """What is done with entries where they are: in host memory, or on a device, in order with a stream."""

    def narrowed(self, indices: Any, columns: int) -> Any:
        """Return indices of an integer type as int32; those that are no column become negative."""

    def first_wrong(self, entries: Entries, columns: int) -> int:
        """Return the place of the first index that is no column, or -1."""

    def taken(self, entries: Entries, columns: Columns) -> Entries:
        """Return the entries in some columns, as their columns in the result, in order."""

    def joined(self, parts: list[Entries]) -> Entries:
        """Return the entries of several parts, one after the other; at least one."""

    def address(self, array: Any) -> int:
        """Return the address of an array's first element."""

    def densify(self, entries: Entries, columns: Columns | None, target: DenseTarget) -> None:
        """Write rows to dense arrays of the type of the values; entries of one element are added up."""

    def offsets(self, entries: Entries) -> Any:
        """Return the offsets where the entries are, int32 if they fit."""

    def matrix(self, entries: Entries, shape: tuple[int, int], form: str) -> Any:
        """Return entries as a matrix of SciPy or CuPy, ``"csr"`` or ``"csc"``."""


def joined_offsets(parts: list[Entries]) -> IntArray:
    """Return the offsets of the rows of several parts together."""
    counts = [np.diff(part.offsets) for part in parts]
    offsets = np.zeros(1 + sum(map(len, counts)), np.int64)
    np.cumsum(np.concatenate(counts), out=offsets[1:])
    return offsets


def narrow_offsets(entries: Entries) -> npt.NDArray[Any]:
    """Return the offsets as int32 if they fit."""
    fits = entries.offsets[-1] <= np.iinfo(np.int32).max
    return entries.offsets.astype(np.int32) if fits else entries.offsets


@dataclass(frozen=True, eq=False)
class DenseTarget:
    """Rows of dense arrays, which may lie anywhere in them.

    Attributes
    ----------
    whole
        Array that has all rows.
    addresses
        int64 ``(n,)``, the address of each row's first element.
    stride
        Distance of its elements in bytes, of any sign.
    width
        Number of its elements.
    row
        Function that returns a row, ``(width,)``.
    """

    whole: Any
    addresses: IntArray
    stride: int
    width: int
    row: Callable[[int], Any]

    @classmethod
    def of(cls, array: Any, address: Callable[[Any], int]) -> DenseTarget:
        """Return all rows of an array ``(n, width)``, by a function that tells the address of its first element."""
        (rows, width), (by_row, by_column) = array.shape, array.strides
        addresses = address(array) + by_row * np.arange(rows, dtype=np.int64)
        return cls(array, addresses, by_column, width, lambda i: array[i])

    def ordered(self, order: IntArray) -> DenseTarget:
        """Return the same rows in another order, int64 ``(n,)``."""
        return DenseTarget(
            self.whole, self.addresses[order], self.stride, self.width, lambda i: self.row(int(order[i]))
        )

    def some(self, first: int, last: int) -> DenseTarget:
        """Return the rows from ``first`` to ``last``."""
        return DenseTarget(
            self.whole, self.addresses[first:last], self.stride, self.width, lambda i: self.row(first + i)
        )
