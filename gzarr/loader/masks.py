"""Masks that say which patches are samples, at any resolution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..arrays.exporting import ExportedArray
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


def cells_of_mask(
    where: Any,
    size: Sequence[int],
    stride: Sequence[int],
    counts: Sequence[int],
    spacing: Sequence[float] | None = None,
) -> IntArray | None:
    """Return the cells of a grid that have a true element, int64 ``(n, k)``; None if ``where`` is no mask.

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
        factors = stride
    elif len(shape) == k:
        factors = whole_factors("the mask where=", size, shape, ratios)
    if not all(factors):
        raise ArgumentError(
            f"the mask where= has shape {shape}, neither the grid's {tuple(counts)} nor {tuple(size)}, nor a shape "
            "that is smaller by whole factors"
        )
    parts = []
    for slab in _slabs(where, k):
        reduced = slab
        for axis in range(1, k):
            reduced = _reduced(reduced, axis, factors[axis], stride[axis], counts[axis])
        parts.append(reduced)
    whole = np.concatenate(parts) if parts else np.empty((0, *counts[1:]), bool)
    return np.argwhere(_reduced(whole, 0, factors[0], stride[0], counts[0]))


def _is_known(size: Sequence[int], shape: Sequence[int], ratios: Sequence[float] | None) -> bool:
    """Return whether scales tell what an element of a mask stands for, along each axis."""
    return ratios is not None and all(known_factor(*each) for each in zip(size, shape, ratios, strict=True))


def _slabs(where: Any, k: int) -> Iterator[Mask]:
    """Yield a mask in pieces along its first axis."""
    if not isinstance(where, ExportedArray):
        yield where
        return
    extra = where.ndim - k
    length = where.chunks[extra]
    for begin in range(0, where.shape[extra], length):
        found: Any = where[(*(0,) * extra, slice(begin, begin + length))]
        found = np.asarray(found.get() if hasattr(found, "get") else found)
        yield found if found.dtype == bool else found != 0


def _reduced(mask: Mask, axis: int, factor: Factor, stride: int, count: int) -> Mask:
    """Return whether cells along an axis have a true element.

    Parameters
    ----------
    mask, axis
        The mask, and the axis.
    factor
        Elements of the array that one of the mask stands for.
    stride, count
        Elements of a cell, and number of cells.
    """
    edges = stride * factor.denominator * np.arange(count + 1)
    begins = edges[:-1] // factor.numerator
    ends = np.minimum(-(-edges[1:] // factor.numerator), mask.shape[axis])
    result = np.empty((*mask.shape[:axis], count, *mask.shape[axis + 1 :]), bool)
    before: Any = (slice(None),) * axis
    for i, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
        result[(*before, i)] = mask[(*before, slice(begin, end))].any(axis=axis)
    return result
