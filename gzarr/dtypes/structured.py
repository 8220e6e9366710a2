"""Family of structured types: elements with named fields of other data types.

Sources: https://github.com/zarr-developers/zarr-extensions/tree/main/data-types/struct,
https://zarr-specs.readthedocs.io/en/latest/v2/v2.0.html#data-type-encoding
"""

from __future__ import annotations

import math
import pickle
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..documents.configuration import whole_items
from ..documents.json import quote
from ..errors import ArgumentError, MetadataError, UnsupportedError
from .family import Family, checked_size, need_no_more
from .fill_value_spelling import FillValueError, bytes_of_element, from_base64, raw_element_from_json, to_base64
from .properties import native

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from .family import ParseField
    from .fill_value_spelling import Spelling

#: Maximum nesting of structured types.
MAX_NESTING: Final = 32
_NAMES: Final = ("structured", "struct")
# What zarr-python 2 writes for a fill value of 0, its default, if there are objects in elements.
_PICKLES_OF_ZERO: Final = frozenset(pickle.dumps(0, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1))


class Structured(Family):
    """Elements with fields.

    Parameters
    ----------
    family_of
        Function that returns the family of a field's dtype.
    """

    kinds = "V"

    def __init__(self, family_of: Callable[[np.dtype[Any]], Family]) -> None:
        self._family_of = family_of

    def parse_v3(
        self, name: str, configuration: dict[str, Any], json_path: str, parse_field: ParseField | None
    ) -> np.dtype[Any] | None:
        """Parse ``{"fields": [{"name": "x", "data_type": "int8"}, ["y", "int16"]]}``."""
        if name not in _NAMES:
            return None
        need_no_more(configuration, ("fields",), f"{json_path}.configuration")
        items = configuration.get("fields")
        at = f"{json_path}.configuration.fields"
        if not isinstance(items, list | tuple) or not items:
            raise MetadataError(f"expected a non-empty array of fields, got {quote(items)}", json_path=at)
        if parse_field is None:
            raise _too_deep(at)
        fields: list[tuple[Any, ...]] = []
        # There may be tens of thousands, of few types.
        known: dict[str, np.dtype[Any]] = {}
        for i, item in enumerate(items):
            if isinstance(item, dict) and set(item) == {"name", "data_type"}:
                field, data_type = item["name"], item["data_type"]
            elif isinstance(item, list | tuple) and len(item) == 2:
                field, data_type = item
            else:
                raise MetadataError(
                    f'expected {{"name": …, "data_type": …}} or [name, data type], got {quote(item)}',
                    json_path=f"{at}[{i}]",
                )
            dtype = known.get(data_type) if isinstance(data_type, str) else None
            if dtype is None:
                dtype = parse_field(data_type, f"{at}[{i}]")
                if isinstance(data_type, str):
                    known[data_type] = dtype
            fields.append((field, dtype))
        return _structured(fields, at)

    def to_v3(self, dtype: np.dtype[Any]) -> dict[str, Any]:
        """Return an object with the fields."""
        fields = []
        for name in dtype.names or ():
            field = dtype[name]
            if field.subdtype is not None:
                raise ArgumentError(
                    f"the field {name!r} holds arrays ({field}), for which version 3 has no data type; use one field "
                    "per element, or zarr_format=2"
                )
            fields.append([name, self._family_of(field).to_v3(field)])
        return {"name": _NAMES[0], "configuration": {"fields": fields}}

    def parse_v2_fields(self, value: Any, json_path: str, parse_field: ParseField | None) -> np.dtype[Any]:
        """Parse ``[["x", "|i1"], ["y", "<i2", [2, 3]], ["z", "|O"]]``.

        Parameters
        ----------
        value
            Parsed JSON.
        json_path
            Location in the document, for messages.
        parse_field
            Parser for the fields; None if structured types may not be nested any deeper.

        Raises
        ------
        MetadataError
            If it is malformed.
        UnsupportedError
            If it is well formed, but NumPy has no such type.
        """
        if not isinstance(value, list | tuple) or not value:
            raise MetadataError(
                f"expected a type string or an array of fields, got {quote(value)}", json_path=json_path
            )
        if parse_field is None:
            raise _too_deep(json_path)
        fields: list[tuple[Any, ...]] = []
        for i, item in enumerate(value):
            at = f"{json_path}[{i}]"
            if not isinstance(item, list | tuple) or len(item) not in (2, 3):
                raise MetadataError(f"expected [name, type] or [name, type, shape], got {quote(item)}", json_path=at)
            dtype = parse_field(item[1], f"{at}[1]")
            if len(item) == 2:
                fields.append((item[0], dtype))
                continue
            shape = whole_items(item[2] if isinstance(item[2], list | tuple) else [item[2]], f"{at}[2]")
            if len(shape) > 32 or not all(type(n) is int and 0 < n < 2**31 for n in shape):
                raise MetadataError(
                    f"the shape of a field needs positive integers, got {quote(item[2])}", json_path=f"{at}[2]"
                )
            if isinstance(item, list):
                item[2] = shape if isinstance(item[2], list | tuple) else shape[0]
            fields.append((item[0], dtype, tuple(shape)))
        return _structured(fields, json_path, objects=True)

    def to_v2(self, dtype: np.dtype[Any]) -> list[Any]:
        """Return an array of fields."""
        fields: list[Any] = []
        for name in dtype.names or ():
            field = dtype[name]
            if field.subdtype is None:
                fields.append([name, self._family_of(field).to_v2(field)])
            else:
                base, shape = field.subdtype
                fields.append([name, self._family_of(base).to_v2(base), list(shape)])
        return fields

    def fill_value_from_json(self, value: Any, dtype: np.dtype[Any], spelling: Spelling) -> Any:
        """Parse an object with a fill value for each field (not in v2), or base64 of the whole element."""
        if dtype.hasobject:
            return _fill_value_with_objects(value, dtype)
        if not isinstance(value, dict) or spelling.lenient:
            return raw_element_from_json(value, dtype, spelling)
        as_read = native(dtype)
        names = dtype.names or ()
        if set(value) != set(names):
            raise FillValueError(f"an object with the fields {quote(list(names))}")
        result = np.zeros((), as_read)
        for name in names:
            field = as_read[name]
            try:
                result[name] = self._family_of(field).fill_value_from_json(value[name], field, spelling)
            except FillValueError as error:
                found = error.value if error.below else value[name]
                raise FillValueError(str(error), found, f".{name[:100]}{error.below}") from None
        return result[()]

    def fill_value_to_json(self, scalar: Any, dtype: np.dtype[Any], spelling: Spelling) -> str | None:
        """Return base64 of the whole element; for objects, what :func:`_fill_value_with_objects` reads."""
        if dtype.hasobject:
            return None if _first_object(scalar) is None else to_base64(pickle.dumps(0))
        return to_base64(bytes_of_element(scalar, dtype))


