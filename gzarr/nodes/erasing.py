"""Erasing nodes: documents before chunks, so that no reader sees an array that has lost some."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from ..errors import StoreError
from ..metadata.formats import keys_and_prefixes
from ..stores.base import DirectoryStore, GuardedErasing, RemoteValues, is_listable
from ..stores.http_store import HttpStore
from ..stores.locks import hold_node, innermost, is_linked
from .change import documents_first, drop_indexes, hold_documents, list_member, look_above, reader_of
from .documents import from_the_top, is_document

if TYPE_CHECKING:
    from ..metadata.layout import Layout
    from ..stores.base import Store
    from .documents import Documents

# Errors of a full disk, or an exhausted disk quota.
_FULL: Final = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
# Keys that are kept from a listing of what is erased, so that it need not be listed again.
_MOST_KEPT: Final = 100_000


def delete_node(store: Store, path: str) -> None:
    """Erase a node with everything below it.

    Raises
    ------
    StoreError
        If the store fails; nothing was changed if it knows before that it would. The message says if only consolidated
        metadata that names the node is left.
    """
    layout = reader_of(store).layout(path)
    with hold_node(store, path), hold_documents(store, path):
        check_erasable(store, path, layout)
        documents, is_nczarr = look_above(store, path)

        def forget(documents: Documents | None = None) -> None:
            drop_indexes(store, path, documents=documents)
            if is_nczarr:
                list_member(store, path, None)

        try:
            forget(documents)
        except StoreError as error:
            if error.errno not in _FULL:
                raise
        else:
            erase_node(store, path, layout)
            return
        # The disk is full: erase the node first, to make room for changed documents.
        erase_node(store, path, layout)
        try:
            forget()
        except StoreError as error:
            raise StoreError(
                f"'/{path}' was erased from {store!r}, but consolidated metadata above it could not be removed and "
                f"still names it ({error}); run gzarr.consolidate_metadata when there is space",
                key=error.key,
            ) from error


def check_erasable(store: Store, path: str, layout: Layout | None) -> None:
    """Refuse to erase a node of which the system would keep a part, where the store knows that before.

    Raises
    ------
    StoreError
        If so; nothing was changed.
    """
    if isinstance(store, GuardedErasing):
        for prefix in keys_and_prefixes(path, layout)[1]:
            store.check_erasable(prefix)


def erase_node(store: Store, path: str, layout: Layout | None) -> None:
    """Erase a node with everything below it: in one step where the store can, and elsewhere the documents first.

    So no reader sees an array that has lost chunks, neither meanwhile nor if this fails. Of a node that is a symbolic
    link, the link is erased, and nothing of what it leads to.
    """
    keys, prefixes = keys_and_prefixes(path, layout)
    in_steps = _erases_in_steps(store)
    # What is erased in steps has its own documents among those below, except in a draft.
    if layout is not None or not (in_steps or is_linked(store, path)):
        store.erase_values(keys)
    for prefix in prefixes:
        if in_steps:
            _erase_in_steps(store, prefix)
        # Also what has arrived since it was listed, and what else a store keeps for a prefix.
        store.erase_prefix(prefix)


def _erases_in_steps(store: object) -> bool:
    """Return whether readers of a store may see that some keys of a prefix are erased and others are not yet."""
    # Directories get another name, and servers of files erase a folder by one request (to list it takes one for each
    # folder). Changes of stores that take documents first are seen together.
    in_one = isinstance(store, DirectoryStore) or isinstance(innermost(store), HttpStore) or documents_first(store)
    return not in_one and is_listable(store)


def _erase_in_steps(store: Store, prefix: str) -> None:
    """Erase all documents that have a prefix, and where requests take long, also what else one listing shows."""
    most = _MOST_KEPT if isinstance(store, RemoteValues) else 0
    documents: list[str] = []
    others: list[str] = []
    for key in store.list_prefix(prefix):
        if is_document(key):
            documents.append(key)
        elif len(others) < most:
            others.append(key)
    store.erase_values(from_the_top(documents))
    store.erase_values(others)
