"""Bit planes to byte planes, and byte planes to plain bytes, for all chunks of a wave at once.

The work is divided into *items* of 8 bytes of a block's result, by their position; the last item of a block may be
shorter. Consecutive threads take consecutive items, so that a warp writes consecutive memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .addressing import (
    element_index,
    get,
    get_byte,
    is_bit_shuffled,
    quotient,
    search,
    store,
    transpose_bits_8x8,
)
from .language import cuda, uint64
from .target import THREADS, body, kernel
from .target import blocks as _blocks

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from .addressing import Bytes, Column

__all__ = ["THREADS", "bit_planes_to_byte_planes", "blocks", "byte_planes_to_plain", "job"]

# The header: int64 at index ``job`` of the columns. It refers to columns by the index of their first element.
#: Number of chunks.
CHUNKS: Final = 0
#: Column (C + 1,): number of items before each chunk (:func:`item_offsets`).
ITEM_OFFSETS: Final = 1
#: Columns (C,): byte offset of each chunk, and of its result.
SOURCE: Final = 2
TARGET: Final = 3
#: Columns (C,): size in bytes of an element, of a block, and of the chunk. The last block may be shorter.
TYPESIZE: Final = 4
BLOCKSIZE: Final = 5
NBYTES: Final = 6
#: Number of words of the header.
SIZE: Final = 7


def item_offsets(blocksize: npt.NDArray[np.int64], nbytes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the number of items before each chunk, followed by the total; int64 ``(C + 1,)``.

    Parameters
    ----------
    blocksize, nbytes
        int64 ``(C,)``: size in bytes of a block, at least 1, and of the chunk.
    """
    whole, left = np.divmod(nbytes, blocksize)
    offsets = np.zeros(len(nbytes) + 1, np.int64)
    np.cumsum(whole * -(-blocksize // 8) + -(-left // 8), out=offsets[1:])
    return offsets


def blocks(items: int) -> int:
    """Return the number of blocks of ``THREADS`` to launch for ``items``."""
    return _blocks(-(-items // THREADS))


def job(
    put: Callable[[npt.NDArray[np.int64]], int],
    source: npt.NDArray[np.int64],
    target: npt.NDArray[np.int64],
    typesize: npt.NDArray[np.int64],
    blocksize: npt.NDArray[np.int64],
    nbytes: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Write the columns of either kernel.

    Parameters
    ----------
    put
        Function that stores a column for the kernel, and returns its index.
    source, target, typesize, blocksize, nbytes
        int64 ``(C,)``, columns of the header.

    Returns
    -------
    Index of the header, and number of blocks to launch.
    """
    offsets = item_offsets(blocksize, nbytes)
    header = np.zeros(SIZE, np.int64)
    header[CHUNKS] = len(source)
    header[ITEM_OFFSETS] = put(offsets)
    header[SOURCE] = put(source)
    header[TARGET] = put(target)
    header[TYPESIZE] = put(typesize)
    header[BLOCKSIZE] = put(blocksize)
    header[NBYTES] = put(nbytes)
    return put(header), blocks(int(offsets[-1]))


@body
def _byte_planes_word(arena: Bytes, block: int, position: int, size: int, n: int, typesize: int) -> Any:
    """Return up to 8 bytes of the byte planes of a block that is in bit planes or, depending on ``n``, plain."""
    value = uint64(0)
    whole = n * typesize
    if is_bit_shuffled(n) and position < whole:
        width = n >> 3
        plane = quotient(position, n)
        source = block + plane * n + ((position - plane * n) >> 3)
        for b in range(8):
            value |= get_byte(arena, source) << uint64(8 * b)
            source += width
        return transpose_bits_8x8(value)
    plain = not is_bit_shuffled(n)
    for b in range(size):
        i = element_index(position + b, n, typesize) if plain else position + b
        value |= get_byte(arena, block + i) << uint64(8 * b)
    return value


@body
def _plain_word(arena: Bytes, block: int, position: int, size: int, n: int, typesize: int) -> Any:
    """Return up to 8 bytes of a plain block from its byte planes."""
    value = uint64(0)
    element = quotient(position, typesize)
    byte = position - element * typesize
    for b in range(size):
        source = byte * n + element if element < n else position + b
        value |= get_byte(arena, block + source) << uint64(8 * b)
        byte += 1
        if byte == typesize:
            byte = 0
            element += 1
    return value


@body
def _convert(arena: Bytes, columns: Column, job: int, from_bits: bool, first: int, step: int) -> None:
    """Write every ``step``-th item."""
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
        if from_bits:
            value = _byte_planes_word(arena, source, position, size, n, typesize)
        else:
            value = _plain_word(arena, source, position, size, n, typesize)
        target = get(columns, get(columns, job + TARGET) + chunk) + begin + position
        store(arena, columns, target, value, size)
        item += step


@kernel
def bit_planes_to_byte_planes(arena: Bytes, columns: Column, job: int) -> None:
    """Convert bit-shuffled chunks to byte planes, including blocks that their encoder left plain.

    The byte planes of elements of one byte are the plain bytes.

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


@kernel
def byte_planes_to_plain(arena: Bytes, columns: Column, job: int) -> None:
    """Convert chunks in byte planes to plain bytes.

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
