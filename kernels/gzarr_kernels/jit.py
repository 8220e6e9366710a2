"""How the kernels are compiled: in a few units, each compiled once, ahead of use, and cached on disk.

Numba compiles a jitted function again into every jitted function that calls it; over the depth of our loop that costs a
minute. A ``unit`` is compiled by itself to a C function, registered with LLVM, and called by symbol: seconds, and at
run time a plain call. An ``entry`` is a unit that Python calls, through ctypes, which lets go of the GIL. What stands
in a table and is ``by_address`` is a unit that compiled code calls by its address, compiled when that is asked for.

Numba also notices a change only of the file that a cached function is in. Ours call functions of many files, so the
name under which each is cached carries a fingerprint of the whole package: another version never loads a stale cache.
"""

from __future__ import annotations

import zlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import cfunc, njit, types
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

_OPTIONS = {"error_model": "numpy"}


def _fingerprint() -> int:
    value = 0
    for path in sorted(Path(__file__).parent.glob("*.py")):
        value = zlib.crc32(path.read_bytes(), value)
    return value


_FINGERPRINT = f"{_fingerprint():08x}"
# LLVM holds bare addresses into these.
_alive: list[Any] = []


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache, without making all of Numba's typing ready before it looks: that takes longer than all the rest.

    Compiling, where nothing is cached, makes it ready itself.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # The runtime's symbols are all that loaded code needs.
        rtsys.initialize(target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def _compile(function: Callable[..., Any], result: Any, arguments: int) -> Any:
    # Once: a compilation that was interrupted is begun again.
    function.__qualname__ = f"{function.__qualname__.removesuffix(f'_{_FINGERPRINT}')}_{_FINGERPRINT}"
    signature = result(*(types.int64,) * arguments)
    if not hasattr(FunctionCache, "_load_overload"):
        return cfunc(signature, cache=True, **_OPTIONS)(function)
    compiled: Any = CFunc(function, (signature.args, signature.return_type), locals={}, options=dict(_OPTIONS))
    compiled._cache = _Cache(function)
    compiled.compile()
    return compiled


#: A function that becomes part of every unit that calls it.
part = njit(nogil=True, **_OPTIONS)
#: One that is put in line wherever it is called.
in_line = njit(nogil=True, forceinline=True, **_OPTIONS)


def unit(result: Any, arguments: int) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function of ``arguments`` int64 by itself; jitted code calls it by symbol."""

    def decorate(function: Callable[..., Any]) -> Any:
        symbol = f"gzarr_{function.__name__}_{_FINGERPRINT}"
        compiled = _compile(function, result, arguments)
        llvm.add_symbol(symbol, compiled.address)
        _alive.append(compiled)
        return types.ExternalFunction(symbol, result(*(types.int64,) * arguments))

    return decorate


def entry(arguments: int) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function of ``arguments`` int64, without result, that Python calls; it runs without the GIL."""

    def decorate(function: Callable[..., Any]) -> Any:
        compiled = _compile(function, types.void, arguments)
        _alive.append(compiled)
        return compiled.ctypes

    return decorate


class Addressed:
    """A function of int64 that compiled code calls by its address."""

    def __init__(self, function: Callable[..., Any], arguments: int) -> None:
        self._function = function
        self._arguments = arguments

    @cached_property
    def address(self) -> int:
        """Where it is; it is compiled first, or loaded from the cache. One thread at a time may ask."""
        compiled = _compile(self._function, types.int64, self._arguments)
        _alive.append(compiled)
        result: int = compiled.address
        return result


def by_address(arguments: int) -> Callable[[Callable[..., Any]], Addressed]:
    """Make a function of ``arguments`` int64, with an int64 as its result, one that is called by its address."""
    return lambda function: Addressed(function, arguments)


_I64 = ir.IntType(64)


def _call(builder: Any, args: Any) -> Any:
    kind = ir.FunctionType(_I64, [_I64] * (len(args) - 1))
    return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def call_2(typing_context: Any, address: Any, a: Any, b: Any) -> Any:
    """``call_2(address, …)``: call a function of two arguments."""
    return types.int64(*(types.int64,) * 3), lambda context, builder, signature, args: _call(builder, args)


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def call_5(typing_context: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """``call_5(address, …)``: call a function of five arguments."""
    return types.int64(*(types.int64,) * 6), lambda context, builder, signature, args: _call(builder, args)


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def call_6(typing_context: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
    """``call_6(address, …)``: call a function of six arguments."""
    return types.int64(*(types.int64,) * 7), lambda context, builder, signature, args: _call(builder, args)


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def call_9(
    typing_context: Any, address: Any, a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, i: Any
) -> Any:
    """``call_9(address, …)``: call a function of nine arguments."""
    return types.int64(*(types.int64,) * 10), lambda context, builder, signature, args: _call(builder, args)
