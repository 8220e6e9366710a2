"""Fill values: JSON to NumPy scalar, and back.

Sources: https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html#permitted-fill-values (v3),
https://github.com/zarr-developers/zarr-extensions/tree/main/data-types (extensions),
https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#fill-value-encoding (v2). Spellings of
zarr-python 2 that the v2 specification lacks (a bare ``0`` for any type, numbers as strings) are accepted for v2 only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.departures import note
from ..documents.json import quote
from ..errors import MetadataError
from . import variable_length
from .families import family_of
from .fill_value_spelling import V2, V3, FillValueError, Spelling, from_base64
from .properties import kind_of, native

if TYPE_CHECKING:
    from collections.abc import Callable

    from .family import Family

# Spelling of infinity in the drafts of version 3.
_DRAFT_INFINITY: Final = "+Infinity"
_NO_NUMBERS: Final = ("NaN", "Infinity", "-Infinity", _DRAFT_INFINITY)


def from_v3(
    value: Any, dtype: np.dtype[Any], data_type: str, json_path: str = "$.fill_value", *, rounded: bool = False
) -> Any:
    """Parse a v3 fill value.

    Parameters
    ----------
    value
        Parsed JSON.
    dtype
        Dtype of the array; base64 of structured types holds bytes in its byte order.
    data_type
        Name of the data type.
    json_path
        Location in the document, for messages.
    rounded
        Whether a floating-point number beyond the type's range is infinity, as other programs read existing arrays.

    Returns
    -------
    NumPy scalar of ``dtype`` in native byte order; ``str`` or ``bytes`` for variable-length data types.

    Raises
    ------
    MetadataError
        If it is not a value of the data type.
    """
    family = family_of(dtype)
    if kind_of(dtype) == "b" and type(value) in (int, float) and value in (0, 1):
        note(f"{value} in place of {str(bool(value)).lower()}", json_path)
        value = bool(value)
    if dtype.hasobject and variable_length.is_variable_bytes(data_type):
        family = variable_length.BYTES
    return (_parse_rounded if rounded else _parse)(value, dtype, json_path, data_type, family, V3)


def from_v2(
    value: Any, dtype: np.dtype[Any], json_path: str = "$.fill_value", *, object_codec: str | None = None
) -> Any:
    """Parse a v2 fill value; a floating-point number beyond the type's range is infinity.

    Parameters
    ----------
    value
        Parsed JSON; ``null`` gives None, or zeros and None for elements with fields that are objects.
    dtype
        Dtype of the array as stored, in the byte order of the document (base64 holds bytes in that order).
    json_path
        Location in the document, for messages.
    object_codec
        ``id`` of the codec that encodes an array of objects.

    Returns
    -------
    NumPy scalar in native byte order, any JSON value for objects, or None.

    Raises
    ------
    MetadataError
        If it is not a value of the dtype.
    """
    if dtype.hasobject and dtype.fields is not None:
        return _parse(value, dtype, json_path, "records with objects", family_of(dtype), V2)
    if value is None:
        return None
    if dtype.hasobject:
        if object_codec == "vlen-utf8" and not isinstance(value, str):
            return _number_as_text(value, json_path) if isinstance(value, int | float) else ""
        if object_codec == "vlen-bytes":
            return _parse(value, dtype, json_path, variable_length.TYPE_STRING, variable_length.BYTES, V2)
        return value
    result = _parse_rounded(value, dtype, json_path, dtype.str, family_of(dtype), V2)
    if kind_of(dtype) in "SV":
        _note_bytes(value, dtype, json_path)
    return result


def _number_as_text(value: float, json_path: str) -> str:
    """Return a number or a boolean as zarr-python reads it among strings: as Python prints it."""
    try:
        return str(value)
    # Python refuses to print integers of thousands of digits.
    except ValueError:
        raise MetadataError(
            f"{quote(value)} is not a fill value of strings: expected a string", json_path=json_path
        ) from None


def _note_bytes(value: Any, dtype: np.dtype[Any], json_path: str) -> None:
    """Note departures that version 2 tolerates where base64 is expected."""
    if not isinstance(value, str):
        note(f"{quote(value)} in place of base64", json_path)
        return
    try:
        data = from_base64(value)
    except FillValueError:
        note(f"{quote(value)} is not base64; taken as the bytes themselves", json_path)
        data = value.encode()
    if len(data) > dtype.itemsize:
        note(f"{len(data)} bytes for elements of {dtype.itemsize}; the rest is ignored", json_path)


def from_draft(value: Any, dtype: np.dtype[Any], *, json_path: str | None = None) -> Any:
    """Return a fill value of a draft of version 3, with infinity in the spelling of the final specification.

    Parameters
    ----------
    value
        Parsed JSON.
    dtype
        Dtype of the array.
    json_path
        Location at which to note the drafts' spelling as a departure; None where it is the correct one.
    """
    if kind_of(dtype) == "c" and isinstance(value, list):
        return [
            _accepted_infinity(part, None if json_path is None else f"{json_path}[{i}]") for i, part in enumerate(value)
        ]
    return _accepted_infinity(value, json_path) if kind_of(dtype) in "fc" else value


def _accepted_infinity(value: Any, json_path: str | None) -> Any:
    if value != _DRAFT_INFINITY:
        return value
    if json_path is not None:
        note(f'"{_DRAFT_INFINITY}" in place of "Infinity", as in the drafts', json_path)
    return "Infinity"


def to_draft(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return the JSON of a fill value from :func:`to_v2` in the spelling of the drafts of version 3."""
    parts = value if kind_of(dtype) == "c" and isinstance(value, list) else [value]
    spelled = [_DRAFT_INFINITY if kind_of(dtype) in "fc" and part == "Infinity" else part for part in parts]
    return spelled if parts is value else spelled[0]


