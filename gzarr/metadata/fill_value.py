"""Fill values: JSON to NumPy scalar, and back.

Sources: https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html#permitted-fill-values (v3),
https://github.com/zarr-developers/zarr-extensions/tree/main/data-types (extensions),
https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#fill-value-encoding (v2). What zarr-python 2 wrote beyond
v2's text (a bare ``0`` for any type, numbers as strings) is understood for v2 only.
"""

from __future__ import annotations

import base64
import math
import re
import sys
from typing import Any, Final

import numpy as np

from ..dtypes import clear_spare_bits, is_variable_bytes, kind_of, native, not_a_time, number_limits, storage
from ..errors import MetadataError
from .departures import note
from .json import quote

_SPECIAL: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
#: Infinity, as the drafts of version 3 spell it.
_DRAFT_INFINITY: Final = "+Infinity"


def from_draft(value: Any, dtype: np.dtype[Any], *, json_path: str | None = None) -> Any:
    """Return a fill value of a draft of version 3 in the accepted spelling of infinity.

    Parameters
    ----------
    value
        As parsed from JSON.
    dtype
        Of the array.
    json_path
        Where to note that it is in the drafts' spelling; None where that is the right one.
    """
    if kind_of(dtype) == "c" and isinstance(value, list):
        at = [None if json_path is None else f"{json_path}[{i}]" for i in range(len(value))]
        return [from_draft(part, _part(dtype), json_path=where) for part, where in zip(value, at, strict=True)]
    if kind_of(dtype) not in "fc" or value != _DRAFT_INFINITY:
        return value
    if json_path is not None:
        note(f'"{_DRAFT_INFINITY}" in place of "Infinity", as in the drafts', json_path)
    return "Infinity"


