"""How what a user passes as ``store`` becomes a store."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from ..errors import ArgumentError, NodeNotFoundError, StoreError
from .base import ReadableStore
from .local import LocalStore
from .memory import MemoryStore

if TYPE_CHECKING:
    from typing import Literal

    #: The modes of zarr-python: read; read and write; create if absent; replace; create, fail if present.
    Mode = Literal["r", "r+", "a", "w", "w-"]

StoreLike: TypeAlias = "str | os.PathLike[str] | MutableMapping[str, Any] | ReadableStore"

# Two letters at least: a single one is a drive on Windows.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/{1,3}|([A-Za-z][A-Za-z0-9+.-]+)::")


def as_store(store_or_path: StoreLike, mode: Mode = "r") -> tuple[ReadableStore, str]:
    """Return the store that ``store_or_path`` means, and the path of the node within it.

    Parameters
    ----------
    store_or_path
        A directory (path or ``file://`` URL), a mutable mapping of keys to bytes, or a store object.
    mode
        ``"r"`` makes a read-only store and never makes a directory; with ``"r"`` and ``"r+"`` the directory must exist.

    Returns
    -------
    The store, and the path of the node that was named, relative to the store's root (``""`` for all stores so far: the
    directory named is the root).

    Raises
    ------
    ArgumentError
        If ``store_or_path`` is none of these, or a URL of a kind that is not supported yet.
    NodeNotFoundError
        If the directory does not exist and ``mode`` needs it.
    StoreError
        If the system refuses to say whether it exists.
    """
    if isinstance(store_or_path, (str, os.PathLike)):
        path = _local_path(os.fspath(store_or_path))
        store = LocalStore(path, read_only=mode == "r")
        if mode in ("r", "r+"):
            _check_directory(store)
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
            f"{text!r}: remote stores ({scheme!r}) are not there yet; this release opens local directories, mappings "
            "and store objects"
        )
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost"):
        raise ArgumentError(f"{text!r} names the host {parts.netloc!r}; a file URL has three slashes: file:///a/b")
    if parts.query or parts.fragment:
        raise ArgumentError(f"{text!r}: write '?' and '#' in a file URL as %3F and %23")
    path = unquote(parts.path)
    return path[1:] if os.name == "nt" and re.match(r"/[A-Za-z]:", path) else path


def _check_directory(store: LocalStore) -> None:
    root = store.root
    try:
        if root.is_dir():
            return
        exists = os.path.lexists(root)
        root.stat()
    except FileNotFoundError:
        if exists:
            raise NodeNotFoundError(f"{str(root)!r} is a symbolic link to something that does not exist") from None
    except NotADirectoryError:
        exists = False
    except (OSError, ValueError) as exc:
        raise StoreError(f"{store!r}: cannot look at the directory: {exc}") from exc
    if exists:
        raise NodeNotFoundError(
            f"{str(root)!r} is a file, not a directory; pass the directory that holds the zarr.json or .zarray "
            "(zip stores are not there yet)"
        )
    near = next((p for p in root.parents if p.is_dir()), Path(root.anchor))
    raise NodeNotFoundError(f"there is no directory {str(root)!r}; the nearest that exists is {str(near)!r}")
