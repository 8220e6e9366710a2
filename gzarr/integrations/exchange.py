"""What array libraries cannot hold of a Zarr array's elements, and what to do instead."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import gzarr

from ..dtypes.masks import has_masked
from ..engines.cuda.devices import get_device

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: What has no counterpart, and what to do about it, by kind of dtype.
_KINDS: Final = {
    "M": ("dates", "read them with a[...], and take their integers, .view('i8')"),
    "m": ("durations", "read them with a[...], and take their integers, .view('i8')"),
    "S": ("strings", "read them with a[...]"),
    "U": ("strings", "read them with a[...]"),
    "T": ("strings", "read them with a[...]"),
    "O": ("Python objects", "read them with a[...]"),
    "V": ("raw bytes", "read them with a[...], and take their bytes, .view('u1')"),
}


def as_result(values: Any) -> Any:
    """Return values as an array of NumPy, of no subclass, or of CuPy: scalars as arrays without dimensions.

    Raises
    ------
    ArgumentError
        If they are neither, or if elements of them are masked.
    """
    if isinstance(values, (np.ndarray, np.generic)):
        if has_masked(values):
            raise gzarr.ArgumentError(
                "the array has masked elements, which other libraries would take as elements: pass values.filled(...)"
            )
        return np.asarray(values)
    of_cupy = getattr(sys.modules.get("cupy"), "ndarray", None)
    if of_cupy is None or not isinstance(values, of_cupy):
        raise gzarr.ArgumentError(f"results of gzarr are taken, arrays of NumPy and CuPy, not {type(values).__name__}")
    return values


@contextmanager
def handing_over(array: Any, stream: Any = None) -> Iterator[None]:
    """Return a context in which another library may take an array of NumPy or CuPy by DLPack.

    CuPy has the library wait for the current stream of the thread's device, whichever device the array is on, and
    whichever stream it was made on: the device becomes the array's, and the stream ``stream``.

    Parameters
    ----------
    array
        The array.
    stream
        Stream that has made the array, or waits for it; None for CuPy's current one.
    """
    if isinstance(array, np.ndarray):
        yield
        return
    with array.device:
        if stream is None:
            yield
            return
        with get_device(f"cuda:{array.device.id}").as_stream(stream):
            yield


def dtype_of(array: gzarr.Array, selection: Any) -> np.dtype[Any]:
    """Return the dtype of a selection's elements: that of the array, or of the field that the selection names."""
    fields: Mapping[str, Any] = array.dtype.fields or {}
    for name in selection if isinstance(selection, tuple) else (selection,):
        if isinstance(name, str) and name in fields:
            # A field may be an array itself.
            field: np.dtype[Any] = fields[name][0]
            return field.base
    return array.dtype


def is_number_of_numpy(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is one of NumPy's own numbers or booleans, in any byte order."""
    return dtype.kind in "biufc" and dtype.type.__module__ == "numpy"


def refusal(dtype: np.dtype[Any], library: str) -> gzarr.ArgumentError:
    """Return the error for a dtype that a library does not have."""
    if dtype.names:
        what, instead = "records", f"read one field, of {', '.join(dtype.names)}"
    elif dtype.kind in _KINDS and dtype.type.__module__ == "numpy":
        what, instead = _KINDS[dtype.kind]
    elif not dtype.isnative:
        what, instead = (
            "numbers in another byte order",
            f"convert them first, with .astype({dtype.newbyteorder().str!r})",
        )
    else:
        what, instead = "such numbers", "read them with a[...], and convert them with .astype"
    return gzarr.ArgumentError(f"{library} cannot hold elements of {dtype}: it has no {what}; {instead}")
