"""Resampling in host memory, by the compiled kernel ``gzarr_kernels.affine``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.slots import affine as s

from ..engines import kernels, pool
from ..engines.kernels import address

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from .maps import AffineMap

#: A thread more for each so many elements of results.
_WORKER_ELEMENTS: Final = 1 << 15
#: Turns of each thread, so that rows at the edges, which take longer, are shared evenly.
_TURNS: Final = 16


@dataclass(frozen=True, eq=False)
class Posed:
    """One result, and the box that it is made from.

    Attributes
    ----------
    box
        Elements of an array ``(n, …)`` along ``k`` axes, not empty, at addresses that are multiples of their size.
    low
        First element of the box in the array, along each axis.
    size
        Shape of the array, along these axes.
    affine
        The map, of ``k`` axes.
    target
        Array of the result.
    fill
        What stands beyond the ends of the array.
    """

    box: npt.NDArray[Any]
    low: Sequence[int]
    size: Sequence[int]
    affine: AffineMap
    target: npt.NDArray[Any]
    fill: Any


def is_number(dtype: np.dtype[Any]) -> bool:
    """Return whether elements of a dtype can be interpolated by the kernel."""
    return dtype.isnative and f"{dtype.kind}{dtype.itemsize}" in s.KINDS


def resample(posed: Sequence[Posed], order: int, mode: str) -> None:
    """Make results of one shape and dtype, from boxes of one dtype.

    Parameters
    ----------
    posed
        The results and their boxes.
    order
        0: elements are copied, and the results have their dtype; 1: linear; 3: of coefficients of cubic splines.
    mode
        ``"constant"`` or one of :data:`gzarr.windows.boundary.MODES`.
    """
    if not posed or not posed[0].target.size:
        return
    source, target = posed[0].box, posed[0].target
    # Axes before the map's have the length 1.
    k = source.ndim
    first = 3 - k
    job = np.zeros(s.SIZE, np.int64)
    job[s.ORDER], job[s.MODE], job[s.AXES] = order, s.MODES.index(mode), k
    job[s.ITEMSIZE] = source.dtype.itemsize
    if order:
        job[s.SOURCE_KIND], job[s.TARGET_KIND] = (
            s.KINDS.index(f"{array.dtype.kind}{array.dtype.itemsize}") for array in (source, target)
        )
    job[s.SHAPE : s.SHAPE + 3] = (*(1,) * first, *target.shape)
    job[s.TARGET_STRIDES + first : s.TARGET_STRIDES + 3] = target.strides
    table = np.zeros((len(posed), s.POSE_SIZE), np.int64)
    floats = table.view(np.float64)
    fills = np.array([one.fill for one in posed], np.float64 if order else source.dtype)
    table[:, s.LENGTH : s.LENGTH + 3] = table[:, s.ARRAY : s.ARRAY + 3] = 1
    table[:, s.FILL] = address(fills) + np.arange(len(posed)) * fills.itemsize
    for i, one in enumerate(posed):
        row = table[i]
        row[s.SOURCE], row[s.TARGET] = address(one.box), address(one.target)
        row[s.STRIDES + first : s.STRIDES + 3] = [stride // one.box.itemsize for stride in one.box.strides]
        row[s.LOW + first : s.LOW + 3] = one.low
        row[s.LENGTH + first : s.LENGTH + 3] = one.box.shape
        row[s.ARRAY + first : s.ARRAY + 3] = one.size
        matrix = np.zeros((3, 3))
        matrix[first:, first:] = one.affine.matrix
        floats[i, s.MATRIX : s.MATRIX + 9] = matrix.ravel()
        floats[i, s.OFFSET + first : s.OFFSET + 3] = one.affine.offset
    rows = len(posed) * math.prod(job[s.SHAPE : s.SHAPE + 2].tolist())
    workers = max(1, min(pool.thread_count(), rows, rows * int(job[s.SHAPE + 2]) // _WORKER_ELEMENTS))
    per_turn = -(-rows // (1 if workers == 1 else min(rows, _TURNS * workers)))
    turns = -(-rows // per_turn)
    shared = np.zeros(2, np.int64)
    job[s.POSES], job[s.SHARED] = address(table), address(shared)
    job[s.ROWS], job[s.TURNS], job[s.PER_TURN] = rows, turns, per_turn
    kernels.run(kernels.entry("affine", "resample"), address(job), shared, turns, workers)
