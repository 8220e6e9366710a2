"""Fetching metadata documents from a store; a request is one call of a store method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..stores.base import ByteRange, SizedStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..stores.base import ReadableStore

#: Limit of a document. Parsed JSON takes up to about 25 times its text; larger documents are refused unread.
MAX_DOCUMENT_NBYTES: Final = 64 << 20
#: Number of nodes whose documents are requested at once, so that memory stays bounded in groups of many children.
NODES_PER_REQUEST: Final = 1000


def fetch(store: ReadableStore, keys: Sequence[str]) -> dict[str, bytes]:
    """Return the existing documents by key; one request, or none without keys."""
    if not keys:
        return {}
    if isinstance(store, SizedStore):
        values = store.get_small_values(keys, MAX_DOCUMENT_NBYTES)
    else:
        values = store.get_partial_values([(key, ByteRange()) for key in keys])
    return {key: value for key, value in zip(keys, values, strict=True) if value is not None}


def upward(path: str) -> list[str]:
    """Return a path and the paths of all groups above it, ending with the root."""
    paths = [path]
    while path:
        path = path.rpartition("/")[0]
        paths.append(path)
    return paths
