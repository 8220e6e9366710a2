"""Folders: paths without a document, with nodes below.

All nodes in a folder are members of one group as long as the folder has no document. With one, it is a group of one
format, whose members are nodes of that format: others would be hidden.
"""

from __future__ import annotations

import contextlib
from itertools import islice
from typing import TYPE_CHECKING, Final

from ..errors import ArgumentError, MetadataError, StoreError
from ..metadata.formats import node_at
from ..stores.base import RemoteValues, is_listable
from .documents import NODE_DOCUMENTS, Documents
from .reader import NOT_LISTABLE, listed_below

if TYPE_CHECKING:
    from ..metadata.format import Format
    from ..stores.base import ReadableStore

# Limits of the keys that are looked at, one page of a listing of an object store, and of the nodes.
_PROBED_KEYS: Final = 1000
_PROBED_NODES: Final = 20


def hides_nodes(documents: Documents, path: str, format: Format, *, apart_from: str | None = None) -> bool:
    """Return whether a document of a group would hide nodes below a path that has none: such as are of other formats.

    Costs a listing, if not all keys are known, and one request if there are documents below. Only the first are seen,
    apart from those of one node.
    """
    prefix = f"{path}/" if path else ""
    places: dict[str, list[str]] = {}
    for key in _first_keys(documents, prefix):
        place, _, name = key.rpartition("/")
        if len(place) > len(path) and name in NODE_DOCUMENTS and place != apart_from:
            places.setdefault(place, []).append(key)
    outermost: list[str] = []
    for place in sorted(places, key=lambda place: place.count("/")):
        if len(outermost) < _PROBED_NODES and not any(place.startswith(f"{above}/") for above in outermost):
            outermost.append(place)
    found = documents.fetch([key for place in outermost for key in places[place]])
    for place in outermost:
        # Files of other programs may have the names of documents.
        with contextlib.suppress(MetadataError):
            present = node_at(place, found)
            if present is not None and not format.shares_hierarchy(present[0]):
                return True
    return False


def _first_keys(documents: Documents, prefix: str) -> list[str]:
    store = documents.store
    if documents.all_keys is not None:
        return [key for key in documents.all_keys if key.startswith(prefix)]
    if not is_listable(store):
        return []
    try:
        return list(islice(store.list_prefix(prefix), _PROBED_KEYS))
    except StoreError as error:
        if error.errno is None:
            # Stores may be unable to list, in the state they are in or with the rights of the user, and able to store.
            return []
        if error.errno not in NOT_LISTABLE or isinstance(store, RemoteValues):
            raise
    return list(islice(listed_below(store, prefix), _PROBED_KEYS))


def check_hides_nothing(store: ReadableStore, path: str, format: Format) -> None:
    """Refuse to make a group of a folder if that would hide nodes in it: :func:`hides_nodes`.

    Raises
    ------
    ArgumentError
        If so.
    """
    if hides_nodes(Documents(store), path, format):
        raise ArgumentError(
            f"'/{path}' in {store!r} is a folder with nodes of other formats, which would be hidden if it were a group "
            f"of {format.title}; create a group below it, or move them elsewhere"
        )
