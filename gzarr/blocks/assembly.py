"""Putting windows together from chunks by compiled code, prepared once for all windows that are alike."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from ..engines.cpu.batch import Gathering, Pieces
from ..engines.kernels import address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from .axes import WindowLayout

    Box = tuple[slice, ...]

#: Number of assemblies that are kept, one for each kind of window.
_KEEP: Final = 256
#: An assembly takes some 240 bytes a piece. Those with more pieces (wide halos of repeated elements) are not kept.
_FEW_PIECES: Final = 512


def constant_boxes(layouts: Sequence[WindowLayout]) -> Iterator[tuple[Box, Any]]:
    """Yield the boxes of a window whose elements are all a constant, and its value; the last one wins."""
    whole = tuple(slice(0, layout.length) for layout in layouts)
    for d, layout in enumerate(layouts):
        for begin, end in layout.constants:
            yield (*whole[:d], slice(begin, end), *whole[d + 1 :]), layout.constant


class WindowSource(NamedTuple):
    """An array that windows are put together from.

    Attributes
    ----------
    array
        The array, C-contiguous.
    address
        Where it is in host memory, looked up once for all windows; 0 on a device.
    """

    array: Any
    address: int


def kept_assemblies() -> Callable[[tuple[WindowLayout, ...], np.dtype[Any]], Assembly]:
    """Return a function that returns the assembly of windows, and keeps the last ones that have few pieces."""
    kept = functools.lru_cache(_KEEP)(Assembly)

    def assembly(layouts: tuple[WindowLayout, ...], dtype: np.dtype[Any]) -> Assembly:
        few = math.prod(len(layout.cuts) for layout in layouts) <= _FEW_PIECES
        return kept(layouts, dtype) if few else Assembly(layouts, dtype)

    return assembly


class Assembly:
    """The assembly of windows of one layout, in any number of threads.

    Parameters
    ----------
    layouts
        How they are put together along each axis, at least one.
    dtype
        Data type of the elements, without Python objects.
    """

    def __init__(self, layouts: Sequence[WindowLayout], dtype: np.dtype[Any]) -> None:
        k = len(layouts)
        shape = tuple(len(layout.cuts) for layout in layouts)
        # For all combinations of cuts: the first element in the window, the number of elements along each axis, and
        # the strides in bytes, (…, k); the source, and the first element there, in bytes, (…).
        start, count, strides = (np.empty((*shape, k), np.int64) for _ in range(3))
        which, first = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        number: int = 1
        stride: Any = dtype.itemsize
        for d in reversed(range(k)):
            columns = layouts[d].columns
            at, length, begin, step, own, extent = columns.reshape(len(columns), -1, *(1,) * (k - d - 1))
            start[..., d], count[..., d], strides[..., d] = at, length, stride * step
            which += own * number
            first += begin * stride
            number *= layouts[d].sources
            stride = stride * extent
        start, count, strides = (column.reshape(-1, k) for column in (start, count, strides))
        self._which, self._first = which.reshape(-1), first.reshape(-1)
        constants = list(constant_boxes(layouts))
        # All elements of such a box are one.
        self._elements = [np.array(value, dtype) for _, value in constants]
        if constants:
            boxes = np.array([[(s.start, s.stop - s.start, 0) for s in box] for box, _ in constants], np.int64)
            start, count, strides = map(
                np.concatenate, zip((start, count, strides), np.moveaxis(boxes, -1, 0), strict=True)
            )
        self._bases = [address(element) for element in self._elements]
        self._gathering = None
        if len(start):
            bases = np.zeros(len(start), np.int64)
            self._gathering = Gathering(
                [
                    Pieces(
                        shape=tuple(layout.length for layout in layouts),
                        dtype=dtype,
                        row=np.zeros_like(bases),
                        start=start,
                        count=count,
                        first=np.zeros_like(start),
                        which=np.arange(len(start)),
                        # Those of each window are given later.
                        bases=bases,
                        strides=strides,
                    )
                ]
            )

    def run(self, target: npt.NDArray[Any], sources: Sequence[WindowSource]) -> None:
        """Fill a window; arguments as for :meth:`gzarr.blocks.memory.BlockMemory.assemble`."""
        if self._gathering is None:
            return
        bases = np.array([source.address for source in sources], np.int64)[self._which] + self._first
        if self._bases:
            bases = np.append(bases, self._bases)
        self._gathering.run(0, 1, [target[np.newaxis]], [bases])
