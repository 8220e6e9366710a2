"""Files that the chunks of virtual datasets lie in: what references of kerchunk, manifests and Icechunk point to."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from ..errors import StoreError
from . import fsspec_references, fsspec_urls, redaction
from .fsspec_calls import is_a
from .fsspec_references import BadReferenceError, ReferenceTarget
from .fsspec_store import FsspecStore
from .local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from .base import ReadableStore
    from .places import Place

#: What begins the addresses of local files in Icechunk.
_LOCAL: Final = "file://"


@dataclass(frozen=True, slots=True, eq=False)
class Files:
    """Files of one store, or of one folder of a filesystem.

    Attributes
    ----------
    store
        Where they are: for files of fsspec, the folder that is above all of them.
    paths
        Their paths there, each once.
    """

    store: ReadableStore
    paths: list[str]


def is_virtual(place: Place) -> bool:
    """Return whether a node is one whose chunks lie in files elsewhere."""
    return _finder(place.unknown) is not None


def files_read(place: Place) -> list[Files]:
    """Return the files that a virtual node and those below it are read from. References are read for that.

    These files hold chunks. Those that hold references are among them if they are read late, as those of Parquet are.

    Left out are those that are not read either: of references that make no sense, or of filesystems that they may not
    use.

    Raises
    ------
    StoreError
        If references cannot be read.
    """
    found = _finder(place.unknown)
    if found is None:
        return []
    try:
        return list(found(place.unknown, place.names[id(place.unknown)]))
    # Code of other packages may raise anything.
    except Exception as error:
        described = str(error) if isinstance(error, BadReferenceError) else redaction.describe(error, frozenset())
        raise StoreError(
            f"it cannot be told which files {place.label} is read from: {described}; write where nothing is yet"
        ) from error


def _finder(value: Any) -> Callable[[Any, str], Iterator[Files]] | None:
    """Return what finds the files of a store of another package, or of a filesystem; None if it is not virtual."""
    if fsspec_references.is_reference_filesystem(value):
        return _of_references
    if is_a(value, "virtualizarr.manifests.store", "ManifestStore"):
        return _of_manifests
    if is_a(value, "icechunk.store", "IcechunkStore"):
        return _of_icechunk
    return None


def _of_references(fs: Any, path: str) -> Iterator[Files]:
    records = fsspec_references.records(fs)
    if records is not None:
        yield from _in_folders(records[0], [records[1]])
    for protocol, targets in fsspec_references.targets(fs, f"{path}/" if path else "").items():
        try:
            found = fsspec_references.filesystem_of(fs, ReferenceTarget(protocol, next(iter(targets))))
        except BadReferenceError:
            continue
        yield from _in_folders(found, targets)


def _in_folders(fs: Any, targets: Iterable[str]) -> Iterator[Files]:
    """Yield the files of a filesystem, for each bucket or server by the folder that is above them all."""
    by_bucket: dict[str, list[list[str]]] = defaultdict(list)
    for target in targets:
        where = str(fs._strip_protocol(target))
        scheme, separator, rest = where.partition("://")
        start = f"{scheme}://" if separator else "/" if where.startswith("/") else ""
        parts = (rest.partition("?")[0] if separator else where).strip("/").split("/")
        by_bucket[start if start == "/" else start + parts[0]].append(parts)
    for bucket, files in by_bucket.items():
        one, other = min(files)[:-1], max(files)[:-1]
        level = next((i for i, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), None)
        above = one[: min(len(one), len(other)) if level is None else level]
        start = bucket if bucket == "/" else bucket.removesuffix(above[0] if above else "")
        folder = start + "/".join(above)
        local = fsspec_urls.local_path(fs, folder)
        store = FsspecStore(fs, folder, read_only=True) if local is None else LocalStore(local, read_only=True)
        below = ("/".join(parts[len(above) :]) for parts in files)
        # In a URL of the web, other characters stand for some of a path.
        yield Files(store, [unquote(path) if "://" in bucket else path for path in below])


def _of_manifests(store: Any, path: str) -> Iterator[Files]:
    from .urls import obstore_store

    node = store._group
    for name in path.split("/") if path else ():
        node = node[name]
    urls: set[str] = set()
    left = [node]
    while left:
        one = left.pop()
        if hasattr(one, "manifest"):
            urls.update(map(str, one.manifest.iter_nonempty_paths()))
        else:
            left.extend(one.values())
    paths: dict[int, tuple[Any, list[str]]] = {}
    for url in urls:
        try:
            holder, below = store._registry.resolve(url)
        except ValueError:
            continue
        paths.setdefault(id(holder), (holder, []))[1].append(below)
    for holder, found in paths.values():
        yield Files(obstore_store(holder), found)


def _of_icechunk(store: Any, path: str) -> Iterator[Files]:
    """Yield the local files of all virtual chunks: Icechunk does not tell those of one node, nor other addresses."""
    session = store.session
    containers = session.config.virtual_chunk_containers or {}
    # To list them may take a while.
    if any(prefix.startswith(_LOCAL) for prefix in containers):
        found = {url for url in session.all_virtual_chunk_locations() if url.startswith(_LOCAL)}
        root = os.path.abspath(os.sep)  # noqa: PTH100
        yield Files(LocalStore(root, read_only=True), [unquote(urlsplit(url).path).lstrip("/") for url in found])
