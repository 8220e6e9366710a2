"""Kinds of stores of zarr-python: wrappers, archives, those that list all keys, those that do not bear a fork."""

from __future__ import annotations

import pickle
import sys
from typing import Any, Final

from ..errors import StoreError
from ..reasons import pass_on

#: Packages whose stores do not work in a forked child: they hang there.
_NOT_FORK_SAFE: Final = frozenset({"icechunk"})
#: Packages whose stores list all their keys.
_LIST_ALL: Final = frozenset({"zarr", "icechunk"})


def is_zarr_store(value: object) -> bool:
    """Return whether a value is a store of zarr-python 3, which is not imported for that."""
    module = sys.modules.get("zarr.abc.store")
    return module is not None and isinstance(value, module.Store)


def store_and_path(value: Any) -> tuple[Any, str] | None:
    """Return the store of zarr-python in a value, and the path there; None if it has none.

    Parameters
    ----------
    value
        Anything: a store, a ``StorePath``, an array or a group of zarr-python.
    """
    if is_zarr_store(value):
        return value, ""
    if type(value).__module__.partition(".")[0] != "zarr":
        return None
    place = getattr(value, "store_path", value)
    store = getattr(place, "store", None)
    return (store, place.path) if is_zarr_store(store) else None


def innermost(store: Any) -> Any:
    """Return the store in wrappers of zarr-python, or ``store`` itself."""
    while is_zarr_store(inner := getattr(store, "_store", None)):
        store = inner
    return store


def with_wrapped(store: Any) -> list[Any]:
    """Return a store and all stores that it holds."""
    found = [store]
    for one in found:
        inner = [value for value in getattr(one, "__dict__", {}).values() if is_zarr_store(value)]
        found.extend(value for value in inner if not any(value is known for known in found))
    return found


def lists_all(store: Any) -> bool:
    """Return whether a store and all stores that it holds list every key, as far as their classes tell.

    Classes of others, and those derived from known ones, may make chunks when these are read, and list documents only.
    Wrappers pass on what they read.
    """
    wrapper: Any = getattr(sys.modules.get("zarr.storage"), "WrapperStore", ())
    stores = with_wrapped(store)
    methods = [type(one).list_prefix for one in stores]
    methods += [type(one).get for one in stores if not isinstance(one, wrapper)]
    return all(str(getattr(method, "__module__", "")).partition(".")[0] in _LIST_ALL for method in methods)


def is_archive(store: Any) -> bool:
    """Return whether a store is a zip archive of zarr-python."""
    kinds: Any = sys.modules.get("zarr.storage")
    return isinstance(store, getattr(kinds, "ZipStore", ()))


def reopening(store: Any) -> bytes | None:
    """Return a pickle that opens an archive anew; None for other stores, and for what cannot be opened twice."""
    if not is_archive(store) or not store.read_only:
        return None
    try:
        return pickle.dumps(store)
    # The archive is a file-like object, or a subclass raises whatever it does.
    except Exception as error:
        pass_on(error)
        return None


def check_forked(owner: object, store: Any, *, reopened: bool) -> None:
    """Raise an error if a store of the parent does not work in a forked child.

    Parameters
    ----------
    owner, store
        Store of gzarr, for messages, and store of zarr-python.
    reopened
        Whether ``store`` itself is opened anew.

    Raises
    ------
    StoreError
        If it does not work.
    """
    import zarr.storage

    connected = tuple(
        getattr(zarr.storage, name) for name in ("FsspecStore", "ObjectStore") if hasattr(zarr.storage, name)
    )
    for one in with_wrapped(store):
        if type(one).__module__.partition(".")[0] in _NOT_FORK_SAFE or isinstance(one, connected):
            reason = f"a {type(one).__name__} does not work in a forked process"
        elif is_archive(one) and not (one is store and reopened):
            # It shares the position in its file with the parent.
            reason = f"a {type(one).__name__} cannot be shared with a forked process"
        else:
            continue
        raise StoreError(f"{owner!r}: {reason}; open it in the child, or start processes with 'spawn' or 'forkserver'")
