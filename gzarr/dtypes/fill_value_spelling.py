"""Spelling of fill values in documents: differences between versions, and bytes in base64."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..documents.configuration import whole
from .properties import clear_spare_bits, native, storage


@dataclass(frozen=True, slots=True)
class Spelling:
    """Differences between versions.

    Attributes
    ----------
    lenient
        Whether to accept spellings of zarr-python 2 that the v2 specification lacks (a bare ``0`` for any type, numbers
        as strings).
    exact_nan
        Whether NaNs other than the canonical one are written as hexadecimal digits.
    bytes_as_integers
        Whether raw bytes are written as an array of integers rather than in base64.
    rounded
        Whether numbers beyond a type's range are rounded to infinity, as IEEE 754 does, if the type has it.
    """

    lenient: bool
    exact_nan: bool
    bytes_as_integers: bool
    rounded: bool = False


V2: Final = Spelling(lenient=True, exact_nan=False, bytes_as_integers=False)
V3: Final = Spelling(lenient=False, exact_nan=True, bytes_as_integers=True)


class FillValueError(ValueError):
    """A fill value, or a part of one, is not what was expected.

    Parameters
    ----------
    expected
        Description of the expected value.
    value
        Wrong part, if it is not the whole fill value.
    below
        JSON path of ``value`` relative to the fill value.
    """

    def __init__(self, expected: str, value: Any = None, below: str = "") -> None:
        super().__init__(expected)
        self.value = value
        self.below = below


def from_base64(value: str) -> bytes:
    """Return bytes decoded from base64."""
    try:
        return base64.b64decode(value.encode("ascii"), validate=True)
    except ValueError:
        raise FillValueError("base64") from None


def to_base64(data: bytes) -> str:
    """Return bytes encoded in base64."""
    return base64.b64encode(data).decode()


def from_byte_array(value: Any) -> bytes | None:
    """Return the bytes of an array of integers from 0 to 255; None for any other JSON value."""
    if not isinstance(value, list):
        return None
    numbers = [whole(v, None) for v in value]
    return bytes(numbers) if all(type(v) is int and 0 <= v < 256 for v in numbers) else None


def element_from_bytes(data: bytes, stored: np.dtype[Any]) -> Any:
    """Return one element, in native byte order, from its bytes as type ``stored``."""
    if len(data) != stored.itemsize:
        raise FillValueError(f"base64 of {stored.itemsize} bytes, not of {len(data)},")
    dtype = native(stored)
    elements = np.frombuffer(data, storage(stored)).astype(storage(dtype))
    clear_spare_bits(elements, dtype)
    return elements.view(dtype)[0]


def bytes_of_element(scalar: Any, stored: np.dtype[Any]) -> bytes:
    """Return the bytes of one element as type ``stored``: the inverse of :func:`element_from_bytes`."""
    dtype = native(stored)
    element = np.asarray(scalar, dtype).reshape(1).view(storage(dtype))
    return element.astype(storage(stored)).tobytes()


def raw_element_from_json(value: Any, stored: np.dtype[Any], spelling: Spelling) -> Any:
    """Return one element from its bytes, given in base64 or as an array of integers."""
    data = from_base64(value) if isinstance(value, str) else from_byte_array(value)
    if data is None:
        raise FillValueError("base64")
    if spelling.lenient and not data:
        data = bytes(stored.itemsize)
    return element_from_bytes(data, stored)
