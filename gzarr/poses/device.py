"""Resampling in device memory, by the kernels ``gzarr_kernels.device.resample`` and ``gzarr_kernels.device.cubic``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.slots import affine as s

from ..engines.cuda.uploads import uploaded
from .host import described, is_number, lines_of, within_range

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from ..arrays.outputs import DeviceResults
    from .host import Posed

    IntArray = npt.NDArray[np.int64]

#: Words of int64 for each constant: one of 16 bytes is copied by two.
_FILL_WORDS: Final = 2


class OnDevice:
    """Arrays on a device; for the methods, see :class:`gzarr.poses.host.Host`. All return when they are done.

    Parameters
    ----------
    memory
        Memory of the results, with the caller's stream.
    """

    def __init__(self, memory: DeviceResults) -> None:
        self._memory = memory
        self._device, self._stream = memory.device, memory.stream

    def cast(self, array: Any, dtype: np.dtype[Any]) -> Any:
        """Return elements in another dtype."""
        if array.dtype == dtype:
            return array
        with self._device:
            return self._device.converted(array, dtype, self._stream)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Return a new array."""
        return self._memory.empty(shape, dtype)

    def made(self, order: int, source: np.dtype[Any], target: Any) -> Any:
        """Return what the kernel makes for a target; it rounds floats to integers."""
        rounds = is_number(source) and source.kind == "f" and target.dtype.kind in "iu"
        if order == 0 and not rounds:
            dtype = source
        else:
            dtype = target.dtype if is_number(target.dtype) else np.dtype(np.float32)
        word = min(target.itemsize, 8)
        places = (self._device.address(target), *target.strides)
        if dtype == target.dtype and all(place % word == 0 for place in places):
            return target
        return self._memory.empty(target.shape, dtype)

    def store(self, target: Any, values: Any) -> None:
        """Store elements of another dtype."""
        with self._device, self._stream:
            values = within_range(values, target.dtype)
        self._memory.copy(target, self.cast(values, target.dtype))
        self._stream.synchronize()

    def resample(self, posed: Sequence[Posed], order: int, mode: str) -> None:
        """Make results of one shape and dtype, from boxes of one dtype."""
        from gzarr_kernels.device import cubic
        from gzarr_kernels.device import resample as k

        if not posed or not posed[0].target.size:
            return
        columns, sources, targets, elements = job_of(posed, order, mode, self._device.address)
        with self._device:
            job = self.uploaded(columns)
            arguments = (sources, targets, self._device.address(job), 0)
            kernel = cubic.resample_cubic if order == 3 else k.resample
            self._device.launch(kernel, k.blocks(elements), k.THREADS, self._stream, *arguments)
            self._stream.synchronize()

    def filter(self, elements: Any, axes: int) -> None:
        """Make elements the coefficients of cubic splines."""
        from gzarr_kernels.device import cubic as k

        with self._device:
            for n, inner, lines in lines_of(elements, axes):
                arguments = (self._device.address(elements), n, inner, lines)
                self._device.launch(k.filter_lines, k.blocks(lines), k.THREADS, self._stream, *arguments)
            self._stream.synchronize()

    def uploaded(self, values: npt.NDArray[Any]) -> Any:
        """Return elements of host memory on the device, in order with the stream."""
        with self._device:
            return uploaded(self._device, values, self._stream)

    def upload(self, values: npt.NDArray[Any], target: Any) -> None:
        """Copy elements of host memory, or one for all, to an array on the device."""
        given = self.uploaded(values)
        with self._device:
            self._memory.copy(target, self._device.broadcast(given, target.shape))
            self._stream.synchronize()


def job_of(
    posed: Sequence[Posed], order: int, mode: str, address: Callable[[Any], int]
) -> tuple[IntArray, int, int, int]:
    """Return the job of a launch.

    Parameters
    ----------
    posed, order, mode, address
        As for :func:`gzarr.poses.host.described`.

    Returns
    -------
    columns
        int64, the job at 0, and what it refers to.
    sources, targets
        Addresses from which the offsets of boxes and results count.
    elements
        Number of elements of all results.
    """
    job, table, fills = described(posed, order, mode, address)
    sources, targets = (int(table[:, column].min()) for column in (s.SOURCE, s.TARGET))
    table[:, s.SOURCE] -= sources
    table[:, s.TARGET] -= targets
    words = np.zeros((len(posed), _FILL_WORDS), np.int64)
    words.view(np.uint8)[:, : fills.itemsize] = fills.view(np.uint8).reshape(len(posed), -1)
    job[s.POSES] = s.SIZE
    table[:, s.FILL] = s.SIZE + table.size + _FILL_WORDS * np.arange(len(posed))
    columns = np.concatenate([job, table.ravel(), words.ravel()])
    return columns, sources, targets, int(job[s.ROWS] * job[s.SHAPE + 2])
