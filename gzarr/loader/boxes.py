"""Boxes around samples that overlap, which take less memory than the samples one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from .cells import Cells
    from .reading import Source
    from .samples import Samples

    IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes around windows of one shape.

    Attributes
    ----------
    low, high
        int64 ``(boxes, ndim)``, first element and end of each box.
    which
        int64 ``(n,)``, the box of each window.
    """

    low: IntArray
    high: IntArray
    which: IntArray

    @classmethod
    def of(cls, starts: IntArray, shape: Sequence[int], keys: IntArray) -> Boxes:
        """Return one box for all windows of a key, or one for each of them if these are smaller together.

        Parameters
        ----------
        starts
            int64 ``(n, ndim)``, first element of each window.
        shape
            Shape of a window.
        keys
            int64 ``(n,)``.
        """
        _, which, counts = np.unique(keys, return_inverse=True, return_counts=True)
        order = np.argsort(which, kind="stable")
        begins = np.cumsum(counts) - counts
        low = np.minimum.reduceat(starts[order], begins, axis=0)
        high = np.maximum.reduceat(starts[order], begins, axis=0) + np.array(shape)
        loose = (high - low).prod(axis=1) > counts * math.prod(shape)
        if not loose.any():
            return cls(low, high, which)
        apart = np.where(loose[which], len(counts) + np.arange(len(which)), which)
        return cls.of(starts, shape, apart)

    @property
    def selections(self) -> list[tuple[slice, ...]]:
        """Each box as a selection."""
        return [tuple(map(slice, low, high)) for low, high in zip(self.low.tolist(), self.high.tolist(), strict=True)]

    @property
    def size(self) -> int:
        """Elements of all boxes."""
        return int((self.high - self.low).prod(axis=1).sum())


def runs_of(starts: IntArray, source: Source) -> IntArray:
    """Return for each window along one axis which run of windows without a gap it is in."""
    moved = source.part.axes.index(0)
    along = starts[:, moved]
    order = np.argsort(along, kind="stable")
    gaps = np.diff(along[order], prepend=along[order[:1]]) > source.read_shape[moved]
    result = np.empty(len(along), np.int64)
    result[order] = np.cumsum(gaps)
    return result


def group_bytes(samples: Samples, sources: Sequence[Source], cells: Cells) -> IntArray:
    """Return the most bytes of the boxes of each group, int64 ``(groups,)``."""
    low, high = samples.spans(cells)
    counts = np.diff(cells.offsets)
    result = np.zeros(len(counts), np.int64)
    for source in sources:
        shape, windows = np.array(source.read_shape), source.part.windows
        first, last = (source.inside(at).reshape(len(counts), windows, len(shape)) for at in (low, high))
        box = (last.max(axis=1) - first.min(axis=1) + shape).prod(axis=1)
        result += np.minimum(box, counts * windows * shape.prod()) * source.array.dtype.itemsize
    return result
