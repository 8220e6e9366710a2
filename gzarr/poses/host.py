"""Resampling in host memory, by the compiled kernel ``gzarr_kernels.affine``, and jobs for it and for devices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.slots import affine as s

from ..dtypes.properties import native
from ..engines import kernels, pool
from ..engines.kernels import address

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from .maps import AffineMap

    IntArray = npt.NDArray[np.int64]

#: Elements of results for each thread.
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


def described(
    posed: Sequence[Posed], order: int, mode: str, address: Callable[[Any], int]
) -> tuple[IntArray, IntArray, npt.NDArray[Any]]:
    """Return what a kernel is told of results of one shape and dtype, from boxes of one dtype.

    Parameters
    ----------
    posed
        The results and their boxes, at least one.
    order, mode
        As for :meth:`Host.resample`.
    address
        Returns the address of an array's first element.

    Returns
    -------
    job, table
        int64, as in ``gzarr_kernels.slots.affine``, without what is of the host only, and without FILL and POSES.
    fills
        The constant of each result, in the dtype that the kernel takes.
    """
    source, target = posed[0].box, posed[0].target
    # Axes before the map's have the length 1.
    k = source.ndim
    first = 3 - k
    job = np.zeros(s.SIZE, np.int64)
    job[s.ORDER], job[s.MODE], job[s.AXES] = order, s.MODES.index(mode), k
    job[s.ITEMSIZE] = source.dtype.itemsize
    copies = not order and source.dtype == target.dtype
    job[s.SOURCE_KIND], job[s.TARGET_KIND] = (
        -1 if copies else s.KINDS.index(f"{array.dtype.kind}{array.dtype.itemsize}") for array in (source, target)
    )
    job[s.SHAPE : s.SHAPE + 3] = (*(1,) * first, *target.shape)
    job[s.TARGET_STRIDES + first : s.TARGET_STRIDES + 3] = target.strides
    job[s.ROWS] = len(posed) * math.prod(job[s.SHAPE : s.SHAPE + 2].tolist())
    table = np.zeros((len(posed), s.POSE_SIZE), np.int64)
    floats = table.view(np.float64)
    table[:, s.LENGTH : s.LENGTH + 3] = table[:, s.ARRAY : s.ARRAY + 3] = 1
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
    return job, table, np.array([one.fill for one in posed], source.dtype if copies else np.float64)


class Host:
    """Arrays in host memory."""

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """Return elements in another dtype, by the rules of NumPy."""
        return array.astype(dtype, copy=False)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array."""
        return np.empty(shape, dtype)

    def made(self, order: int, source: np.dtype[Any], target: Any) -> Any:
        """Return what the kernel makes for a target: the target if it can, or an array to be stored in it."""
        final = native(target.dtype)
        dtype = source if order == 0 else final if is_number(final) else np.dtype(np.float32)
        return target if dtype == target.dtype else np.empty(target.shape, dtype)

    def store(self, target: Any, values: Any) -> None:
        """Store elements of another dtype."""
        target[...] = converted(values, target.dtype)

    def resample(self, posed: Sequence[Posed], order: int, mode: str) -> None:
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
        job, table, fills = described(posed, order, mode, address)
        table[:, s.FILL] = address(fills) + np.arange(len(posed)) * fills.itemsize
        job[s.POSES] = address(table)
        _run("resample", job, int(job[s.ROWS]) * int(job[s.SHAPE + 2]))

    def filter(self, elements: Any, axes: int) -> None:
        """Make elements the coefficients of cubic splines.

        Parameters
        ----------
        elements
            C-contiguous float64, of any shape.
        axes
            How many of the last axes the splines have. Coefficients near the ends of lines are not exact: what is
            beyond is not known.
        """
        for n, inner, lines in lines_of(elements, axes):
            job = np.zeros(s.SIZE, np.int64)
            job[s.ELEMENTS], job[s.LENGTH_OF_LINE], job[s.INNER], job[s.LINES] = address(elements), n, inner, lines
            job[s.ROWS] = -(-lines // s.GROUP_OF_ROWS) if inner == 1 else lines // inner * -(-inner // s.GROUP_OF_LINES)
            _run("spline", job, n * lines)


def _run(name: str, job: IntArray, elements: int) -> None:
    """Run a kernel over the rows of a job, in more threads for more elements."""
    rows = int(job[s.ROWS])
    workers = max(1, min(pool.thread_count(), rows, elements // _WORKER_ELEMENTS))
    per_turn = -(-rows // (1 if workers == 1 else min(rows, _TURNS * workers)))
    turns = -(-rows // per_turn)
    shared = np.zeros(2, np.int64)
    job[s.SHARED], job[s.TURNS], job[s.PER_TURN] = address(shared), turns, per_turn
    kernels.run(kernels.entry("affine", name), address(job), shared, turns, workers)


def lines_of(elements: Any, axes: int) -> list[tuple[int, int, int]]:
    """Return for each axis of splines the length of its lines, the distance of their elements, and how many there are.

    An axis with one element needs no filter, and none does where there are no elements.
    """
    shape = elements.shape
    return [
        (shape[d], math.prod(shape[d + 1 :]), math.prod(shape) // shape[d])
        for d in range(len(shape) - axes, len(shape))
        if shape[d] > 1 and math.prod(shape)
    ]


def converted(values: Any, dtype: np.dtype[Any]) -> Any:
    """Return elements in another dtype: rounded to integers, ties away from zero, and cut to their range."""
    if values.dtype == dtype:
        return values
    if dtype.kind in "iu" and values.dtype.kind == "f":
        info = np.iinfo(dtype)
        # Halves are added, which smaller floats may not hold.
        values = values.astype(np.float64)
        rounded = np.trunc(values + np.copysign(s.HALF, values))
        cut = np.clip(np.where(np.isnan(values), float(info.min), rounded), float(info.min), float(info.max))
        # The largest integer of 64 bits is no float.
        top = cut >= float(info.max)
        return np.where(top, info.max, np.where(top, 0.0, cut).astype(dtype))
    with np.errstate(over="ignore"):
        return within_range(values, dtype).astype(dtype)


def within_range(values: Any, dtype: np.dtype[Any]) -> Any:
    """Return integers cut to the range of another dtype of integers, in their own; other elements as they are.

    Arrays of a device are cut there, on the current stream.
    """
    if values.dtype.kind not in "iu" or dtype.kind not in "iu" or np.can_cast(values.dtype, dtype, "safe"):
        return values
    own, other = np.iinfo(values.dtype), np.iinfo(dtype)
    return values.clip(max(own.min, other.min), min(own.max, other.max))
