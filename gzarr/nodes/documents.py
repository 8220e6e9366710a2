"""Fetching metadata documents from a store; a request is one call of a store method."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..stores.base import ByteRange, ConditionalStore, SizedStore, knows_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from typing_extensions import TypeIs

    from ..stores.base import ReadableStore

#: Limit of a document. Parsed JSON takes up to about 25 times its text; larger documents are refused unread.
MAX_DOCUMENT_NBYTES: Final = 64 << 20
#: Number of nodes whose documents are requested at once, so that memory stays bounded in groups of many children.
NODES_PER_REQUEST: Final = 1000


def fetch(
    store: ReadableStore, keys: Sequence[str], tokens: dict[str, Hashable | None] | None = None
) -> dict[str, bytes]:
    """Return the existing documents by key; one request, or none without keys.

    Parameters
    ----------
    store, keys
        Store, and keys of the documents.
    tokens
        Dictionary that gets a token for each key, for a change on the condition that nobody else has changed the
        document, if the store has such changes.
    """
    if not keys:
        return {}
    if tokens is not None and is_conditional(store):
        answers = store.get_with_tokens(keys, MAX_DOCUMENT_NBYTES)
        tokens.update((key, token) for key, (_, token) in zip(keys, answers, strict=True))
        return {key: value for key, (value, _) in zip(keys, answers, strict=True) if value is not None}
    if isinstance(store, SizedStore):
        values = store.get_small_values(keys, MAX_DOCUMENT_NBYTES)
    else:
        values = store.get_partial_values([(key, ByteRange()) for key in keys])
    return {key: value for key, value in zip(keys, values, strict=True) if value is not None}


def is_conditional(store: object) -> TypeIs[ConditionalStore]:
    """Return whether a store changes values on conditions, by methods that match its others."""
    return (
        isinstance(store, ConditionalStore)
        and knows_of(store, "replace", "set")
        and knows_of(store, "get_with_tokens", "get")
    )


def upward(path: str) -> list[str]:
    """Return a path and the paths of all groups above it, ending with the root."""
    paths = [path]
    while path:
        path = path.rpartition("/")[0]
        paths.append(path)
    return paths
