"""Plain bytes to byte planes and to bit planes, for all chunks of a wave at once: the reverse of :mod:`planes`.

The columns are those of ``planes.job``. The work is divided into the same items, of 8 bytes of a block in byte planes.
A thread of one kernel writes such an item; a thread of the other writes the resulting byte of each of 8 bit planes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .addressing import element_index, get, get_byte, is_bit_shuffled, quotient, search, store, transpose_bits_8x8
from .language import cuda, uint64
from .planes import BLOCKSIZE, CHUNKS, ITEM_OFFSETS, NBYTES, SOURCE, TARGET, TYPESIZE
from .target import THREADS, body, kernel

if TYPE_CHECKING:
    from .addressing import Bytes, Column

__all__ = ["THREADS", "plain_to_bit_planes", "plain_to_byte_planes"]


@body
def _planar_word(arena: Bytes, block: int, position: int, size: int, n: int, typesize: int) -> Any:
    """Return up to 8 bytes of a block's byte planes from its plain bytes."""
    value = uint64(0)
    for b in range(size):
        value |= get_byte(arena, block + element_index(position + b, n, typesize)) << uint64(8 * b)
    return value


@body
def _convert(arena: Bytes, columns: Column, job: int, to_bits: bool, first: int, step: int) -> None:
    """Convert every ``step``-th item."""
    chunks = get(columns, job + CHUNKS)
    offsets = get(columns, job + ITEM_OFFSETS)
    items = get(columns, offsets + chunks)
    chunk = 0
    item = first
    while item < items:
        chunk = search(columns, offsets, chunk, chunks, item)
        nth = item - get(columns, offsets + chunk)
        typesize = get(columns, get(columns, job + TYPESIZE) + chunk)
        blocksize = get(columns, get(columns, job + BLOCKSIZE) + chunk)
        block = quotient(nth, (blocksize + 7) >> 3)
        position = 8 * (nth - block * ((blocksize + 7) >> 3))
        begin = block * blocksize
        nbytes = min(blocksize, get(columns, get(columns, job + NBYTES) + chunk) - begin)
        size = min(8, nbytes - position)
        n = quotient(nbytes, typesize)
        source = get(columns, get(columns, job + SOURCE) + chunk) + begin
        target = get(columns, get(columns, job + TARGET) + chunk) + begin
        if to_bits and is_bit_shuffled(n) and position < n * typesize:
            # Planes consist of whole words here, so all 8 bytes are the same byte of 8 elements.
            value = transpose_bits_8x8(_planar_word(arena, source, position, 8, n, typesize))
            width = n >> 3
            plane = quotient(position, n)
            target += plane * n + ((position - plane * n) >> 3)
            for _ in range(8):
                arena[uint64(target)] = value & uint64(255)
                value >>= uint64(8)
                target += width
        else:
            # Blocks without bit planes stay plain.
            elements = 0 if to_bits else n
            value = _planar_word(arena, source, position, size, elements, typesize)
            store(arena, columns, target + position, value, size)
        item += step


@kernel
def plain_to_byte_planes(arena: Bytes, columns: Column, job: int) -> None:
    """Convert plain chunks to byte planes, block by block.

    Parameters
    ----------
    arena
        uint8, the memory of a wave.
    columns
        The same memory as int64.
    job
        Index of the header in ``columns``.
    """
    _convert(arena, columns, job, False, cuda.grid(1), cuda.gridsize(1))


@kernel
def plain_to_bit_planes(arena: Bytes, columns: Column, job: int) -> None:
    """Convert plain chunks to bit planes; blocks whose number of elements is not a multiple of 8 stay plain.

    Parameters
    ----------
    arena
        uint8, the memory of a wave.
    columns
        The same memory as int64.
    job
        Index of the header in ``columns``.
    """
    _convert(arena, columns, job, True, cuda.grid(1), cuda.gridsize(1))
