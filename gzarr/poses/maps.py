"""Affine maps of the elements of a result to places in an array, and which elements of the array they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.json import quote
from ..errors import ArgumentError
from ..windows.boundary import folded
from .numbers_given import real_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    FloatArray = npt.NDArray[np.float64]

#: Numbers of axes that maps may have.
AXES: Final = (2, 3)
#: Places further away than this are cut: the kernels cut them, too.
_FAR: Final = 2.0**62
#: Integers above this are not exact as float64.
_EXACT: Final = 2.0**52


@dataclass(frozen=True, eq=False)
class AffineMap:
    """The element ``i`` of a result lies at ``matrix @ i + offset`` in the array.

    Attributes
    ----------
    matrix
        float64 ``(k, k)``.
    offset
        float64 ``(k,)``.
    """

    matrix: FloatArray
    offset: FloatArray

    @property
    def is_exact(self) -> bool:
        """Whether all places are elements, so that nothing is interpolated: flips, and exchanged axes."""
        numbers = np.append(self.matrix.ravel(), self.offset)
        return bool((np.rint(numbers) == numbers).all() and (np.abs(numbers) < _EXACT).all())

    def has_places(self, shape: Sequence[int]) -> bool:
        """Return whether the place of each element of a result is a number of float64."""
        return bool(np.isfinite(self.extent(shape)).all())

    def extent(self, shape: Sequence[int]) -> tuple[FloatArray, FloatArray]:
        """Return the lowest and the highest place along each axis, float64 ``(k,)``, of a result of some shape.

        They are computed in the order in which kernels compute places. Each sum is rounded, which does not change the
        order of two sums, so no place of the result is beyond its corners' places.
        """
        low, high = self.offset.copy(), self.offset.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            for j, n in enumerate(shape):
                ends = self.matrix[:, j] * float(max(n - 1, 0))
                low, high = low + np.minimum(ends, 0.0), high + np.maximum(ends, 0.0)
        return low, high


def checked_map(matrix: Any, offset: Any = None) -> AffineMap:
    """Return a map.

    Parameters
    ----------
    matrix
        Numbers ``(k, k)``; ``(k,)`` for the diagonal; or ``(k, k + 1)``, with the offset in the last column.
    offset
        Numbers ``(k,)`` or one for all axes; None for 0, or what the matrix has.

    Raises
    ------
    ArgumentError
        If they are something else, or not finite.
    """
    given, moved = real_numbers(matrix), real_numbers(0.0 if offset is None else offset)
    if given is not None and moved is not None:
        given = np.diag(given) if given.ndim == 1 else given
        k = len(given) if given.ndim == 2 else 0
        if given.shape == (k, k + 1) and offset is None:
            given, moved = given[:, :-1], given[:, -1]
        if k in AXES and given.shape == (k, k) and moved.shape in ((), (k,)):
            return AffineMap(given, np.broadcast_to(moved, (k,)).copy())
    raise ArgumentError(
        "matrix must be 2 x 2 or 3 x 3 finite numbers (or those of its diagonal; or 2 x 3 or 3 x 4, without offset=), "
        f"and offset one for each axis, not {quote(matrix)} and {quote(offset)}"
    )


def neighbours(order: int) -> tuple[float, int, int]:
    """Return for an order of interpolation what is added to a place, and how many elements before and after count."""
    return {0: (0.5, 0, 0), 1: (0.0, 0, 1), 3: (0.0, 1, 2)}[order]


def wanted(affine: AffineMap, shape: Sequence[int], order: int) -> list[tuple[int, int]]:
    """Return the first element and the end of what a result needs along each axis, also beyond the array's ends."""
    half, before, after = neighbours(order)
    found = []
    for low, high in zip(*affine.extent(shape), strict=True):
        first, last = (float(np.clip(end + half, -_FAR, _FAR)) for end in (low, high))
        # An element that lies exactly at a place needs no next one.
        beyond = after if last != np.floor(last) else max(after - 1, 0)
        found.append((int(np.floor(first)) - before, int(np.floor(last)) + beyond + 1))
    return found


def inside(first: int, end: int, size: int, mode: str) -> tuple[int, int]:
    """Return the first element and the end of what stands for places along an axis.

    Parameters
    ----------
    first, end
        Places, of which some are maybe beyond the ends.
    size
        Length of the axis.
    mode
        ``"constant"``, or one of :data:`gzarr.windows.boundary.MODES`.

    Returns
    -------
    A range of elements; an empty one if only constants stand there.
    """
    if mode in ("constant", "edge"):
        if mode == "edge":
            first, end = min(first, size - 1), max(end, 1)
        first, end = max(first, 0), min(end, size)
        return (first, end) if first < end else (0, 0)
    if first >= 0 and end <= size:
        return first, end
    if end - first >= size:
        return 0, size
    # Turned at the ends, neighbours stay neighbours; "wrap" leaves a gap where it goes on at the other end.
    found = folded(np.arange(first, end), size, mode)
    return int(found.min()), int(found.max()) + 1
