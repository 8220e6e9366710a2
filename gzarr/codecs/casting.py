"""Exact casting of real numbers by value, with every rounding mode and every rule for numbers out of range.

Rules: https://github.com/zarr-developers/zarr-extensions/tree/main/codecs/cast_value#procedure

To cast to a floating-point type, the two neighbours of a number in that type are found first; rounding then chooses
between them. They are compared as float64, which holds every number of every smaller type.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from ..dtypes.properties import bits, kind_of, low_bits, mantissa_bits, number_limits

Rounding: TypeAlias = Literal["nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away"]
OutOfRange: TypeAlias = Literal["clamp", "wrap"]

ROUNDINGS: Final[tuple[Rounding, ...]] = (
    "nearest-even",
    "towards-zero",
    "towards-positive",
    "towards-negative",
    "nearest-away",
)
_Floats: TypeAlias = npt.NDArray[np.float64]


def is_real(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is an integer or a real floating-point type."""
    return kind_of(dtype) in ("i", "u", "f")


def holds(wide: np.dtype[Any], dtype: np.dtype[Any]) -> bool:
    """Return whether each number of a type is one of another type, too; False if that is not known."""
    if wide == dtype:
        return True
    if wide.isbuiltin != 1 or dtype.isbuiltin != 1:
        return False
    if dtype.kind in "iu" and wide.kind in "fc":
        # NumPy calls a cast of int64 to float64 safe.
        return np.iinfo(dtype).bits - (dtype.kind == "i") <= np.finfo(wide).nmant + 1
    return np.can_cast(dtype, wide, "safe")


def cast(
    array: npt.NDArray[Any], dtype: np.dtype[Any], rounding: Rounding, out_of_range: OutOfRange | None
) -> npt.NDArray[Any]:
    """Cast numbers to another type.

    Parameters
    ----------
    array
        Integers or floating-point numbers, of any shape.
    dtype
        Integer or floating-point type in native byte order.
    rounding
        Rule for numbers between two values of ``dtype``.
    out_of_range
        Rule for numbers that are out of the range of ``dtype`` after rounding; None if they are errors.

    Raises
    ------
    ValueError
        If a number has no counterpart in ``dtype``.
    """
    if array.dtype == dtype:
        return array
    with np.errstate(all="ignore"):
        return _cast(array.reshape(-1), dtype, rounding, out_of_range).reshape(array.shape)


def _cast(
    array: npt.NDArray[Any], dtype: np.dtype[Any], rounding: Rounding, out_of_range: OutOfRange | None
) -> npt.NDArray[Any]:
    from_float = kind_of(array.dtype) == "f"
    if kind_of(dtype) != "f":
        if from_float:
            return _float_to_integer(array.astype(np.float64), dtype, rounding, out_of_range)
        # Integers of less than 8 bits are compared and wrapped as 8-bit integers.
        whole = (
            array if array.dtype.kind in "iu" else array.astype(np.int8 if kind_of(array.dtype) == "i" else np.uint8)
        )
        low, high = number_limits(dtype)
        return _in_range(whole, whole < low, whole > high, dtype, out_of_range)
    if not from_float and dtype == np.float64:
        return _integers_to_float64(array, rounding)
    return _to_float(array.astype(np.float64) if from_float else _sticky(array), dtype, rounding, out_of_range)


def _refuse(bad: npt.NDArray[np.bool_], values: npt.NDArray[Any], dtype: np.dtype[Any], advice: str) -> None:
    if bad.any():
        raise ValueError(f"{values[bad].flat[0]} is not a number of {dtype}{advice}")


_NO_RULE = ', and "out_of_range" does not say what to do'


# -- to integers -------------------------------------------------------------------------------------------------------


