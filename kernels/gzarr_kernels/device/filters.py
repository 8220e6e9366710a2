"""Decoding of filters for all chunks of a wave at once: delta, and conversions of elements with scale and offset.

All chunks of a launch have the same number of consecutive elements. The work is divided into *items* of 8 bytes of a
chunk's result, by their position; the last item of a chunk may be shorter. Results begin at multiples of 8 bytes, so
that an item is one write; sources begin anywhere.

In between, an element is a uint64: an integer extended to 64 bits, or the bits of a float64, which can represent every
float16 and float32. A GPU's conversion of NaNs is unspecified, so NaNs are converted explicitly, like on CPUs: they
keep their sign and the highest bits of their payload, and become quiet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .addressing import get, get_byte, quotient, store, swap_in_word
from .language import cuda, float32, float64, int64, intrinsic, types, uint32, uint64
from .target import THREADS, body, kernel
from .target import blocks as _blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from .addressing import Bytes, Column

__all__ = [
    "THREADS",
    "accumulate",
    "blocks",
    "convert",
    "convert_element",
    "element_width",
    "header_of",
    "job",
    "load_element",
]

# Kinds of elements. Booleans are written as 0 and 1.
SIGNED: Final = 0
UNSIGNED: Final = 1
FLOAT: Final = 2
BOOL: Final = 3
_KINDS: Final = {"i": SIGNED, "u": UNSIGNED, "f": FLOAT, "b": BOOL}

# The header: int64 at index ``job`` of the columns. It refers to columns by the index of their first element.
#: Number of chunks.
CHUNKS: Final = 0
#: Number of items and of bytes of a chunk's result.
ITEMS: Final = 1
NBYTES: Final = 2
#: Columns (C,): byte offset of each chunk, and of its result.
SOURCE: Final = 3
TARGET: Final = 4
#: Elements before and after: kind, size in bytes (1, 2, 4 or 8), and whether the bytes are reversed.
SOURCE_KIND: Final = 5
SOURCE_WIDTH: Final = 6
SOURCE_SWAP: Final = 7
TARGET_KIND: Final = 8
TARGET_WIDTH: Final = 9
TARGET_SWAP: Final = 10
#: Size in bytes of the floats in which elements are divided by a scale and added to an offset; 0 for neither. Scale and
#: offset are the bits of a float64.
LOOP: Final = 11
SCALE: Final = 12
OFFSET: Final = 13
#: Number of words of the header.
SIZE: Final = 14

#: Items that a thread of ``accumulate`` takes at a time: 32 bytes, the size of one memory transaction.
_RUN: Final = 4
#: Partial sums of a block, twice: each step reads one half and writes the other.
_SUMS: Final = 2 * THREADS

_ALL: Final = 0xFFFFFFFFFFFFFFFF
_SIGN: Final = 1 << 63
#: All bits except the sign. In kernels, ``_SIGN - 1`` would be a signed difference that overflows.
_MAGNITUDE: Final = _SIGN - 1
_INFINITY: Final = 0x7FF0000000000000
_QUIET: Final = 0x0008000000000000
#: Subtracting this from the bits of a float64 divides it by 2**24; subnormal float16 are multiples of 2**-24.
_HALF_UNIT: Final = 24 << 52


def blocks(chunks: int, nbytes: int) -> int:
    """Return the number of blocks of ``THREADS`` for launches of ``convert`` and ``unpack_bits``.

    Parameters
    ----------
    chunks, nbytes
        Number of chunks, and size of the result of each in bytes.
    """
    return _blocks(-(-chunks * -(-nbytes // 8) // THREADS))


def header_of(
    encoded: np.dtype[Any], decoded: np.dtype[Any], loop: int = 0, scale: float = 1.0, offset: float = 0.0
) -> npt.NDArray[np.int64]:
    """Return a header without chunks, which is enough for ``convert_element``.

    Parameters
    ----------
    encoded, decoded
        Types of elements before and after, with byte order: integers, floats or booleans of at most 8 bytes.
    loop, scale, offset
        For conversions; see the header.
    """
    header = np.zeros(SIZE, np.int64)
    header[SOURCE_KIND], header[TARGET_KIND] = _KINDS[encoded.kind], _KINDS[decoded.kind]
    header[SOURCE_WIDTH], header[TARGET_WIDTH] = encoded.itemsize, decoded.itemsize
    # GPUs and their hosts are little-endian.
    header[SOURCE_SWAP], header[TARGET_SWAP] = not encoded.isnative, not decoded.isnative
    header[LOOP] = loop
    header[SCALE : OFFSET + 1] = np.array([scale, offset], np.float64).view(np.int64)
    return header


def job(
    put: Callable[[Any], int],
    header: npt.NDArray[np.int64],
    source: npt.NDArray[np.int64],
    target: npt.NDArray[np.int64],
    nbytes: int,
) -> int:
    """Write the columns of any kernel of this module.

    Parameters
    ----------
    put
        Function that stores a column for the kernel, and returns its index.
    header
        int64 ``(SIZE,)``, from :func:`header_of`, to complete.
    source, target
        int64 ``(C,)``, columns of the header; ``target`` are multiples of 8.
    nbytes
        Size of the result of a chunk in bytes, a whole number of elements.

    Returns
    -------
    Index of the header.
    """
    header[CHUNKS], header[ITEMS], header[NBYTES] = len(source), -(-nbytes // 8), nbytes
    header[SOURCE], header[TARGET] = put(source), put(target)
    return put(header)


# -- elements


def _bitcast(from_type: Any, to_type: Any) -> Any:
    """Return a function for bodies that reinterprets bits as another type."""

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def cast(typing_context: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(to_type))

        return to_type(from_type), codegen

    return cast


float64_of = _bitcast(types.uint64, types.float64)
float32_of = _bitcast(types.uint32, types.float32)
bits_of_float64 = _bitcast(types.float64, types.uint64)
bits_of_float32 = _bitcast(types.float32, types.uint32)


@body
def _is_nan(bits: Any) -> bool:
    """Return whether the bits of a float64 are those of a NaN."""
    return bits & uint64(_MAGNITUDE) > uint64(_INFINITY)


@body
def _widened(bits: Any, width: int) -> Any:
    """Return a float of ``width`` bytes as a float64, both as bits."""
    if width == 8:
        return bits | uint64(_QUIET) if _is_nan(bits) else bits
    if width == 4:
        magnitude = bits & uint64(0x7FFFFFFF)
        if magnitude > uint64(0x7F800000):
            sign = (bits ^ magnitude) << uint64(32)
            return sign | uint64(_INFINITY | _QUIET) | (magnitude & uint64(0x7FFFFF)) << uint64(29)
        return bits_of_float64(float64(float32_of(uint32(bits))))
    sign = (bits & uint64(0x8000)) << uint64(48)
    exponent = bits >> uint64(10) & uint64(31)
    fraction = bits & uint64(1023)
    if exponent == uint64(0):
        return sign | bits_of_float64(float64(fraction)) - uint64(_HALF_UNIT) if fraction else sign
    exponent = uint64(2047) if exponent == uint64(31) else exponent + uint64(1023 - 15)
    return sign | exponent << uint64(52) | fraction << uint64(42)


@body
def _narrowed(bits: Any) -> Any:
    """Return the nearest float32 of a float64, both as bits; a NaN must be quiet or come from a narrower float."""
    if _is_nan(bits):
        return (bits & uint64(_SIGN)) >> uint64(32) | uint64(0x7F800000) | bits >> uint64(29) & uint64(0x7FFFFF)
    return uint64(bits_of_float32(float32(float64_of(bits))))


@body
def _scaled(bits: Any, loop: int, scale: Any, offset: Any) -> Any:
    """Divide by a scale and add an offset, each rounded once to ``loop`` bytes; values are bits of float64."""
    if _is_nan(bits):
        return bits
    if loop == 4:
        # All three are exact as float32.
        quotient32 = float32(float64_of(bits)) / float32(float64_of(scale))
        return bits_of_float64(float64(float32(quotient32 + float32(float64_of(offset)))))
    return bits_of_float64(float64_of(bits) / float64_of(scale) + float64_of(offset))


@body
def extended(bits: Any, width: int) -> Any:
    """Return a signed integer of ``width`` bytes sign-extended to 64 bits."""
    shift = 64 - 8 * width
    return uint64(int64(bits << uint64(shift)) >> int64(shift))


@body
def load_element(arena: Bytes, columns: Column, offset: int, width: int, swap: int) -> Any:
    """Return the element at a byte offset as a uint64, with its higher bits zero."""
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
def element_width(columns: Column, job: int) -> int:
    """Return the size in bytes of an element before it is converted."""
    return get(columns, job + SOURCE_WIDTH)


@body
def convert_element(columns: Column, job: int, value: Any) -> Any:
    """Return the converted element; only the low ``TARGET_WIDTH`` bytes are defined.

    The element is in native byte order, as ``load_element`` returns it; ``job`` is the index of a header.
    """
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
            value = extended(value, source_width)
        elif source_kind == BOOL:
            value = uint64(1) if value else uint64(0)
        if target_kind == FLOAT or loop > 0:
            negative = source_kind == SIGNED
            if loop == 0 and target_width == 4:
                # Conversion through a float64 would round twice.
                nearest = float32(int64(value)) if negative else float32(value)
                return uint64(bits_of_float32(nearest))
            value = bits_of_float64(float64(int64(value)) if negative else float64(value))
        elif target_kind == BOOL:
            return uint64(1) if value else uint64(0)
    if loop > 0:
        value = _scaled(value, loop, uint64(get(columns, job + SCALE)), uint64(get(columns, job + OFFSET)))
    if target_kind == FLOAT:
        return _narrowed(value) if target_width == 4 else value
    if source_kind == FLOAT or loop > 0:
        if target_kind == SIGNED:
            return uint64(int64(float64_of(value)))
        return uint64(float64_of(value))
    return value


@body
def _ordered(columns: Column, job: int, word: Any) -> Any:
    """Return a word of result elements in the byte order of the result."""
    width = get(columns, job + TARGET_WIDTH)
    return swap_in_word(word, width - 1) if get(columns, job + TARGET_SWAP) else word


@body
def _word_size(columns: Column, job: int, item: int) -> int:
    """Return the size of an item of a chunk in bytes."""
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
            value = load_element(arena, columns, source, source_width, swap)
            word |= (convert_element(columns, job, value) & keep) << uint64(8 * position)
            source += source_width
            position += target_width
        target = get(columns, get(columns, job + TARGET) + chunk) + 8 * item
        store(arena, columns, target, _ordered(columns, job, word), size)
        at += step


@body
def _sum(arena: Bytes, columns: Column, job: int, chunk: int, run: int) -> int:
    """Return the sum of the elements of a run of items, modulo 2**64."""
    width = get(columns, job + SOURCE_WIDTH)
    signed = get(columns, job + SOURCE_KIND) == SIGNED
    swap = get(columns, job + SOURCE_SWAP)
    target_width = get(columns, job + TARGET_WIDTH)
    begin = quotient(8 * run * _RUN, target_width)
    end = quotient(min(8 * (run + 1) * _RUN, get(columns, job + NBYTES)), target_width)
    source = get(columns, get(columns, job + SOURCE) + chunk)
    total = uint64(0)
    for i in range(begin, end):
        value = load_element(arena, columns, source + i * width, width, swap)
        total += extended(value, width) if signed else value
    return int64(total)


@body
def _write_sums(arena: Bytes, columns: Column, job: int, chunk: int, run: int, before: int, total: int) -> None:
    """Write the running sums of a run of items; ``before`` is the sum up to its end, ``total`` the run's own."""
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
            value = load_element(arena, columns, source, width, swap)
            running += extended(value, width) if signed else value
            word |= (running & keep) << uint64(8 * position)
            source += width
            position += target_width
        target = get(columns, get(columns, job + TARGET) + chunk) + 8 * item
        store(arena, columns, target, _ordered(columns, job, word), size)
        item += 1


