"""Which rows or columns of a matrix are wanted, along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ..cached import cached_property
from ..distinct import distinct
from ..errors import ArgumentError, SelectionError
from ..plan.selection import parse_basic

if TYPE_CHECKING:
    from typing import TypeAlias

    IntArray: TypeAlias = npt.NDArray[np.int64]
    #: What −1 among columns is: one of zeros, or, as in NumPy, the last one.
    Missing: TypeAlias = Literal["zero"] | None

#: Columns of a matrix that always have a table, and how many there may be for each chosen one and each entry.
_TABLED: Final = 1 << 22
_TIMES: Final = 4


def chosen_along(selection: Any, length: int, what: str, name: str, missing: Missing = None) -> IntArray | None:
    """Return the numbers of the chosen rows or columns, int64 ``(n,)``, in order; None for all of them.

    With ``missing="zero"``, −1 stays: it is none of them.

    Parameters
    ----------
    selection
        Integer (which keeps its axis), slice, mask, integers in any order, possibly repeated, or None for all.
    length
        Number of rows or columns.
    what, name
        ``"rows"`` or ``"columns"``, and the name of the matrix, for messages.

    Raises
    ------
    SelectionError
        If the selection is none of these, or does not fit.
    ArgumentError
        If ``missing`` is neither None nor ``"zero"``.
    """
    if missing not in (None, "zero"):
        raise ArgumentError(f"missing must be 'zero' or None, not {missing!r:.100}")
    if selection is None or selection is Ellipsis or (isinstance(selection, slice) and selection == slice(None)):
        return None
    try:
        given = selection if isinstance(selection, slice) else np.atleast_1d(np.asarray(selection))
        if isinstance(given, np.ndarray) and (given.ndim > 1 or given.dtype.kind not in "iub"):
            if given.size or given.ndim > 1:
                raise SelectionError(f"they are {given.dtype} of shape {given.shape}")
            given = given.astype(np.int64)
        absent = None
        if missing is not None and isinstance(given, np.ndarray) and given.dtype.kind == "i":
            # The others are checked as they are; a place of the first one is taken for those that are missing.
            if (given < -1).any():
                raise SelectionError(f"{int(given.min())} is among them, and with missing='zero', −1 is the least")
            absent = given == -1
            if absent.all():
                return np.full(len(given), -1, np.int64)
            given = np.where(absent, given[np.argmin(absent)], given)
        parsed = parse_basic((given,), (length,))
    except (SelectionError, TypeError, ValueError) as error:
        raise SelectionError(
            f"matrix {name!r} has {length} {what}; choose some by an integer, a slice, a mask of {length} booleans, or "
            f"integers in one dimension: {error}"
        ) from error
    if parsed.indices is not None and parsed.indices[0] is not None:
        found = parsed.indices[0]
    else:
        found = parsed.start[0] + parsed.step[0] * np.arange(parsed.count[0], dtype=np.int64)
    # A slice of a negative step is a view of the same elements in reverse.
    found = found if parsed.index is None else found[parsed.index]
    return found if absent is None else np.where(absent, -1, found)


@dataclass(frozen=True, eq=False)
class Columns:
    """Which columns of the entries are kept, and as which columns of the result; "columns" of the compressed form.

    Attributes
    ----------
    count
        Number of columns of the result.
    length
        Number of columns that entries may be of.
    numbers
        int64 ``(m,)``, the chosen ones, ascending; none for columns of the result that are missing.
    places
        int32 ``(m,)``, the column of the result that each of them becomes.
    """

    count: int
    length: int
    numbers: IntArray
    places: npt.NDArray[np.int32]

    @classmethod
    def of(cls, chosen: IntArray, length: int) -> Columns:
        """Return what choosing some of ``length`` columns means; −1 is a column of zeros."""
        there = np.flatnonzero(chosen >= 0)
        found = chosen[there]
        order = np.argsort(found, kind="stable")
        return cls(len(chosen), length, found[order], there[order].astype(np.int32))

    @cached_property
    def offsets(self) -> IntArray:
        """int64 ``(length + 1,)``: column ``c`` becomes ``places[offsets[c]:offsets[c + 1]]``."""
        offsets = np.zeros(self.length + 1, np.int64)
        np.cumsum(np.bincount(self.numbers, minlength=self.length), out=offsets[1:])
        return offsets

    def have_table(self, entries: int) -> bool:
        """Return whether the offsets of all columns take little memory beside a number of entries, or at all.

        Documents may say that there are two thousand million columns.
        """
        return self.length <= max(_TABLED, _TIMES * (entries + len(self.numbers)))

    def ranked(self, indices: npt.NDArray[Any]) -> tuple[Columns, npt.NDArray[np.int32]]:
        """Return the same choice among those columns alone that are chosen or that entries have, in their order.

        Parameters
        ----------
        indices
            The column of each entry, ``(e,)``.

        Returns
        -------
        The chosen columns, and the column of each entry, ``(e,)``: by their ranks, so what ascends still does.
        """
        known = distinct(indices, self.numbers.astype(np.int32))
        columns = Columns(self.count, len(known), np.searchsorted(known, self.numbers), self.places)
        return columns, np.searchsorted(known, indices).astype(np.int32)
