"""Fetching metadata documents from a store; a request is one call of a store method."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Final

from ..metadata.formats import FORMATS, is_document_name
from ..stores.base import ByteRange, ConditionalStore, SizedStore, knows_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from typing_extensions import TypeIs

    from ..errors import StoreError
    from ..stores.base import ReadableStore

#: Limit of a document. Parsed JSON takes up to about 25 times its text; larger documents are refused unread.
MAX_DOCUMENT_NBYTES: Final = 64 << 20
#: Number of nodes whose documents are requested at once, so that memory stays bounded in groups of many children.
NODES_PER_REQUEST: Final = 1000
# Bytes of the longest name of a file or directory in the usual file systems.
_LONGEST_NAME: Final = 255
#: Names of the documents that make nodes; others, such as attributes in version 2, describe them.
NODE_DOCUMENTS: Final = frozenset(name for format in FORMATS.values() for name in format.node_documents)


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


# Number of times that this process has written consolidated metadata.
_consolidations = 0
# Seconds within which nobody else is taken to have done that.
_RECENT_S: Final = 1.0


def note_consolidation() -> None:
    """Note that consolidated metadata were written, of which other threads may have seen that there are none."""
    global _consolidations
    _consolidations += 1


class Documents:
    """Documents of a store as one call sees them: each is asked for once.

    Parameters
    ----------
    store
        The store.

    Attributes
    ----------
    tokens
        Tokens of the fetched documents by key, for :func:`gzarr.nodes.change.replace_documents`.
    all_keys
        All keys of the store, if a listing has shown them; else None.
    """

    def __init__(self, store: ReadableStore) -> None:
        self.store = store
        self.tokens: dict[str, Hashable | None] = {}
        # None for those that do not exist.
        self._values: dict[str, bytes | None] = {}
        self._seen = time.monotonic(), _consolidations
        self.all_keys: list[str] | None = None

    def fetch(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Return the existing documents by key; one request for those that were not asked for, none without any."""
        wanted = list(dict.fromkeys(keys))
        missing = [key for key in wanted if key not in self._values]
        if missing:
            found = fetch(self.store, missing, self.tokens)
            self._values.update((key, found.get(key)) for key in missing)
        return {key: value for key in wanted if (value := self._values[key]) is not None}

    def can_be_relied_on(self) -> bool:
        """Return whether a change may still start from what was seen.

        That is so in stores in which a document is only replaced if nobody has changed it. Consolidated metadata above,
        of which no other document depends, may not have been seen long ago, nor written by this process since.
        """
        seconds, consolidations = self._seen
        return (
            is_conditional(self.store) and consolidations == _consolidations and time.monotonic() - seconds < _RECENT_S
        )

    def note_absent(self, keys: Iterable[str]) -> None:
        """Take some documents, if they were not fetched, for absent: a listing has shown it."""
        for key in keys:
            self._values.setdefault(key, None)


def is_conditional(store: object) -> TypeIs[ConditionalStore]:
    """Return whether a store changes values on conditions, by methods that match its others."""
    return (
        isinstance(store, ConditionalStore)
        and knows_of(store, "replace", "set")
        and knows_of(store, "get_with_tokens", "get")
    )


def is_too_long(key: str, error: StoreError) -> bool:
    """Return whether a store failed because it can hold nothing at a key or prefix: a name in it is too long.

    A path of names that are not too long may be refused as a whole, but there may be something at its end.
    """
    names = key.split("/") if error.errno == errno.ENAMETOOLONG else []
    return any(len(name.encode(errors="surrogatepass")) > _LONGEST_NAME for name in names)


def is_document(key: str) -> bool:
    """Return whether a key has the name of a document in any format but a draft, whose documents lie elsewhere."""
    return is_document_name(key.rpartition("/")[2])


def from_the_top(keys: Iterable[str]) -> list[str]:
    """Return documents in the order in which they are erased; they are written in the opposite one.

    A node goes before those below it, and with the first of its documents: no reader sees it without the others.
    """
    return sorted(keys, key=lambda key: (key.count("/"), key.rpartition("/")[2] not in NODE_DOCUMENTS))


def upward(path: str) -> list[str]:
    """Return a path and the paths of all groups above it, ending with the root."""
    paths = [path]
    while path:
        path = path.rpartition("/")[0]
        paths.append(path)
    return paths
