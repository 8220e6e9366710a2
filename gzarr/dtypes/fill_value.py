"""Fill values: JSON to NumPy scalar, and back.

Sources: https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html#permitted-fill-values (v3),
https://github.com/zarr-developers/zarr-extensions/tree/main/data-types (extensions),
https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#fill-value-encoding (v2). What zarr-python 2 wrote beyond
v2's text (a bare ``0`` for any type, numbers as strings) is understood for v2 only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..documents.json import quote
from ..errors import MetadataError
from . import variable_length
from .families import family_of
from .fill_value_spelling import V2, V3, FillValueError, Spelling
from .properties import kind_of, native

if TYPE_CHECKING:
    from .family import Family


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
    family = family_of(dtype)
    if dtype.hasobject and variable_length.is_variable_bytes(data_type):
        family = variable_length.BYTES
    return _parse(value, dtype, json_path, data_type, family, V3)


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
            return _parse(value, dtype, json_path, variable_length.TYPE_STRING, variable_length.BYTES, V2)
        return value
    return _parse(value, dtype, json_path, dtype.str, family_of(dtype), V2)


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


def to_v3(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value as JSON of v3: the inverse of :func:`from_v3`.

    Parameters
    ----------
    value
        As the model holds it.
    dtype
        Of the array as stored.
    """
    return _to_json(value, dtype, V3)


def to_v2(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a fill value as JSON of v2: the inverse of :func:`from_v2`.

    Parameters
    ----------
    value
        As the model holds it; None gives ``null``.
    dtype
        Of the array as stored: base64 texts hold bytes in its byte order.
    """
    return _to_json(value, dtype, V2)


def _to_json(value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
    if value is None:
        return None
    scalar = value if dtype.hasobject else np.asarray(value, native(dtype))[()]
    return family_of(dtype).fill_value_to_json(scalar, dtype, spelling)
