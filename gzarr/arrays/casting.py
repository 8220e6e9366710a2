"""Casts of arrays between dtypes without objects and fields. What would change an element is refused."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.json import quote
from ..dtypes.properties import kind_of
from ..errors import ArgumentError

if TYPE_CHECKING:
    import numpy.typing as npt

#: Kinds of NumPy's own numeric dtypes.
_NUMBERS: Final = "biufc"
#: Kinds of elements of which strings, bytes and raw bytes can be made. NumPy would also print numbers.
_TEXT_SOURCES: Final = {"S": "S", "U": "SU", "V": "SV"}


def casts_safely(source: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether all values of a dtype are elements of another one."""
    sources = None if dtype.fields is not None else _TEXT_SOURCES.get(kind_of(dtype))
    return (sources is None or kind_of(source) in sources) and np.can_cast(source, dtype, "safe")


def cast(array: npt.NDArray[Any], dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    """Return elements of another dtype. Floating-point numbers are rounded.

    Parameters
    ----------
    array
        Elements, at least one.
    dtype
        Dtype to convert them to.
    node
        Beginning of the message.

    Raises
    ------
    ArgumentError
        If the dtype cannot hold one of them.
    """
    if dtype.kind in "mM" and array.dtype.kind == dtype.kind:
        here, there = np.datetime_data(array.dtype)[0], np.datetime_data(dtype)[0]
        if there == "generic" and here != "generic":
            return _without_unit(array, dtype, node)
        try:
            result = array.astype(dtype, casting="same_kind")
        except TypeError:
            raise refused(array, dtype, node) from None
        # From NumPy 2.5 on, and where the factor between two units does not fit into 64 bits.
        except OverflowError:
            _check_range(array, dtype, node)
            raise refused(array, dtype, node) from None
        # Compared after converting back: values out of a unit's range wrap, even when NumPy compares two units.
        _check_same(array, result if here == "generic" else result.astype(array.dtype), dtype, node)
        return result
    if casts_safely(array.dtype, dtype):
        return _decoded(array, dtype, node) if dtype.kind == "U" else array.astype(dtype)
    if array.dtype.kind in "SU" and dtype.kind == array.dtype.kind:
        result = array.astype(dtype)
        _check_same(array, result, dtype, node, "it is longer than the array's elements")
        return result
    here, there = kind_of(array.dtype), kind_of(dtype)
    if here not in _NUMBERS or there not in _NUMBERS:
        raise refused(array, dtype, node)
    if array.dtype.kind not in _NUMBERS:
        # NumPy's own dtypes hold all numbers of ml_dtypes, and can be compared with each other.
        return cast(array.astype({"i": "i8", "u": "u8", "f": "f8", "c": "c16"}[here]), dtype, node)
    if here == "c" and there != "c":
        if (array.imag != 0).any():
            wrong = array[array.imag != 0].flat[0]
            raise ArgumentError(f"{node}: {wrong!r} cannot be stored as {dtype}: it has an imaginary part")
        return cast(array.real, dtype, node)
    with np.errstate(all="ignore"):
        result = array.astype(dtype)
        if there in "fc":
            # Rounding is expected of floating-point numbers; a number that becomes infinite is lost.
            lost = _became_infinite(array, result)
            if dtype.kind not in _NUMBERS:
                lost = lost | _has_no_such(array, result)
            if lost.any():
                raise ArgumentError(f"{node}: {array[lost].flat[0]!r} is out of the range of {dtype}")
        else:
            _check_same(array, result if dtype.kind in _NUMBERS else result.astype(np.int64), dtype, node)
    return result


def refused(array: npt.NDArray[Any], dtype: np.dtype[Any], node: str) -> ArgumentError:
    """Return the error for elements of a type of which none is an element of a dtype."""
    return ArgumentError(
        f"{node}: elements of type {array.dtype} are not elements of {dtype}; convert them first, with .astype"
    )


def _decoded(array: npt.NDArray[Any], dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    """Return strings, or bytes of ASCII, as strings."""
    try:
        return array.astype(dtype)
    except UnicodeDecodeError:
        wrong = next(item for item in array.ravel().tolist() if not item.isascii())
        raise ArgumentError(
            f"{node}: {quote(wrong)} cannot be stored as {dtype}: it is not ASCII; decode it first, with "
            "np.strings.decode"
        ) from None


def _without_unit(array: npt.NDArray[Any], dtype: np.dtype[Any], node: str) -> npt.NDArray[Any]:
    """Return dates, times or durations that have a unit for a dtype that has none: NaT is the same in both."""
    if np.isnat(array).all():
        return np.full(array.shape, "NaT", dtype)
    # NumPy's astype keeps the unit instead.
    raise ArgumentError(
        f"{node}: elements of type {array.dtype} are not elements of {dtype}, which has no unit; create the array with "
        f"one, such as {array.dtype}"
    )


def _became_infinite(array: npt.NDArray[Any], result: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return where a finite number, or a finite part of a complex one, is finite no more."""
    if array.dtype.kind != "c":
        return np.asarray(np.isfinite(array) & ~np.isfinite(result))
    if result.dtype.kind != "c":
        # NumPy knows no parts of the complex types of ml_dtypes.
        result = result.astype(array.dtype)
    real = np.isfinite(array.real) & ~np.isfinite(result.real)
    return np.asarray(real | (np.isfinite(array.imag) & ~np.isfinite(result.imag)))


def _has_no_such(array: npt.NDArray[Any], result: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return where a type of ml_dtypes replaced a value that it lacks: an infinity, NaN, a negative number."""
    lost = (np.isfinite(array) != np.isfinite(result)) | (np.isnan(array) != np.isnan(result))
    if not np.isnan(np.array(np.nan).astype(result.dtype)):
        import ml_dtypes

        # Types without NaN stop at their largest number.
        lost |= np.abs(array) > float(ml_dtypes.finfo(result.dtype).max)
    return np.asarray(lost)


def _check_range(array: npt.NDArray[Any], dtype: np.dtype[Any], node: str) -> None:
    """Raise if a date, time or duration is out of the range of a dtype with a smaller unit."""
    with contextlib.suppress(OverflowError):
        most = np.array(2**63 - 1, np.int64).view(dtype.newbyteorder("=")).astype(array.dtype).astype(np.int64)
        outside = (np.abs(array.astype(np.int64)) > most) & ~np.isnat(array)
        if outside.any():
            raise ArgumentError(f"{node}: {array[outside].flat[0]!r} cannot be stored as {dtype}: out of its range")


def _check_same(
    array: npt.NDArray[Any],
    result: npt.NDArray[Any],
    dtype: np.dtype[Any],
    node: str,
    reason: str = "it is not one of its elements",
) -> None:
    """Raise if a conversion to ``dtype`` changed the value of an element."""
    with np.errstate(all="ignore"):
        equal = np.asarray(array == result)
        if array.dtype.kind in "ui" and result.dtype.kind in "ui":
            # NumPy may compare signed with unsigned integers as floating-point numbers, or wrap them.
            equal &= (array < 0) == (result < 0)
        if array.dtype.kind == "f" and result.dtype.kind in "ui":
            # Some processors give the largest integer for larger numbers; as floating-point numbers, they are equal.
            limits = np.iinfo(result.dtype)
            equal &= (array >= float(limits.min)) & (array < float(limits.max + 1))
        if array.dtype.kind in "mM":
            equal |= np.isnat(array) & np.isnat(result)
    if not equal.all():
        wrong = np.atleast_1d(array)[np.atleast_1d(~equal)].flat[0]
        raise ArgumentError(f"{node}: {wrong!r} cannot be stored as {dtype}: {reason}")
