"""Families of strings, byte strings and raw bytes of a fixed length.

Sources: https://github.com/zarr-developers/zarr-extensions/tree/main/data-types/fixed-length-utf32,
https://zarr-specs.readthedocs.io/en/latest/v3/data-types/index.html#core-data-types (``r*``)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from ..errors import MetadataError
from .family import Family, checked_size, configured_integer, need_members, need_no_more, no_data_type
from .fill_value_spelling import (
    FillValueError,
    bytes_of_element,
    element_from_bytes,
    from_base64,
    raw_element_from_json,
    to_base64,
)
from .properties import native

if TYPE_CHECKING:
    from .family import ParseField, TypeString
    from .fill_value_spelling import Spelling

_RAW_BITS: Final = re.compile(r"r([0-9]{1,11})")


class FixedLength(Family):
    """Common part of the three families: ``{"length_bytes": 12}``.

    Attributes
    ----------
    name
        Name in v3 documents.
    """

    name: ClassVar[str]

    def parse_v3(
        self, name: str, configuration: dict[str, Any], json_path: str, parse_field: ParseField | None
    ) -> np.dtype[Any] | None:
        """Parse ``{"length_bytes": 12}``."""
        if name != self.name:
            return None
        at = f"{json_path}.configuration"
        need_members(name, configuration, {"length_bytes": 16}, at)
        size = configured_integer(configuration, "length_bytes", at)
        need_no_more(configuration, ("length_bytes",), at)
        return self._of_size(checked_size(size, f"{at}.length_bytes"), f"{at}.length_bytes")

    def _of_size(self, nbytes: int, json_path: str) -> np.dtype[Any]:
        return np.dtype(f"{self.kinds}{nbytes}")

    def to_v3(self, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Return an object with the length in bytes."""
        return {"name": self.name, "configuration": {"length_bytes": dtype.itemsize}}

    def parse_v2(self, text: TypeString) -> np.dtype[Any]:
        """Parse ``|S12``."""
        text.need_no_unit()
        checked_size(text.size, text.json_path)
        return np.dtype(f"{text.order}{text.kind}{text.size}")


class FixedLengthText(FixedLength):
    """Strings of a fixed number of 4-byte characters: ``fixed_length_utf32``, ``<U3``."""

    kinds = "U"
    name = "fixed_length_utf32"

    def _of_size(self, nbytes: int, json_path: str) -> np.dtype[Any]:
        if nbytes % 4:
            raise MetadataError(f"{nbytes} is not a multiple of 4", json_path=json_path)
        return np.dtype(f"=U{nbytes // 4}")

    def parse_v2(self, text: TypeString) -> np.dtype[Any]:
        """Parse ``<U3``."""
        text.need_no_unit()
        text.need_byte_order()
        checked_size(4 * text.size, text.json_path)
        return np.dtype(f"{text.order}U{text.size}")

    def fill_value_from_json(self, value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Parse a string; a lenient spelling truncates longer ones."""
        most = dtype.itemsize // 4
        if not isinstance(value, str) or (not spelling.lenient and len(value) > most):
            raise FillValueError(f"a string of at most {most} characters")
        return np.array(value, native(dtype))[()]

    def fill_value_to_json(self, scalar: Any, dtype: np.dtype[Any], spelling: Spelling) -> str:
        """Return the string."""
        return str(scalar)


class NullTerminatedBytes(FixedLength):
    """Byte strings up to a size, without trailing zeros: ``null_terminated_bytes``, ``|S12``."""

    kinds = "S"
    name = "null_terminated_bytes"

    def fill_value_from_json(self, value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Parse base64; a lenient spelling also takes ASCII characters, and truncates longer strings."""
        if not isinstance(value, str):
            raise FillValueError("base64")
        try:
            data = from_base64(value)
        except FillValueError:
            # Before v2 settled on base64, byte strings were written as plain text.
            if not (spelling.lenient and value.isascii()):
                raise
            data = value.encode("ascii")
        if len(data) > dtype.itemsize and not spelling.lenient:
            raise FillValueError(f"at most {dtype.itemsize} bytes")
        return element_from_bytes(data[: dtype.itemsize].ljust(dtype.itemsize, b"\0"), dtype)

    def fill_value_to_json(self, scalar: Any, dtype: np.dtype[Any], spelling: Spelling) -> str:
        """Return base64."""
        return to_base64(bytes_of_element(scalar, dtype).rstrip(b"\0"))


class RawBytes(FixedLength):
    """Opaque bytes: ``raw_bytes``, ``r96``, ``|V12``."""

    kinds = "V"
    name = "raw_bytes"

    def parse_v3(
        self, name: str, configuration: dict[str, Any], json_path: str, parse_field: ParseField | None
    ) -> np.dtype[Any] | None:
        """Parse ``r96``, or ``raw_bytes`` with its length."""
        match = _RAW_BITS.fullmatch(name)
        if match is None:
            return super().parse_v3(name, configuration, json_path, parse_field)
        need_no_more(configuration, (), f"{json_path}.configuration")
        bits = int(match[1])
        if bits % 8:
            raise MetadataError(f"{name!r} must be a multiple of 8 bits", json_path=json_path)
        return np.dtype(f"V{checked_size(bits // 8, json_path)}")

    def to_v3(self, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Return an object with the length in bytes."""
        _need_raw(dtype)
        return super().to_v3(dtype)

    def to_v2(self, dtype: np.dtype[Any]) -> str:
        """Return ``|V12``."""
        _need_raw(dtype)
        return dtype.str

    def fill_value_from_json(self, value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Parse an array of integers, or base64."""
        return raw_element_from_json(value, dtype, spelling)

    def fill_value_to_json(self, scalar: Any, dtype: np.dtype[Any], spelling: Spelling) -> list[int] | str:
        """Return an array of integers, or base64."""
        data = bytes_of_element(scalar, dtype)
        return list(data) if spelling.bytes_as_integers else to_base64(data)


def _need_raw(dtype: np.dtype[Any]) -> None:
    """Raise for other dtypes of the kind: arrays as elements, and types of other packages, such as ml_dtypes.int1."""
    if dtype.subdtype is not None or not issubclass(dtype.type, np.void):
        raise no_data_type(dtype)


TEXT: Final = FixedLengthText()
BYTES: Final = NullTerminatedBytes()
RAW: Final = RawBytes()
