"""Finding out, before something is overwritten, whether it is read under another address, or by references.

One bucket may be reached by several names of a server (``localhost`` and ``127.0.0.1``, an alias, a proxy), by obstore,
by fsspec and by a web server before it, and may even be a local directory. No address tells that, so a value is written
where something is to be overwritten, looked for where something is read, and erased.

Virtual datasets are read from the files that their references point to, so it is these that must not be overwritten.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from ..errors import StoreError
from .base import DirectoryStore, is_listable
from .cached_store import CachedStore
from .fsspec_store import FsspecStore
from .keys import is_key, join_path
from .object_store import GivenStore
from .places import Place, place_of
from .places_read import check_apart, nodes_read, refusal
from .referred_files import Files, files_read, is_virtual
from .remote_store import RemoteStore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .base import ReadableStore, Store

#: Most levels between two places, one in the other, that are looked through: each costs a request.
_MOST_LEVELS: Final = 7
#: Answers by which a server refuses a request for good. (The ones left out ask to try again.)
_REFUSED: Final = re.compile(r"(?:HTTP status|ClientResponseError:) 4(?!08|21|25|29)\d\d\b|PermissionError")
_REFUSED_NUMBERS: Final = (errno.EACCES, errno.EPERM)


def check_not_overwritten(value: Any, store: Store, path: str, *, operation: str, instead: str) -> None:
    """Refuse to overwrite a node that a value is still to be read from, under whichever address.

    Parameters
    ----------
    value
        Anything that will be read.
    store, path
        Store and path of what is overwritten, with everything below it.
    operation
        What writes, for the message.
    instead
        What to do instead.

    Raises
    ------
    ArgumentError
        If they overlap. The message names both.
    StoreError
        If no address tells, and one of the stores cannot be asked.
    """
    check_apart(value, place_of(store, path), operation=operation, instead=instead)
    check_elsewhere(nodes_read(value), store, path, operation=operation, instead=instead)


def check_elsewhere(
    nodes: Iterable[tuple[ReadableStore, str]], store: Store, path: str, *, operation: str, instead: str
) -> None:
    """Look whether a node that is to be overwritten is, contains or lies in one that is read, where no address tells.

    Also whether it has files that the references of a virtual one point to, under whichever address.

    There is no request if both are on this machine, and one if nothing is there to be overwritten.

    Parameters
    ----------
    nodes
        Stores and paths of what is read.
    store, path, operation, instead
        As for :func:`check_not_overwritten`.

    Raises
    ------
    ArgumentError
        If it is.
    StoreError
        If one of the stores cannot be asked.
    """
    kept = _without_caches(store)
    direct, virtual = [], []
    for node in nodes:
        place = place_of(*node)
        if is_virtual(place):
            virtual.append(place)
        else:
            direct.append(node)
    files: list[Files] = []
    # Where nothing is, nothing is lost.
    if virtual and _has_keys(kept, path):
        for place in virtual:
            files += _files_apart(place, place_of(store, path), operation=operation, instead=instead)
    name = f"gzarr-is-this-the-source-{uuid.uuid4().hex}"
    # For each path below the target, where a value that is written there may be seen.
    wanted: dict[str, list[tuple[tuple[ReadableStore, str], Any, str]]] = {"": []}
    sources = [(node, None) for node in direct] + [((one.store, ""), one.paths) for one in files]
    for node, paths in sources:
        values = _without_caches(node[0])
        if not _may_be_one(values, kept):
            continue
        for below_target, below_source in _alignments(_parts(values, node[1]), _parts(kept, path)):
            # Beside files that are read, others may be overwritten.
            if paths is not None and not any(f"{one}/".startswith(_folder(below_source)) for one in paths):
                continue
            sought = join_path(join_path(node[1], below_source), name)
            if is_key(sought) and is_key(join_path(join_path(path, below_target), name)):
                wanted.setdefault(below_target, []).append((node, values, sought))
    if not wanted[""] or not _has_keys(kept, path):
        return
    for below, places in wanted.items():
        at = join_path(path, below)
        # Nothing is read below the target where nothing is. Nor may a look leave directories there.
        if below and not _has_keys(kept, at):
            continue
        seen = _first_seen(kept, join_path(at, name), [(values, sought) for _, values, sought in places])
        if seen is not None:
            raise refusal(operation, place_of(store, path), place_of(*places[seen][0]), instead)


def _files_apart(place: Place, target: Place, *, operation: str, instead: str) -> list[Files]:
    """Return the files that a virtual node is read from; raise ArgumentError if the target is known to have one."""
    found = files_read(place)
    for files in found:
        # There may be many files, and finding out the place of each asks the operating system many times.
        folders: dict[str, Place] = {}
        directory = os.fsdecode(files.store.directory()) if isinstance(files.store, DirectoryStore) else None
        for path in files.paths:
            folder, _, name = path.rpartition("/")
            if directory is not None and os.path.islink(os.path.join(directory, path)):  # noqa: PTH114, PTH118
                overlaps = place_of(files.store, path).overlaps(target)
            else:
                if folder not in folders:
                    folders[folder] = place_of(files.store, folder)
                overlaps = folders[folder].overlaps(target, name)
            if overlaps:
                raise refusal(operation, target, place_of(files.store, path), instead)
    return found


def _folder(path: str) -> str:
    return f"{path}/" if path else ""


def _without_caches(store: Any) -> Any:
    while isinstance(store, CachedStore):
        store = store.store
    return store


def _may_be_one(*stores: Any) -> bool:
    """Return whether two stores may share values though no address tells. Of two on this machine, all is known."""
    return any(map(_is_remote, stores)) and all(_is_remote(one) or isinstance(one, DirectoryStore) for one in stores)


def _is_remote(store: object) -> bool:
    return isinstance(store, (RemoteStore, FsspecStore)) and not isinstance(store, GivenStore)


def _parts(store: Any, path: str) -> list[str]:
    """Return the host or bucket and the path of a node, in parts, as the store's address has them."""
    if isinstance(store, DirectoryStore):
        where = os.fsdecode(store.directory())
    else:
        scheme, _, where = store.url.partition("://")
        # In a URL of the web, other characters stand for some of a path.
        where = unquote(where) if scheme.rpartition("::")[2] in ("http", "https") else where
    return [part for part in (*Path(where).parts, *path.split("/")) if part not in ("", os.sep)]


