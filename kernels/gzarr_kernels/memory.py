"""Typed views of addresses, block copies and atomic counters, for jitted functions.

``u8(address)[i]`` compiles to one indexed load or store, so loops over it vectorise like loops over an array.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_I8 = ir.IntType(8)
_I64 = ir.IntType(64)


def _pointer_to(element: Any, kind: Any) -> Any:
    pointer_type = types.CPointer(element)

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def pointer(typing_context: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], kind.as_pointer())

        return pointer_type(types.int64), codegen

    return pointer


u8 = _pointer_to(types.uint8, ir.IntType(8))
u16 = _pointer_to(types.uint16, ir.IntType(16))
u32 = _pointer_to(types.uint32, ir.IntType(32))
u64 = _pointer_to(types.uint64, ir.IntType(64))
i8 = _pointer_to(types.int8, ir.IntType(8))
i16 = _pointer_to(types.int16, ir.IntType(16))
i32 = _pointer_to(types.int32, ir.IntType(32))
i64 = _pointer_to(types.int64, ir.IntType(64))
f32 = _pointer_to(types.float32, ir.FloatType())
f64 = _pointer_to(types.float64, ir.DoubleType())


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def copy(typing_context: Any, target: Any, source: Any, nbytes: Any) -> Any:
    """``copy(target, source, nbytes)``: copy bytes between ranges that do not overlap."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target_pointer = builder.inttoptr(args[0], _I8.as_pointer())
        source_pointer = builder.inttoptr(args[1], _I8.as_pointer())
        cgutils.raw_memcpy(builder, target_pointer, source_pointer, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def atomic_add(typing_context: Any, address: Any, amount: Any) -> Any:
    """``atomic_add(address, amount)``: add to the int64 at ``address``; return its previous value."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _I64.as_pointer())
        return builder.atomic_rmw("add", pointer, args[1], "monotonic")

    return types.int64(types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def atomic_load(typing_context: Any, address: Any) -> Any:
    """``atomic_load(address)``: load the int64 at ``address``, which other threads may write."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = builder.inttoptr(args[0], _I64.as_pointer())
        return builder.load_atomic(pointer, "monotonic", 8)

    return types.int64(types.int64), codegen
