"""Masks of NumPy's masked arrays, and nulls, which no Zarr array can hold: all ways in ask here."""

from __future__ import annotations

import sys
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..errors import ArgumentError
from .nulls import has_nulls, way_to_fill

if TYPE_CHECKING:
    from typing import TypeGuard

    import numpy.typing as npt

#: Lists are looked at to this depth, the most dimensions of NumPy; they may contain themselves.
_MOST_LEVELS: Final = 64


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


def way_to_unmask(value: object) -> str | None:
    """Return the call that replaces what :func:`has_masked` finds; None if it finds nothing."""
    found = _masked_part(value)
    if found is None:
        return None
    return way_to_fill(found) or f"value.filled({False if found.dtype == bool else '...'})"


def _masked_part(value: Any) -> Any:
    """Return what in a value has a masked element, or None."""
    if not isinstance(value, list | tuple):
        return value if _is_masked(value) else None
    lists: list[Any] = [value]
    for _ in range(_MOST_LEVELS):
        # Of the many elements of all lists of a level, few types are looked at.
        kinds = set(map(type, chain.from_iterable(lists)))
        if not any(map(_may_be_masked, kinds)):
            return None
        # Each list once, or those that contain themselves would become ever more.
        lists = list(chain.from_iterable(dict(zip(map(id, lists), lists, strict=True)).values()))
        if not all(issubclass(kind, list | tuple) for kind in kinds):
            found = next((one for one in lists if not isinstance(one, list | tuple) and _is_masked(one)), None)
            if found is not None:
                return found
            lists = [one for one in lists if isinstance(one, list | tuple)]
    return None


def _is_masked(value: Any) -> bool:
    """Return whether a value that is no list has a masked element."""
    if is_masked_array(value):
        mask: Any = np.ma.getmask(value)
        # Masks of records are records themselves.
        return mask is not np.ma.nomask and bool(mask.any() if mask.dtype == bool else b"\1" in mask.tobytes())
    return not isinstance(value, np.ndarray) and _may_be_masked(type(value)) and has_nulls(value)


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
