"""What a family of data types is: those that share how they are named and how their fill values are spelled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from ..documents.json import quote
from ..errors import ArgumentError, MetadataError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from .fill_value_spelling import Spelling

#: Larger elements are refused: a document of a few bytes could ask for gigabytes to hold its fill value.
MAX_ITEM_BYTES: Final = 64 << 20

#: From a data type in a document and its JSON path to the dtype; of the fields of structured types.
ParseField: TypeAlias = "Callable[[Any, str], np.dtype[Any]]"


@dataclass(frozen=True, slots=True)
class TypeString:
    """A type string of v2 in its parts: ``"<M8[10us]"``.

    Attributes
    ----------
    text
        All of it.
    order
        ``"<"``, ``">"`` or ``"|"``.
    kind
        NumPy's letter.
    size
        In bytes; of ``U``, in characters.
    factor, unit
        Of time; None where the string has no brackets, ``factor`` is empty where they have no number.
    json_path
        Where it is, for messages.
    """

    text: str
    order: str
    kind: str
    size: int
    factor: str | None
    unit: str | None
    json_path: str

    def unknown(self) -> UnsupportedError:
        """Return the error for a type that does not exist."""
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
    """Data types that share how they are named and how their fill values are spelled.

    Attributes
    ----------
    kinds
        NumPy's letters of their kinds, which type strings of v2 have too.
    """

    kinds: ClassVar[str]

    @abstractmethod
    def parse_v3(
        self, name: str, configuration: dict[str, Any], json_path: str, parse_field: ParseField | None
    ) -> np.dtype[Any] | None:
        """Parse a data type of v3.

        Parameters
        ----------
        name
            Of the data type.
        configuration
            As parsed from JSON.
        json_path
            Where the data type is, for messages.
        parse_field
            For the fields of structured types; None where they may not be nested any deeper.

        Returns
        -------
        The dtype in native byte order; None if ``name`` is none of the family's.

        Raises
        ------
        MetadataError
            If it is malformed.
        UnsupportedError
            If NumPy has no such type.
        """

    @abstractmethod
    def to_v3(self, dtype: np.dtype[Any]) -> Any:
        """Return the data type of v3: a name, or an object with name and configuration.

        Raises
        ------
        ArgumentError
            If there is none.
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
        """Return the data type of v2: a type string, a name or an array of fields; byte orders are those of ``dtype``.

        Raises
        ------
        ArgumentError
            If there is none.
        """
        return dtype.str

    @abstractmethod
    def fill_value_from_json(self, value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Parse a fill value.

        Parameters
        ----------
        value
            As parsed from JSON.
        dtype
            As stored: base64 texts hold bytes in its byte order.
        spelling
            Of the document.

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
    """Return the error for a dtype that no data type of Zarr is."""
    return ArgumentError(f"Zarr has no data type for {dtype}")


def checked_size(nbytes: int, json_path: str) -> int:
    """Return the size of an element in bytes if elements can have it."""
    if not 1 <= nbytes <= MAX_ITEM_BYTES:
        raise UnsupportedError(
            f"elements of {quote(nbytes)} bytes; elements have from 1 to {MAX_ITEM_BYTES} bytes here",
            json_path=json_path,
        )
    return nbytes


def configured_integer(configuration: dict[str, Any], name: str, json_path: str) -> int:
    """Return an integer of a configuration at ``json_path``."""
    value = configuration.get(name)
    if type(value) is not int:
        raise MetadataError(f"expected an integer, got {quote(value)}", json_path=f"{json_path}.{name}")
    return value


def need_no_more(configuration: dict[str, Any], names: tuple[str, ...], json_path: str) -> None:
    """Raise if a configuration at ``json_path`` has other members."""
    for name in configuration:
        if name not in names:
            raise MetadataError(f"the data type does not know {quote(name)}", json_path=json_path)