@body
def _plus(a: int, b: int) -> int:
    """Add modulo 2**64: overflow of an int64 sum is unspecified."""
    return int64(uint64(a) + uint64(b))


@body
def _scan_step(sums: Column, page: int, other: int, thread: int, step: int) -> None:
    """Add the sum of the thread ``step`` before to a thread's sum; read from one half, write to the other."""
    value = sums[uint64(page + thread)]
    if thread >= step:
        value = _plus(value, sums[uint64(page + thread - step)])
    sums[uint64(other + thread)] = value


@body
def _runs(columns: Column, job: int) -> int:
    """Return the number of runs of items of a chunk."""
    return (get(columns, job + ITEMS) + _RUN - 1) // _RUN


@kernel
def convert(arena: Bytes, columns: Column, job: int) -> None:
    """Convert elements between types or byte orders, optionally after dividing by a scale and adding an offset.

    Launched with ``blocks(chunks, nbytes)`` blocks of ``THREADS``. Floats must fit the integers that they become;
    floats of 2 bytes are only read, and neither scaled nor converted to integers.

    Parameters
    ----------
    arena
        uint8, the memory of a wave.
    columns
        The same memory as int64.
    job
        Index of the header in ``columns``.
    """
    _convert(arena, columns, job, cuda.grid(1), cuda.gridsize(1))


