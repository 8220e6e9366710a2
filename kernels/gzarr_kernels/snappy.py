"""Decoder for Snappy's raw format, which Blosc 1 containers may use: no wheel exports a C decoder for it.

Source: google/snappy, ``format_description.txt``.
"""

from __future__ import annotations

from numba import int64

from . import status as S
from .frames import bare_frame
from .jit import by_address, entry, part
from .memory import copy, i64, u8
from .slots import context as C
from .slots.frames import REFUSED, SNAPPY


@part
def snappy_decompress(source: int, nbytes: int, target: int, capacity: int) -> int:
    """Decode; return the number of bytes written, or -1 if the input is corrupt or needs more than ``capacity``."""
    s = u8(source)
    d = u8(target)
    at = 0
    size = 0
    shift = 0
    while True:
        if at >= nbytes or shift > 28:
            return -1
        byte = int(s[at])
        at += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if size > capacity:
        return -1
    out = 0
    while at < nbytes:
        tag = int(s[at])
        at += 1
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:
                extra = length - 60
                if at + extra > nbytes:
                    return -1
                length = 0
                for k in range(extra):
                    length |= int(s[at + k]) << (8 * k)
                length += 1
                at += extra
            if at + length > nbytes or out + length > size:
                return -1
            copy(target + out, source + at, length)
            at += length
            out += length
            continue
        if kind == 1:
            if at + 1 > nbytes:
                return -1
            length = ((tag >> 2) & 7) + 4
            distance = ((tag >> 5) << 8) | int(s[at])
            at += 1
        elif kind == 2:
            if at + 2 > nbytes:
                return -1
            length = (tag >> 2) + 1
            distance = int(s[at]) | (int(s[at + 1]) << 8)
            at += 2
        else:
            if at + 4 > nbytes:
                return -1
            length = (tag >> 2) + 1
            distance = int(s[at]) | (int(s[at + 1]) << 8) | (int(s[at + 2]) << 16) | (int(s[at + 3]) << 24)
            at += 4
        if distance == 0 or distance > out or out + length > size:
            return -1
        if distance >= length:
            copy(target + out, target + out - distance, length)
        else:
            # The copy overlaps itself: bytes just written are read again.
            for k in range(length):
                d[out + k] = d[out - distance + k]
        out += length
    return out if out == size else -1


@entry(5)
def decode(source: int, nbytes: int, target: int, capacity: int, produced: int) -> None:
    """Decode for a caller in Python; the int64 at ``produced`` is set to the result of :func:`snappy_decompress`."""
    i64(produced)[0] = snappy_decompress(source, nbytes, target, capacity)


@part
def snappy_size(address: int, nbytes: int) -> int:
    """Return the decoded size stated in a snappy stream, or REFUSED."""
    b = u8(address)
    size = 0
    for i in range(min(nbytes, 5)):
        size |= (int64(b[i]) & 127) << (7 * i)
        if b[i] < 128:
            return size
    return REFUSED


@by_address(6)
def snappy_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Decode one stream; it begins with its decoded size."""
    got = snappy_decompress(source, nbytes, target, size)
    i64(context)[C.DETAIL] = got
    if got < 0:
        return S.CORRUPT
    return S.OK if got == size else S.WRONG_SIZE


@by_address(5)
def snappy_verifies(context: int, source: int, nbytes: int, target: int, size: int) -> int:
    """Return whether a stream decodes to ``size`` bytes."""
    return 1 if snappy_decompress(source, nbytes, target, size) == size else 0


@by_address(9)
def snappy_frames(
    context: int, address: int, at: int, nbytes: int, size: int, chunk: int, columns: int, capacity: int, frame: int
) -> int:
    """Write the frame of one stream; return 1, or REFUSED."""
    if nbytes < 1 or snappy_size(address + at, nbytes) != size:
        return REFUSED
    return bare_frame(SNAPPY, at, nbytes, size, chunk, columns, capacity, frame)
