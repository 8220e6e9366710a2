"""Data types in Zarr v2 documents.

Source: https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#data-type-encoding
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ..documents.json import quote
from ..errors import MetadataError
from . import number_types, variable_length
from .families import BY_KIND, STRUCTURED, family_of
from .family import TypeString
from .structured import MAX_NESTING

if TYPE_CHECKING:
    import numpy as np

_TYPE_STRING: Final = re.compile(r"([<>|])([biufcSUVmM])([0-9]{1,10})(?:\[([0-9]{0,10})([A-Za-zμ]{1,7})\])?")


def parse_v2(value: Any, json_path: str = "$.dtype", *, _depth: int = 0) -> np.dtype[Any]:
    """Parse a v2 ``dtype``.

    Parameters
    ----------
    value
        A type string (``"<f8"``) or an array of fields (``[["r", "|u1"], ["z", "<f4", [2, 2]]]``).
    json_path
        Location in the document, for messages.

    Returns
    -------
    The dtype as stored, in the byte order of the document.

    Raises
    ------
    MetadataError
        If it is malformed.
    UnsupportedError
        If it is well formed, but NumPy has no such type.
    """
    if isinstance(value, str):
        return _parse_text(value, json_path)

    def parse_field(field: Any, at: str) -> np.dtype[Any]:
        return parse_v2(field, at, _depth=_depth + 1)

    return STRUCTURED.parse_v2_fields(value, json_path, parse_field if _depth < MAX_NESTING else None)


def _parse_text(value: str, json_path: str) -> np.dtype[Any]:
    if value == variable_length.TYPE_STRING:
        return variable_length.OBJECT
    row = number_types.named_v2(value)
    if row is not None and row.type_string is None:
        return row.dtype(json_path).newbyteorder("<")
    match = _TYPE_STRING.fullmatch(value)
    if match is None:
        raise MetadataError(
            f"{quote(value)} is not a v2 type string: expected byte order, kind and size, such as '<f8' or '|S12'",
            json_path=json_path,
        )
    order, kind, digits, factor, unit = match.groups()
    return BY_KIND[kind].parse_v2(TypeString(value, order, kind, int(digits), factor, unit, json_path))


def to_v2(dtype: np.dtype[Any]) -> Any:
    """Return the v2 data type of a dtype, in its byte order: a type string, a name or an array of fields.

    Raises
    ------
    ArgumentError
        If there is no such data type.
    """
    return family_of(dtype).to_v2(dtype)
