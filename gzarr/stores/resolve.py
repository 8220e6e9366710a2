"""From a ``store`` argument to a store."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from ..errors import ArgumentError, GzarrError, NodeNotFoundError, StoreError, UnsupportedError
from ..plugins import load
from .base import ReadableStore
from .local import LocalStore
from .memory import MemoryStore

if TYPE_CHECKING:
    from typing import Literal

    #: The modes of zarr-python: read; read and write; create if absent; replace; create, fail if present.
    Mode = Literal["r", "r+", "a", "w", "w-"]

StoreLike: TypeAlias = "str | os.PathLike[str] | MutableMapping[str, Any] | ReadableStore"

_MODES = ("r", "r+", "a", "w", "w-")

# At least two letters: a single one is a Windows drive.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,3}|([A-Za-z][A-Za-z0-9+.-]+)::")


def as_store(store_or_path: StoreLike, mode: Mode = "r") -> tuple[ReadableStore, str]:
    """Return the store given by ``store_or_path``, and the path of the node within it.

    Parameters
    ----------
    store_or_path
        A directory (path or ``file://`` URL), a mutable mapping of keys to bytes, or a store object.
    mode
        ``"r"`` makes a read-only store; with ``"r"`` and ``"r+"`` the directory must exist. With the others it need
        not; storing the first value creates it.

    Returns
    -------
    The store, and the path of the node relative to the store's root (``""`` for all stores so far: the given directory
    is the root).

    Raises
    ------
    ArgumentError
        If ``store_or_path`` is none of these or a URL of an unsupported scheme, or ``mode`` is unknown.
    NodeNotFoundError
        If ``mode`` needs the directory and it does not exist, or if it is not a directory.
    StoreError
        If the directory cannot be examined.
    """
    if mode not in _MODES:
        raise ArgumentError(f'mode must be "r", "r+", "a", "w" or "w-", not {mode!r}')
    if isinstance(store_or_path, (str, os.PathLike)):
        store_of_plugin = _from_plugin(os.fspath(store_or_path), read_only=mode == "r")
        if store_of_plugin is not None:
            return store_of_plugin, ""
        path = _local_path(os.fspath(store_or_path))
        store = LocalStore(path, read_only=mode == "r")
        _check_directory(store, needed=mode in ("r", "r+"))
        return store, ""
    if isinstance(store_or_path, ReadableStore):
        if inspect.iscoroutinefunction(store_or_path.get):
            raise ArgumentError(
                f"{type(store_or_path).__module__}.{type(store_or_path).__qualname__} is an asynchronous store, and "
                "gzarr's stores are synchronous; pass the path of its directory, or a mapping of keys to bytes"
            )
        return store_or_path, ""
    if isinstance(store_or_path, MutableMapping):
        return MemoryStore(store_or_path, read_only=mode == "r"), ""
    raise ArgumentError(
        "a store must be a path, a file:// URL, a mutable mapping of keys to bytes or a store object, not "
        f"{type(store_or_path).__name__}"
    )


def _from_plugin(url: str | bytes, *, read_only: bool) -> ReadableStore | None:
    """Return the store that a plugin makes from a URL, or None if no plugin offers its scheme."""
    match = _SCHEME.match(url) if isinstance(url, str) else None
    scheme = match[1].lower() if match is not None and match[1] else "file"
    plugin = None if scheme == "file" else load("gzarr.stores", scheme)
    if plugin is None:
        return None
    what = f"the store {scheme!r} of the package {plugin.distribution}"
    try:
        store = plugin.target.from_url(url, read_only)
    except GzarrError:
        raise
    # Third-party code may raise anything.
    except Exception as error:
        raise StoreError(f"{what} cannot open {url!r}: {type(error).__name__}: {str(error)[:200]}") from error
    if not isinstance(store, ReadableStore):
        raise UnsupportedError(f"{what} is faulty: from_url returned {type(store).__name__}, which is not a store")
    return store


def _local_path(text: str) -> str:
    if not isinstance(text, str):
        raise ArgumentError(f"the path of a store must be text, not {type(text).__name__}: {text!r}")
    match = _SCHEME.match(text)
    if match is None:
        if not text:
            raise ArgumentError("the path of a store must not be empty; the current directory is '.'")
        return text
    scheme = (match[1] or match[2]).lower()
    if scheme != "file" or match[2]:
        raise ArgumentError(
            f"{text!r}: remote stores ({scheme!r}) are not supported yet; this release opens local directories, "
            "mappings, store objects, and URLs for which another package offers an entry point of 'gzarr.stores'"
        )
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise ArgumentError(f"{text!r} names the host {parts.netloc!r}; a file URL has three slashes: file:///a/b")
    if parts.query or parts.fragment:
        raise ArgumentError(f"{text!r}: in a file URL, write '?' and '#' as %3F and %23")
    path = unquote(parts.path)
    return path[1:] if os.name == "nt" and re.match(r"/[A-Za-z]:", path) else path


def _check_directory(store: LocalStore, *, needed: bool) -> None:
    root = store.root
    try:
        if root.is_dir():
            return
        exists = os.path.lexists(root)
        root.stat()
    except FileNotFoundError:
        if exists:
            raise NodeNotFoundError(f"{str(root)!r} is a symbolic link to something that does not exist") from None
    except NotADirectoryError:  # a parent is a file
        exists, needed = False, True
    except (OSError, ValueError) as exc:
        raise StoreError(f"{store!r}: cannot examine the directory: {exc}") from exc
    if not exists and not needed:
        return
    if exists:
        raise NodeNotFoundError(
            f"{str(root)!r} is a file, not a directory; pass the directory that holds the zarr.json or .zarray "
            "(zip stores are not supported yet)"
        )
    near = next((p for p in root.parents if p.is_dir()), Path(root.anchor))
    raise NodeNotFoundError(f"there is no directory {str(root)!r}; the nearest existing parent is {str(near)!r}")
