"""Masks of NumPy's masked arrays, which no Zarr array can hold: all ways in ask here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError

if TYPE_CHECKING:
    import numpy.typing as npt


def has_masked(value: object, depth: int = 64) -> bool:
    """Return whether a value is a masked array, or a list of some, of which an element is masked.

    Lists are looked at to ``depth``, the most dimensions of NumPy; they may contain themselves.
    """
    if isinstance(value, list | tuple):
        return depth > 0 and any(has_masked(one, depth - 1) for one in value)
    if not isinstance(value, np.ma.MaskedArray):
        return False
    mask: Any = np.ma.getmask(value)
    if mask is np.ma.nomask:
        return False
    # Masks of records are records themselves.
    return bool(mask.any()) if mask.dtype == bool else b"\1" in mask.tobytes()


def unmasked(array: npt.NDArray[Any], node: str) -> npt.NDArray[Any]:
    """Return an array without its mask, of no subclass.

    Parameters
    ----------
    array
        Array in host memory.
    node
        Path of the array that will hold its elements, for the message.

    Raises
    ------
    ArgumentError
        If an element is masked.
    """
    refuse_masked(array, node)
    # Subclasses may change indexing, comparison and broadcasting; a matrix always has two dimensions.
    return np.asarray(array)


def refuse_masked(value: object, node: str) -> None:
    """Raise :class:`ArgumentError` if an element is masked; ``value`` is as for :func:`has_masked`."""
    if has_masked(value):
        raise ArgumentError(
            f"{node}: elements of the value are masked, and an array has no place for a mask: choose what they become "
            "with value.filled(...), or pass fill_masked=True where that is an argument, for the array's fill value"
        )