def to_draft(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value as the drafts of version 3 spell it: the inverse of :func:`from_draft`."""
    if kind_of(dtype) == "c" and isinstance(value, list):
        return [to_draft(part, _part(dtype)) for part in value]
    return _DRAFT_INFINITY if kind_of(dtype) == "f" and value == "Infinity" else value


class _WrongError(ValueError):
    """What was expected, and where below the fill value."""

    def __init__(self, expected: str, value: Any = None, below: str = "") -> None:
        super().__init__(expected)
        self.value = value
        self.below = below


def from_v3(value: Any, dtype: np.dtype[Any], data_type: str, json_path: str = "$.fill_value") -> Any:
    """Parse a v3 fill value.

    Parameters
    ----------
    value
        As parsed from JSON.
    dtype
        Of the array; base64 texts of structured types hold bytes in its byte order.
    data_type
        Name of the data type.
    json_path
        Where it is, for messages.

    Returns
    -------
    NumPy scalar of ``dtype`` in native byte order; ``str`` or ``bytes`` for data types of variable length.

    Raises
    ------
    MetadataError
        If it is not a value of the data type.
    """
    return _parse(value, dtype, json_path, data_type, lenient=False, text_is_bytes=is_variable_bytes(data_type))


def from_v2(
    value: Any, dtype: np.dtype[Any], json_path: str = "$.fill_value", *, object_codec: str | None = None
) -> Any:
    """Parse a v2 fill value.

    Parameters
    ----------
    value
        As parsed from JSON; ``null`` gives None.
    dtype
        Of the array as stored, with the byte orders of the document (base64 texts hold bytes in that order).
    json_path
        Where it is, for messages.
    object_codec
        ``id`` of the codec that makes bytes of an array of objects.

    Returns
    -------
    NumPy scalar in native byte order, any JSON value for objects, or None.

    Raises
    ------
    MetadataError
        If it is not a value of the dtype.
    """
    if value is None:
        return None
    if dtype.hasobject:
        if object_codec == "vlen-utf8" and not isinstance(value, str):
            return str(value) if type(value) in (int, float) and abs(value) < 10**20 else ""
        if object_codec == "vlen-bytes":
            return _parse(value, dtype, json_path, "|O", lenient=True, text_is_bytes=True)
        return value
    result = _parse(value, dtype, json_path, dtype.str, lenient=True, text_is_bytes=False)
    if kind_of(dtype) in "SV":
        _note_raw(value, dtype, json_path)
    return result


def _note_raw(value: Any, dtype: np.dtype[Any], json_path: str) -> None:
    """Note what :func:`_value` tolerates in version 2 where base64 is wanted."""
    if not isinstance(value, str):
        note(f"{quote(value)} in place of base64", json_path)
        return
    try:
        data = _base64(value)
    except _WrongError:
        note(f"{quote(value)} is no base64; taken as the bytes themselves", json_path)
        data = value.encode()
    if len(data) > dtype.itemsize:
        note(f"{len(data)} bytes for elements of {dtype.itemsize}; the rest is ignored", json_path)


def _parse(
    value: Any, dtype: np.dtype[Any], json_path: str, data_type: str, *, lenient: bool, text_is_bytes: bool
) -> Any:
    try:
        with np.errstate(all="ignore"):
            return _value(value, dtype, lenient=lenient, text_is_bytes=text_is_bytes)
    except _WrongError as error:
        expected = str(error)
        if error.below:
            value, json_path = error.value, json_path + error.below
    except (ValueError, TypeError, OverflowError, UnicodeError, MemoryError, RecursionError):
        expected = "another value"
    raise MetadataError(
        f"{quote(value)} is not a fill value of {data_type[:200]}: expected {expected}", json_path=json_path
    ) from None


def _value(value: Any, dtype: np.dtype[Any], *, lenient: bool, text_is_bytes: bool = False) -> Any:
    kind = kind_of(dtype)
    as_read = native(dtype)
    if lenient and kind in "SUV" and type(value) in (int, float, bool) and value == 0:
        return np.zeros((), as_read)[()]
    if kind == "O":
        return _object(value, text_is_bytes=text_is_bytes, lenient=lenient)
    if kind == "b":
        if isinstance(value, bool) or (lenient and type(value) in (int, float) and value in (0, 1)):
            return np.bool_(value)
        raise _WrongError("true or false")
    if kind in "iu":
        return _integer(value, as_read, lenient=lenient)
    if kind == "f":
        return _float(value, as_read, lenient=lenient)
    if kind == "c":
        return _complex(value, as_read, lenient=lenient)
    if kind in "mM":
        if value == "NaT":
            return not_a_time(dtype)
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise _WrongError('"NaT" or an integer of 64 bits')
        return np.array(value, np.int64).view(as_read)[()]
    if kind == "U":
        if not isinstance(value, str) or (not lenient and len(value) > dtype.itemsize // 4):
            raise _WrongError(f"a string of at most {dtype.itemsize // 4} characters")
        return np.array(value, as_read)[()]
    return _raw(value, dtype, as_read, lenient=lenient)


def _object(value: Any, *, text_is_bytes: bool, lenient: bool) -> Any:
    if not text_is_bytes:
        if isinstance(value, str):
            return value
        raise _WrongError("a string")
    if isinstance(value, str):
        return _base64(value)
    if isinstance(value, list) and all(type(v) is int and 0 <= v < 256 for v in value):
        return bytes(value)
    if lenient and not value:
        return b""
    raise _WrongError("a base64 string or an array of integers from 0 to 255")


def _integer(value: Any, dtype: np.dtype[Any], *, lenient: bool) -> Any:
    if lenient and isinstance(value, str) and re.fullmatch(r"[+-]?[0-9]{1,20}", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if lenient and isinstance(value, bool):
        value = int(value)
    low, high = number_limits(dtype)
    if type(value) is not int or not low <= value <= high:
        raise _WrongError(f"an integer from {low} to {high}")
    return dtype.type(value)


def _float(value: Any, dtype: np.dtype[Any], *, lenient: bool) -> Any:
    digits = 2 * dtype.itemsize
    expected = f'a number, "NaN", "Infinity", "-Infinity" or "0x" and {digits} hexadecimal digits'
    if isinstance(value, str):
        if value in _SPECIAL:
            return _rounded(_SPECIAL[value], dtype)
        if re.fullmatch(rf"0x[0-9a-fA-F]{{{digits}}}", value):
            return _element(bytes.fromhex(value[2:]), dtype.newbyteorder(">"), dtype)
        if lenient and storage(dtype) != dtype and len(data := _base64(value)) == dtype.itemsize:
            # tensorstore's, for types that it has no JSON for.
            return _element(data, dtype, dtype)
        if not (lenient and re.fullmatch(r"[-+0-9.eE]{1,40}|[-+]?(nan|inf|infinity)", value, re.IGNORECASE)):
            raise _WrongError(expected)
        value = float(value)
    if type(value) not in (int, float) and not (lenient and isinstance(value, bool)):
        raise _WrongError(expected)
    return _rounded(float(value), dtype)


def _rounded(number: float, dtype: np.dtype[Any]) -> Any:
    """Return the element nearest to a number, which the type must be able to hold."""
    result = dtype.type(number)
    found = float(result)
    if math.isfinite(number):
        # Some types have no infinity: then it becomes the largest number, and so would all numbers above that.
        largest = float(dtype.type(math.inf))
        held = math.isfinite(found) and not abs(number) > abs(largest)
    else:
        held = found == number or (math.isnan(found) and math.isnan(number))
    if not held:
        raise _WrongError(f"a number that {dtype.name} can hold")
    return result


def _element(data: bytes, stored: np.dtype[Any], dtype: np.dtype[Any]) -> Any:
    """Return one element from its bytes: of type ``stored`` in the document, of type ``dtype`` to the caller."""
    elements = np.frombuffer(data, storage(stored)).astype(storage(dtype))
    clear_spare_bits(elements, dtype)
    return elements.view(dtype)[0]


def _complex(value: Any, dtype: np.dtype[Any], *, lenient: bool) -> Any:
    part = _part(dtype)
    if lenient and type(value) in (int, float):
        value = [value, 0.0]
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise _WrongError("an array of two numbers")
    parts = [_float(v, part, lenient=lenient) for v in value]
    # Through a view: arithmetic would lose the sign of zeros and what NaNs carry.
    return np.array(parts, part).view(dtype)[0]


def _part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of the real part of complex numbers."""
    if dtype.name == "bcomplex32":
        import ml_dtypes

        part: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return part
    return np.dtype(f"f{dtype.itemsize // 2}")


def _base64(value: str) -> bytes:
    try:
        return base64.b64decode(value.encode("ascii"), validate=True)
    except ValueError:
        raise _WrongError("base64") from None


def _raw(value: Any, dtype: np.dtype[Any], as_read: np.dtype[Any], *, lenient: bool) -> Any:
    size = dtype.itemsize
    if isinstance(value, dict) and dtype.fields is not None and not lenient:
        return _struct(value, as_read)
    if isinstance(value, list) and dtype.kind == "V" and all(type(v) is int and 0 <= v < 256 for v in value):
        data = bytes(value)
    elif isinstance(value, str):
        try:
            data = _base64(value)
        except _WrongError:
            # Before base64 was agreed on, byte strings were written as they are.
            if not (lenient and dtype.kind == "S" and value.isascii()):
                raise
            data = value.encode("ascii")
    else:
        raise _WrongError("base64")
    if dtype.kind == "S" or (lenient and not data):
        if len(data) > size and not lenient:
            raise _WrongError(f"at most {size} bytes")
        data = data[:size].ljust(size, b"\0")
    if len(data) != size:
        raise _WrongError(f"base64 of {size} bytes, not of {len(data)},")
    return _element(data, dtype, as_read)


def _struct(value: dict[str, Any], dtype: np.dtype[Any]) -> Any:
    if set(value) != set(dtype.names or ()):
        raise _WrongError(f"an object with the fields {quote(list(dtype.names or ()))}")
    result = np.zeros((), dtype)
    for name in dtype.names or ():
        try:
            result[name] = _value(value[name], dtype[name], lenient=False)
        except _WrongError as error:
            found = error.value if error.below else value[name]
            raise _WrongError(str(error), found, f".{name[:100]}{error.below}") from None
    return result[()]


# -- NumPy to JSON -----------------------------------------------------------------------------------------------------


def _float_to_json(value: Any) -> float | str:
    number = float(value)
    if math.isnan(number):
        quiet = value.dtype.type(math.nan)
        if value.tobytes() == quiet.tobytes():
            return "NaN"
        return f"0x{int.from_bytes(value.tobytes(), sys.byteorder):0{2 * value.dtype.itemsize}x}"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def to_json(value: Any, dtype: np.dtype[Any], zarr_format: int) -> Any:
    """Return a fill value as JSON: the inverse of :func:`from_v3` and :func:`from_v2`.

    Parameters
    ----------
    value
        As the model holds it.
    dtype
        Of the array as stored (byte orders matter for v2's base64).
    zarr_format
        2 or 3.
    """
    if value is None:
        return None
    kind = kind_of(dtype)
    if kind == "O":
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value
    scalar = np.asarray(value, native(dtype))[()]
    if kind == "b":
        return bool(scalar)
    if kind in "iu":
        return int(scalar)
    if kind == "f":
        text = _float_to_json(scalar)
        return "NaN" if zarr_format == 2 and isinstance(text, str) and text.startswith("0x") else text
    if kind == "c":
        part = _part(dtype)
        return [to_json(p, part, zarr_format) for p in np.asarray(scalar).reshape(1).view(part)]
    if kind in "mM":
        return "NaT" if np.isnat(scalar) else int(np.asarray(scalar).view(np.int64))
    if kind == "U":
        return str(scalar)
    data = np.asarray(scalar, native(dtype)).reshape(1).view(storage(native(dtype))).astype(storage(dtype)).tobytes()
    if kind == "V" and dtype.fields is None and zarr_format == 3:
        return list(data)
    return base64.b64encode(data.rstrip(b"\0") if kind == "S" else data).decode()
