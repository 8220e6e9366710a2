"""Measurements of labelled objects: one pass over the blocks, whose tables are merged.

Sums of elements and of coordinates are merged, not means: for integers they are exact below 2⁵³. Deviations are summed
from an element of the object in each block, so that a small deviation of large numbers keeps its digits; from the mean,
where the sum would be beyond float64. Infinite elements have no differences (NaN): of objects that have some, the
extremes tell the mean.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from gzarr_kernels.slots import regions as R

from ..choices import choice
from ..dtypes.properties import native
from ..errors import ArgumentError
from ..flags import check_flags
from ..installing import COMMANDS
from ..real_numbers import is_positive
from ..sparse.view import DenseView
from ..windows.inputs import KINDS, array_of
from .arguments import background_of, each
from .calls import DEFAULT_BUDGET_BYTES, CallOptions, plan_call
from .components import bits_of
from .regions import regions_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ..windows.inputs import AnyArray, Input
    from .blocks import Block
    from .lengths import Lengths

#: Numbers times two to the power of this one do not add up to more than float64 can be.
_SMALLER: Final = -64
_WANTED: Final = f"measure takes labels and images: each is {KINDS}"


def measure(
    labels: Input,
    *images: Input,
    spacing: float | Sequence[float] = 1,
    background: int = 0,
    like: Literal["numpy", "pandas"] = "numpy",
    block: Lengths = "auto",
    progress: bool = False,
    budget_bytes: int = DEFAULT_BUDGET_BYTES,
    client: Any = None,
) -> Any:
    """Measure labelled objects, block after block.

    Parameters
    ----------
    labels
        Labels, integers, as an input of :func:`gzarr.map_blocks`.
    *images
        Images of the same shape, of integers, booleans or floats of 32 or 64 bits; or with one more axis before the
        others, of channels.
    spacing
        Length of an element along each axis or all of them: areas and centroids are in its units, boxes in elements.
    background
        The value that is no object. All others are labels of objects, negative ones too, which scikit-image leaves out.
    like
        ``"numpy"`` for a structured array, ``"pandas"`` for a DataFrame.
    block, progress, budget_bytes, client
        As for :func:`gzarr.map_blocks`. Beside the budget, this process needs the table a few times.

    Returns
    -------
    A row for each object, in the order of labels, with the columns of ``skimage.measure.regionprops_table``: ``label``
    (of the labels' data type); ``area``, of all elements together (float64); ``bbox-0``, …, the begin along each axis,
    then the end along each (int64); ``centroid-0``, … (float64); and of images ``intensity_mean``, ``intensity_std``,
    ``intensity_min`` and ``intensity_max`` (float64), with ``-0``, ``-1``, … if there are several images or channels.

    Raises
    ------
    NodeNotFoundError, NodeTypeError, MetadataError, ChunkError, StoreError
        If an array cannot be opened or read.
    ArgumentError
        If an argument is wrong.

    Examples
    --------
    >>> import gzarr
    >>> import numpy as np
    >>> table = gzarr.blocks.measure(np.array([[1, 1, 0], [0, 2, 2]]), np.array([[1, 3, 9], [9, 5, 5]]))
    >>> table["label"], table["intensity_mean"], table["centroid-1"]
    (array([1, 2]), array([2., 5.]), array([0.5, 1.5]))
    """
    choice("like", like, ("numpy", "pandas"))
    check_flags(progress=progress)
    opened = array_of(labels, "cpu", _WANTED)
    ndim, dtype = opened.ndim, native(opened.dtype)
    if dtype.kind not in "iu" or not ndim:
        raise ArgumentError(f"{opened.name} has elements of {dtype}, shape {opened.shape}; labels are integers")
    spacings = each(spacing, ndim, "spacing", is_positive, "lengths above 0")
    background = int(background_of(background, dtype))
    channels: list[AnyArray] = []
    have_channels = False
    for image in images:
        array = array_of(image, "cpu", _WANTED)
        if array.shape[1:] == opened.shape and array.ndim == ndim + 1 and not isinstance(array, DenseView):
            channels += [array.view[i] for i in range(array.shape[0])]
            have_channels = True
        elif array.shape == opened.shape:
            channels.append(array)
        else:
            raise ArgumentError(
                f"{array.name} has shape {array.shape}; images have the shape of the labels, {opened.shape}, or one "
                "more axis before these, of channels"
            )
        found = native(array.dtype)
        if found.kind != "b" and f"{found.kind}{found.itemsize}" not in R.KINDS:
            raise ArgumentError(
                f"{array.name} has elements of {found}; images are of integers, or of float32 or float64"
            )
    options = CallOptions(block=block, device="cpu", budget_bytes=budget_bytes)
    call = plan_call([opened, *channels], [], options, takes=_WANTED)
    merging = _Merging(ndim, len(channels))
    work = call.work(_Measuring(background), reduces=True, in_order=True)
    executor = call.executor(client, work)
    if 0 not in opened.shape:
        with closing(work.values(None, executor, progress=progress)) as values:
            for number, table in values:
                merging.add(number, table)
    several = have_channels or len(channels) > 1
    return _records(merging.table(), dtype, spacings, several=several, like=like)


@dataclass(frozen=True, eq=False)
class _Table:
    """What is known of labels, ascending.

    Attributes
    ----------
    labels
        Their bits, uint64 ``(n,)``.
    areas
        Number of elements, int64 ``(n,)``.
    sums, boxes
        Sums of coordinates, int64 ``(n, ndim)``, and begin and end along each axis, int64 ``(n, ndim, 2)``.
    shifts, totals, squares
        Of each image an element or the mean, the sum of the differences to it, and of the squares of the differences to
        the mean, float64 ``(images, n)``.
    least, most
        Extremes, float64 ``(images, n)``.
    """

    labels: npt.NDArray[np.uint64]
    areas: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.int64]
    shifts: npt.NDArray[np.float64]
    totals: npt.NDArray[np.float64]
    squares: npt.NDArray[np.float64]
    least: npt.NDArray[np.float64]
    most: npt.NDArray[np.float64]

    @property
    @np.errstate(invalid="ignore", over="ignore")
    def means(self) -> npt.NDArray[np.float64]:
        """Means of the elements of each image, float64 ``(images, n)``."""
        n = self.areas.astype(np.float64)
        found = (self.shifts * n + self.totals) / n
        found = np.where(np.isfinite(found), found, self.shifts + self.totals / n)
        return np.where(_are_finite(self.least, self.most), found, self.least + self.most)

    @np.errstate(invalid="ignore", over="ignore")
    def merged(self, other: _Table) -> _Table:
        """Return the table of both."""
        labels = np.union1d(self.labels, other.labels)
        own, theirs = np.searchsorted(labels, self.labels), np.searchsorted(labels, other.labels)
        n, ndim, images = len(labels), self.sums.shape[1], len(self.totals)
        areas, sums = np.zeros(n, np.int64), np.zeros((n, ndim), np.int64)
        boxes = np.empty((n, ndim, 2), np.int64)
        boxes[..., 0], boxes[..., 1] = np.iinfo(np.int64).max, 0
        shifts, totals, squares = (np.zeros((images, n)) for _ in range(3))
        least, most = np.full((images, n), np.inf), np.full((images, n), -np.inf)
        # Of those that both have, what their means differ by.
        _, a, b = np.intersect1d(self.labels, other.labels, assume_unique=True, return_indices=True)
        n_a, n_b = self.areas[a].astype(np.float64), other.areas[b].astype(np.float64)
        shift = other.shifts[:, b] - self.shifts[:, a]
        apart = shift + (other.totals[:, b] / n_b - self.totals[:, a] / n_a)
        squares[:, own[a]] = apart**2 * (n_a * n_b / (n_a + n_b))
        totals[:, own[a]] = n_b * shift
        shifts[:, theirs], shifts[:, own] = other.shifts, self.shifts
        for at, table in ((own, self), (theirs, other)):
            areas[at] += table.areas
            sums[at] += table.sums
            boxes[at, :, 0] = np.minimum(boxes[at, :, 0], table.boxes[..., 0])
            boxes[at, :, 1] = np.maximum(boxes[at, :, 1], table.boxes[..., 1])
            totals[:, at] += table.totals
            squares[:, at] += table.squares
            least[:, at] = np.minimum(least[:, at], table.least)
            most[:, at] = np.maximum(most[:, at], table.most)
        beyond = np.zeros((images, n), bool)
        beyond[:, own[a]] = ~np.isfinite(totals[:, own[a]])
        beyond &= _are_finite(least, most)
        if beyond.any():
            means = np.zeros((images, n))
            for at, table in ((own, self), (theirs, other)):
                means[:, at] += table.means * (table.areas / areas[at])
            shifts, totals = np.where(beyond, means, shifts), np.where(beyond, 0, totals)
        return _Table(labels, areas, sums, boxes, shifts, totals, squares, least, most)


def _are_finite(least: npt.NDArray[Any], most: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return whether all elements are, of which these are the extremes."""
    found: npt.NDArray[np.bool_] = np.isfinite(least) & np.isfinite(most)
    return found


@dataclass(frozen=True, eq=False)
class _Measuring:
    """Measures the labels of a block.

    Attributes
    ----------
    background
        The value that is no label.
    """

    background: int

    @np.errstate(invalid="ignore", over="ignore")
    def __call__(self, labels: npt.NDArray[Any], *images: npt.NDArray[Any], block_info: Block) -> _Table:
        """Return the table of a block."""
        found = regions_of(labels, self.background, images)
        begins = np.array([s.start for s in block_info.box], np.int64)
        n = found.areas.astype(np.float64)
        shift, total, squares = (found.images[..., i] for i in (R.SHIFT, R.SUM, R.SQUARES))
        least, most = found.images[..., R.LEAST], found.images[..., R.MOST]
        is_finite = _are_finite(least, most)
        of_mean = total**2 / n
        of_mean = np.where(np.isfinite(of_mean), of_mean, total * (total / n))
        # Sums of squares that are beyond float64 stay so.
        squares = np.where(is_finite & ~np.isfinite(squares), np.inf, np.maximum(squares - of_mean, 0))
        beyond = is_finite & ~np.isfinite(total)
        if beyond.any():
            means = [_means(labels, found.labels, image) for image in images]
            shift, total = np.where(beyond, means, shift), np.where(beyond, 0, total)
        return _Table(
            found.labels,
            found.areas,
            found.sums + found.areas[:, None] * begins,
            found.boxes + begins[:, None],
            shift,
            total,
            squares,
            least,
            most,
        )


def _means(labels: npt.NDArray[Any], found: npt.NDArray[np.uint64], image: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the mean of the elements with each label, whose sum may be beyond float64."""
    bits = bits_of(labels).ravel().astype(np.uint64)
    at = np.minimum(np.searchsorted(found, bits), len(found) - 1)
    is_object = found[at] == bits
    values = np.ldexp(image.ravel()[is_object].astype(np.float64), _SMALLER)
    n = np.bincount(at[is_object], minlength=len(found))
    return np.ldexp(np.bincount(at[is_object], values, len(found)) / n, -_SMALLER)


class _Merging:
    """Merges the tables of blocks, in their order, tables of like sizes first: each row is merged few times.

    Parameters
    ----------
    ndim, images
        Number of axes, and of images.
    """

    def __init__(self, ndim: int, images: int) -> None:
        whole, part = np.zeros(0, np.int64), np.zeros((images, 0))
        boxes = np.zeros((0, ndim, 2), np.int64)
        self._empty = _Table(whole.astype(np.uint64), whole, boxes[..., 0], boxes, part, part, part, part, part)
        self._merged: list[_Table] = []
        self._waiting: dict[int, _Table] = {}
        self._next = 0

    def add(self, number: int, table: _Table) -> None:
        """Add the table of a block; those that come before their turn wait."""
        self._waiting[number] = table
        while self._next in self._waiting:
            self._merged.append(self._waiting.pop(self._next))
            self._next += 1
            while len(self._merged) > 1 and len(self._merged[-2].labels) <= 2 * len(self._merged[-1].labels):
                self._merge_last()

    def _merge_last(self) -> None:
        last = self._merged.pop()
        self._merged[-1] = self._merged[-1].merged(last)

    def table(self) -> _Table:
        """Return the table of all blocks."""
        while len(self._merged) > 1:
            self._merge_last()
        return self._merged[0] if self._merged else self._empty


def _records(table: _Table, dtype: np.dtype[Any], spacings: Sequence[Any], *, several: bool, like: str) -> Any:
    """Return a table as NumPy records or as a DataFrame."""
    ndim, images = len(spacings), len(table.totals)
    labels = table.labels.astype(f"u{dtype.itemsize}").view(dtype)
    order = np.argsort(labels)
    n = table.areas.astype(np.float64)
    columns: dict[str, npt.NDArray[Any]] = {"label": labels, "area": n * float(np.prod([float(x) for x in spacings]))}
    for side in (0, 1):
        for d in range(ndim):
            columns[f"bbox-{side * ndim + d}"] = table.boxes[:, d, side]
    for d, length in enumerate(spacings):
        columns[f"centroid-{d}"] = table.sums[:, d] / n * float(length)
    each_image = (
        ("mean", table.means),
        ("std", np.sqrt(table.squares / n)),
        ("min", table.least),
        ("max", table.most),
    )
    for name, values in each_image:
        for i in range(images):
            columns[f"intensity_{name}-{i}" if several else f"intensity_{name}"] = values[i]
    columns = {name: values[order] for name, values in columns.items()}
    if like == "numpy":
        records = np.empty(len(labels), [(name, values.dtype) for name, values in columns.items()])
        for name, values in columns.items():
            records[name] = values
        return records
    try:
        import pandas as pd
    except ImportError as error:
        raise ArgumentError(f"like='pandas' needs pandas, which is not installed: {COMMANDS['pandas']}") from error
    return pd.DataFrame(columns)
