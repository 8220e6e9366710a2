"""From objects and URLs of fsspec and zarr-python to stores: to the store they stand for, if gzarr has one itself."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from . import fsspec_urls, urls, zarr_kinds, zarr_store
from .fsspec_calls import is_a, is_exactly
from .fsspec_store import FsspecStore
from .local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .base import ReadableStore


def store_of_url(url: str, *, read_only: bool, storage_options: Mapping[str, Any] | None) -> tuple[ReadableStore, str]:
    """Return the store of a URL that fsspec takes, and the path of the node that its fragment names."""
    fs, path, node = fsspec_urls.filesystem_at(url, storage_options)
    return _of_filesystem(fs, path, read_only=read_only, url=fsspec_urls.without_prefix(url)), node


def store_of_object(value: Any, *, read_only: bool) -> tuple[ReadableStore, str] | None:
    """Return the store that an object of fsspec or zarr-python stands for, and the path in it.

    Parameters
    ----------
    value
        An ``FSMap``, a ``UPath``; or a store, a ``StorePath``, an array or a group of zarr-python. None is returned for
        anything else.
    read_only
        Refuse every change, even if ``value`` takes them.
    """
    if is_a(value, "fsspec.mapping", "FSMap") and not is_exactly(value, "fsspec.mapping", "FSMap"):
        # A subclass may do more than its base, so it stays the mapping that it is.
        return None
    found = fsspec_urls.filesystem_in(value)
    if found is not None:
        fs, path, missing = found
        return _of_filesystem(fs, path, read_only=read_only, missing=missing), ""
    place = zarr_kinds.store_and_path(value)
    if place is None:
        return None
    store, path = place
    return _of_zarr(store, read_only=read_only), path


def _of_filesystem(
    fs: Any,
    path: str,
    *,
    read_only: bool,
    missing: tuple[type[BaseException], ...] | None = None,
    url: str | None = None,
) -> ReadableStore:
    local = fsspec_urls.local_path(fs, path)
    if local is not None:
        return LocalStore(local, read_only=read_only)
    store = FsspecStore(fs, path, read_only=read_only, missing_exceptions=missing, url=url)
    if not read_only:
        # Here the message says why, and what can be written instead.
        store._check_writable()
    return store


def _of_zarr(store: Any, *, read_only: bool) -> ReadableStore:
    """Return the store that a store of zarr-python stands for. A subclass may do more than its base, so it stays."""
    kinds: Any = sys.modules.get("zarr.storage")
    read_only = read_only or store.read_only
    kind = type(store)
    if kind is getattr(kinds, "LocalStore", None):
        return LocalStore(store.root, read_only=read_only)
    if kind is getattr(kinds, "ObjectStore", None):
        return urls.obstore_store(store.store, read_only=read_only)
    if kind is getattr(kinds, "FsspecStore", None):
        return _of_filesystem(store.fs, store.path, read_only=read_only, missing=store.allowed_exceptions)
    return zarr_store.ZarrStore(store, read_only=read_only)
