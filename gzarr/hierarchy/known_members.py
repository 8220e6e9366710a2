"""Nodes below a group, for displays: those that are known, or can be read at once."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from ..display.page import Member, ShownMembers
from ..errors import GzarrError, MetadataError
from ..metadata.model import GroupMetadata
from ..stores.at_hand import has_few_names, is_at_hand

#: Most nodes that are shown, and most groups within each other.
MOST_MEMBERS: Final = 100
_DEEPEST: Final = 4
#: Other names that documents may have.
_DOCUMENTS: Final = 5


def known_members(group: Any) -> ShownMembers | None:
    """Return the first nodes below a group, without a request to a store that others may have to answer.

    Returns
    -------
    With consolidated metadata, nodes on all levels. Else those directly below, if the store answers at once
    (:mod:`gzarr.stores.at_hand`) and has few names there. None if neither holds.
    """
    try:
        if not group.consolidated:
            store = group.store
            if not is_at_hand(store):
                return None
            if not has_few_names(store, group.path and f"{group.path}/", MOST_MEMBERS + _DOCUMENTS):
                return None
        return _members(group, [MOST_MEMBERS], _DEEPEST)
    except (GzarrError, OSError):
        return None


def _members(group: Any, left: list[int], depth: int) -> ShownMembers:
    """Return nodes below a group, at most as many as are left."""
    entries = group._entries()
    shown = dict(islice(entries.items(), left[0]))
    left[0] -= len(shown)
    found = []
    for name, entry in shown.items():
        node = entry.metadata if isinstance(entry.metadata, MetadataError) else group._node(name, entry)
        below = None
        if isinstance(entry.metadata, GroupMetadata) and entry.children is not None and depth:
            below = _members(node, left, depth - 1)
        found.append(Member(name, node, below))
    return ShownMembers(found, len(entries) - len(shown))
