"""Filters undone for all chunks of a wave at once: delta, conversions of elements with scale and offset.

All chunks of a launch have the same number of elements, one behind the other. The work is cut into *items* of 8 bytes
of a chunk's result, by their position in it; the last item of a chunk may have fewer. Results begin at multiples of 8
bytes, so that an item is one write; sources begin anywhere.

An element on its way is a uint64: an integer extended to 64 bits, or the bits of a float64. Every float16 and float32
is one; what becomes of a NaN, which a GPU leaves open, is written out, as CPUs do it: it keeps its sign and the highest
bits of its payload, and becomes a quiet one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numba import cuda, float32, float64, int64, types, uint32, uint64
from numba.extending import intrinsic

from .addressing import get, get_byte, quotient, store, swap_in_word
from .target import THREADS, body, kernel, raw
from .target import blocks as _blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from .addressing import Bytes, Column

__all__ = ["THREADS", "accumulate", "blocks", "convert", "job"]

# Kinds of elements. Booleans are written as 0 and 1.
SIGNED: Final = 0
UNSIGNED: Final = 1
FLOAT: Final = 2
BOOL: Final = 3
_KINDS: Final = {"i": SIGNED, "u": UNSIGNED, "f": FLOAT, "b": BOOL}

# The header: int64 at index ``job`` of the columns. Columns are named by the index where they begin.
#: Number of chunks.
CHUNKS: Final = 0
#: Items and bytes of a chunk's result.
ITEMS: Final = 1
NBYTES: Final = 2
#: Columns (C,): byte offset of each chunk, and of where its result goes.
SOURCE: Final = 3
TARGET: Final = 4
#: Of the elements before and after: kind, bytes (1, 2, 4 or 8), whether these are reversed.
SOURCE_KIND: Final = 5
SOURCE_WIDTH: Final = 6
SOURCE_SWAP: Final = 7
TARGET_KIND: Final = 8
TARGET_WIDTH: Final = 9
TARGET_SWAP: Final = 10
#: Bytes of the floats in which elements are divided by a scale and added to an offset; 0 for neither. Both are the bits
#: of a float64.
LOOP: Final = 11
SCALE: Final = 12
OFFSET: Final = 13
#: Words of the header.
SIZE: Final = 14

#: Items that a thread of ``accumulate`` takes at a time: 32 bytes, what memory moves at once.
_RUN: Final = 4
#: Partial sums of a block, twice: each step reads one half and writes the other.
_SUMS: Final = 2 * THREADS

_ALL: Final = 0xFFFFFFFFFFFFFFFF
_SIGN: Final = 1 << 63
#: All bits but that: Numba's ``_SIGN - 1`` would be a signed difference that overflows.
_MAGNITUDE: Final = _SIGN - 1
_INFINITY: Final = 0x7FF0000000000000
_QUIET: Final = 0x0008000000000000
#: Subtracted from the bits of a float64, it divides that by 2 to the power of 24: subnormal float16 count 2**-24.
_HALF_UNIT: Final = 24 << 52


def blocks(chunks: int, nbytes: int) -> int:
    """Return how many blocks of ``THREADS`` to launch ``convert``, and ``unpack_bits``, with.

    Parameters
    ----------
    chunks, nbytes
        Number of chunks, and bytes of the result of each.
    """
    return _blocks(-(-chunks * -(-nbytes // 8) // THREADS))


def job(
    put: Callable[[Any], int],
    source: npt.NDArray[np.int64],
    target: npt.NDArray[np.int64],
    nbytes: int,
    *,
    encoded: np.dtype[Any],
    decoded: np.dtype[Any],
    loop: int = 0,
    scale: float = 1.0,
    offset: float = 0.0,
) -> int:
    """Write the columns of any kernel here.

    Parameters
    ----------
    put
        Puts a column where the kernel finds it, and returns its index.
    source, target
        int64 ``(C,)``: the columns of the header; ``target`` are multiples of 8.
    nbytes
        Of the result of a chunk, in whole elements.
    encoded, decoded
        Elements before and after, in their byte order: integers, floats or booleans of at most 8 bytes.
    loop, scale, offset
        Of ``convert``; see the header.

    Returns
    -------
    Index of the header.
    """
    header = np.zeros(SIZE, np.int64)
    header[CHUNKS], header[ITEMS], header[NBYTES] = len(source), -(-nbytes // 8), nbytes
    header[SOURCE], header[TARGET] = put(source), put(target)
    header[SOURCE_KIND], header[TARGET_KIND] = _KINDS[encoded.kind], _KINDS[decoded.kind]
    header[SOURCE_WIDTH], header[TARGET_WIDTH] = encoded.itemsize, decoded.itemsize
    # GPUs, and the hosts that they are in, are little-endian.
    header[SOURCE_SWAP], header[TARGET_SWAP] = not encoded.isnative, not decoded.isnative
    header[LOOP] = loop
    header[SCALE : OFFSET + 1] = np.array([scale, offset], np.float64).view(np.int64)
    return put(header)


# -- elements


def _bitcast(from_type: Any, to_type: Any) -> Any:
    """Return a function for bodies: the same bits as another type."""

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def cast(typing_context: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(to_type))

        return to_type(from_type), codegen

    return cast


_float64_of = _bitcast(types.uint64, types.float64)
_float32_of = _bitcast(types.uint32, types.float32)
_bits_of_float64 = _bitcast(types.float64, types.uint64)
_bits_of_float32 = _bitcast(types.float32, types.uint32)


@body
def _is_nan(bits: Any) -> bool:
    """Return whether the bits of a float64 are those of a NaN."""
    return bits & uint64(_MAGNITUDE) > uint64(_INFINITY)


@body
def _widened(bits: Any, width: int) -> Any:
    """Return the float64 that a float of ``width`` bytes is, both as bits."""
    if width == 8:
        return bits | uint64(_QUIET) if _is_nan(bits) else bits
    if width == 4:
        magnitude = bits & uint64(0x7FFFFFFF)
        if magnitude > uint64(0x7F800000):
            sign = (bits ^ magnitude) << uint64(32)
            return sign | uint64(_INFINITY | _QUIET) | (magnitude & uint64(0x7FFFFF)) << uint64(29)
        return _bits_of_float64(float64(_float32_of(uint32(bits))))
    sign = (bits & uint64(0x8000)) << uint64(48)
    exponent = bits >> uint64(10) & uint64(31)
    fraction = bits & uint64(1023)
    if exponent == uint64(0):
        return sign | _bits_of_float64(float64(fraction)) - uint64(_HALF_UNIT) if fraction else sign
    exponent = uint64(2047) if exponent == uint64(31) else exponent + uint64(1023 - 15)
    return sign | exponent << uint64(52) | fraction << uint64(42)


@body
def _narrowed(bits: Any) -> Any:
    """Return the nearest float32 of a float64, both as bits; the float64 is no NaN, or a quiet one, or was narrower."""
    if _is_nan(bits):
        return (bits & uint64(_SIGN)) >> uint64(32) | uint64(0x7F800000) | bits >> uint64(29) & uint64(0x7FFFFF)
    return uint64(_bits_of_float32(float32(_float64_of(bits))))


@body
def _scaled(bits: Any, loop: int, scale: Any, offset: Any) -> Any:
    """Divide by a scale and add an offset, each rounded once to floats of ``loop`` bytes; all are bits of float64."""
    if _is_nan(bits):
        return bits
    if loop == 4:
        # Each is a float32 already.
        quotient32 = float32(_float64_of(bits)) / float32(_float64_of(scale))
        return _bits_of_float64(float64(float32(quotient32 + float32(_float64_of(offset)))))
    return _bits_of_float64(_float64_of(bits) / _float64_of(scale) + _float64_of(offset))


@body
def _extended(bits: Any, width: int) -> Any:
    """Return a signed integer of ``width`` bytes as one of 64 bits."""
    shift = 64 - 8 * width
    return uint64(int64(bits << uint64(shift)) >> int64(shift))


@body
def _element(arena: Bytes, columns: Column, offset: int, width: int, swap: int) -> Any:
    """Return the element at a byte offset as a uint64, its higher bits zero."""
    value = uint64(0)
    if offset & (width - 1) == 0:
        value = uint64(columns[uint64(offset >> 3)]) >> uint64(8 * (offset & 7))
    else:
        for b in range(width):
            value |= get_byte(arena, offset + b) << uint64(8 * b)
    if swap:
        value = swap_in_word(value, width - 1)
    return value & uint64(_ALL) >> uint64(64 - 8 * width)


@body
def _converted(columns: Column, job: int, value: Any) -> Any:
    """Return an element of the result for one of the source; only the low ``TARGET_WIDTH`` bytes count."""
    source_kind = get(columns, job + SOURCE_KIND)
    source_width = get(columns, job + SOURCE_WIDTH)
    target_kind = get(columns, job + TARGET_KIND)
    target_width = get(columns, job + TARGET_WIDTH)
    loop = get(columns, job + LOOP)
    if source_kind == FLOAT:
        if loop == 0 and target_width == source_width:
            return value
        value = _widened(value, source_width)
    else:
        if source_kind == SIGNED:
            value = _extended(value, source_width)
        elif source_kind == BOOL:
            value = uint64(1) if value else uint64(0)
        if target_kind == FLOAT or loop > 0:
            negative = source_kind == SIGNED
            if loop == 0 and target_width == 4:
                # By way of a float64 it would be rounded twice.
                nearest = float32(int64(value)) if negative else float32(value)
                return uint64(_bits_of_float32(nearest))
            value = _bits_of_float64(float64(int64(value)) if negative else float64(value))
        elif target_kind == BOOL:
            return uint64(1) if value else uint64(0)
    if loop > 0:
        value = _scaled(value, loop, uint64(get(columns, job + SCALE)), uint64(get(columns, job + OFFSET)))
    if target_kind == FLOAT:
        return _narrowed(value) if target_width == 4 else value
    if source_kind == FLOAT or loop > 0:
        if target_kind == SIGNED:
            return uint64(int64(_float64_of(value)))
        return uint64(_float64_of(value))
    return value


@body
def _ordered(columns: Column, job: int, word: Any) -> Any:
    """Return a word of result elements with their bytes as they are to be written."""
    width = get(columns, job + TARGET_WIDTH)
    return swap_in_word(word, width - 1) if get(columns, job + TARGET_SWAP) else word


@body
def _word_size(columns: Column, job: int, item: int) -> int:
    """Return the bytes of an item of a chunk."""
    return min(8, get(columns, job + NBYTES) - 8 * item)


# -- kernels


@body
def _convert(arena: Bytes, columns: Column, job: int, first: int, step: int) -> None:
    """Write every ``step``-th item of converted elements."""
    per_chunk = get(columns, job + ITEMS)
    items = per_chunk * get(columns, job + CHUNKS)
    source_width = get(columns, job + SOURCE_WIDTH)
    target_width = get(columns, job + TARGET_WIDTH)
    swap = get(columns, job + SOURCE_SWAP)
    per = quotient(8, target_width)
    keep = uint64(_ALL) >> uint64(64 - 8 * target_width)
    at = first
    while at < items:
        chunk = quotient(at, per_chunk)
        item = at - chunk * per_chunk
        size = _word_size(columns, job, item)
        source = get(columns, get(columns, job + SOURCE) + chunk) + item * per * source_width
        word = uint64(0)
        position = 0
        while position < size:
            value = _element(arena, columns, source, source_width, swap)
            word |= (_converted(columns, job, value) & keep) << uint64(8 * position)
            source += source_width
            position += target_width
        target = get(columns, get(columns, job + TARGET) + chunk) + 8 * item
        store(arena, columns, target, _ordered(columns, job, word), size)
        at += step


@body
def _sum(arena: Bytes, columns: Column, job: int, chunk: int, run: int) -> int:
    """Return the sum of the elements of a run of items, modulo 2 to the power of 64."""
    width = get(columns, job + SOURCE_WIDTH)
    signed = get(columns, job + SOURCE_KIND) == SIGNED
    swap = get(columns, job + SOURCE_SWAP)
    target_width = get(columns, job + TARGET_WIDTH)
    begin = quotient(8 * run * _RUN, target_width)
    end = quotient(min(8 * (run + 1) * _RUN, get(columns, job + NBYTES)), target_width)
    source = get(columns, get(columns, job + SOURCE) + chunk)
    total = uint64(0)
    for i in range(begin, end):
        value = _element(arena, columns, source + i * width, width, swap)
        total += _extended(value, width) if signed else value
    return int64(total)


@body
def _write_sums(arena: Bytes, columns: Column, job: int, chunk: int, run: int, before: int, total: int) -> None:
    """Write the running sums of a run of items; ``before`` is that of all up to its end, ``total`` its own."""
    width = get(columns, job + SOURCE_WIDTH)
    signed = get(columns, job + SOURCE_KIND) == SIGNED
    swap = get(columns, job + SOURCE_SWAP)
    target_width = get(columns, job + TARGET_WIDTH)
    per = quotient(8, target_width)
    keep = uint64(_ALL) >> uint64(64 - 8 * target_width)
    running = uint64(before) - uint64(total)
    item = run * _RUN
    end = min(item + _RUN, get(columns, job + ITEMS))
    source = get(columns, get(columns, job + SOURCE) + chunk) + item * per * width
    while item < end:
        size = _word_size(columns, job, item)
        word = uint64(0)
        position = 0
        while position < size:
            value = _element(arena, columns, source, width, swap)
            running += _extended(value, width) if signed else value
            word |= (running & keep) << uint64(8 * position)
            source += width
            position += target_width
        target = get(columns, get(columns, job + TARGET) + chunk) + 8 * item
        store(arena, columns, target, _ordered(columns, job, word), size)
        item += 1


@body
def _plus(a: int, b: int) -> int:
    """Add modulo 2 to the power of 64: what a sum of int64 is when it overflows is nowhere said."""
    return int64(uint64(a) + uint64(b))


@body
def _scan_step(sums: Column, page: int, other: int, thread: int, step: int) -> None:
    """Add to a thread's sum in one half, into the other, the sum ``step`` threads before it."""
    value = sums[uint64(page + thread)]
    if thread >= step:
        value = _plus(value, sums[uint64(page + thread - step)])
    sums[uint64(other + thread)] = value


