"""Byte shuffle and bit shuffle of one block of elements: the inverse of ``shuffle.py`` and ``bitshuffle.py``.

It uses LLVM vectors of 32 bytes, which become AVX2, NEON or whatever the machine has. Source: c-blosc,
``shuffle-generic.h`` and ``bitshuffle-generic.c`` (format).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types, uint64
from numba.extending import intrinsic

from .bitshuffle import transpose_bits_8x8
from .jit import part, unit
from .memory import copy, u8, u64

_I8 = ir.IntType(8)
_I32 = ir.IntType(32)
_I64 = ir.IntType(64)
_LANES = 32
_V = ir.VectorType(_I8, _LANES)


def _load(builder: Any, address: Any, offset: int) -> Any:
    at = builder.inttoptr(builder.add(address, ir.Constant(_I64, offset)), _V.as_pointer())
    return builder.load(at, align=1)


def _split(builder: Any, vectors: list[Any]) -> list[Any]:
    """Return the even bytes of a run of vectors, then the odd ones."""
    halves = []
    for odd in (0, 1):
        mask = ir.Constant(ir.VectorType(_I32, _LANES), list(range(odd, 2 * _LANES, 2)))
        for a, b in zip(vectors[::2], vectors[1::2], strict=True):
            halves.append(builder.shuffle_vector(a, b, mask))
    return halves


def _planes(builder: Any, vectors: list[Any]) -> list[Any]:
    """Return a vector for each byte ``k`` of the elements; there are as many elements as a vector has bytes."""
    if len(vectors) == 1:
        return vectors
    halves = _split(builder, vectors)
    middle = len(halves) // 2
    even, odd = _planes(builder, halves[:middle]), _planes(builder, halves[middle:])
    return [plane for pair in zip(even, odd, strict=True) for plane in pair]


def _make_deinterleave(count: int) -> Any:
    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def deinterleave(typing_context: Any, source: Any, target: Any, plane: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            at = args[1]
            for vector in _planes(builder, [_load(builder, args[0], i * _LANES) for i in range(count)]):
                builder.store(vector, builder.inttoptr(at, _V.as_pointer()), align=1)
                at = builder.add(at, args[2])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return deinterleave


#: ``deinterleaveN(source, target, plane)``: 32 elements of N bytes become 32 bytes of each of N planes.
deinterleave2 = _make_deinterleave(2)
deinterleave4 = _make_deinterleave(4)
deinterleave8 = _make_deinterleave(8)


@intrinsic  # type: ignore[untyped-decorator,unused-ignore]
def deinterleave_bits(typing_context: Any, source: Any, target: Any, plane: Any) -> Any:
    """``deinterleave_bits(source, target, plane)``: 32 bytes become 4 bytes of each of 8 bit planes."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = _load(builder, args[0], 0)
        zero = ir.Constant(_V, [0] * _LANES)
        for bit in range(7, -1, -1):
            # The wanted bit is the sign of each byte; adding the vector to itself moves up the next bit.
            signs = builder.bitcast(builder.icmp_signed("<", vector, zero), _I32)
            at = builder.add(args[1], builder.mul(args[2], ir.Constant(_I64, bit)))
            builder.store(signs, builder.inttoptr(at, _I32.as_pointer()), align=1)
            vector = builder.add(vector, vector)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


def _make_shuffle(typesize: int, wide: Any) -> Any:
    @part
    def shuffle(source: int, n: int, target: int) -> None:
        i = 0
        while i + 32 <= n:
            wide(source + typesize * i, target + i, n)
            i += 32
        _shuffle_bytes(source, i, n, target, typesize)

    return shuffle


@part
def _shuffle_bytes(source: int, first: int, n: int, target: int, typesize: int) -> None:
    s = u8(source)
    for k in range(typesize):
        d = u8(target + k * n)
        for i in range(first, n):
            d[i] = s[i * typesize + k]


_shuffle2 = _make_shuffle(2, deinterleave2)
_shuffle4 = _make_shuffle(4, deinterleave4)
_shuffle8 = _make_shuffle(8, deinterleave8)


@unit(types.void, 4)
def shuffle_block(source: int, nbytes: int, target: int, typesize: int) -> None:
    """Shuffle one whole block; bytes after the last whole element are copied unchanged."""
    n = nbytes // typesize
    whole = n * typesize
    if typesize == 2:
        _shuffle2(source, n, target)
    elif typesize == 4:
        _shuffle4(source, n, target)
    elif typesize == 8:
        _shuffle8(source, n, target)
    else:
        _shuffle_bytes(source, 0, n, target, typesize)
    if whole < nbytes:
        copy(target + whole, source + whole, nbytes - whole)


@unit(types.void, 4)
def to_bit_planes(planes: int, n: int, target: int, typesize: int) -> None:
    """Convert the byte planes of ``n`` elements (a multiple of 8) to bit planes, both of ``n * typesize`` bytes."""
    width = n // 8
    for j in range(typesize):
        source = planes + j * n
        out = target + j * n
        m = 0
        while m + 4 <= width:
            deinterleave_bits(source + 8 * m, out + m, width)
            m += 4
        while m < width:
            x = transpose_bits_8x8(u64(source)[m])
            for b in range(8):
                u8(out + b * width)[m] = (x >> uint64(8 * b)) & uint64(0xFF)
            m += 1
