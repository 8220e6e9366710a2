"""Places: where an array or a group lives, whichever store object, spelling, link or URL leads there.

A place is a node in something that holds values: a directory, a bucket, an archive, a mapping in memory. It has one or
several names, each a root and a path below it, and two places overlap if under some root one path begins with the
other. So a node overlaps with the groups above it and with everything below it.

- Directories are known by the identities of all directories above them (device and inode), which resolves links, other
  spellings of a path and mounts of a directory in two places.
- An archive is a place in what holds it, and its entries lie below it.
- Buckets and servers are known by their address, as :mod:`gzarr.stores.locations` names them.
- What is in memory is known by identity, never by content.
- Wrappers (caches, read-only views, stores of other libraries, prefixes) are what they wrap.
- Virtual datasets are places of their own; :mod:`gzarr.stores.referred_files` tells what they are read from.
"""

from __future__ import annotations

import contextlib
import os
from collections import UserDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..reasons import pass_on
from . import fsspec_urls
from .base import DirectoryStore, LocatedStore
from .fsspec_calls import is_a
from .fsspec_references import is_reference_filesystem
from .fsspec_store import FsspecStore
from .keys import join_path
from .locations import location_of
from .memory import MemoryStore
from .object_store import GivenStore
from .remote_store import RemoteStore
from .zarr_kinds import is_zarr_store
from .zarr_store import ZarrStore
from .zip_files import LocalFile
from .zip_reader import ZipReader

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from .base import ReadableStore

    #: For each root, the path below it.
    _Names = dict[Hashable, str]

