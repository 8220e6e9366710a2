"""Interface of a family: data types that share naming and the spelling of fill values."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from ..documents.configuration import whole
from ..documents.json import quote
from ..errors import ArgumentError, MetadataError, UnsupportedError
from . import number_types

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from .fill_value_spelling import Spelling

#: Larger elements are refused: a document of a few bytes could otherwise allocate gigabytes for a fill value.
MAX_ITEM_BYTES: Final = 64 << 20

#: Parses a field of a structured type: from its data type and JSON path to the dtype.
ParseField: TypeAlias = "Callable[[Any, str], np.dtype[Any]]"


@dataclass(frozen=True, slots=True)
class TypeString:
    """The parts of a v2 type string such as ``"<M8[10us]"``.

    Attributes
    ----------
    text
        Whole type string.
    order
        ``"<"``, ``">"`` or ``"|"``.
    kind
        NumPy's kind letter.
    size
        Size in bytes; for ``U``, in characters.
    factor, unit
        Factor and unit of time; None if the string has no brackets. ``factor`` is empty if they hold no number.
    json_path
        Location in the document, for messages.
    """

    text: str
    order: str
    kind: str
    size: int
    factor: str | None
    unit: str | None
    json_path: str

    def unknown(self) -> UnsupportedError:
        """Return the error for an unknown type."""
        return UnsupportedError(f"no data type {quote(self.text)}", json_path=self.json_path)

    def need_no_unit(self) -> None:
        """Raise if there is a unit of time."""
        if self.unit is not None:
            raise MetadataError(f"{quote(self.text)} cannot have a unit of time", json_path=self.json_path)

    def need_byte_order(self) -> None:
        """Raise if there is no byte order."""
        if self.order == "|":
            raise MetadataError(f"{quote(self.text)} needs a byte order, '<' or '>'", json_path=self.json_path)


class Family(ABC):
    """Data types that share naming and the spelling of fill values.

    Attributes
    ----------
    kinds
        NumPy's kind letters of the family, which v2 type strings use too.
    """

    kinds: ClassVar[str]

    @abstractmethod
    def parse_v3(
        self, name: str, configuration: dict[str, Any], json_path: str, parse_field: ParseField | None
    ) -> np.dtype[Any] | None:
        """Parse a v3 data type.

        Parameters
        ----------
        name
            Name of the data type.
        configuration
            Parsed JSON.
        json_path
            Location of the data type, for messages.
        parse_field
            Parser for the fields of structured types; None if they may not be nested any deeper.

        Returns
        -------
        The dtype in native byte order; None if ``name`` is not in this family.

        Raises
        ------
        MetadataError
            If it is malformed.
        UnsupportedError
            If NumPy has no such type.
        """

    @abstractmethod
    def to_v3(self, dtype: np.dtype[Any]) -> Any:
        """Return the v3 data type: a name, or an object with name and configuration.

        Raises
        ------
        ArgumentError
            If there is no such data type.
        """

    def parse_v2(self, text: TypeString) -> np.dtype[Any]:
        """Return the dtype of a type string with one of :attr:`kinds`, in its byte order.

        Raises
        ------
        MetadataError
            If it is malformed.
        UnsupportedError
            If NumPy has no such type.
        """
        raise text.unknown()

    def to_v2(self, dtype: np.dtype[Any]) -> Any:
        """Return the v2 data type, in the byte order of ``dtype``: a type string, a name or an array of fields.

        Raises
        ------
        ArgumentError
            If there is no such data type.
        """
        return dtype.str

    @abstractmethod
    def fill_value_from_json(self, value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Parse a fill value.

        Parameters
        ----------
        value
            Parsed JSON.
        dtype
            Dtype as stored: base64 holds bytes in its byte order.
        spelling
            Spelling of the document's version.

        Returns
        -------
        NumPy scalar in native byte order.

        Raises
        ------
        FillValueError
            If it is not an element of the type.
        """

    @abstractmethod
    def fill_value_to_json(self, scalar: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Return an element as JSON: the inverse of :meth:`fill_value_from_json`."""


def no_data_type(dtype: np.dtype[Any]) -> ArgumentError:
    """Return the error for a dtype without a Zarr data type; the message lists those that have one."""
    rows = number_types.NUMBER_TYPES.rows
    numpys = ", ".join(row.dtype_name for row in rows if row.is_numpys)
    others = ", ".join(row.dtype_name for row in rows if not row.is_numpys)
    return ArgumentError(
        f"Zarr has no data type for {dtype}; it has {numpys}, strings, bytes, dates, durations, records, and from "
        f"ml_dtypes {others}"
    )


def checked_size(nbytes: int, json_path: str) -> int:
    """Return the size of an element in bytes; raise if elements cannot have that size."""
    if not 1 <= nbytes <= MAX_ITEM_BYTES:
        raise UnsupportedError(
            f"elements of {quote(nbytes)} bytes are not supported; an element has 1 to {MAX_ITEM_BYTES} bytes",
            json_path=json_path,
        )
    return nbytes


def need_members(name: str, configuration: dict[str, Any], examples: dict[str, Any], json_path: str) -> None:
    """Raise if the configuration of a data type lacks members, given with an example of each.

    Parameters
    ----------
    name
        Name of the data type.
    configuration, json_path
        Its configuration and where that is.
    examples
        Members that it needs, with values that it could have.
    """
    missing = [member for member in examples if member not in configuration]
    if missing:
        example = json.dumps({"name": name, "configuration": examples})
        raise MetadataError(
            f"the data type {name!r} lacks {' and '.join(map(repr, missing))} in its configuration; such as {example}",
            json_path=json_path,
        )


def configured_integer(configuration: dict[str, Any], name: str, json_path: str) -> int:
    """Return an integer member of a configuration at ``json_path``; it is one there afterwards."""
    value = whole(configuration.get(name), f"{json_path}.{name}")
    if type(value) is not int:
        raise MetadataError(f"expected an integer, got {quote(value)}", json_path=f"{json_path}.{name}")
    configuration[name] = value
    return value


def need_no_more(configuration: dict[str, Any], names: tuple[str, ...], json_path: str) -> None:
    """Raise if a configuration at ``json_path`` has members other than ``names``."""
    for name in configuration:
        if name not in names:
            raise MetadataError(f"the data type does not know {quote(name)}", json_path=json_path)