@kernel
def accumulate(arena: Bytes, columns: Column, job: int) -> None:
    """Restore integers from their differences, by running sums that wrap.

    Launched with one block per chunk, of at most ``THREADS``. Each thread sums a run, and the block the sums of runs.

    Parameters
    ----------
    arena
        uint8, the memory of a wave.
    columns
        The same memory as int64.
    job
        Index of the header in ``columns``.
    """
    sums = cuda.shared.array(_SUMS, int64)
    thread = cuda.threadIdx.x
    threads = cuda.blockDim.x
    chunk = cuda.blockIdx.x
    while chunk < get(columns, job + CHUNKS):
        carry = 0
        first = 0
        while first < _runs(columns, job):
            total = _sum(arena, columns, job, chunk, first + thread)
            sums[thread] = total
            cuda.syncthreads()
            page = 0
            step = 1
            while step < threads:
                _scan_step(sums, page, threads - page, thread, step)
                cuda.syncthreads()
                page = threads - page
                step *= 2
            before = _plus(carry, sums[page + thread])
            _write_sums(arena, columns, job, chunk, first + thread, before, total)
            carry = _plus(carry, sums[page + threads - 1])
            # The next sums overwrite these.
            cuda.syncthreads()
            first += threads
        chunk += cuda.gridDim.x
