"""Measurements of labelled objects: one pass over the blocks, whose tables are merged.

Sums of elements and of coordinates are merged, not means, and with what their rounding leaves out: for integers they
are exact below 2⁵³, whatever they are summed from. Squares of the differences to the mean are merged by the difference
of two means, which has more digits than these. Where a sum is beyond float64, means are merged. Of objects that have
infinite elements, the extremes tell the mean.
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
#: Numbers times this one, less what that adds, have their upper half of digits.
_SPLIT: Final = 134217729.0
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
    totals, rests
        Of each image the sum of the elements, and what its rounding has left out, float64 ``(images, n)``; not finite
        where the sum is beyond float64, or elements are not finite.
    means
        Of each image the mean, float64 ``(images, n)``; undefined where elements are not finite.
    squares
        Of each image the sum of the squares of the differences to the mean, float64 ``(images, n)``.
    least, most
        Extremes, float64 ``(images, n)``.
    """

    labels: npt.NDArray[np.uint64]
    areas: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]
    boxes: npt.NDArray[np.int64]
    totals: npt.NDArray[np.float64]
    rests: npt.NDArray[np.float64]
    means: npt.NDArray[np.float64]
    squares: npt.NDArray[np.float64]
    least: npt.NDArray[np.float64]
    most: npt.NDArray[np.float64]

    def rests_of_means(self, at: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return what the rounding of the means of some labels has left out, 0 where it is not known."""
        n, means = self.areas[at].astype(np.float64), self.means[:, at]
        # The product of both, without rounding: the upper half of the digits of each times the lower one of the other.
        high_mean, high_n = (x * _SPLIT - (x * _SPLIT - x) for x in (means, n))
        low_mean, low_n = means - high_mean, n - high_n
        product = means * n
        left_out = ((high_mean * high_n - product) + high_mean * low_n + low_mean * high_n) + low_mean * low_n
        found = ((self.totals[:, at] - product) - left_out + self.rests[:, at]) / n
        return np.where(np.isfinite(found), found, 0)

    @np.errstate(invalid="ignore", over="ignore")
    def merged(self, other: _Table) -> _Table:
        """Return the table of both."""
        labels = np.union1d(self.labels, other.labels)
        own, theirs = np.searchsorted(labels, self.labels), np.searchsorted(labels, other.labels)
        n, ndim, images = len(labels), self.sums.shape[1], len(self.totals)
        areas, sums = np.zeros(n, np.int64), np.zeros((n, ndim), np.int64)
        boxes = np.empty((n, ndim, 2), np.int64)
        boxes[..., 0], boxes[..., 1] = np.iinfo(np.int64).max, 0
        totals, rests, means, squares = (np.zeros((images, n)) for _ in range(4))
        least, most = np.full((images, n), np.inf), np.full((images, n), -np.inf)
        for at, table in ((own, self), (theirs, other)):
            areas[at] += table.areas
            sums[at] += table.sums
            boxes[at, :, 0] = np.minimum(boxes[at, :, 0], table.boxes[..., 0])
            boxes[at, :, 1] = np.maximum(boxes[at, :, 1], table.boxes[..., 1])
            rests[:, at] += table.rests
            means[:, at], totals[:, at] = table.means, table.totals
            squares[:, at] += table.squares
            least[:, at] = np.minimum(least[:, at], table.least)
            most[:, at] = np.maximum(most[:, at], table.most)
        # Those that both have.
        _, a, b = np.intersect1d(self.labels, other.labels, assume_unique=True, return_indices=True)
        both = own[a]
        n_a, n_b, count = (x.astype(np.float64) for x in (self.areas[a], other.areas[b], areas[both]))
        apart = (other.means[:, b] - self.means[:, a]) + (other.rests_of_means(b) - self.rests_of_means(a))
        squares[:, both] += apart**2 * (n_a * n_b / count)
        one, two = self.totals[:, a], other.totals[:, b]
        total = one + two
        part = total - one
        totals[:, both] = total
        rests[:, both] += (one - (total - part)) + (two - part)
        found = (total + rests[:, both]) / count
        weighted = self.means[:, a] * (n_a / count) + other.means[:, b] * (n_b / count)
        # Of large numbers that are alike, it is one of them.
        weighted = np.clip(weighted, least[:, both], most[:, both])
        means[:, both] = np.where(np.isfinite(found), found, weighted)
        return _Table(labels, areas, sums, boxes, totals, rests, means, squares, least, most)


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
        total, rest, squares = (found.images[..., i] for i in (R.SUM, R.REST, R.SQUARES))
        least, most = found.images[..., R.LEAST], found.images[..., R.MOST]
        means = (total + rest) / n
        is_finite = _are_finite(least, most)
        if (is_finite & ~(np.isfinite(means) & np.isfinite(squares))).any():
            for i, image in enumerate(images):
                beyond = is_finite[i] & ~(np.isfinite(means[i]) & np.isfinite(squares[i]))
                if beyond.any():
                    means[i], of_all = _means_and_squares(labels, found.labels, image, means[i], least[i], most[i])
                    squares[i] = np.where(beyond, of_all, squares[i])
        squares = np.where(is_finite, np.maximum(squares, 0), np.nan)
        return _Table(
            found.labels,
            found.areas,
            found.sums + found.areas[:, None] * begins,
            found.boxes + begins[:, None],
            total,
            rest,
            means,
            squares,
            least,
            most,
        )


def _means_and_squares(
    labels: npt.NDArray[Any],
    found: npt.NDArray[np.uint64],
    image: npt.NDArray[Any],
    known: npt.NDArray[np.float64],
    least: npt.NDArray[np.float64],
    most: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the means of the elements with each label, those that are known where finite, and the squares."""
    bits = bits_of(labels).ravel().astype(np.uint64)
    at = np.minimum(np.searchsorted(found, bits), len(found) - 1)
    is_object = found[at] == bits
    at, values = at[is_object], image.ravel()[is_object].astype(np.float64)
    sums = np.bincount(at, np.ldexp(values, _SMALLER), len(found))
    means = np.ldexp(sums / np.bincount(at, minlength=len(found)), -_SMALLER)
    means = np.where(np.isfinite(known), known, np.clip(means, least, most))
    squares: Any = np.bincount(at, (values - means[at]) ** 2, len(found))
    return means, squares


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
        self._empty = _Table(whole.astype(np.uint64), whole, boxes[..., 0], boxes, part, part, part, part, part, part)
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


@np.errstate(invalid="ignore", over="ignore")
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
        ("mean", np.where(_are_finite(table.least, table.most), table.means, table.least + table.most)),
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
