"""The box of an array that a result needs, and what is read of it: no more chunks than those."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..windows.boundary import folded
from .host import Posed
from .maps import AffineMap, inside, wanted

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from .device import OnDevice
    from .host import Host

    IntArray = npt.NDArray[np.int64]

#: Elements around a box that its coefficients of a cubic spline depend on. The filters that make them look at whole
#: lines; the weight of an element falls to a quarter with each step from it, and after these, it is below the
#: precision of float64.
MARGIN: Final = 28


@dataclass(frozen=True, eq=False)
class Need:
    """What a result needs of an array along the axes of its map.

    For cubic interpolation, the kernel is given coefficients in place of elements, of the array as its boundary
    continues it: beyond ends that turn or repeat the array, coefficients do the same; beyond others, the array is
    taken to be :data:`MARGIN` longer at each end, after which they are constant.

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
    array_size
        Lengths of the array.
    """

    affine: AffineMap
    order: int
    mode: str
    size: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]
    selection: tuple[slice, ...]
    array_size: tuple[int, ...]

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
            return cls(affine, order, mode, lengths, low, high, tuple(slice(a, b) for a, b in ranges), tuple(size))
        selection = tuple(
            _span(_taken(np.arange(a - longer - MARGIN, b - longer + MARGIN), n, mode))
            for (a, b), n in zip(ranges, size, strict=True)
        )
        return cls(affine, order, mode, lengths, low, high, selection, tuple(size))

    @property
    def is_constant(self) -> bool:
        """Whether all of the result lies beyond the ends, where a constant stands."""
        return any(a == b for a, b in zip(self.low, self.high, strict=True))

    def box(self, way: Host | OnDevice, elements: Any, fill: Any) -> Any:
        """Return what the kernel is given of the elements of :attr:`selection`, ``(leading axes, …)``.

        Parameters
        ----------
        way
            Where the elements are.
        elements
            The elements, of a dtype that the kernel takes.
        fill
            The constant beyond the ends.
        """
        if self.order != 3:
            return elements
        k = len(self.size)
        exact = np.dtype(np.float64)
        elements = way.cast(elements, exact)
        leading = elements.shape[: elements.ndim - k]
        around = way.empty((*leading, *(b - a + 2 * MARGIN for a, b in zip(self.low, self.high, strict=True))), exact)
        # As the boundary continues the array, which is as much longer as its size for the kernel says.
        longer = (self.size[0] - self.array_size[0]) // 2
        moved = AffineMap(np.eye(k), np.array(self.low, np.float64) - longer - MARGIN)
        first = [along.start for along in self.selection]
        way.resample(
            [
                Posed(elements[at], first, self.array_size, moved, around[at], fill)
                for at in np.ndindex(*leading)
            ],
            0,
            self.mode,
        )  # fmt: skip
        way.filter(around, k)
        return around[(..., *(slice(MARGIN, -MARGIN),) * k)]


def _taken(places: IntArray, size: int, mode: str) -> IntArray:
    """Return the elements that stand at places; -1 for the constant."""
    if mode == "constant":
        return np.where((places >= 0) & (places < size), places, -1)
    return folded(places, size, mode)


def _span(elements: IntArray) -> slice:
    """Return the range of elements, at least one of which is no constant or the first stands for them."""
    found = elements[elements >= 0]
    return slice(int(found.min()), int(found.max()) + 1) if len(found) else slice(0, 1)
