"""Families of strings and byte strings of any length, and other Python objects; their dtype is ``object``.

Sources: https://github.com/zarr-developers/zarr-extensions/tree/main/data-types/string,
https://github.com/zarr-developers/zarr-extensions/tree/main/data-types/bytes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from .family import Family, need_no_more, no_data_type
from .fill_value_spelling import FillValueError, from_base64, from_byte_array, to_base64

if TYPE_CHECKING:
    from .family import ParseField
    from .fill_value_spelling import Spelling

#: v2 data type of all objects; a filter says which kind they are.
TYPE_STRING: Final = "|O"
OBJECT: Final = np.dtype(object)


class VariableLength(Family):
    """Common part of the two families.

    Attributes
    ----------
    names
        Names in v3 documents. The first one is written.
    """

    kinds = "O"
    names: ClassVar[tuple[str, ...]]

    def parse_v3(
        self, name: str, configuration: dict[str, Any], json_path: str, parse_field: ParseField | None
    ) -> np.dtype[Any] | None:
        """Parse a name without configuration."""
        if name not in self.names:
            return None
        need_no_more(configuration, (), f"{json_path}.configuration")
        return OBJECT

    def to_v3(self, dtype: np.dtype[Any]) -> Any:
        """Raise, because the dtype does not say which kind of objects it holds."""
        raise no_data_type(dtype)

    def fill_value_to_json(self, scalar: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Return byte strings in base64, other objects unchanged."""
        return to_base64(scalar) if isinstance(scalar, bytes) else scalar


class VariableLengthText(VariableLength):
    """Strings."""

    names: ClassVar[tuple[str, ...]] = ("string", "variable_length_utf8")

    def fill_value_from_json(self, value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Parse a string."""
        if isinstance(value, str):
            return value
        raise FillValueError("a string")


class VariableLengthBytes(VariableLength):
    """Byte strings."""

    names: ClassVar[tuple[str, ...]] = ("variable_length_bytes", "bytes")

    def fill_value_from_json(self, value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Parse base64, or an array of integers."""
        if isinstance(value, str):
            return from_base64(value)
        if (data := from_byte_array(value)) is not None:
            return data
        if spelling.lenient and not value:
            return b""
        raise FillValueError("a base64 string or an array of integers from 0 to 255")


TEXT: Final = VariableLengthText()
BYTES: Final = VariableLengthBytes()


def is_variable_bytes(data_type: str) -> bool:
    """Return whether a v3 data type holds byte strings of any length."""
    return data_type in BYTES.names


def registered_name(data_type: str) -> str:
    """Return the name that the registry has for a v3 data type: an alias of strings is read, but not written."""
    return TEXT.names[0] if data_type in TEXT.names else data_type
