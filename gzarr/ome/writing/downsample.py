"""Downsampling of a block: each cell of neighbouring elements becomes one element.

Cells are as long as the factors along each axis; those at the far edge consist of the elements that are there. In host
memory compiled kernels do it, in a device's memory CuPy; what they give is the same, but for the last digit of floats.

=========== ==========================================================================================================
``mean``    Mean; integers are rounded to the nearest, halves to even.
``max``     Largest element.
``mode``    Most frequent element of integers; of several, the smallest. For labels.
``nearest`` Element in the middle of the cell; of two in the middle, the first. Small objects may vanish.
=========== ==========================================================================================================
"""

from __future__ import annotations

import itertools
import math
import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from gzarr_kernels.slots.cells import (
    AXES,
    CELLS,
    FACTORS,
    KIND,
    LENGTHS,
    SCRATCH,
    SIZE,
    SOURCE,
    SOURCE_STRIDES,
    TARGET,
    TARGET_STRIDES,
)

from ...documents.json import quote
from ...engines import kernels
from ...errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

#: Methods that look at one cell at a time; beside these there is ``gaussian.py``.
METHODS: Final = ("mean", "max", "mode", "nearest")
#: Most elements of a cell: sums of 16-bit integers are kept in 32 bits.
MOST_ELEMENTS: Final = 4096
_ENTRIES: Final = {
    "mean": ("downsample_mean", "mean"),
    "max": ("downsample_max", "maximum"),
    "mode": ("downsample_mode", "mode"),
}
_KINDS: Final = ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")

_own = threading.local()


def check_method(method: str, dtype: np.dtype[Any]) -> None:
    """Refuse methods that do not exist, or not for a type.

    Raises
    ------
    ArgumentError
        If so; the message says which methods there are.
    """
    if method not in (*METHODS, "gaussian"):
        raise ArgumentError(f"method must be one of {', '.join(METHODS)}, gaussian, not {quote(method)}")
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ArgumentError(f"elements of type {dtype} cannot be downsampled; convert them to integers or floats")
    if method == "mode" and dtype.kind == "f":
        raise ArgumentError(f"method 'mode' is for labels, which are integers, not {dtype}; use another method")
    if method == "gaussian" and (dtype.kind == "b" or (dtype.kind in "iu" and dtype.itemsize == 8)):
        raise ArgumentError(f"method 'gaussian' is not exact enough for {dtype}; use another method")


