"""Display of nodes: one-line reprs, tables and trees as text, and the HTML of notebooks.

Nothing here makes requests to a store. Text from a store is escaped for terminals and HTML.
"""

from __future__ import annotations

from .text import (
    Info,
    MemberCounts,
    Tree,
    array_info,
    array_repr,
    group_info,
    group_repr,
    has_fixed_size,
    printable,
    readable_size,
)

__all__ = [
    "Info",
    "MemberCounts",
    "Tree",
    "array_info",
    "array_repr",
    "group_info",
    "group_repr",
    "has_fixed_size",
    "printable",
    "readable_size",
]
