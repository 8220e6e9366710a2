"""Containers, cut into frames that can be decoded by themselves: what a device's batched decoders take.

A frame is a compressed piece and the piece of the decoded chunk that it gives. Nothing is decoded here; every length is
checked against the bytes that there are. What a batched decoder is not known to take, or to verify, is refused:
whoever calls then decodes the whole chunk on the host, which finds out what is wrong with it, if anything is. What is
wrong *within* a block of a frame only a decoder finds, and not every one of a device does: see ``verify.py``.

Sources: numcodecs' size in front of an LZ4 block (https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md); zstd,
RFC 8878; gzip, RFC 1952; zlib, RFC 1950; snappy, https://github.com/google/snappy/blob/main/format_description.txt;
Blosc, see ``blosc.py``.
"""

from __future__ import annotations

from typing import Final

from numba import int64

from . import context as C
from . import status as S
from .blosc import HEADER_BYTES, blosc_check
from .jit import part
from .memory import i32, i64, u8, u16, u32

RAW: Final = 0
LZ4: Final = 1
ZSTD: Final = 2
SNAPPY: Final = 3
DEFLATE: Final = 4
GDEFLATE: Final = 5

#: Kinds of checksum of a frame's decoded bytes.
UNCHECKED: Final = 0
CRC32: Final = 1
ADLER32: Final = 2

# The columns of the frames: int64, one a frame, each ``capacity`` long, one after the other.
CHUNK: Final = 0
ALGORITHM: Final = 1
SOURCE: Final = 2
SOURCE_NBYTES: Final = 3
TARGET: Final = 4
TARGET_NBYTES: Final = 5
CHECK: Final = 6
EXPECTED: Final = 7
COLUMNS: Final = 8

#: What is no container that a device takes.
REFUSED: Final = -1

_ZSTD_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_MOST_BLOCK: Final = 128 << 10
_MOST_WINDOW: Final = 1 << 31
#: Types of a zstd block.
_RLE_BLOCK: Final = 1
_COMPRESSED_BLOCK: Final = 2
_RESERVED_BLOCK: Final = 3
#: A compressed block has at least a byte of literals' header and one of sequences'.
_LEAST_COMPRESSED_BLOCK: Final = 2
#: Bytes that the deflate body of a chunk is aligned to; within Blosc containers they lie where they happen to.
_ALIGNMENT: Final = 8
# As in ``blosc.py``.
_BLOSC_MEMCPYED: Final = 0x02
_BLOSC_DONT_SPLIT: Final = 0x10
_MAX_SPLIT_TYPESIZE: Final = 16
_MIN_PLANE_BYTES: Final = 128


@part
def put_frame(
    columns: int,
    capacity: int,
    frame: int,
    chunk: int,
    algorithm: int,
    source: int,
    source_nbytes: int,
    target: int,
    target_nbytes: int,
    check: int,
    expected: int,
) -> None:
    """Write a frame's row; ``columns`` is 0 where frames are only counted."""
    if columns == 0:
        return
    c = i64(columns)
    c[CHUNK * capacity + frame] = chunk
    c[ALGORITHM * capacity + frame] = algorithm
    c[SOURCE * capacity + frame] = source
    c[SOURCE_NBYTES * capacity + frame] = source_nbytes
    c[TARGET * capacity + frame] = target
    c[TARGET_NBYTES * capacity + frame] = target_nbytes
    c[CHECK * capacity + frame] = check
    c[EXPECTED * capacity + frame] = expected


@part
def zstd_frame(context: int, source: int, nbytes: int) -> int:
    """Walk the blocks of one zstd frame; return its bytes, or REFUSED.

    The context's OUT0 is the size of its content, or -1 for a skippable frame.
    """
    c = i64(context)
    b = u8(source)
    if nbytes < 8:
        return REFUSED
    magic = int64(u32(source)[0])
    if magic & 0xFFFFFFF0 == _SKIPPABLE_MAGIC:
        end = 8 + int64(u32(source + 4)[0])
        c[C.OUT0] = -1
        return end if end <= nbytes else REFUSED
    if magic != _ZSTD_MAGIC:
        return REFUSED
    descriptor = int64(b[4])
    # Reserved bit, content checksum (nobody says that it would be verified), dictionary.
    if descriptor & 0x0F:
        return REFUSED
    single = descriptor & 0x20
    size_flag = descriptor >> 6
    at = 5 if single else 6
    if size_flag == 0:
        if single == 0 or at + 1 > nbytes:
            return REFUSED
        content = int64(b[at])
        at += 1
    elif size_flag == 1:
        if at + 2 > nbytes:
            return REFUSED
        content = int64(u16(source + at)[0]) + 256
        at += 2
    elif size_flag == 2:
        if at + 4 > nbytes:
            return REFUSED
        content = int64(u32(source + at)[0])
        at += 4
    else:
        if at + 8 > nbytes:
            return REFUSED
        content = i64(source + at)[0]
        at += 8
    if content < 0:
        return REFUSED
    window = content
    if single == 0:
        base = int64(1) << (10 + (int64(b[5]) >> 3))
        window = base + base // 8 * (int64(b[5]) & 7)
        if window > _MOST_WINDOW:
            return REFUSED
    most = min(window, _MOST_BLOCK)
    # What the blocks give: at least, and at most.
    least = int64(0)
    largest = int64(0)
    while True:
        if at + 3 > nbytes:
            return REFUSED
        header = int64(b[at]) | int64(b[at + 1]) << 8 | int64(b[at + 2]) << 16
        at += 3
        kind = (header >> 1) & 3
        size = header >> 3
        if kind == _RESERVED_BLOCK or size > most:
            return REFUSED
        if kind == _COMPRESSED_BLOCK:
            if size < _LEAST_COMPRESSED_BLOCK:
                return REFUSED
            largest += most
        else:
            least += size
            largest += size
        at += 1 if kind == _RLE_BLOCK else size
        if at > nbytes:
            return REFUSED
        if header & 1:
            c[C.OUT0] = content
            return at if least <= content <= largest else REFUSED


