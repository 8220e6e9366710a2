"""Which way engines reach the values of a store: decided here, once for each array."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...stores.base import LocalFiles, PackedValues, RemoteValues
from .access import Access
from .files import Files
from .packed import PackedCalls, PackedRequests
from .requests import Requests

if TYPE_CHECKING:
    from ...stores.base import ReadableStore


def access_to(store: ReadableStore) -> Access:
    """Return the access to the values of a store, for one array."""
    remote = isinstance(store, RemoteValues)
    if isinstance(store, PackedValues):
        return PackedRequests(store, access_to) if remote else PackedCalls(store, access_to)
    root = store.file_root() if isinstance(store, LocalFiles) else None
    if root is not None:
        return Files(store, root)
    return Requests(store) if remote else Access(store)