def _float_to_integer(
    values: _Floats, dtype: np.dtype[Any], rounding: Rounding, out_of_range: OutOfRange | None
) -> npt.NDArray[Any]:
    _refuse(~np.isfinite(values), values, dtype, ', and "scalar_map" does not map it')
    if rounding == "nearest-even":
        rounded = np.rint(values)
    elif rounding == "towards-zero":
        rounded = np.trunc(values)
    elif rounding == "towards-positive":
        rounded = np.ceil(values)
    elif rounding == "towards-negative":
        rounded = np.floor(values)
    else:
        whole = np.trunc(values)
        rounded = np.where(np.abs(values - whole) >= 0.5, whole + np.copysign(1.0, values), whole)
    low, high = number_limits(dtype)
    # Both bounds are exact as floats: the lower one and the number above the upper one are powers of two.
    under, over = rounded < float(low), rounded >= float(high + 1)
    if out_of_range == "wrap":
        magnitude = np.fmod(np.abs(rounded), 2.0**64).astype(np.uint64)
        return _truncated(np.where(rounded < 0, np.uint64(0) - magnitude, magnitude), dtype)
    inside = np.where(under | over, 0.0, rounded)
    kept: npt.NDArray[Any] = inside.astype(np.int64) if low < 0 else inside.astype(np.uint64)
    return _in_range(kept, under, over, dtype, out_of_range, rounded)


def _in_range(
    whole: npt.NDArray[Any],
    under: npt.NDArray[np.bool_],
    over: npt.NDArray[np.bool_],
    dtype: np.dtype[Any],
    out_of_range: OutOfRange | None,
    values: npt.NDArray[Any] | None = None,
) -> npt.NDArray[Any]:
    if out_of_range == "wrap":
        return _truncated(whole.astype(np.int64).view(np.uint64) if whole.dtype.kind == "i" else whole, dtype)
    if out_of_range is None:
        _refuse(under | over, whole if values is None else values, dtype, _NO_RULE)
        return whole.astype(dtype)
    low, high = number_limits(dtype)
    result = np.where(under | over, 0, whole).astype(dtype)
    result[under] = low
    result[over] = high
    return result


