"""Functions by symbol, from shared objects of which a process may have several versions.

On most systems, what a shared object calls by name is the first function of that name which some library made global,
even if the shared object has its own. netCDF4 does so with its libzstd when it opens a Zarr store. A shared object with
another zstd that is loaded afterwards calls netCDF4's, also from inside its own functions: structures of one version
reach functions of another, which crash. Who calls functions by name, as the packages themselves do, is safe: all of
them are in the global library. But functions that are looked up in the shared object are its own.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
from functools import cache
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Systems on which shared objects always call their own functions.
_BOUND_TO_THEMSELVES = ("darwin", "win32")


def load(path: str, names: Iterable[str]) -> ctypes.CDLL:
    """Return a shared object whose functions of some names never call those of another library instead of its own.

    Raises
    ------
    OSError
        If it cannot be loaded, or not without calls of another library.
    """
    if sys.platform in _BOUND_TO_THEMSELVES:
        return ctypes.CDLL(path)
    process = ctypes.CDLL(None)
    taken = {name: address for name in names if (address := _address(process, name)) is not None}
    if not taken:
        return ctypes.CDLL(path)
    if not _is_loaded(path):
        return _load_apart(path)
    library = ctypes.CDLL(path)
    if all(_address(library, name) in (None, address) for name, address in taken.items()):
        return library
    # It may have been loaded before the other, and thus be safe, but nobody can tell.
    return _copy(path)


def _address(library: ctypes.CDLL, name: str) -> int | None:
    function = getattr(library, name, None)
    return None if function is None else ctypes.cast(function, ctypes.c_void_p).value


def _is_loaded(path: str) -> bool:
    try:
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _load_apart(path: str) -> ctypes.CDLL:
    if not hasattr(os, "RTLD_DEEPBIND"):
        raise OSError(f"{path} would call another library of this process, with functions of the same names")
    return ctypes.CDLL(path, mode=os.RTLD_DEEPBIND)


@cache
def _copy(path: str) -> ctypes.CDLL:
    """Load a copy, since what is loaded already stays as it is. Loaded files may be deleted."""
    with NamedTemporaryFile(prefix="gzarr-", suffix=".so") as file:
        shutil.copyfile(path, file.name)
        return _load_apart(file.name)