@body
def _runs(columns: Column, job: int) -> int:
    """Return the runs of items of a chunk."""
    return (get(columns, job + ITEMS) + _RUN - 1) // _RUN


@kernel
def convert(arena: Bytes, columns: Column, job: int) -> None:
    """Convert elements: between types, after a division by a scale and an addition of an offset, or only byte order.

    Launched with ``blocks(chunks, nbytes)`` blocks of ``THREADS``. A float must fit the integer that it becomes; floats
    of 2 bytes are only read, and neither divided nor made integers of.

    Parameters
    ----------
    arena
        uint8, the memory of a wave.
    columns
        The same memory as int64.
    job
        Where in ``columns`` the header is.
    """
    _convert(raw(arena), raw(columns), job, cuda.grid(1), cuda.gridsize(1))


@kernel
def accumulate(arena: Bytes, columns: Column, job: int) -> None:
    """Make integers of their differences: running sums, which wrap.

    Launched with a block of ``THREADS``, or fewer, a chunk. Threads add up a run each, their block the sums of these.

    Parameters
    ----------
    arena
        uint8, the memory of a wave.
    columns
        The same memory as int64.
    job
        Where in ``columns`` the header is.
    """
    sums = cuda.shared.array(_SUMS, int64)
    thread = cuda.threadIdx.x
    threads = cuda.blockDim.x
    chunk = cuda.blockIdx.x
    while chunk < get(raw(columns), job + CHUNKS):
        carry = 0
        first = 0
        while first < _runs(raw(columns), job):
            total = _sum(raw(arena), raw(columns), job, chunk, first + thread)
            sums[thread] = total
            cuda.syncthreads()
            page = 0
            step = 1
            while step < threads:
                _scan_step(raw(sums), page, threads - page, thread, step)
                cuda.syncthreads()
                page = threads - page
                step *= 2
            before = _plus(carry, sums[page + thread])
            _write_sums(raw(arena), raw(columns), job, chunk, first + thread, before, total)
            carry = _plus(carry, sums[page + threads - 1])
            # Before the next sums take the place of these.
            cuda.syncthreads()
            first += threads
        chunk += cuda.gridDim.x
