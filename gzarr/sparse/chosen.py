"""Which rows or columns of a matrix are wanted, along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import SelectionError
from ..plan.selection import parse_basic

if TYPE_CHECKING:
    from typing import TypeAlias

    IntArray: TypeAlias = npt.NDArray[np.int64]


def chosen_along(selection: Any, length: int, what: str, name: str) -> IntArray | None:
    """Return the numbers of the chosen rows or columns, int64 ``(n,)``, in order; None for all of them.

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
    """
    if selection is None or selection is Ellipsis or (isinstance(selection, slice) and selection == slice(None)):
        return None
    try:
        given = selection if isinstance(selection, slice) else np.atleast_1d(np.asarray(selection))
        if isinstance(given, np.ndarray) and (given.ndim > 1 or given.dtype.kind not in "iub"):
            if given.size or given.ndim > 1:
                raise SelectionError(f"they are {given.dtype} of shape {given.shape}")
            given = given.astype(np.int64)
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
    return found if parsed.index is None else found[parsed.index]


@dataclass(frozen=True, eq=False)
class Columns:
    """Which columns of the entries are kept, and as which columns of the result; "columns" of the compressed form.

    Attributes
    ----------
    count
        Number of columns of the result.
    offsets
        int64 ``(columns + 1,)``: column ``c`` becomes those in ``places`` from ``offsets[c]`` to ``offsets[c + 1]``.
    places
        int32 ``(count,)``.
    """

    count: int
    offsets: IntArray
    places: npt.NDArray[np.int32]

    @classmethod
    def of(cls, chosen: IntArray, length: int) -> Columns:
        """Return what choosing some of ``length`` columns means."""
        offsets = np.zeros(length + 1, np.int64)
        np.cumsum(np.bincount(chosen, minlength=length), out=offsets[1:])
        return cls(len(chosen), offsets, np.argsort(chosen, kind="stable").astype(np.int32))
