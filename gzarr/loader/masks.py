"""Masks that say which patches are samples, at any resolution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from ..arrays.exporting import ExportedArray
from ..arrays.host_copies import host_copy
from ..errors import ArgumentError
from ..poses.levels import is_image
from .arguments import as_array
from .factors import known_factor, ratios_of, whole_factors
from .inputs import is_level, scale_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from .cells import IntArray
    from .factors import Factor

    Mask: TypeAlias = npt.NDArray[np.bool_]

#: Bytes of a mask of NumPy that are looked at together: counting its elements takes several times as many.
_SLAB_BYTES: Final = 8 << 20


def cells_of_mask(
    where: Any,
    size: Sequence[int],
    stride: Sequence[int],
    counts: Sequence[int],
    spacing: Sequence[float] | None = None,
    *,
    with_elements: bool = False,
) -> tuple[IntArray, IntArray | None] | None:
    """Return the cells of a grid that have a true element, and such an element of each; None if it is no mask.

    Parameters
    ----------
    where
        Mask of the grid's shape, or of that of the array, or of one that is smaller by whole factors: of NumPy; an
        array of gzarr, of booleans or of labels, which is read in slabs; or an image of labels, of which level 0 is
        taken, or a level of one. Images whose scales tell it may also be larger by whole factors. Axes of length 1
        before the axes of the grid are left out.
    size
        Elements of the array along each axis of the grid.
    stride, counts
        Elements of a cell along each axis, and number of cells.
    spacing
        Distances of the array's elements along the axes of the grid; None if they are not known.
    with_elements
        Whether elements are returned: the middle one of each cell. A mask of the grid's shape tells none.

    Returns
    -------
    The cells, int64 ``(n, k)``, and elements of the array, likewise, or None.

    Raises
    ------
    ArgumentError
        If it is a mask of another shape, or of one that several factors explain.
    """
    ratios = None
    if is_image(where) or is_level(where):
        ratios = ratios_of(spacing, scale_of(where))
        where = where.level(0) if is_image(where) else where.array
    k = len(counts)
    if not isinstance(where, ExportedArray):
        where = as_array("where", where)
        if where.dtype != bool:
            return None
        shape = where.shape
    else:
        extra = max(where.ndim - k, 0)
        shape = where.shape[extra:] if set(where.shape[:extra]) <= {1} else where.shape
    factors: Sequence[Factor] = (0,)
    if shape == tuple(counts) and not _is_known(size, shape, ratios):
        factors, with_elements = stride, False
    elif len(shape) == k:
        factors = whole_factors("the mask where=", size, shape, ratios)
    if not all(factors):
        raise ArgumentError(
            f"the mask where= has shape {shape}, neither the grid's {tuple(counts)} nor {tuple(size)}, nor a shape "
            "that is smaller by whole factors"
        )
    parts: list[_Reduced] = []
    for slab in _slabs(where, k, in_parts=with_elements):
        reduced = _Reduced(slab, [] if with_elements else None)
        for axis in range(1, k):
            reduced = reduced.along(axis, factors[axis], stride[axis], counts[axis])
        parts.append(reduced)
    nowhere = [np.empty((0, *counts[1:]), np.int32)] * (k - 1)
    empty = _Reduced(np.empty((0, *counts[1:]), bool), nowhere if with_elements else None)
    whole = _Reduced.joined(parts, k - 1) if parts else empty
    whole = whole.along(0, factors[0], stride[0], counts[0])
    cells = np.argwhere(whole.mask)
    if whole.places is None:
        return cells, None
    # Along axis 0 is the last one.
    *others, first = whole.places
    found = np.stack([place[whole.mask] for place in (first, *others)], axis=1)
    begin = cells * np.array(stride)
    elements = np.empty_like(cells)
    for d, factor in enumerate(factors):
        # In the middle of what an element of the mask stands for.
        middle = (2 * found[:, d].astype(np.int64) + 1) * factor.numerator // (2 * factor.denominator)
        elements[:, d] = np.clip(middle, begin[:, d], np.minimum(begin[:, d] + stride[d], size[d]) - 1)
    return cells, elements


def _is_known(size: Sequence[int], shape: Sequence[int], ratios: Sequence[float] | None) -> bool:
    """Return whether scales tell what an element of a mask stands for, along each axis."""
    return ratios is not None and all(known_factor(*each) for each in zip(size, shape, ratios, strict=True))


def _slabs(where: Any, k: int, *, in_parts: bool) -> Iterator[Mask]:
    """Yield a mask in pieces along its first axis; one of NumPy as it is, unless ``in_parts``."""
    if not isinstance(where, ExportedArray):
        length = max(_SLAB_BYTES * len(where) // max(where.nbytes, 1), 1) if in_parts else max(len(where), 1)
        for begin in range(0, len(where), length):
            yield where[begin : begin + length]
        return
    extra = where.ndim - k
    length = where.chunks[extra]
    for begin in range(0, where.shape[extra], length):
        found: Any = where[(*(0,) * extra, slice(begin, begin + length))]
        found = np.asarray(host_copy(found) if hasattr(found, "get") else found)
        yield found if found.dtype == bool else found != 0


@dataclass(frozen=True)
class _Reduced:
    """A mask of which some axes have one element for each cell.

    Attributes
    ----------
    mask
        Whether there is a true element.
    places
        For each of these axes, in the order in which they were reduced: where it is along the axis, int32 of the mask's
        shape. Of several true elements, the middle one. None if it is not wanted.
    """

    mask: Mask
    places: list[npt.NDArray[np.int32]] | None

    @classmethod
    def joined(cls, parts: Sequence[_Reduced], axes: int) -> _Reduced:
        """Join pieces along the first axis, each of which has ``axes`` reduced ones."""
        mask = np.concatenate([part.mask for part in parts])
        if any(part.places is None for part in parts):
            return cls(mask, None)
        return cls(mask, [np.concatenate([part.places[i] for part in parts if part.places]) for i in range(axes)])

    def along(self, axis: int, factor: Factor, stride: int, count: int) -> _Reduced:
        """Reduce an axis.

        Parameters
        ----------
        axis
            The axis.
        factor
            Elements of the array that one of the mask stands for.
        stride, count
            Elements of a cell, and number of cells.
        """
        edges = stride * factor.denominator * np.arange(count + 1)
        begins = edges[:-1] // factor.numerator
        ends = np.minimum(-(-edges[1:] // factor.numerator), self.mask.shape[axis])
        shape = (*self.mask.shape[:axis], count, *self.mask.shape[axis + 1 :])
        result = np.empty(shape, bool)
        places = None if self.places is None else [np.zeros(shape, np.int32) for _ in range(len(self.places) + 1)]
        before: Any = (slice(None),) * axis
        for i, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            inside = (*before, slice(begin, end))
            mask = self.mask[inside]
            result[(*before, i)] = mask.any(axis=axis)
            if places is None or self.places is None or begin >= end:
                continue
            so_far = mask.cumsum(axis=axis, dtype=np.int32)
            half = (so_far.take([-1], axis=axis) - 1) // 2
            middle = (so_far > half).argmax(axis=axis)
            for place, known in zip(places, self.places, strict=False):
                at = np.take_along_axis(known[inside], np.expand_dims(middle, axis), axis)
                place[(*before, i)] = at.squeeze(axis)
            places[-1][(*before, i)] = begin + middle
        return _Reduced(result, places)
