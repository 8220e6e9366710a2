"""What is at the place of a new node, and above it: looked at together, once for each new node.

In a store that lists by pages (:class:`gzarr.stores.base.PagedListing`), one page says more than requests for all the
documents that there could be. It is asked for at the same time as the documents of the groups above:

- If a page has all keys of the store, it shows which documents there are.
- Otherwise, and from then on in this store, the page of the new node shows whether there is anything at its place.
  Documents of a group in formats that count less than its own are then not looked for.

In other stores, all documents that could matter are one request.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ..metadata.formats import FORMATS, V3_DRAFT, consolidated_keys, found_first, node_keys
from ..stores import io_threads
from ..stores.base import PagedListing, is_listable, knows_of
from .documents import Documents, upward

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeGuard

    from ..metadata.format import Format
    from ..stores.base import ReadableStore

# Stores of which a page does not have all keys.
_large: WeakSet[Any] = WeakSet()


def look_around(store: ReadableStore, path: str, format: Format) -> tuple[Documents, bool]:
    """Look at the place of a new node, and at the groups above it.

    Parameters
    ----------
    store, path, format
        Store, path and format of the node.

    Returns
    -------
    Documents, as far as they were looked at, and whether it is known that the store has nothing at and below the path.
    """
    documents = Documents(store)
    above = upward(path)[1:]
    if not _has_pages(store) or format.is_searched_last:
        documents.fetch([*_keys_at(path), *(key for group in above for key in _keys_of_group(group))])
        return documents, False
    is_small = not path or store not in _large
    prefix = "" if is_small else f"{path}/"
    page = io_threads.start(partial(store.list_page, prefix))
    # Those of formats that count less come last, and are not needed if there is one of these.
    own = found_first(format)
    documents.fetch([key for group in above for f in own for key in _keys_in(group, f)])
    keys, are_all = page()
    if is_small and not are_all and path:
        _large.add(store)
        is_small = False
        keys, _ = store.list_page(f"{path}/")
    below = f"{path}/" if path else ""
    is_empty = not any(key.startswith(below) for key in keys)
    if is_small:
        if are_all:
            documents.all_keys = list(keys)
        present = set(keys)
        known = [*_keys_at(path), *(key for group in above for key in _keys_of_group(group))]
        documents.note_absent(key for key in known if key not in present)
        return documents, is_empty
    if is_empty:
        documents.note_absent(_keys_at(path))
    for group in above:
        if any(f.node_type(group, documents.fetch(_keys_in(group, f))) is not None for f in own):
            documents.note_absent(_keys_of_group(group))
    return documents, is_empty


def _has_pages(store: ReadableStore) -> TypeGuard[PagedListing]:
    return isinstance(store, PagedListing) and knows_of(store, "list_page", "list_prefix") and is_listable(store)


def _keys_in(group: str, format: Format) -> Iterable[str]:
    """Return the keys of documents that make a node of a format, or that have the consolidated metadata of a group."""
    consolidated = format.consolidated_key(group)
    return dict.fromkeys([*format.node_keys(group), *([] if consolidated is None else [consolidated])])


def _keys_of_group(group: str) -> list[str]:
    """Return the keys of documents of a group above a new node that matter to it, in all formats."""
    return [*node_keys(group), *consolidated_keys(group), V3_DRAFT.entry_point_key(group)]


def _keys_at(path: str) -> list[str]:
    """Return the keys of documents that a node at a path may have, in all formats."""
    keys = [key for format in FORMATS.values() for key in format.keys(path, consolidated=False)]
    return [*keys, V3_DRAFT.entry_point_key(path)]