def _too_deep(json_path: str) -> MetadataError:
    return MetadataError(f"structured types are nested more than {MAX_NESTING} deep", json_path=json_path)


def _structured(fields: list[tuple[Any, ...]], json_path: str, *, objects: bool = False) -> np.dtype[Any]:
    seen: set[str] = set()
    for i, name in enumerate(field[0] for field in fields):
        if not isinstance(name, str) or not name:
            raise MetadataError(f"a field needs a name, got {quote(name)}", json_path=f"{json_path}[{i}]")
        if name in seen:
            raise MetadataError(f"the field name {quote(name)} occurs twice", json_path=f"{json_path}[{i}]")
        seen.add(name)
        if fields[i][1].hasobject and not objects:
            raise UnsupportedError("a field of a structured type needs a fixed size", json_path=f"{json_path}[{i}]")
    size = sum(f[1].itemsize * (math.prod(f[2]) if len(f) > 2 else 1) for f in fields)
    checked_size(size, json_path)
    try:
        return np.dtype(fields)
    except (TypeError, ValueError, UnicodeError) as error:
        raise MetadataError(f"not a structured type: {str(error)[:200]}", json_path=json_path) from None


# -- fill values of elements with objects


def _fill_value_with_objects(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return an element with objects from null or a pickle of 0; others are not unpickled, for they may run code."""
    zeros = np.zeros((), native(dtype))
    if value is None:
        _set_none(zeros)
    elif not isinstance(value, str) or from_base64(value) not in _PICKLES_OF_ZERO:
        raise FillValueError("null or a pickled 0, since the elements hold objects")
    return zeros[()]


def _set_none(elements: npt.NDArray[Any]) -> None:
    for name in elements.dtype.names or ():
        field = elements[name]
        if field.dtype.fields is not None:
            _set_none(field)
        elif field.dtype.hasobject:
            field[...] = None


def _first_object(element: Any) -> Any:
    """Return the first object in an element."""
    array = np.asarray(element)
    while array.dtype.names is not None:
        array = next(array[name] for name in array.dtype.names if array[name].dtype.hasobject)
    return array.flat[0]