#: Wrappers within each other.
_DEEPEST: Final = 32
#: Protocols of fsspec for what obstore has a class for.
_CLASSES: Final = {
    "s3": "S3Store",
    "s3a": "S3Store",
    "gs": "GCSStore",
    "gcs": "GCSStore",
    "abfs": "AzureStore",
    "abfss": "AzureStore",
    "az": "AzureStore",
    "adl": "AzureStore",
    "http": "HTTPStore",
    "https": "HTTPStore",
}


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a node lives.

    Attributes
    ----------
    names
        For each root, the path of the node below it.
    unknown
        Store of a class that is known neither by an address nor by a directory, which may be equal to another one; or
        a filesystem of references.
    held
        What is known by identity, so that this stays its own.
    label
        Text for messages.
    """

    names: Mapping[Hashable, str]
    unknown: object
    held: object
    label: str

    def overlaps(self, other: Place, name: str = "") -> bool:
        """Return whether this place and ``other`` are the same node, or one contains the other.

        With ``name``, what has this name in this place is meant, which must not be a link.
        """
        pairs = ((join_path(one, name), two) for one, two in self._pairs(other))
        return any(_begins(one, two) or _begins(two, one) for one, two in pairs)

    def is_same(self, other: Place) -> bool:
        """Return whether this place and ``other`` are the same node."""
        return any(one == two for one, two in self._pairs(other))

    def _pairs(self, other: Place) -> list[tuple[str, str]]:
        """Return the paths of both below each root that they share."""
        pairs = [(path, other.names[root]) for root, path in self.names.items() if root in other.names]
        if _are_equal(self.unknown, other.unknown):
            pairs.append((self.names[id(self.unknown)], other.names[id(other.unknown)]))
        return pairs


def place_of(store: ReadableStore, path: str = "") -> Place:
    """Return the place of a node, without a request to a store that others have to answer.

    Parameters
    ----------
    store
        The store, of gzarr or of another package.
    path
        Normalised path of the node.
    """
    names, unknown = _names(store, path, _DEEPEST)
    return Place(names, unknown, store, f"'/{path}' in {store!r}")


def _begins(path: str, start: str) -> bool:
    return not start or path == start or path.startswith(f"{start}/")


def _are_equal(one: object, other: object) -> bool:
    if one is None or other is None or type(one) is not type(other):
        return False
    try:
        return one is other or bool(one == other)
    # Code of other packages may raise anything; what cannot be compared is not known to be the same.
    except Exception as error:
        pass_on(error)
        return False


def _names(store: Any, path: str, left: int) -> tuple[_Names, object]:
    """Return the names of a node in a store, and the store if it is of an unknown kind."""
    found = _known(store, path, left)
    if found is not None:
        return found
    if left:
        for inner in _wrapped(store):
            return _names(inner, join_path(_prefix_of(store), path), left - 1)
    if isinstance(store, LocatedStore):
        location = store.location()
        if location is not None:
            return {"location": join_path(location.rstrip("/"), path)}, None
    return {id(store): path}, store


def _known(store: Any, path: str, left: int) -> tuple[_Names, object] | None:
    """Return the same for stores of gzarr; None for others."""
    if isinstance(store, MemoryStore):
        return _in_mapping(store.mapping, path, left)
    if isinstance(store, LocalFile):
        return _in_directory(os.fspath(store.path.parent), path), None
    if isinstance(store, ZipReader):
        file = store._state[0]
        archive = getattr(store, "path", None)
        if archive is not None:
            # An archive that is being written has another file for now.
            return _in_directory(os.fspath(archive), path), None
        return _names(file.store, join_path(file.key, path), left - 1)
    if isinstance(store, GivenStore):
        return {id(store._given): join_path(store._prefix.rstrip("/"), path)}, None
    if isinstance(store, RemoteStore):
        # Whatever headers are sent there: a change by one may be one of what the other reads.
        address = store.address()
        return None if address is None else ({"location": join_path(address, path)}, None)
    if isinstance(store, FsspecStore):
        return _in_filesystem(*store.filesystem(), path, left)
    if isinstance(store, ZarrStore):
        return _of_zarr(store.store, path, left)
    if isinstance(store, DirectoryStore):
        return _in_directory(os.fsdecode(store.directory()), path), None
    return None


def _in_mapping(mapping: Any, path: str, left: int) -> tuple[_Names, object]:
    while isinstance(mapping, UserDict):
        mapping = mapping.data
    found = fsspec_urls.filesystem_in(mapping)
    if found is not None:
        return _in_filesystem(found[0], found[1], path, left)
    return {id(mapping): path}, None


def _in_directory(directory: str, path: str) -> _Names:
    """Return a name for each directory from the node up to the root of the file system."""
    at = os.path.realpath(os.path.join(directory, path) if path else directory)  # noqa: PTH118
    names: _Names = {}
    below = ""
    while True:
        # What does not exist yet is known by the directories above it.
        with contextlib.suppress(OSError, ValueError):
            status = os.stat(at)  # noqa: PTH116
            names[("inode", status.st_dev, status.st_ino)] = below
        above, name = os.path.split(at)
        if above == at:
            return names
        at, below = above, f"{name}/{below}" if below else name


def _in_filesystem(fs: Any, base: str, path: str, left: int) -> tuple[_Names, object]:
    """Return the names of a node in a filesystem of fsspec, and the filesystem if it is one of references."""
    where = f"{base.rstrip('/')}/{path}".rstrip("/") if path else base.rstrip("/")
    while left:
        left -= 1
        local = fsspec_urls.local_path(fs, where)
        if local is not None:
            return _in_directory(local, ""), None
        if is_a(fs, "fsspec.implementations.dirfs", "DirFileSystem"):
            fs, where = fs.fs, fs._join(where)
        elif is_a(fs, "fsspec.implementations.asyn_wrapper", "AsyncFileSystemWrapper"):
            fs = fs.sync_fs
        elif is_a(fs, "fsspec.implementations.cached", "CachingFileSystem"):
            fs = fs.fs
        elif is_a(fs, "fsspec.archive", "AbstractArchiveFileSystem"):
            opened = getattr(fs, "of", None)
            holder, file = getattr(opened, "fs", None), getattr(opened, "path", None)
            if holder is None or not isinstance(file, str):
                break
            fs, where = holder, join_path(file, where)
        else:
            break
    if is_a(fs, "fsspec.implementations.memory", "MemoryFileSystem"):
        return {id(fs.store): str(fs._strip_protocol(where)).strip("/")}, None
    if is_a(fs, "fsspec.archive", "AbstractArchiveFileSystem"):
        return {id(fs): where.strip("/")}, None
    if is_reference_filesystem(fs):
        return {id(fs): where.strip("/")}, fs
    return _at_address(fs, str(fs._strip_protocol(where))), None


def _at_address(fs: Any, where: str) -> _Names:
    protocols = (fs.protocol,) if isinstance(fs.protocol, str) else tuple(fs.protocol)
    kind = next((_CLASSES[name] for name in protocols if name in _CLASSES), None)
    if kind is None:
        return {("fsspec", protocols[0], str(getattr(fs, "host", ""))): where.strip("/")}
    scheme, separator, rest = where.partition("://")
    bucket, _, key = (rest if separator else where).strip("/").partition("/")
    if separator:
        bucket = f"{scheme}://{bucket}"
    client = getattr(fs, "client_kwargs", None) or {}
    endpoint = getattr(fs, "endpoint_url", None) or client.get("endpoint_url") or getattr(fs, "_endpoint", None)
    config = {
        "endpoint": endpoint if kind == "S3Store" else None,
        "account_name": getattr(fs, "account_name", None) if kind == "AzureStore" else None,
        **(getattr(fs, "config", None) or {}),
    }
    config = {name: value for name, value in config.items() if value}
    return {"location": str(location_of(kind, [bucket], {"config": config}, key))}


def _of_zarr(store: Any, path: str, left: int) -> tuple[_Names, object]:
    """Return the names of a node in a store of zarr-python."""
    if left:
        wrapped = getattr(store, "_store", None)
        if is_zarr_store(wrapped):
            return _of_zarr(wrapped, join_path(_prefix_of(store), path), left - 1)
        if is_a(store, "zarr.storage._local", "LocalStore"):
            return _in_directory(os.fspath(store.root), path), None
        if is_a(store, "zarr.storage._memory", "MemoryStore"):
            return _in_mapping(store._store_dict, join_path(_prefix_of(store), path), left)
        if is_a(store, "zarr.storage._fsspec", "FsspecStore"):
            return _in_filesystem(store.fs, store.path, path, left)
        if is_a(store, "zarr.storage._obstore", "ObjectStore"):
            from .urls import obstore_store

            return _names(obstore_store(store.store), path, left - 1)
        if is_a(store, "zarr.storage._zip", "ZipStore") and isinstance(store.path, (str, os.PathLike)):
            return _in_directory(os.fspath(store.path), path), None
    return {id(store): path}, store


def _wrapped(store: Any) -> list[Any]:
    """Return the store that another one wraps, if any."""
    found = [getattr(store, name, None) for name in ("store", "_store", "inner", "_inner")]
    return [one for one in found if hasattr(one, "get") and hasattr(one, "get_partial_values")]


def _prefix_of(store: Any) -> str:
    """Return the prefix that a wrapper of another package gives to keys."""
    for name in ("prefix", "_prefix", "path", "_path"):
        value = getattr(store, name, None)
        if isinstance(value, str):
            return value.strip("/")
    return ""
