"""Values with items in an order, such as lists and arrays, apart from texts, bytes, mappings and sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: What can be iterated over, but lists no values: characters, bytes, names, and what has no order.
UNLISTED: Final = (str, bytes, bytearray, Mapping, set, frozenset)


def has_items(value: Any) -> bool:
    """Return whether a value has items in an order.

    The letters of a text and bytes do not count, sets and mappings have no order that is meant, and arrays without
    dimensions have no items.
    """
    if isinstance(value, (*UNLISTED, type)):
        return False
    return hasattr(value, "__iter__") and getattr(value, "ndim", 1) != 0


def is_table(value: Any) -> bool:
    """Return whether a value is a table, whatever library it is of: iterating gives its columns, or their names."""
    # Asked of the class: names of columns are attributes of some tables.
    return hasattr(type(value), "columns")
