"""How documents spell fill values: what differs between versions, and bytes in base64."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .properties import clear_spare_bits, native, storage


@dataclass(frozen=True, slots=True)
class Spelling:
    """What differs between versions.

    Attributes
    ----------
    lenient
        Whether what zarr-python 2 wrote beyond v2's text (a bare ``0`` for any type, numbers as strings) is understood.
    exact_nan
        Whether NaNs other than the usual one are written, in hexadecimal digits.
    bytes_as_integers
        Whether raw bytes are written as an array of integers; if not, in base64.
    """

    lenient: bool
    exact_nan: bool
    bytes_as_integers: bool


V2: Final = Spelling(lenient=True, exact_nan=False, bytes_as_integers=False)
V3: Final = Spelling(lenient=False, exact_nan=True, bytes_as_integers=True)


class FillValueError(ValueError):
    """What was expected, and where below the fill value.

    Parameters
    ----------
    expected
        In words.
    value
        What was there instead, where that is not the whole fill value.
    below
        JSON path of ``value`` below the fill value.
    """

    def __init__(self, expected: str, value: Any = None, below: str = "") -> None:
        super().__init__(expected)
        self.value = value
        self.below = below


def from_base64(value: str) -> bytes:
    """Return the bytes that a text in base64 stands for."""
    try:
        return base64.b64decode(value.encode("ascii"), validate=True)
    except ValueError:
        raise FillValueError("base64") from None


def to_base64(data: bytes) -> str:
    """Return bytes in base64."""
    return base64.b64encode(data).decode()


def is_byte_array(value: Any) -> bool:
    """Return whether a JSON value is an array of integers from 0 to 255."""
    return isinstance(value, list) and all(type(v) is int and 0 <= v < 256 for v in value)


def element_from_bytes(data: bytes, stored: np.dtype[Any]) -> Any:
    """Return one element, in native byte order, from the bytes of one of type ``stored``."""
    if len(data) != stored.itemsize:
        raise FillValueError(f"base64 of {stored.itemsize} bytes, not of {len(data)},")
    dtype = native(stored)
    elements = np.frombuffer(data, storage(stored)).astype(storage(dtype))
    clear_spare_bits(elements, dtype)
    return elements.view(dtype)[0]


def bytes_of_element(scalar: Any, stored: np.dtype[Any]) -> bytes:
    """Return the bytes of one element as one of type ``stored``: the inverse of :func:`element_from_bytes`."""
    dtype = native(stored)
    element = np.asarray(scalar, dtype).reshape(1).view(storage(dtype))
    return element.astype(storage(stored)).tobytes()


def raw_element_from_json(value: Any, stored: np.dtype[Any], spelling: Spelling) -> Any:
    """Return one element from all of its bytes: base64, or an array of integers."""
    if is_byte_array(value):
        data = bytes(value)
    elif isinstance(value, str):
        data = from_base64(value)
    else:
        raise FillValueError("base64")
    if spelling.lenient and not data:
        data = bytes(stored.itemsize)
    return element_from_bytes(data, stored)