def _parse_rounded(
    value: Any, dtype: np.dtype[Any], json_path: str, data_type: str, family: Family, spelling: Spelling
) -> Any:
    """Parse a fill value of an existing array, whose numbers beyond the type's range everybody reads as infinity."""
    try:
        return _parse(value, dtype, json_path, data_type, family, spelling)
    except MetadataError as error:
        try:
            result = _parse(value, dtype, json_path, data_type, family, replace(spelling, rounded=True))
        except MetadataError:
            raise error from None
    note(f"{quote(value)} is beyond the range of {data_type[:200]}; rounded to infinity", json_path)
    return result


def _parse(value: Any, dtype: np.dtype[Any], json_path: str, data_type: str, family: Family, spelling: Spelling) -> Any:
    if spelling.lenient and kind_of(dtype) in "SUV" and type(value) in (int, float, bool) and value == 0:
        return np.zeros((), native(dtype))[()]
    try:
        with np.errstate(all="ignore"):
            return family.fill_value_from_json(value, dtype, spelling)
    except FillValueError as error:
        expected = str(error)
        if error.below:
            value, json_path = error.value, json_path + error.below
    except (ValueError, TypeError, OverflowError, UnicodeError, MemoryError, RecursionError):
        expected = "another value"
    raise MetadataError(
        f"{quote(value)} is not a fill value of {data_type[:200]}: expected {expected}", json_path=json_path
    ) from None


def respelled(written: Any, value: Any, dtype: np.dtype[Any], to_json: Callable[[Any, np.dtype[Any]], Any]) -> Any:
    """Return a document's fill value for writing it again: as it is, but for numbers that are not the type's.

    Parameters
    ----------
    written
        Fill value in the document.
    value
        The same in the model.
    dtype
        Dtype of the array.
    to_json
        Function that spells a fill value: :func:`to_v3` or :func:`to_v2`.
    """
    if value is None or dtype.hasobject:
        return written
    if isinstance(written, dict) and dtype.fields is not None:
        return {name: respelled(part, value[name], dtype[name], to_json) for name, part in written.items()}
    parts = written if isinstance(written, list) else [written]
    if not any(type(part) in (int, float) for part in parts):
        return written
    spelled = to_json(value, dtype)
    return spelled if _is_another(written, spelled) else written


def _is_another(written: Any, spelled: Any) -> bool:
    """Return whether a number was written for infinity, for NaN, or as a float for an integer."""
    if isinstance(written, list):
        return isinstance(spelled, list) and any(map(_is_another, written, spelled))
    if type(written) not in (int, float):
        return False
    if isinstance(spelled, list):
        return any(part in _NO_NUMBERS for part in spelled)
    return spelled in _NO_NUMBERS or (type(written) is float and type(spelled) is int)


def to_v3(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value as JSON of v3: the inverse of :func:`from_v3`.

    Parameters
    ----------
    value
        Fill value in the model.
    dtype
        Dtype of the array as stored.
    """
    return _to_json(value, dtype, V3)


def to_v2(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value as JSON of v2: the inverse of :func:`from_v2`.

    Parameters
    ----------
    value
        Fill value in the model; None gives ``null``.
    dtype
        Dtype of the array as stored: base64 holds bytes in its byte order.
    """
    return _to_json(value, dtype, V2)


def _to_json(value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
    if value is None:
        return None
    scalar = value if dtype.hasobject else np.asarray(value, native(dtype))[()]
    return family_of(dtype).fill_value_to_json(scalar, dtype, spelling)
