"""Loads and stores of words of up to 16 bytes in byte memory.

Numba has no wide loads from bytes. These become single instructions on every target, such as ``ld.global.v2.u64`` on a
GPU. Memory is uint8, an array or a pointer; offsets are in bytes, and the address must be a multiple of the word size.
Values are uint64, whose least significant byte is the first in memory.
"""

from __future__ import annotations

from typing import Any, Final

from .language import intrinsic, ir, types

__all__ = ["divide", "load2", "load4", "load8", "load16", "store2", "store4", "store8", "store16"]

_I32: Final = ir.IntType(32)
_I64: Final = ir.IntType(64)
_PAIR: Final = ir.VectorType(_I64, 2)


def _at(context: Any, builder: Any, memory: Any, args: Any, word: Any) -> Any:
    """Return a pointer to a word in memory (first argument) at an offset (second argument)."""
    value, offset = args[0], args[1]
    data = value if isinstance(memory, types.CPointer) else context.make_array(memory)(context, builder, value).data
    return builder.bitcast(builder.gep(data, [offset]), word.as_pointer())


def _load(nbytes: int) -> Any:
    word = ir.IntType(8 * nbytes)

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def load(typing_context: Any, memory: Any, offset: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = builder.load(_at(context, builder, memory, args, word), align=nbytes)
            return value if nbytes == 8 else builder.zext(value, _I64)

        return types.uint64(memory, types.int64), codegen

    return load


def _store(nbytes: int) -> Any:
    word = ir.IntType(8 * nbytes)

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def store(typing_context: Any, memory: Any, offset: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            low = args[2] if nbytes == 8 else builder.trunc(args[2], word)
            builder.store(low, _at(context, builder, memory, args, word), align=nbytes)
            return context.get_dummy_value()

        return types.void(memory, types.int64, types.uint64), codegen

    return store


#: ``load8(memory, offset)``: a word, zero-extended to 8 bytes.
load2, load4, load8 = _load(2), _load(4), _load(8)
#: ``store8(memory, offset, value)``: the low bytes of a value.
store2, store4, store8 = _store(2), _store(4), _store(8)


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def load16(typing_context: Any, memory: Any, offset: Any) -> Any:
    """``load16(memory, offset)``: two words at once."""
    pair = types.UniTuple(types.uint64, 2)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = builder.load(_at(context, builder, memory, args, _PAIR), align=16)
        return context.make_tuple(builder, pair, [builder.extract_element(value, _I32(i)) for i in range(2)])

    return pair(memory, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def store16(typing_context: Any, memory: Any, offset: Any, low: Any, high: Any) -> Any:
    """``store16(memory, offset, low, high)``: two words at once."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = ir.Constant(_PAIR, ir.Undefined)
        for i, word in enumerate(args[2:]):
            value = builder.insert_element(value, word, _I32(i))
        builder.store(value, _at(context, builder, memory, args, _PAIR), align=16)
        return context.get_dummy_value()

    return types.void(memory, types.int64, types.uint64, types.uint64), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def divide(typing_context: Any, a: Any, b: Any) -> Any:
    """``divide(a, b)``: the quotient of two 32-bit numbers; a GPU divides wider numbers much more slowly."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.udiv(*(builder.trunc(value, _I32) for value in args)), _I64)

    return types.int64(types.int64, types.int64), codegen