def _truncated(whole: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the low bits of unsigned integers as numbers of ``dtype``."""
    mask = low_bits(dtype)
    if mask is None:
        return whole.astype(f"u{dtype.itemsize}").view(dtype)
    width = bits(dtype)
    low = (whole & np.uint64(mask[0])).astype(np.int8)
    if kind_of(dtype) == "i":
        low = np.where(low >= 1 << (width - 1), low - (1 << width), low)
    return low.astype(dtype)


# -- to floating-point numbers -----------------------------------------------------------------------------------------


def _magnitudes(whole: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    if kind_of(whole.dtype) == "u":
        return whole.astype(np.uint64)
    wide = whole.astype(np.int64)
    return np.where(wide < 0, np.uint64(0) - wide.view(np.uint64), wide.view(np.uint64))


def _sticky(whole: npt.NDArray[Any]) -> _Floats:
    """Return integers as float64 numbers that round to every smaller type like the integers themselves.

    The last 11 bits of large integers are merged into one, which says whether any was set: float64 holds the rest, and
    no smaller type has that many bits.
    """
    magnitude = _magnitudes(whole)
    rest = magnitude & np.uint64(0x7FF)
    short = magnitude - rest | (rest != 0).astype(np.uint64) << np.uint64(11)
    exact = np.where(magnitude < np.uint64(1 << 53), magnitude, short).astype(np.float64)
    return np.where(whole.astype(np.float64) < 0, -exact, exact)


def _integers_to_float64(whole: npt.NDArray[Any], rounding: Rounding) -> _Floats:
    magnitude = _magnitudes(whole)
    nearest = magnitude.astype(np.float64)
    # 2**64 is not in uint64, but greater than all its values.
    top = nearest >= 2.0**64
    back = np.where(top, 0.0, nearest).astype(np.uint64)
    above = top | (back > magnitude)
    low = np.where(above, np.nextafter(nearest, 0.0), nearest)
    low_whole = low.astype(np.uint64)
    exact = ~top & (back == magnitude)
    high = np.where(exact, low, np.nextafter(low, math.inf))
    # Integer distances are exact, and decide up to half a unit in the last place.
    to_low = magnitude - low_whole
    gap = np.where(exact, 0.0, high - low).astype(np.uint64)
    tie = ~exact & (to_low * np.uint64(2) == gap)
    negative = whole.astype(np.float64) < 0
    up = {
        "nearest-even": above,
        "towards-zero": np.zeros_like(above),
        "towards-positive": ~exact & ~negative,
        "towards-negative": ~exact & negative,
        "nearest-away": above | tie,
    }[rounding]
    result = np.where(up, high, low)
    return np.where(negative, -result, result)


@functools.lru_cache(maxsize=64)
def _small_numbers(dtype: np.dtype[Any]) -> tuple[_Floats, npt.NDArray[np.bool_], bool, bool]:
    """Return the sorted finite numbers of a type of at most 8 bits, which are even, and if it has NaN and infinity."""
    raw = np.arange(1 << bits(dtype), dtype=np.uint8)
    values = raw.view(dtype).astype(np.float64)
    finite, index = np.unique(values[np.isfinite(values)], return_index=True)
    even = raw[np.isfinite(values)][index] % 2 == 0
    return finite, even, bool(np.isnan(values).any()), bool(np.isinf(values).any())


def _neighbours(values: _Floats, dtype: np.dtype[Any], largest: float) -> tuple[_Floats, _Floats, npt.NDArray[Any]]:
    """Return the neighbours in ``dtype`` below and above (both the number if exact), and whether the lower is even."""
    if dtype.itemsize == 1:
        numbers, even, *_ = _small_numbers(dtype)
        i = np.searchsorted(numbers, values, "right") - 1
        low = numbers[np.maximum(i, 0)]
        j = np.where(low == values, i, np.minimum(i + 1, numbers.size - 1))
        return low, numbers[j], even[np.maximum(i, 0)]
    near = np.clip(values, -largest, largest).astype(dtype)
    wide = near.astype(np.float64)
    infinity = np.array(math.inf, dtype)
    below = np.where(wide > values, np.nextafter(near, -infinity), near)
    above = np.where(wide < values, np.nextafter(near, infinity), near)
    return below.astype(np.float64), above.astype(np.float64), below.view(f"u{dtype.itemsize}") % 2 == 0


def _to_float(
    values: _Floats, dtype: np.dtype[Any], rounding: Rounding, out_of_range: OutOfRange | None
) -> npt.NDArray[Any]:
    """Round float64 to a floating-point type."""
    has_nan = has_infinity = True
    smallest, largest = -math.inf, math.inf
    if dtype.itemsize == 1:
        numbers, _, has_nan, has_infinity = _small_numbers(dtype)
        smallest, largest = float(numbers[0]), float(numbers[-1])
    elif dtype != np.float64:
        largest = float(np.nextafter(np.array(math.inf, dtype), np.array(0, dtype)))
        smallest = -largest
    lost = (np.isnan(values) & (not has_nan)) | (np.isinf(values) & (not has_infinity))
    _refuse(lost, values, dtype, ', and "scalar_map" does not map it')
    if dtype == np.float64:
        return values
    # The next number if exponents were unbounded; an unsigned type has nothing below 0.
    beyond = largest + math.ldexp(1.0, math.frexp(largest)[1] - 1 - (mantissa_bits(dtype) or 0))
    before = -beyond if smallest < 0 else 0.0
    plain = np.where(np.isfinite(values), values, 1.0)
    low, high, low_is_even = _neighbours(plain, dtype, largest)
    low, low_is_even = np.where(plain < smallest, before, low), low_is_even ^ (plain < smallest)
    high = np.where(plain > largest, beyond, high)
    middle = low + (high - low) / 2
    if rounding == "nearest-even":
        up = (plain > middle) | ((plain == middle) & ~low_is_even)
    elif rounding == "nearest-away":
        up = (plain > middle) | ((plain == middle) & (plain > 0))
    else:
        up = plain < 0 if rounding == "towards-zero" else np.full(plain.shape, rounding == "towards-positive")
    rounded = np.where(up, high, low)
    under = (rounded < smallest) | (plain <= before)
    over = (rounded > largest) | (plain >= beyond)
    if out_of_range == "clamp":
        rounded = np.where(over, math.inf if has_infinity else largest, rounded)
        rounded = np.where(under, -math.inf if has_infinity else smallest, rounded)
    else:
        _refuse(under | over, values, dtype, _NO_RULE)
    rounded = np.where(np.isfinite(values), rounded, values)
    # Negative numbers that become zero keep their sign.
    return np.where(rounded == 0, np.copysign(rounded, values), rounded).astype(dtype)
