"""The box of an array that a result needs, and what is read of it: no more chunks than those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..windows.boundary import folded
from .maps import AffineMap, inside, wanted
from .spline import MARGIN, coefficients

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Need:
    """What a result needs of an array along the axes of its map.

    For cubic interpolation, the kernel is given coefficients in place of elements. They are those of the array as its
    boundary continues it: beyond ends that turn or repeat the array, coefficients do the same; beyond others, the array
    is taken to be :data:`gzarr.poses.spline.MARGIN` longer at each end, after which they are constant.

    Attributes
    ----------
    affine
        The map to places in ``size``.
    order
        Order of interpolation: 0, 1 or 3.
    mode
        What lies beyond the ends.
    size
        Lengths of the array; of the longer one for coefficients.
    low, high
        First element and end of the box that the kernel needs, in ``size``; equal if it needs only constants.
    selection
        First element and end of what is read, in the array.
    """

    affine: AffineMap
    order: int
    mode: str
    size: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    selection: tuple[slice, ...]
    _taken: tuple[IntArray, ...] = ()

    @classmethod
    def of(
        cls,
        affine: AffineMap,
        shape: Sequence[int],
        order: int,
        mode: str,
        size: Sequence[int],
        *,
        copies: bool = True,
    ) -> Need:
        """Return what a result of some shape needs of an array of some size.

        With ``copies``, elements are copied where all places are elements.
        """
        order = 0 if copies and affine.is_exact else order
        longer = MARGIN if order == 3 and mode in ("constant", "edge") else 0
        if longer:
            affine = AffineMap(affine.matrix, affine.offset + float(longer))
        lengths = tuple(n + 2 * longer for n in size)
        places = wanted(affine, shape, order)
        if 0 in size:
            ranges = [(0, 0)] * len(lengths)
        else:
            ranges = [inside(*place, n, mode) for place, n in zip(places, lengths, strict=True)]
        low, high = (tuple(ends) for ends in zip(*ranges, strict=True))
        if order != 3 or any(a == b for a, b in ranges):
            return cls(affine, order, mode, lengths, low, high, tuple(slice(a, b) for a, b in ranges))
        taken = tuple(
            _taken(np.arange(a - longer - MARGIN, b - longer + MARGIN), n, mode)
            for (a, b), n in zip(ranges, size, strict=True)
        )
        selection = tuple(_span(along) for along in taken)
        return cls(affine, order, mode, lengths, low, high, selection, taken)

    @property
    def is_constant(self) -> bool:
        """Whether all of the result lies beyond the ends, where a constant stands."""
        return any(a == b for a, b in zip(self.low, self.high, strict=True))

    def box(self, elements: npt.NDArray[Any], fill: Any) -> npt.NDArray[Any]:
        """Return what the kernel is given of the elements of :attr:`selection`, ``(leading axes, …)``."""
        if self.order != 3:
            return elements
        k = len(self.size)
        result: Any = elements.astype(np.float64)
        for d, (along, read) in enumerate(zip(self._taken, self.selection, strict=True), result.ndim - k):
            beyond = along < 0
            result = np.take(result, np.where(beyond, 0, along - read.start), axis=d)
            if beyond.any():
                result[(*[slice(None)] * d, beyond)] = fill
        inner = [slice(None)] * (result.ndim - k) + [slice(MARGIN, -MARGIN)] * k
        found: npt.NDArray[Any] = coefficients(result, k)[tuple(inner)]
        return found


def _taken(places: IntArray, size: int, mode: str) -> IntArray:
    """Return the elements that stand at places; -1 for the constant."""
    if mode == "constant":
        return np.where((places >= 0) & (places < size), places, -1)
    return folded(places, size, mode)


def _span(elements: IntArray) -> slice:
    """Return the range of elements, at least one of which is no constant or the first stands for them."""
    found = elements[elements >= 0]
    return slice(int(found.min()), int(found.max()) + 1) if len(found) else slice(0, 1)
