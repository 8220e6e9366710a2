"""How the kernels are compiled: in a few units, each compiled once, ahead of use, and cached on disk.

Numba compiles a jitted function again into every jitted function that calls it; over the depth of our loop that costs a
minute. A ``unit`` is compiled by itself to a C function, registered with LLVM, and called by symbol: seconds, and at
run time a plain call.

Numba also notices a change only of the file that a cached function is in. Ours call functions of many files, so the
name under which each is cached carries a fingerprint of the whole package: another version never loads a stale cache.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm
from numba import cfunc, njit, types

if TYPE_CHECKING:
    from collections.abc import Callable


def _fingerprint() -> int:
    value = 0
    for path in sorted(Path(__file__).parent.glob("*.py")):
        value = zlib.crc32(path.read_bytes(), value)
    return value


_FINGERPRINT = f"{_fingerprint():08x}"
# LLVM holds bare addresses into these.
_alive: list[Any] = []


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    function.__qualname__ = f"{function.__qualname__}_{_FINGERPRINT}"
    return function


#: A function that becomes part of every unit that calls it.
part = njit(nogil=True, error_model="numpy")


def unit(result: Any, arguments: int) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function of ``arguments`` int64 by itself; jitted code calls it by symbol."""

    def decorate(function: Callable[..., Any]) -> Any:
        signature = result(*(types.int64,) * arguments)
        symbol = f"gzarr_{function.__name__}_{_FINGERPRINT}"
        compiled = cfunc(signature, cache=True, error_model="numpy")(_named(function))
        llvm.add_symbol(symbol, compiled.address)
        _alive.append(compiled)
        return types.ExternalFunction(symbol, signature)

    return decorate


def entry(arguments: int) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function of ``arguments`` int64, without result, that Python calls; it runs without the GIL."""

    def decorate(function: Callable[..., Any]) -> Any:
        signature = types.void(*(types.int64,) * arguments)
        return njit(signature, nogil=True, cache=True, error_model="numpy")(_named(function))

    return decorate
