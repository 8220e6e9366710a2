"""Compilation of the kernels: a few units, each compiled once, ahead of use, and cached on disk.

Numba compiles a jitted function again into every jitted function that calls it; with our call depth this takes a
minute. A ``unit`` is compiled separately to a C function, registered with LLVM, and called by symbol: this takes
seconds, and costs a plain call at run time. An ``entry`` is a unit that Python calls through ctypes, which releases the
GIL. A ``by_address`` function is a unit that compiled code calls by address; it is compiled when the address is first
requested.

Where no cache can be written, functions are compiled in every process. ``compiled.before_compilation`` is called before
each compilation.

Numba's cache notices changes only in the file of the cached function. Our kernels call functions of many files, so the
name under which each is cached contains a fingerprint of all of them: another version never loads a stale cache.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import llvmlite.binding as llvm
from llvmlite import ir
from numba import cfunc, njit, types
from numba.core.caching import FunctionCache
from numba.core.ccallback import CFunc
from numba.core.runtime import rtsys
from numba.extending import intrinsic

from .ahead import symbol
from .compiled import before_compilation
from .fingerprint import host_fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

_OPTIONS = {"error_model": "numpy"}


_FINGERPRINT: Final = host_fingerprint()
#: What Numba compiled, by symbol (:func:`gzarr_kernels.ahead.symbol`). LLVM holds raw addresses into it, so it must
#: stay alive.
functions: Final[dict[str, Any]] = {}
#: All functions that are called by address.
addressed: Final[list[Addressed]] = []


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba's cache, without initializing all of Numba's typing before a look-up, which takes longer than all the rest.

    On a cache miss, the compilation initializes it.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        # Loaded code needs only the runtime's symbols.
        rtsys.initialize(target_context)
        try:
            with self._guard_against_spurious_io_errors():
                found = self._load_overload(sig, target_context)
        # A file that cannot be read, or a damaged one: unpickling it may raise anything. Numba would read the index
        # again before it saves, so it is emptied.
        except Exception:
            found = None
            with suppress(OSError):
                self.flush()
        if found is None:
            before_compilation()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        # For example a full disk.
        with suppress(OSError):
            super().save_overload(sig, data)


def _compile(function: Callable[..., Any], result: Any, arguments: int) -> Any:
    compiled = _cached(function, result, arguments)
    functions[_symbol(function)] = compiled
    return compiled


def _symbol(function: Callable[..., Any]) -> str:
    return symbol(function.__module__.rpartition(".")[2], function.__name__)


def _cached(function: Callable[..., Any], result: Any, arguments: int) -> Any:
    # Add the fingerprint only once: an interrupted compilation is repeated.
    function.__qualname__ = f"{function.__qualname__.removesuffix(f'_{_FINGERPRINT}')}_{_FINGERPRINT}"
    signature = result(*(types.int64,) * arguments)
    if not hasattr(FunctionCache, "_load_overload"):
        return cfunc(signature, cache=True, **_OPTIONS)(function)
    compiled: Any = CFunc(function, (signature.args, signature.return_type), locals={}, options=dict(_OPTIONS))
    try:
        compiled._cache = _Cache(function)
    # No folder for a cache is writable.
    except RuntimeError:
        before_compilation()
    compiled.compile()
    return compiled


#: A function that becomes part of every unit that calls it.
part = njit(nogil=True, **_OPTIONS)
#: A function that is inlined at every call.
in_line = njit(nogil=True, forceinline=True, **_OPTIONS)


def unit(result: Any, arguments: int) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with ``arguments`` int64 arguments separately; jitted code calls it by symbol."""

    def decorate(function: Callable[..., Any]) -> Any:
        llvm.add_symbol(_symbol(function), _compile(function, result, arguments).address)
        return types.ExternalFunction(_symbol(function), result(*(types.int64,) * arguments))

    return decorate


def entry(arguments: int) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with ``arguments`` int64 arguments and no result for Python to call without the GIL."""

    def decorate(function: Callable[..., Any]) -> Any:
        return _compile(function, types.void, arguments).ctypes

    return decorate


class Addressed:
    """Function of int64 arguments that compiled code calls by its address."""

    def __init__(self, function: Callable[..., Any], arguments: int) -> None:
        self.symbol = _symbol(function)
        self._function = function
        self._arguments = arguments
        addressed.append(self)

    @cached_property
    def address(self) -> int:
        """Address of the function. The first access compiles it or loads it from the cache. Not thread-safe."""
        result: int = _compile(self._function, types.int64, self._arguments).address
        return result


def by_address(arguments: int) -> Callable[[Callable[..., Any]], Addressed]:
    """Make a function with ``arguments`` int64 arguments and an int64 result callable by address."""
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
