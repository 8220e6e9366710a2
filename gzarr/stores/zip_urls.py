"""From a path or URL to the store of a zip archive.

``PATH.zip``, ``URL.zip`` (or ``.ozx``), ``zip://PATH_OR_URL`` and fsspec's ``zip://NODE::PATH_OR_URL`` (or
``zip::PATH_OR_URL``); ``#NODE`` at the end of a URL names a node, also at the end of a path after ``zip:``.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from ..errors import ArgumentError, NodeNotFoundError
from . import fsspec_urls, ozx, redaction, urls
from .keys import join_path, normalize_path, unquoted
from .local_paths import status_at
from .zip_store import ZipStore, zip_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .base import ReadableStore

#: How names of archives end.
SUFFIXES: Final = (".zip", ozx.SUFFIX)
#: How names of other archives, and of compressed files, end.
_OTHERS: Final = (
    *(".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst", ".gz", ".bz2", ".xz", ".zst", ".lz4", ".lzma"),
    *(".7z", ".rar", ".zipx", ".cab", ".arj", ".cpio", ".iso", ".sqsh", ".squashfs"),
)
_CHAIN: Final = re.compile(r"zip(?:://(?P<node>.*?))?::(?P<where>.+)", re.IGNORECASE | re.DOTALL)
_PREFIX: Final = "zip://"
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def zip_store(
    text: Any,
    mode: str,
    storage_options: Mapping[str, Any] | None,
    open_holder: Callable[..., tuple[ReadableStore, str]],
    local_path: Callable[[str], str],
) -> tuple[ReadableStore, str] | None:
    """Return the store of an archive and the path of the node in it, or None if ``text`` names no archive.

    Parameters
    ----------
    text, mode, storage_options
        As for :func:`gzarr.stores.resolve.as_store`.
    open_holder
        That function, for the store that holds the archive.
    local_path
        Function from a path or ``file://`` URL to a path.

    Raises
    ------
    NodeNotFoundError
        If there is no such archive, and it is not to be made.
    ArgumentError
        If the archive is to be made in a store in which that is not possible.
    StoreError
        If the system does not say what is there, or the file is no zip archive.
    """
    if not isinstance(text, str):
        return None
    where, node, explicit = _split(text)
    if not explicit and not _is_named_so(where):
        return None
    if fsspec_urls.is_chain(where):
        # Which part of a chain names the file, fsspec knows.
        return None
    scheme = _SCHEME.match(where)
    if scheme is not None and not where.lower().startswith("file://"):
        if not explicit and where.partition(":")[0].lower() not in urls.SCHEMES:
            return None
        return _remote(where, node, explicit, mode, storage_options, open_holder)
    path = Path(local_path(where))
    status = None if explicit else status_at(path)
    if status is not None and stat.S_ISDIR(status.st_mode):
        return None
    if storage_options is not None:
        raise ArgumentError(f"storage_options= is for URLs of remote stores, not for {redaction.named(text)}")
    made = mode in ("a", "w", "w-")
    return ZipStore(path, mode="r" if mode == "r" else "a" if made else "r+"), node


def _split(text: str) -> tuple[str, str, bool]:
    """Return the path or URL of an archive, the path of the node in it, and whether ``text`` says that it is one."""
    chain = _CHAIN.fullmatch(text)
    explicit = chain is not None or text[: len(_PREFIX)].lower() == _PREFIX
    if chain is not None:
        where, inner = chain["where"], chain["node"] or ""
    else:
        where, inner = text[len(_PREFIX) :] if explicit else text, ""
    fragment = ""
    if "#" in where and (_SCHEME.match(where) or (explicit and status_at(where) is None)):
        where, _, fragment = where.rpartition("#")
        fragment = unquoted(fragment)
    return where, join_path(normalize_path(inner), normalize_path(fragment)), explicit


def _is_named_so(where: str) -> bool:
    return _path_in(where).lower().endswith(SUFFIXES)


def is_other_archive(where: str) -> bool:
    """Return whether a path or URL is that of an archive of a kind that is not known here, by its name."""
    return _path_in(where).rstrip("/").lower().endswith(_OTHERS)


def _path_in(where: str) -> str:
    """Return a path, or the one in a URL; empty for a URL that is invalid, which others report."""
    try:
        return urlsplit(where).path if _SCHEME.match(where) else where
    except ValueError:
        return ""


def _remote(
    url: str,
    node: str,
    explicit: bool,
    mode: str,
    storage_options: Mapping[str, Any] | None,
    open_holder: Callable[..., tuple[ReadableStore, str]],
) -> tuple[ReadableStore, str] | None:
    place, _, query = url.partition("?")
    parent, _, name = place.rpartition("/")
    is_below_root = bool(name) and _SCHEME.fullmatch(f"{parent}/") is None
    scheme = url.partition(":")[0].lower()
    if scheme not in urls.SCHEMES and (query or not is_below_root):
        # Not a file below a root; this reports it, unless fsspec takes it.
        open_holder(url, "r", storage_options)
        return None
    if not is_below_root:
        raise ArgumentError(f"{redaction.named(url)} names no file; a zip archive is {scheme}://NAME/PATH.zip")
    if not query:
        store, _ = open_holder(parent, "r", storage_options)
    elif scheme in ("http", "https"):
        store, _ = urls.remote_store(parent, storage_options=storage_options, query=query)
    else:
        raise ArgumentError(
            f"{redaction.named(url)}: in URLs of the scheme {scheme!r}, a query ('?...') is not understood; leave it "
            f"out, pass the file's https:// URL, or have fsspec read it: 'fsspec+zip://::{scheme}://...?...'"
        )
    try:
        # The other schemes are those of fsspec, whose paths are as they are written.
        return zip_in(store, unquoted(name) if scheme in urls.SCHEMES else name), node
    except NodeNotFoundError:
        if mode in ("a", "w", "w-"):
            raise ArgumentError(
                f"{redaction.named(url)} does not exist, and a zip archive can only be written to a local file; write "
                "it there, and upload it"
            ) from None
        # With a query, there is nothing else that it may be.
        if explicit or query:
            raise
    return None
