"""Conversion of rows of numbers with any strides: the pairs of ``slots/conversion.py``, as C and NumPy convert them.

The instructions are written for vectors of a fixed length, with a choice of the conversion for each vector: loops would
have to be compiled for each pair, and vectorized by the compiler.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .elements import copy_rows
from .jit import part, unit
from .slots.conversion import PAIRS
from .slots.scratch import TILE_BYTES

#: Elements that are converted with one choice, in long rows and in short ones.
_MANY: Final = 64
_FEW: Final = 8
#: Elements that are byte-swapped at once, and bytes of a buffer of them and of converted elements.
_SWAPPED: Final = 1024
_SWAPPED_BYTES: Final = 8 * _SWAPPED
_BUFFER_BYTES: Final = 8 << 10
#: Bytes of scratch for :func:`convert_rows`, which is that for tiles.
SCRATCH_BYTES: Final = _SWAPPED_BYTES + 64 + _BUFFER_BYTES
assert SCRATCH_BYTES <= TILE_BYTES


def _element(name: str) -> Any:
    """Return the type of an element; that of a float16 is the one of its bits."""
    if name in ("f4", "f8"):
        return ir.FloatType() if name == "f4" else ir.DoubleType()
    return ir.IntType(8 * int(name[1]))


def _constant(kind: Any, value: float) -> Any:
    return ir.Constant(kind, [value] * kind.count)


def _from_half(builder: Any, bits: Any, lanes: int) -> Any:
    """Return float32 of float16, without arithmetic on subnormals: a process may have switched it off."""
    word, real = ir.VectorType(ir.IntType(32), lanes), ir.VectorType(ir.FloatType(), lanes)
    number = partial(_constant, word)
    h = builder.zext(bits, word)
    sign = builder.shl(builder.and_(h, number(0x8000)), number(16))
    rest = builder.and_(h, number(0x7FFF))
    moved = builder.shl(rest, number(13))
    normal = builder.add(moved, number(0x38000000))
    # NaN becomes quiet, as by a processor.
    quiet = builder.select(builder.icmp_unsigned(">", rest, number(0x7C00)), number(0x400000), number(0))
    special = builder.or_(builder.or_(moved, number(0x7F800000)), quiet)
    # Subnormal numbers are multiples of 2 ** -24.
    small = builder.bitcast(builder.fmul(builder.sitofp(rest, real), _constant(real, 2.0**-24)), word)
    finite = builder.select(builder.icmp_unsigned("<", rest, number(0x400)), small, normal)
    value = builder.select(builder.icmp_unsigned(">=", rest, number(0x7C00)), special, finite)
    return builder.bitcast(builder.or_(value, sign), real)


def _to_half(builder: Any, values: Any, lanes: int) -> Any:
    """Return the float16 nearest to a float32; of two, the even one."""
    word, real = ir.VectorType(ir.IntType(32), lanes), ir.VectorType(ir.FloatType(), lanes)
    number = partial(_constant, word)
    bits = builder.bitcast(values, word)
    sign = builder.and_(builder.lshr(bits, number(16)), number(0x8000))
    rest = builder.and_(bits, number(0x7FFFFFFF))
    # Adding 0.5 leaves as many bits as a subnormal float16 has, rounded by the processor.
    half = builder.fadd(builder.bitcast(rest, real), _constant(real, 0.5))
    small = builder.sub(builder.bitcast(half, word), number(0x3F000000))
    odd = builder.and_(builder.lshr(rest, number(13)), number(1))
    # Below 65536, what rounds to infinity overflows to it by itself.
    normal = builder.lshr(builder.add(builder.add(rest, number(0xFFF - 0x38000000)), odd), number(13))
    payload = builder.and_(builder.lshr(rest, number(13)), number(0x3FF))
    is_nan = builder.icmp_unsigned(">", rest, number(0x7F800000))
    large = builder.select(is_nan, builder.or_(payload, number(0x7E00)), number(0x7C00))
    finite = builder.select(builder.icmp_unsigned("<", rest, number(0x38800000)), small, normal)
    value = builder.select(builder.icmp_unsigned(">=", rest, number(0x47800000)), large, finite)
    return builder.trunc(builder.or_(value, sign), ir.VectorType(ir.IntType(16), lanes))


def _converted(builder: Any, values: Any, source: str, target: str, lanes: int) -> Any:
    """Return vectors of numbers, converted."""
    into = ir.VectorType(_element(target), lanes)
    if target == "f2":
        return _to_half(builder, values, lanes)
    if source == "f2":
        single = _from_half(builder, values, lanes)
        return single if target == "f4" else builder.fpext(single, into)
    if source[0] == "f":
        return builder.fpext(values, into) if target == "f8" else builder.fptrunc(values, into)
    if target[0] == "f":
        return builder.uitofp(values, into) if source[0] == "u" else builder.sitofp(values, into)
    if target[1] < source[1]:
        return builder.trunc(values, into)
    return builder.zext(values, into) if source[0] == "u" else builder.sext(values, into)


def _make_convert(lanes: int) -> Any:
    """``convert(conversion, source, target)``: convert ``lanes`` dense elements."""

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def convert(typing_context: Any, conversion: Any, source: Any, target: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            number, source_address, target_address = args
            done = builder.append_basic_block("converted")
            choice = builder.switch(number, done)
            for i, (source_name, target_name) in enumerate(PAIRS, 1):
                block = builder.append_basic_block(f"from_{source_name}_to_{target_name}")
                choice.add_case(ir.Constant(number.type, i), block)
                builder.position_at_end(block)
                kind = ir.VectorType(_element(source_name), lanes)
                values = builder.load(builder.inttoptr(source_address, kind.as_pointer()), align=1)
                result = _converted(builder, values, source_name, target_name, lanes)
                builder.store(result, builder.inttoptr(target_address, result.type.as_pointer()), align=1)
                builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return convert


_convert_many = _make_convert(_MANY)
_convert_few = _make_convert(_FEW)
_convert_one = _make_convert(1)


@unit(types.void, 11)
def convert_native(
    source: int, by_source: int, source_stride: int, target: int, by_target: int, target_stride: int, rows: int, n: int,
    conversion: int, itemsize: int, target_itemsize: int,
) -> None:  # fmt: skip
    """Convert elements in native byte order."""
    dense = source_stride == itemsize and target_stride == target_itemsize
    for r in range(rows):
        s = source + r * by_source
        t = target + r * by_target
        i = 0
        if dense:
            while i + _MANY <= n:
                _convert_many(conversion, s + i * itemsize, t + i * target_itemsize)
                i += _MANY
            while i + _FEW <= n:
                _convert_few(conversion, s + i * itemsize, t + i * target_itemsize)
                i += _FEW
        while i < n:
            _convert_one(conversion, s + i * source_stride, t + i * target_stride)
            i += 1


@part
def _convert_some(
    source: int, by_source: int, source_stride: int, target: int, by_target: int, target_stride: int, rows: int, n: int,
    conversion: int, itemsize: int, target_itemsize: int, swap: int, scratch: int,
) -> None:  # fmt: skip
    """Convert elements in any byte order."""
    if swap < 2:
        convert_native(
            source, by_source, source_stride, target, by_target, target_stride, rows, n, conversion, itemsize,
            target_itemsize,
        )  # fmt: skip
        return
    for r in range(rows):
        i = 0
        while i < n:
            some = min(_SWAPPED, n - i)
            copy_rows(
                source + r * by_source + i * source_stride, 0, source_stride, scratch, 0, itemsize, 1, some, itemsize,
                swap, 0,
            )  # fmt: skip
            t = target + r * by_target + i * target_stride
            convert_native(scratch, 0, itemsize, t, 0, target_stride, 1, some, conversion, itemsize, target_itemsize)
            i += some


@unit(types.void, 14)
def convert_rows(
    source: int,
    by_source: int,
    source_stride: int,
    target: int,
    by_target: int,
    target_stride: int,
    rows: int,
    n: int,
    conversion: int,
    itemsize: int,
    target_itemsize: int,
    swap: int,
    scratch: int,
    stream: int,
) -> None:
    """Convert ``rows`` rows of ``n`` numbers. Other arguments are as of :func:`gzarr_kernels.elements.copy_rows`.

    Parameters
    ----------
    conversion
        Number of the conversion, not 0.
    itemsize, target_itemsize
        Bytes of an element of the source and of the target.
    scratch
        Address of ``SCRATCH_BYTES`` bytes.
    """
    nbytes = n * target_itemsize
    if stream == 0 or target_stride != target_itemsize or nbytes < 64:
        _convert_some(
            source, by_source, source_stride, target, by_target, target_stride, rows, n, conversion, itemsize,
            target_itemsize, swap, scratch,
        )  # fmt: skip
        return
    # By way of a buffer in the nearest cache, from which vectors are written past the caches.
    buffer = (scratch + _SWAPPED_BYTES + 63) // 64 * 64
    if nbytes <= _BUFFER_BYTES:
        most = _BUFFER_BYTES // nbytes
        r = 0
        while r < rows:
            some = min(most, rows - r)
            _convert_some(
                source + r * by_source, by_source, source_stride, buffer, nbytes, target_itemsize, some, n, conversion,
                itemsize, target_itemsize, swap, scratch,
            )  # fmt: skip
            copy_rows(
                buffer, nbytes, target_itemsize, target + r * by_target, by_target, target_itemsize, some, n,
                target_itemsize, 0, stream,
            )  # fmt: skip
            r += some
        return
    most = _BUFFER_BYTES // target_itemsize
    for r in range(rows):
        i = 0
        while i < n:
            some = min(most, n - i)
            _convert_some(
                source + r * by_source + i * source_stride, 0, source_stride, buffer, 0, target_itemsize, 1, some,
                conversion, itemsize, target_itemsize, swap, scratch,
            )  # fmt: skip
            t = target + r * by_target + i * target_itemsize
            copy_rows(buffer, 0, target_itemsize, t, 0, target_itemsize, 1, some, target_itemsize, 0, stream)
            i += some