def cells_of(shape: tuple[int, ...], factors: tuple[int, ...]) -> tuple[int, ...]:
    """Return the number of cells along each axis, with the cells at the edges."""
    return tuple(-(-n // f) for n, f in zip(shape, factors, strict=True))


def downsample_into(source: Any, target: Any, factors: tuple[int, ...], method: str) -> None:
    """Downsample a block.

    Parameters
    ----------
    source
        NumPy or CuPy array, of a type that :func:`check_method` allows.
    target
        Array of the same type and device, with the shape :func:`cells_of`; may be a view.
    factors
        Elements of a cell along each axis, at most :data:`MOST_ELEMENTS` in all.
    method
        One of :data:`METHODS`.
    """
    if not source.size:
        return
    if method == "nearest" or math.prod(factors) == 1:
        _nearest(source, target, factors)
    elif isinstance(source, np.ndarray) and _is_native(source.dtype):
        _in_kernel(source, target, factors, method)
    else:
        _BY_ARRAYS[method](source, target, factors)


def _is_native(dtype: np.dtype[Any]) -> bool:
    return dtype.isnative and (dtype.kind == "b" or f"{dtype.kind}{dtype.itemsize}" in _KINDS)


def _in_kernel(source: npt.NDArray[Any], target: npt.NDArray[Any], factors: tuple[int, ...], method: str) -> None:
    if source.dtype == np.bool_:
        source, target = source.view(np.uint8), target.view(np.uint8)
    if source.ndim > AXES:
        # Only images have cells, and these have no more axes.
        for one, other in zip(source, target, strict=True):
            _in_kernel(one, other, factors[1:], method)
        return
    if source.strides[-1] != source.itemsize and source.shape[-1] > 1:
        source = np.ascontiguousarray(source)
    into = target
    if target.strides[-1] != target.itemsize and target.shape[-1] > 1:
        into = np.empty(target.shape, target.dtype)
    more = AXES - source.ndim
    job = np.zeros(SIZE, np.int64)
    job[SOURCE], job[TARGET] = kernels.address(source), kernels.address(into)
    job[KIND] = _KINDS.index(f"{source.dtype.kind}{source.dtype.itemsize}")
    job[CELLS : CELLS + AXES] = (*(1,) * more, *target.shape)
    job[LENGTHS : LENGTHS + AXES] = (*(1,) * more, *source.shape)
    job[FACTORS : FACTORS + AXES] = (*(1,) * more, *factors)
    job[SOURCE_STRIDES : SOURCE_STRIDES + AXES - 1] = (*(0,) * more, *source.strides[:-1])
    job[TARGET_STRIDES : TARGET_STRIDES + AXES - 1] = (*(0,) * more, *into.strides[:-1])
    scratch = _scratch(16 * source.shape[-1] + 24 * math.prod(factors))
    job[SCRATCH] = kernels.address(scratch)
    kernels.call(*_ENTRIES[method], kernels.address(job))
    if into is not target:
        target[...] = into


def _scratch(nbytes: int) -> npt.NDArray[Any]:
    """Return memory of this thread."""
    found: npt.NDArray[Any] | None = getattr(_own, "scratch", None)
    if found is None or found.nbytes < nbytes:
        found = _own.scratch = np.empty(-(-nbytes // 8), np.int64)
    return found


def _nearest(source: Any, target: Any, factors: tuple[int, ...]) -> None:
    """Take the middle of each cell; of a cell that is cut off before its middle, the last element."""
    parts = []
    for n, f in zip(source.shape, factors, strict=True):
        middle = (f - 1) // 2
        whole = -(-(n - middle) // f) if n > middle else 0
        along = [(slice(0, whole), slice(middle, None, f))] if whole else []
        if whole < -(-n // f):
            along.append((slice(whole, whole + 1), slice(n - 1, n)))
        parts.append(along)
    for boxes in itertools.product(*parts):
        target[tuple(into for into, _ in boxes)] = source[tuple(of for _, of in boxes)]


def _windows(source: Any, factors: tuple[int, ...]) -> list[tuple[tuple[slice, ...], Any]]:
    """Return, for each place in a cell, the cells that have it, and their elements there."""
    found = []
    for place in itertools.product(*(range(min(f, n)) for n, f in zip(source.shape, factors, strict=True))):
        elements = source[tuple(slice(p, None, f) for p, f in zip(place, factors, strict=True))]
        found.append((tuple(slice(0, n) for n in elements.shape), elements))
    return found


def _counts(source: Any, factors: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return the number of elements of each cell."""
    counts = np.ones((), np.int64)
    for n, f in zip(source.shape, factors, strict=True):
        along = np.minimum(f, n - f * np.arange(-(-n // f), dtype=np.int64))
        counts = counts[..., None] * along
    return counts


def _on_device_of(like: Any, values: npt.NDArray[Any]) -> Any:
    """Return values as an array of the kind of another one."""
    if isinstance(like, np.ndarray):
        return values
    return np.asarray(values, like=like)


def _mean_of_arrays(source: Any, target: Any, factors: tuple[int, ...]) -> None:
    counts = _on_device_of(source, _counts(source, factors))
    dtype = source.dtype
    if dtype.kind == "f":
        total = np.zeros_like(source, shape=target.shape, dtype=np.float64)
        for cells, elements in _windows(source, factors):
            total[cells] += elements
        target[...] = (total / counts).astype(dtype)
        return
    # Sums of 64-bit integers overflow, so their quotients and remainders are added up.
    quotient = np.zeros_like(source, shape=target.shape, dtype=np.uint64 if dtype.kind == "u" else np.int64)
    rest = np.zeros_like(source, shape=target.shape, dtype=np.int64)
    whole = quotient.dtype
    for cells, elements in _windows(source, factors):
        wide = elements.astype(whole)
        n = counts[cells].astype(whole)
        quotient[cells] += wide // n
        rest[cells] += (wide % n).astype(np.int64)
    quotient += (rest // counts).astype(whole)
    twice = 2 * (rest % counts)
    odd = (quotient % 2).astype(np.int64) == 1
    quotient += ((twice > counts) | ((twice == counts) & odd)).astype(whole)
    target[...] = quotient.astype(dtype)


def _max_of_arrays(source: Any, target: Any, factors: tuple[int, ...]) -> None:
    first, *others = _windows(source, factors)
    # The first place of every cell is there.
    best = first[1].copy()
    for cells, elements in others:
        best[cells] = np.maximum(best[cells], elements)
    target[...] = best


def _mode_of_arrays(source: Any, target: Any, factors: tuple[int, ...]) -> None:
    """Count for each element of a cell how often it is there."""
    windows = _windows(source, factors)
    found = windows[0][1].copy()
    most = np.zeros_like(source, shape=target.shape, dtype=np.int64)
    for cells, elements in windows:
        times = np.zeros_like(source, shape=elements.shape, dtype=np.int64)
        for others, their in windows:
            both = tuple(slice(0, min(a.stop, b.stop)) for a, b in zip(cells, others, strict=True))
            times[both] += elements[both] == their[both]
        better = (times > most[cells]) | ((times == most[cells]) & (elements < found[cells]))
        most[cells] = np.where(better, times, most[cells])
        found[cells] = np.where(better, elements, found[cells])
    target[...] = found


_BY_ARRAYS: Final[dict[str, Callable[[Any, Any, tuple[int, ...]], None]]] = {
    "mean": _mean_of_arrays,
    "max": _max_of_arrays,
    "mode": _mode_of_arrays,
}
