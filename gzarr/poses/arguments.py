"""Arguments that say how arrays are resampled."""

from __future__ import annotations

import numbers
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np

from ..arrays.device_choice import resolve_device
from ..documents.json import quote
from ..errors import ArgumentError
from ..windows.boundary import MODES, name_of_numpy
from .host import is_number

Interpolation: TypeAlias = Literal["nearest", "linear", "cubic"]

_ORDERS: Final = {"nearest": 0, "linear": 1, "cubic": 3}


def order_of(interpolation: Any) -> int:
    """Return the order of an interpolation.

    Raises
    ------
    ArgumentError
        If it has another name.
    """
    if not isinstance(interpolation, str) or interpolation not in _ORDERS:
        raise ArgumentError(
            f"interpolation must be one of {', '.join(map(repr, get_args(Interpolation)))}, not {quote(interpolation)}"
        )
    return _ORDERS[interpolation]


def check_device(device: Any) -> None:
    """Refuse what names no device, also where an open array has its own, so that it is not used.

    Raises
    ------
    ArgumentError
        If so.
    """
    # One that has a name is left alone: to look for it would begin the use of a GPU that is not needed.
    if not isinstance(device, str) or device.partition(":")[0] not in ("auto", "cpu", "cuda"):
        resolve_device(device)


def boundary_of(boundary: Any, absent: Any) -> tuple[str, Any]:
    """Return the mode of a boundary, and the constant.

    Parameters
    ----------
    boundary
        A mode, ``"constant"``, or a number.
    absent
        The array's fill value, for ``"constant"``.

    Raises
    ------
    ArgumentError
        If it is something else.
    """
    if isinstance(boundary, str) and boundary in MODES:
        return boundary, absent
    if isinstance(boundary, str) and boundary == "constant":
        return "constant", absent
    if isinstance(boundary, (numbers.Number, np.generic)):
        if isinstance(boundary, complex | np.complexfloating) and not np.iscomplexobj(absent):
            raise ArgumentError(f"boundary={quote(boundary)} is complex, and the array is not")
        if isinstance(boundary, int) and boundary.bit_length() > 64:
            raise ArgumentError(f"boundary={quote(boundary)} is not a number of 64 bits")
        # Dates, durations and texts of NumPy are for arrays of such.
        kinds = np.asarray(boundary).dtype.kind, np.asarray(absent).dtype.kind
        if kinds[0] != kinds[1] and kinds[0] in "mMSU":
            raise ArgumentError(f"boundary={quote(boundary)} is no number, and elements are no such texts or times")
        return "constant", boundary
    raise ArgumentError(
        f"boundary must be one of {', '.join(map(repr, MODES))}, 'constant' (the array's fill value) or a number, not "
        f"{quote(boundary)}{name_of_numpy(boundary)}"
    )


def is_element(fill: Any, dtype: np.dtype[Any]) -> bool:
    """Return whether a constant is a value of a dtype."""
    if dtype.kind not in "biufc":
        return True
    with np.errstate(all="ignore"):
        cast = np.array(fill).astype(dtype)
    return bool(cast == fill or (cast != cast and fill != fill))


def source_dtype(dtype: np.dtype[Any], order: int, name: str, final: np.dtype[Any] | None = None) -> np.dtype[Any]:
    """Return the dtype in which elements are given to the kernel, given that of the result if it is known.

    Raises
    ------
    ArgumentError
        If they cannot be interpolated.
    """
    small = dtype.kind == "f" and dtype.itemsize == 2
    # The kernel rounds numbers that it knows to integers.
    if order == 0 and not dtype.hasobject and not (small and final is not None and final.kind in "iu"):
        return dtype
    if small:
        return np.dtype(np.float32)
    if is_number(dtype):
        return dtype
    raise ArgumentError(
        f"{name} has elements of {dtype}, which cannot be interpolated; integers and floats can, and interpolation="
        "'nearest' takes all that have no Python objects"
    )
