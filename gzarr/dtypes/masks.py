"""Masks of NumPy's masked arrays, and nulls, which no Zarr array can hold: all ways in ask here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from .nulls import has_nulls, way_to_fill

if TYPE_CHECKING:
    from typing import TypeGuard

    import numpy.typing as npt


def is_masked_array(value: object) -> TypeGuard[np.ma.MaskedArray[Any, Any]]:
    """Return whether a value is a masked array of NumPy, with elements that are masked or not."""
    return isinstance(value, _masked_arrays())


def _masked_arrays() -> tuple[type, ...]:
    # NumPy imports this module when it is first used; before, there are none. ``np.ma`` would call itself without end
    # in the handler of a signal that comes in the middle of that.
    found = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return () if found is None else (found,)


def has_masked(value: object) -> bool:
    """Return whether a value is a masked array, a table or a column, or a list of some, of which an element is masked.

    Nulls count as masked elements.
    """
    return _masked_part(value) is not None


def _masked_part(value: Any, depth: int = 64) -> Any:
    """Return what in a value has a masked element, or None.

    Lists are looked at to ``depth``, the most dimensions of NumPy; they may contain themselves.
    """
    if isinstance(value, list | tuple):
        # Of the many elements of a list, few types are looked at.
        if depth == 0 or not any(map(_may_be_masked, set(map(type, value)))):
            return None
        return next((found for one in value if (found := _masked_part(one, depth - 1)) is not None), None)
    if is_masked_array(value):
        mask: Any = np.ma.getmask(value)
        # Masks of records are records themselves.
        masked = mask is not np.ma.nomask and (mask.any() if mask.dtype == bool else b"\1" in mask.tobytes())
        return value if masked else None
    if isinstance(value, np.ndarray) or not _may_be_masked(type(value)):
        return None
    return value if has_nulls(value) else None


def _may_be_masked(kind: type) -> bool:
    return issubclass(kind, (list, tuple, *_masked_arrays())) or way_to_fill(kind) is not None


def unmasked(array: npt.NDArray[Any], node: str, given: object = None) -> npt.NDArray[Any]:
    """Return an array without its mask, of no subclass.

    Parameters
    ----------
    array
        Array in host memory.
    node
        Path of the array that will hold its elements, for the message.
    given
        What the array was made of, for the message; None for the array itself.

    Raises
    ------
    ArgumentError
        If an element is masked.
    """
    refuse_masked(array, node, given)
    # Subclasses may change indexing, comparison and broadcasting; a matrix always has two dimensions.
    return np.asarray(array)


def refuse_masked(value: object, node: str, given: object = None) -> None:
    """Raise :class:`ArgumentError` if an element is masked; arguments are as for :func:`unmasked`."""
    found = _masked_part(value)
    if found is None:
        return
    filling = way_to_fill(found if given is None else given)
    what, place = ("masked", "a mask") if filling is None else ("null", "nulls")
    raise ArgumentError(
        f"{node}: elements of the value are {what}, and an array has no place for {place}: choose what they become "
        f"with {filling or 'value.filled(...)'}, or pass fill_masked=True where that is an argument, for the array's "
        "fill value"
    )