def _alignments(source: list[str], target: list[str]) -> Iterator[tuple[str, str]]:
    """Yield paths below the target and below the source, one of them empty, that may be one place.

    Whatever the two have above them, the one that contains the other has the end of the other's path below it.
    """
    yield "", ""
    for left, right in (([], target), (source, [])):
        for count in range(1, min(len(left or right), _MOST_LEVELS) + 1):
            yield "/".join(left[-count:]), "/".join(right[-count:])


def _has_keys(store: Any, path: str) -> bool:
    """Return whether there are keys below a path, or the store cannot tell."""
    try:
        return not is_listable(store) or any(True for _ in store.list_prefix(_folder(path)))
    except StoreError:
        return True


def _first_seen(store: Any, written: str, places: Iterable[tuple[Any, str]]) -> int | None:
    """Return the number of the first place where a value that is written to a store is seen; it is erased again.

    Whoever may write the keys of Zarr need not be allowed to write others: then there is no telling.
    """
    value = f"gzarr looks whether two addresses are one place; this may be erased: {written}".encode()
    is_written = False
    try:
        store.set(written, value)
        is_written = True
        return next((i for i, (values, sought) in enumerate(places) if _holds(values, sought, value)), None)
    except StoreError as error:
        if is_written or not _is_refused(error):
            raise
        return None
    finally:
        # A write that was interrupted, or whose answer was lost, may have been done; one that was refused was not.
        with contextlib.nullcontext() if is_written else contextlib.suppress(StoreError):
            store.erase(written)


def _holds(store: Any, key: str, value: bytes) -> bool:
    try:
        found = store.get(key)
    except StoreError as error:
        # Who may not list a bucket is refused what is absent. What is there can be read, as the source can.
        if not _is_refused(error):
            raise
        return False
    # Some servers send a page for whatever is absent.
    return found is not None and bytes(found) == value


def _is_refused(error: StoreError) -> bool:
    return error.errno in _REFUSED_NUMBERS or _REFUSED.search(str(error)) is not None
