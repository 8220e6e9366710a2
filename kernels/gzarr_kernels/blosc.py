"""Blosc 1 containers: header, block table and streams. Every length is checked before it is used.

A container is a header of 16 bytes, the int32 offsets of its blocks, and the blocks. A block is one stream, or one
stream per byte of the element (*split*: unless the header forbids it, for elements of up to 16 bytes and planes of at
least 128 bytes, but never for a short last block). A stream is an int32 length and that many bytes; a stream as long as
its decoded data is not compressed. Each block is shuffled separately, a short last block with its own length. A
bit-shuffled block whose number of elements is not a multiple of 8 is stored unshuffled. Source: c-blosc
``README_CHUNK_FORMAT.rst``, ``blosc/blosc.c``, ``blosc/shuffle.c`` (format).
"""

from __future__ import annotations

from typing import Final

from numba import int64, types

from . import status as S
from .bitshuffle import to_byte_planes
from .blosc_encode import HEADER_BYTES, blosc_write
from .context import ensure
from .deflate import deflate_context, zlib_body, zlib_decompress
from .frames import big_endian, put_frame
from .jit import by_address, part
from .lz4 import lz4_decompress
from .memory import copy, i32, i64, u8, u32
from .place import mark_piece
from .shuffle import unshuffle_block
from .slots import context as C
from .slots.frames import ADLER32, DEFLATE, LZ4, RAW, REFUSED, SNAPPY, UNCHECKED, ZSTD
from .snappy import snappy_decompress, snappy_size
from .symbols import c_memset, external
from .zstd import zstd_context, zstd_decompress, zstd_frame

_i4, _i8 = types.int32, types.int64
#: (source, nbytes, target, capacity) → size, or at most 0.
blosclz_decompress: Final = external("gzarr_blosclz_decompress", _i4, _i8, _i4, _i8, _i4)

_MAX_SPLIT_TYPESIZE: Final = 16
_MIN_PLANE_BYTES: Final = 128
_SHUFFLED: Final = 0x01
_MEMCPYED: Final = 0x02
_BIT_SHUFFLED: Final = 0x04
_DONT_SPLIT: Final = 0x10


@part
def blosc_check(context: int, source: int, nbytes: int, expected: int) -> int:
    """Check the header and block table of a container of ``expected`` decoded bytes; return a status."""
    c = i64(context)
    header = u8(source)
    if nbytes < HEADER_BYTES:
        c[C.DETAIL] = S.BLOSC_TRUNCATED
        return S.BAD_BLOSC
    flags = int(header[2])
    typesize = int(header[3])
    size = int(u32(source + 4)[0])
    blocksize = int(u32(source + 8)[0])
    length = int(u32(source + 12)[0])
    if header[0] < 1 or header[0] > 2 or flags & 0x08:
        c[C.DETAIL] = S.BLOSC_VERSION
        return S.BAD_BLOSC
    if size != expected:
        c[C.DETAIL] = size
        return S.WRONG_SIZE
    if length > nbytes or length < HEADER_BYTES:
        c[C.DETAIL] = S.BLOSC_LENGTH
        return S.BAD_BLOSC
    if typesize == 0:
        c[C.DETAIL] = S.BLOSC_TYPESIZE
        return S.BAD_BLOSC
    if size == 0:
        return S.OK
    if flags & _MEMCPYED:
        if length != size + HEADER_BYTES:
            c[C.DETAIL] = S.BLOSC_LENGTH
            return S.BAD_BLOSC
        return S.OK
    if blocksize == 0 or blocksize > size:
        c[C.DETAIL] = S.BLOSC_BLOCKSIZE
        return S.BAD_BLOSC
    blocks = (size + blocksize - 1) // blocksize
    data = HEADER_BYTES + 4 * blocks
    if data > length:
        c[C.DETAIL] = S.BLOSC_TRUNCATED
        return S.BAD_BLOSC
    starts = i32(source + HEADER_BYTES)
    for b in range(blocks):
        if starts[b] < data or starts[b] + 4 > length:
            c[C.DETAIL] = S.BLOSC_BLOCK_START
            return S.BAD_BLOSC
    return S.OK


