"""What codecs ask of a type of numbers, those of ml_dtypes included."""

from __future__ import annotations

from typing import Any

import numpy as np

from .data_type import kind_of, low_bits, number_limits


def component(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of the real part of complex numbers, and any other type as it is."""
    if kind_of(dtype) != "c":
        return dtype
    if dtype.name == "bcomplex32":
        import ml_dtypes

        part: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return part
    return np.dtype(f"f{dtype.itemsize // 2}")


def mantissa_bits(dtype: np.dtype[Any]) -> int | None:
    """Return the number of bits of the mantissa that are stored, or None if the type is not one of real floats."""
    if kind_of(dtype) != "f":
        return None
    if dtype.kind == "f" and dtype.itemsize > 1:
        return int(np.finfo(dtype).nmant)
    import ml_dtypes

    return int(ml_dtypes.finfo(dtype).nmant)


def bits(dtype: np.dtype[Any]) -> int:
    """Return the number of bits of one real number, boolean or date."""
    if dtype.kind == "b":
        return 1
    if kind_of(dtype) in "iu":
        low, high = number_limits(dtype)
        return int(high - low).bit_length()
    mask = low_bits(dtype)
    return 8 * dtype.itemsize if mask is None else int(mask[0]).bit_length()
