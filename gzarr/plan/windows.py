"""Many windows of one shape, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..documents.json import quote
from ..errors import SelectionError
from ..integers import as_integer, as_integers

if TYPE_CHECKING:
    from ..integers import EachAxis

_INT64_MAX = 2**63 - 1
IntArray: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PlannedWindows:
    """Windows of an array with ``k`` dimensions, all inside of it.

    Attributes
    ----------
    starts
        int64 ``(w, k)``, first element of each window.
    shape, step
        Elements of a window along each dimension, and the distance between them.
    """

    starts: IntArray
    shape: tuple[int, ...]
    step: tuple[int, ...]


def parse_windows(starts: Any, shape: EachAxis, step: EachAxis, array: tuple[int, ...]) -> PlannedWindows:
    """Check windows and return them.

    Parameters
    ----------
    starts
        Integers ``(w, k)``; ``(w,)`` if ``k`` is 1.
    shape, step
        One integer, or one for each dimension.
    array
        Shape of the array, in elements.

    Raises
    ------
    SelectionError
        If the arguments do not fit the array, or if a window is not inside of it.
    """
    k = len(array)
    the_shape, the_step = _integers("shape", shape, k, 0), _integers("step", step, k, 1)
    first = _array(starts, f"starts must be integers of shape (n, {k})")
    if not first.size and len(first.shape) < 2:
        first = np.empty((0, k), np.int64)
    elif first.ndim == 1 and k == 1:
        first = first[:, np.newaxis]
    if first.ndim != 2 or first.shape[1] != k or first.dtype.kind not in "iu":
        raise SelectionError(
            f"starts must be integers of shape (n, {k}) for an array of shape {array}, not {first.dtype} "
            f"of shape {first.shape}"
        )
    # An unsigned start beyond 64 bits would become negative, which is refused below.
    first = np.ascontiguousarray(first, np.int64)
    # The step of a window of at most one element means nothing.
    the_step = tuple(s if n > 1 else 1 for n, s in zip(the_shape, the_step, strict=True))
    last = [max(n - 1, 0) * s for n, s in zip(the_shape, the_step, strict=True)]
    limits = [size - (end + 1 if n else 0) for size, n, end in zip(array, the_shape, last, strict=True)]
    outside = (first < 0) | (first > np.array([min(max(limit, -1), _INT64_MAX) for limit in limits], np.int64))
    if outside.any():
        i = int(np.argmax(outside.any(axis=1)))
        raise SelectionError(
            f"window {i}, of shape {quote(the_shape)} from {tuple(first[i].tolist())} on with step {quote(the_step)}, "
            f"is not inside the array of shape {array}"
        )
    return PlannedWindows(first, the_shape, the_step)


def parse_rows(rows: Any, windows: int, room: int) -> IntArray:
    """Check the places of windows, int64 ``(windows,)``, among ``room`` places, and return them.

    Raises
    ------
    SelectionError
        If they are not as many different integers from 0 to ``room`` − 1.
    """
    found = _array(rows, f"rows must be {windows} integers, one for each window")
    if found.shape != (windows,) or found.dtype.kind not in "iu":
        raise SelectionError(f"rows must be {windows} integers, one for each window, not {found.dtype} {found.shape}")
    places: IntArray = found.astype(np.int64)
    if windows and not (places.min() >= 0 and places.max() < room and np.bincount(places).max() == 1):
        raise SelectionError(f"rows must be different places from 0 to {room - 1}, as many as out= has")
    return places


def _array(value: Any, what: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(value)
    # RuntimeError is PyTorch's, for a tensor that requires gradients.
    except (TypeError, ValueError, RuntimeError) as error:
        raise SelectionError(f"{what}, not {' '.join(quote(value).split()):.80}: {error}") from error


def _integers(name: str, value: Any, k: int, least: int) -> tuple[int, ...]:
    number = as_integer(value)
    numbers = as_integers(value) if number is None else (number,) * k
    if numbers is None or len(numbers) != k or any(number < least for number in numbers):
        raise SelectionError(
            f"{name} must be {k} integers of at least {least}, or one for all dimensions, not {quote(value)}"
        )
    return numbers
