"""The compiled functions, by name: those that came with the wheel (``ahead.py``), or else compiled by Numba.

Nothing here is thread-safe.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import ahead
from .operations import ALGORITHMS, OPERATIONS, STATES

if TYPE_CHECKING:
    from collections.abc import Callable

#: Functions for Python to call without the GIL, as module and name → number of their int64 arguments.
ENTRIES: Final = {
    ("read", "work"): 3,
    ("write", "work"): 3,
    ("write", "drop"): 3,
    ("index", "read_indexes"): 3,
    ("stage", "stage"): 3,
    ("batch", "gather_rows"): 3,
    ("snappy", "decode"): 5,
    ("context", "release"): 3,
    ("downsample_mean", "mean"): 1,
    ("downsample_max", "maximum"): 1,
    ("downsample_mode", "mode"): 1,
    ("components", "find"): 1,
    ("components", "describe"): 1,
    ("components", "paint"): 1,
    ("components", "unite"): 4,
    ("regions", "measure"): 1,
    ("regions", "rename"): 1,
    ("sparse", "count"): 3,
    ("sparse", "take"): 3,
    ("sparse", "densify"): 3,
    ("affine", "resample"): 3,
    ("affine", "spline"): 3,
}

#: Called before Numba compiles a function, which takes seconds.
notices: Final[list[Callable[[], None]]] = []

# Addresses of the functions that free what operations keep in a context, from the library and from Numba; ends in a
# zero.
_releases = np.zeros(2 * len(STATES) + 1, np.int64)
_RELEASES_AT: Final = int(_releases.ctypes.data)


@cache
def why_not() -> str:
    """Return what is missing if there are no compiled functions for this machine, and no Numba that can compile them.

    Empty if there are.
    """
    if ahead.library() is not None:
        return ""
    if importlib.util.find_spec("numba") is None:
        return "no Numba to compile them"
    try:
        importlib.import_module("numba")
    # Numba refuses versions of NumPy; llvmlite may lack what its library needs.
    except Exception as error:
        return f"Numba, which would compile them, cannot be imported ({error})"
    return ""


def can_run() -> bool:
    """Return whether there are compiled functions for this machine, or a Numba that can compile them."""
    return not why_not()


def before_compilation() -> None:
    """Call all ``notices``."""
    for notice in notices:
        notice()


def modules() -> list[str]:
    """Return the names of all modules with compiled functions of this package, without those that only they use."""
    found = {f"{__package__}.{module}" for module, _ in ENTRIES}
    found |= {row.module for row in OPERATIONS.values() if row.module is not None}
    found |= {row.module for row in ALGORITHMS.values() if row.module is not None}
    return sorted(found)


def entry(module: str, name: str) -> Callable[..., None]:
    """Return one of ``ENTRIES``; where there is no library from the wheel, Numba compiles or loads it."""
    library = ahead.library()
    if library is not None:
        return library.entry(ahead.symbol(module, name), ENTRIES[module, name])
    function: Callable[..., None] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    return function


def address(name: str, kind: str) -> int:
    """Return the address, for jobs, of a compiled function of an operation; 0 if there is none.

    Parameters
    ----------
    name
        Name of an operation; for ``"verifies"``, of an algorithm.
    kind
        ``"decode"``, ``"encode"``, ``"frames"`` or ``"verifies"``.
    """
    module = ALGORITHMS[name].module if kind == "verifies" else OPERATIONS[name].module
    if module is None:
        return 0
    library = ahead.library()
    if library is not None and module.startswith(f"{__package__}."):
        found = library.address(ahead.symbol(module.rpartition(".")[2], f"{name}_{kind}"))
        for state in STATES:
            _releases_with(library.address(ahead.symbol(state, f"{state}_release")))
        return found
    compiled: Any = getattr(importlib.import_module(module), f"{name}_{kind}", None)
    # An operation may also use the state of another module.
    for state in STATES:
        loaded: Any = sys.modules.get(f"{__package__}.{state}")
        if loaded is not None:
            _releases_with(getattr(loaded, f"{state}_release").address)
    return 0 if compiled is None else int(compiled.address)


def release() -> Callable[[int, int], None]:
    """Return ``release(context, keep_bytes)``, which frees buffers and encoders that hold more than ``keep_bytes``.

    If ``keep_bytes`` is negative, it frees everything.
    """
    free = entry("context", "release")
    return lambda context, keep_bytes: free(context, keep_bytes, _RELEASES_AT)


def _releases_with(address: int) -> None:
    if address not in _releases:
        _releases[np.count_nonzero(_releases)] = address