@part
def zstd_frames(
    context: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Cut a chunk of zstd frames whose contents follow each other; return their number, or REFUSED."""
    c = i64(context)
    done = 0
    target = 0
    count = 0
    while done < nbytes:
        length = zstd_frame(context, address + at + done, nbytes - done)
        if length < 0:
            return REFUSED
        content = c[C.OUT0]
        if content > size - target:
            return REFUSED
        if content > 0:
            put_frame(columns, capacity, frame + count, chunk, ZSTD, at + done, length, target, content, UNCHECKED, 0)
            count += 1
            target += content
        done += length
    return count if target == size else REFUSED


@part
def gzip_body(address: int, nbytes: int) -> int:
    """Return where the deflate body of a gzip member begins, or REFUSED."""
    b = u8(address)
    if nbytes < 20 or b[0] != 0x1F or b[1] != 0x8B or b[2] != 8:
        return REFUSED
    flags = int64(b[3])
    if flags & 0xE0:
        return REFUSED
    at = 10
    if flags & 4:
        at += 2 + int64(u16(address + at)[0])
    for field in range(2):
        # A name, then a comment, each up to a zero.
        if flags & (8 << field):
            while at < nbytes and b[at] != 0:
                at += 1
            at += 1
    if flags & 2:
        at += 2
    return at if at + 8 < nbytes else REFUSED


@part
def zlib_body(address: int, nbytes: int) -> int:
    """Return where the deflate body of a zlib stream begins, or REFUSED."""
    b = u8(address)
    if nbytes < 8:
        return REFUSED
    first = int64(b[0])
    second = int64(b[1])
    if first & 15 != 8 or first >> 4 > 7 or second & 0x20 or (256 * first + second) % 31:
        return REFUSED
    return 2


@part
def _big_endian(address: int) -> int:
    b = u8(address)
    return int64(b[0]) << 24 | int64(b[1]) << 16 | int64(b[2]) << 8 | int64(b[3])


@part
def _snappy_size(address: int, nbytes: int) -> int:
    """Return the decoded size that a snappy stream states, or REFUSED."""
    b = u8(address)
    size = 0
    for i in range(min(nbytes, 5)):
        size |= (int64(b[i]) & 127) << (7 * i)
        if b[i] < 128:
            return size
    return REFUSED


@part
def blosc_frames(
    context: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Cut a Blosc container into its streams; return their number, or REFUSED.

    The context's TYPESIZE and BLOCKSIZE say how the decoded chunk lies, OUT1 whether in bit planes (1), and RESULT
    where a chunk lies that needs no decoding (-1: none).
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
    if flags & _BLOSC_MEMCPYED:
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
    split = (
        flags & _BLOSC_DONT_SPLIT == 0 and typesize <= _MAX_SPLIT_TYPESIZE and blocksize // typesize >= _MIN_PLANE_BYTES
    )
    count = 0
    # No encoder writes blocks that overlap; they could make few bytes take for ever.
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
                if _snappy_size(source + begin, packed) != piece:
                    return REFUSED
            elif algorithm == DEFLATE:
                if zlib_body(source + begin, packed) < 0:
                    return REFUSED
                check = ADLER32
                expected = _big_endian(source + begin + packed - 4)
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


@part
def bare_frame(
    algorithm: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Take a chunk that is one frame and nothing else; return 1, or REFUSED."""
    if nbytes < 1 or size < 1:
        return REFUSED
    if algorithm == SNAPPY and _snappy_size(address + at, nbytes) != size:
        return REFUSED
    put_frame(columns, capacity, frame, chunk, algorithm, at, nbytes, 0, size, UNCHECKED, 0)
    return 1


@part
def lz4_frames(
    address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Take numcodecs' LZ4: 4 bytes of size, one block; return 1, or REFUSED."""
    if nbytes < 5 or int64(u32(address + at)[0]) != size:
        return REFUSED
    put_frame(columns, capacity, frame, chunk, LZ4, at + 4, nbytes - 4, 0, size, UNCHECKED, 0)
    return 1


@part
def deflate_frames(
    gzip: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Take one gzip member or zlib stream; return 1, or REFUSED."""
    source = address + at
    if gzip:
        begin = gzip_body(source, nbytes)
        tail = 8
    else:
        begin = zlib_body(source, nbytes)
        tail = 4
    if begin < 0 or (at + begin) % _ALIGNMENT:
        return REFUSED
    end = source + nbytes
    if gzip:
        # Of several members the last one's size is not the chunk's.
        if int64(u32(end - 4)[0]) != size & 0xFFFFFFFF:
            return REFUSED
        check = CRC32
        expected = int64(u32(end - 8)[0])
    else:
        check = ADLER32
        expected = _big_endian(end - 4)
    put_frame(columns, capacity, frame, chunk, DEFLATE, at + begin, nbytes - begin - tail, 0, size, check, expected)
    return 1
