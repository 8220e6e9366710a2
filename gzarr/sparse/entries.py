"""Entries of some rows of a sparse matrix, in memory. "Rows" are rows of the compressed form, as in the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from ..arrays.outputs import Results
    from .chosen import Columns
    from .wanted import Wanted

    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Entries:
    """Entries of some rows.

    Attributes
    ----------
    offsets
        int64 ``(n + 1,)`` in host memory: the entries of row ``i`` are ``offsets[i]`` to ``offsets[i + 1]``.
    indices
        The column of each entry, ``(e,)``: int32, or in host memory also uint8 or uint16.
    values
        ``(e,)``, in native byte order.
    ascend
        Whether it is known that the indices of each row ascend.
    scaled
        Whether the values are scaled already.
    columns
        The chosen ones of the columns that indices are of; None for all as they are.
    """

    offsets: IntArray
    indices: Any
    values: Any
    ascend: bool = False
    scaled: bool = False
    columns: Columns | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of memory that they take."""
        parts = (self.offsets, self.indices, self.values)
        return sum(int(part.nbytes) for part in parts)

    def bounds(self, rows: IntArray | None) -> tuple[IntArray, IntArray]:
        """Return the begins and the ends of some rows, int64 ``(n,)``, in their order; None for all rows."""
        if rows is None:
            return self.offsets[:-1], self.offsets[1:]
        return self.offsets[rows], self.offsets[rows + 1]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.offsets) - 1


class Memory(Protocol):
    """What is done with entries where they are: in host memory, or on a device, in order with a stream."""

    def kept_types(
        self, wanted: Wanted, indices: np.dtype[Any], values: np.dtype[Any]
    ) -> tuple[np.dtype[Any], np.dtype[Any]]:
        """Return the types that indices and values, of some types in the store, are best read in."""

    def narrowed(self, indices: Any, columns: int) -> Any:
        """Return indices of an integer type as one that entries have; those that are no column become negative."""

    def first_wrong(self, entries: Entries, columns: int) -> int:
        """Return the place of the first index that is no column, or -1."""

    def prepared(self, entries: Entries, wanted: Wanted) -> Entries:
        """Return entries with what is to be done once for all that is made of them; they are not used afterwards.

        The result has the columns that are wanted, by which indices may be others.
        """

    def taken(
        self, entries: Entries, wanted: Wanted, rows: IntArray | None = None, results: Results | None = None
    ) -> Entries:
        """Return the entries of some rows, int64 ``(n,)``, in chosen columns, as these in the result, in order.

        Indices of the result are int32. In host memory, results may be in memory of the caller's.
        """

    def joined(self, parts: list[Entries]) -> Entries:
        """Return the entries of several parts, one after the other; at least one."""

    def address(self, array: Any) -> int:
        """Return the address of an array's first element."""

    def densify(self, entries: Entries, wanted: Wanted, target: DenseTarget, rows: IntArray | None = None) -> None:
        """Write some rows, int64 ``(n,)``, to dense arrays; entries of one element are added up."""

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
