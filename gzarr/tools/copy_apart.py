"""A copy that looks, before it erases its destination, whether that is the source under another address.

One bucket may be reached by several names of a server (``localhost`` and ``127.0.0.1``, an alias, a proxy), by obstore,
by fsspec and by a web server before it, and may even be a local directory. No address tells that, so a value is written
at the destination, looked for at the source, and erased.
"""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import ArgumentError, StoreError
from ..stores.base import DirectoryStore
from ..stores.cached_store import CachedStore
from ..stores.fsspec_store import FsspecStore
from ..stores.keys import is_key, join_path
from ..stores.object_store import GivenStore
from ..stores.places import place_of
from ..stores.remote_store import RemoteStore
from .planned_copy import Copy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..metadata.model import ZarrFormat
    from ..stores.base import ReadableStore
    from .planned_copy import CopyTarget

WAY_OUT: Final = "copy to another path, and move the copy if need be"
_REFUSED: Final = re.compile(r"HTTP status 40[13]\b|PermissionError")


class ApartCopy(Copy):
    """A copy whose destination is not erased if its source is there.

    Parameters
    ----------
    target, formats
        As for :class:`gzarr.tools.planned_copy.Copy`.
    source
        Store and path of the node that is copied.
    """

    def __init__(
        self, target: CopyTarget, formats: tuple[ZarrFormat, ZarrFormat], source: tuple[ReadableStore, str]
    ) -> None:
        super().__init__(target, formats)
        self._source = source

    def _steps(self, executor: Any) -> Iterator[int]:
        if self._erase:
            _check_elsewhere(*self._source, self._store, self._path)
        yield from super()._steps(executor)


def _check_elsewhere(source: ReadableStore, path: str, store: Any, target: str) -> None:
    """Refuse to erase a node that is, contains or lies in the source.

    Parameters
    ----------
    source, path
        Store and path of the source.
    store, target
        Store and path of what is to be erased.

    Raises
    ------
    ArgumentError
        If it is.
    StoreError
        If one of the stores cannot be asked.
    """
    values, kept = both = _without_caches(source), _without_caches(store)
    # Of two places on this machine, everything is known.
    if not any(map(_is_remote, both)) or not all(_is_remote(one) or isinstance(one, DirectoryStore) for one in both):
        return
    name = f"gzarr-is-this-the-source-{uuid.uuid4().hex}"
    for below_target, below_source in sorted(_alignments(_parts(values, path), _parts(kept, target))):
        written = join_path(join_path(target, below_target), name)
        sought = join_path(join_path(path, below_source), name)
        if is_key(written) and is_key(sought) and _is_seen(values, sought, kept, written):
            raise ArgumentError(
                f"copy would overwrite {place_of(store, target).label} while it is read as "
                f"{place_of(source, path).label}; nothing was changed: {WAY_OUT}"
            )


def _without_caches(store: Any) -> Any:
    while isinstance(store, CachedStore):
        store = store.store
    return store


def _is_remote(store: object) -> bool:
    return isinstance(store, (RemoteStore, FsspecStore)) and not isinstance(store, GivenStore)


def _parts(store: Any, path: str) -> list[str]:
    """Return the host or bucket and the path of a node, in parts, as the store's address has them."""
    where = os.fsdecode(store.directory()) if isinstance(store, DirectoryStore) else store.url.partition("://")[2]
    return [part for part in (*Path(where).parts, *path.split("/")) if part not in ("", os.sep)]


def _alignments(source: list[str], target: list[str]) -> set[tuple[str, str]]:
    """Return paths below the target and below the source, one of them empty, that may be one place.

    A host or a bucket may be left out of one of both: a bucket may be in the name of the host.
    """
    found = {("", "")}
    for one in (source, source[1:]):
        for other in (target, target[1:]):
            if other[: len(one)] == one:
                found.add(("", "/".join(other[len(one) :])))
            elif one[: len(other)] == other:
                found.add(("/".join(one[len(other) :]), ""))
    return found


def _is_seen(source: Any, sought: str, store: Any, written: str) -> bool:
    """Return whether a value that is written to a store is then in another one; it is erased again."""
    value = f"gzarr looks whether two addresses are one place; this may be erased: {written}".encode()
    store.set(written, value)
    try:
        found = source.get(sought)
    except StoreError as error:
        # Who may not list a bucket is refused what is absent. What is there can be read, as the source can.
        if not _REFUSED.search(str(error)):
            raise
        return False
    finally:
        store.erase(written)
    # Some servers send a page for whatever is absent.
    return found is not None and bytes(found) == value
