"""Functions by symbol, from shared objects of which a process may have several versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gzarr_kernels import shared_objects

if TYPE_CHECKING:
    import ctypes
    from collections.abc import Mapping

    #: Result and arguments of functions, by name.
    Signatures = Mapping[str, tuple[Any, list[Any]]]


def load(path: str, signatures: Signatures) -> ctypes.CDLL:
    """Return a shared object with some functions, which never call those of another library instead of its own.

    Raises
    ------
    AttributeError
        If it does not export one of the functions.
    OSError
        If it cannot be loaded, or not without calls of another library.
    """
    library = shared_objects.load(path, signatures)
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library