@part
def _stream(context: int, compressor: int, source: int, nbytes: int, target: int, size: int) -> int:
    """Decode one stream to exactly ``size`` bytes; return a status."""
    c = i64(context)
    if nbytes == size:
        copy(target, source, size)
        return S.OK
    got = -1
    if compressor == 1:
        got = lz4_decompress(source, target, nbytes, size)
    elif compressor == 4:
        zstd = zstd_context(context)
        if zstd == 0:
            return S.NO_MEMORY
        got = zstd_decompress(zstd, target, size, source, nbytes)
    elif compressor == 0:
        got = blosclz_decompress(source, nbytes, target, size)
    elif compressor == 3:
        deflate = deflate_context(context)
        if deflate == 0:
            return S.NO_MEMORY
        if zlib_decompress(deflate, source, nbytes, target, size, 0, context + 8 * C.OUT0) == 0:
            got = c[C.OUT0]
    elif compressor == 2:
        got = snappy_decompress(source, nbytes, target, size)
    else:
        c[C.DETAIL] = S.BLOSC_COMPRESSOR
        return S.BAD_BLOSC
    if got != size:
        c[C.DETAIL] = got
        return S.CORRUPT
    return S.OK


@part
def decode_container(context: int, source: int, nbytes: int, target: int, needed: int, planes: int) -> int:
    """Decode a container that ``blosc_check`` accepted.

    Parameters
    ----------
    context
        Address of a worker's context. ``TYPESIZE`` and ``BLOCKSIZE`` are set to the layout of ``target``.
    source, nbytes
        Address and size of the container.
    target
        Address of a buffer for the decoded bytes.
    needed
        Address of one byte per block, 0 for blocks to leave out; or 0 to decode all.
    planes
        Element size of shuffled blocks that the caller takes as byte planes; 0 to unshuffle all blocks.

    Returns
    -------
    A status. After a failure, ``target`` has the blocks decoded before it.
    """
    c = i64(context)
    flags = int(u8(source)[2])
    typesize = int(u8(source)[3])
    size = int(u32(source + 4)[0])
    blocksize = int(u32(source + 8)[0])
    length = int(u32(source + 12)[0])
    c[C.TYPESIZE] = 1
    c[C.BLOCKSIZE] = size
    if size == 0:
        return S.OK
    if flags & _MEMCPYED:
        copy(target, source + HEADER_BYTES, size)
        return S.OK
    shuffled = (flags & _SHUFFLED) != 0 and typesize > 1
    bit_shuffled = (flags & _BIT_SHUFFLED) != 0 and not shuffled
    blocks = (size + blocksize - 1) // blocksize
    last = size - (blocks - 1) * blocksize
    # Blocks may stay in byte planes if each consists of whole planes of the caller's elements.
    keep = (
        planes == typesize
        and typesize > 1
        and (shuffled or (bit_shuffled and (blocksize // typesize) % 8 == 0 and (last // typesize) % 8 == 0))
        and blocksize % typesize == 0
        and last % typesize == 0
    )
    scratch = 0
    if bit_shuffled or (shuffled and not keep):
        scratch = ensure(context, C.BLOCKS, 2 * blocksize + 64)
        if scratch == 0:
            return S.NO_MEMORY
    if keep:
        c[C.TYPESIZE] = typesize
        c[C.BLOCKSIZE] = blocksize
    starts = i32(source + HEADER_BYTES)
    flag = u8(needed)
    compressor = flags >> 5
    # Encoders never write overlapping blocks, which could make a small container take very long to decode.
    used = 0
    for b in range(blocks):
        if needed != 0 and flag[b] == 0:
            continue
        here = last if b == blocks - 1 else blocksize
        streams = 1
        if (
            flags & _DONT_SPLIT == 0
            and typesize <= _MAX_SPLIT_TYPESIZE
            and blocksize // typesize >= _MIN_PLANE_BYTES
            and here == blocksize
        ):
            streams = typesize
        bits = bit_shuffled and (here // typesize) % 8 == 0 and here >= typesize
        final = target + b * blocksize
        into = scratch if bits or (shuffled and not keep) else final
        part = here // streams
        at = int(starts[b])
        for s in range(streams):
            # A remainder of the division belongs to no stream; c-blosc never writes such a block.
            if at + 4 > length or part * streams != here:
                c[C.DETAIL] = S.BLOSC_STREAM_LENGTH
                return S.BAD_BLOSC
            packed = int(i32(source + at)[0])
            at += 4
            if packed < 0 or packed > length - at:
                c[C.DETAIL] = S.BLOSC_STREAM_LENGTH
                return S.BAD_BLOSC
            code = _stream(context, compressor, source + at, packed, into + s * part, part)
            if code != S.OK:
                return code
            at += packed
            used += packed + 4
        if used > length:
            c[C.DETAIL] = S.BLOSC_BLOCK_START
            return S.BAD_BLOSC
        if bits:
            elements = here // typesize
            whole = elements * typesize
            bytes_at = final if keep or typesize == 1 else scratch + blocksize
            to_byte_planes(scratch, elements, bytes_at, typesize)
            if whole < here:
                copy(bytes_at + whole, scratch + whole, here - whole)
            if bytes_at != final:
                unshuffle_block(bytes_at, here, final, typesize)
        elif shuffled and not keep:
            unshuffle_block(scratch, here, final, typesize)
    return S.OK


@by_address(6)
def blosc_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Decode a container, or only its blocks that will be placed; leave byte planes if the caller takes them."""
    c = i64(context)
    code = blosc_check(context, source, nbytes, size)
    if code != S.OK:
        return code
    needed = 0
    blocksize = int(u32(source + 8)[0])
    if c[C.LAST_PIECE] > 0 and blocksize < size and size > 0 and u8(source)[2] & _MEMCPYED == 0:
        blocks = (size + blocksize - 1) // blocksize
        needed = ensure(context, C.NEEDED, blocks)
        if needed == 0:
            return S.NO_MEMORY
        c_memset(needed, 0, blocks)
        for piece in range(c[C.FIRST_PIECE], c[C.LAST_PIECE]):
            mark_piece(c[C.GEOMETRY], piece, blocksize, needed, c[C.SCRATCH])
    return decode_container(context, source, nbytes, target, needed, c[C.PLANES])


@by_address(6)
def blosc_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Write a container; the parameters are compressor, level, shuffle, element size and block size."""
    p = i64(parameters)
    return blosc_write(context, source, nbytes, target, p[0], p[1], p[2], p[3], p[4])


@by_address(9)
def blosc_frames(
    context: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Divide a Blosc container into its streams; return their number, or REFUSED.

    In the context, TYPESIZE and BLOCKSIZE are set to the layout of the decoded chunk, OUT1 to 1 for bit planes, and
    RESULT to the position of a chunk that needs no decoding (-1 for others).
    """
    c = i64(context)
    source = address + at
    if blosc_check(context, source, nbytes, size) != S.OK:
        return REFUSED
    flags = int64(u8(source)[2])
    typesize = int64(u8(source)[3])
    blocksize = int64(u32(source + 8)[0])
    length = int64(u32(source + 12)[0])
    c[C.TYPESIZE] = 1
    c[C.BLOCKSIZE] = size
    c[C.OUT1] = 0
    c[C.RESULT] = -1
    if size == 0:
        return 0
    if flags & _MEMCPYED:
        c[C.RESULT] = at + HEADER_BYTES
        return 0
    shuffled = (flags & 1) != 0 and typesize > 1
    bits = (flags & 4) != 0 and not shuffled
    if shuffled or bits:
        c[C.TYPESIZE] = typesize
        c[C.BLOCKSIZE] = blocksize
    c[C.OUT1] = 1 if bits else 0
    compressor = flags >> 5
    if compressor == 1:
        algorithm = LZ4
    elif compressor == 2:
        algorithm = SNAPPY
    elif compressor == 3:
        algorithm = DEFLATE
    elif compressor == 4:
        algorithm = ZSTD
    else:
        return REFUSED
    blocks = (size + blocksize - 1) // blocksize
    last = size - (blocks - 1) * blocksize
    starts = i32(source + HEADER_BYTES)
    split = flags & _DONT_SPLIT == 0 and typesize <= _MAX_SPLIT_TYPESIZE and blocksize // typesize >= _MIN_PLANE_BYTES
    count = 0
    # Encoders never write overlapping blocks, which could make a small container take very long to decode.
    used = 0
    for b in range(blocks):
        here = last if b == blocks - 1 else blocksize
        streams = typesize if split and here == blocksize else 1
        piece = here // streams
        if piece * streams != here:
            return REFUSED
        begin = int(starts[b])
        for s in range(streams):
            if begin + 4 > length:
                return REFUSED
            packed = int64(i32(source + begin)[0])
            begin += 4
            if packed <= 0 or packed > length - begin:
                return REFUSED
            here_source = at + begin
            here_nbytes = packed
            kind = algorithm
            check = UNCHECKED
            expected = 0
            if packed == piece:
                kind = RAW
            elif algorithm == ZSTD:
                if zstd_frame(context, source + begin, packed) != packed or c[C.OUT0] != piece:
                    return REFUSED
            elif algorithm == SNAPPY:
                if snappy_size(source + begin, packed) != piece:
                    return REFUSED
            elif algorithm == DEFLATE:
                if zlib_body(source + begin, packed) < 0:
                    return REFUSED
                check = ADLER32
                expected = big_endian(source + begin + packed - 4)
                here_source += 2
                here_nbytes -= 6
            put_frame(
                columns,
                capacity,
                frame + count,
                chunk,
                kind,
                here_source,
                here_nbytes,
                b * blocksize + s * piece,
                piece,
                check,
                expected,
            )
            count += 1
            begin += packed
            used += packed + 4
        if used > length:
            return REFUSED
    return count
