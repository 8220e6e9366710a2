"""Byte unshuffle of one run of elements, directly to its destination.

A shuffled block of ``n`` elements of ``typesize`` bytes holds ``typesize`` planes of ``n`` bytes: byte ``j`` of element
``i`` is at ``j * n + i``. Source: c-blosc, ``shuffle-generic.h`` (format); numcodecs ``Shuffle`` uses the same layout.
"""

from __future__ import annotations

from typing import Any

from numba import types

from .interleave import (
    interleave2,
    interleave4,
    interleave8,
    short2,
    short4,
    short8,
    stream2,
    stream4,
    stream8,
)
from .jit import part, unit
from .memory import copy, u8


def _make_unshuffle(typesize: int, wide: Any, past: Any, short: Any) -> Any:
    """``unshuffle(planes, plane, target, n, stream)`` for one element size: vectors, then single bytes."""

    @part
    def unshuffle(planes: int, plane: int, target: int, n: int, stream: int) -> None:
        i = 0
        # Whole cache lines bypass the caches; later writes must not touch them again, which would read them back.
        streamed = stream != 0 and target % 64 == 0 and n >= 32
        while i + 32 <= n:
            if streamed:
                past(planes + i, plane, target + typesize * i)
            else:
                wide(planes + i, plane, target + typesize * i)
            i += 32
        while i + 8 <= n:
            short(planes + i, plane, target + typesize * i)
            i += 8
        if i < n and n >= 8 and not streamed:
            # The last eight elements overlap those before them.
            short(planes + n - 8, plane, target + typesize * (n - 8))
            i = n
        if i < n:
            _unshuffle_bytes(planes + i, plane, target + typesize * i, n - i, typesize)

    return unshuffle


@part
def _unshuffle_bytes(planes: int, plane: int, target: int, n: int, typesize: int) -> None:
    d = u8(target)
    for k in range(typesize):
        a = u8(planes + k * plane)
        for j in range(n):
            d[typesize * j + k] = a[j]


_unshuffle2 = _make_unshuffle(2, interleave2, stream2, short2)
_unshuffle4 = _make_unshuffle(4, interleave4, stream4, short4)
_unshuffle8 = _make_unshuffle(8, interleave8, stream8, short8)


@part
def unshuffle(planes: int, plane: int, target: int, n: int, typesize: int, stream: int) -> None:
    """Write ``n`` whole elements to ``target``.

    Parameters
    ----------
    planes
        Address of byte 0 of the first element wanted, in plane 0.
    plane
        Distance between planes, in bytes.
    target
        Address of ``n * typesize`` bytes.
    n
        Number of elements.
    typesize
        Element size in bytes.
    stream
        Not 0 to bypass the caches if ``target`` is aligned.
    """
    if typesize == 1:
        copy(target, planes, n)
    elif typesize == 2:
        _unshuffle2(planes, plane, target, n, stream)
    elif typesize == 4:
        _unshuffle4(planes, plane, target, n, stream)
    elif typesize == 8:
        _unshuffle8(planes, plane, target, n, stream)
    else:
        _unshuffle_bytes(planes, plane, target, n, typesize)


@unit(types.void, 12)
def unshuffle_rows(
    chunk: int,
    nbytes: int,
    blocksize: int,
    offset: int,
    by_source: int,
    target: int,
    by_target: int,
    rows: int,
    n: int,
    typesize: int,
    swap: int,
    stream: int,
) -> None:
    """Write rows of ``n`` elements of a chunk of shuffled blocks.

    Parameters
    ----------
    chunk, nbytes, blocksize
        Address, size and block size of the chunk: blocks of whole elements, each shuffled separately; the last may be
        shorter.
    offset, by_source
        Byte offset of the first row in the unshuffled chunk, and distance in bytes between rows.
    target, by_target
        Address of the first row in the output, and distance in bytes between rows.
    rows, n, typesize
        Number of rows, elements per row, and element size in bytes.
    swap
        At least 2 to swap the bytes of each element: the planes are read backwards.
    stream
        Not 0 to bypass the caches.
    """
    begin = 0
    end = 0
    plane = 0
    shift = -1
    if typesize == 2:
        shift = 1
    elif typesize == 4:
        shift = 2
    elif typesize == 8:
        shift = 3
    if n == 1:
        # Planes of a whole volume: one element of each row.
        for r in range(rows):
            at = offset + r * by_source
            if at < begin or at >= end:
                begin = at // blocksize * blocksize
                end = min(begin + blocksize, nbytes)
                plane = (end - begin) // typesize
            first = (at - begin) >> shift if shift > 0 else (at - begin) // typesize
            to = u8(target + r * by_target)
            if swap < 2:
                for b in range(typesize):
                    to[b] = u8(chunk + begin + first + b * plane)[0]
            else:
                for b in range(typesize):
                    to[typesize - 1 - b] = u8(chunk + begin + first + b * plane)[0]
        return
    for r in range(rows):
        at = offset + r * by_source
        to = target + r * by_target
        left = n
        while left > 0:
            if at < begin or at >= end:
                begin = at // blocksize * blocksize
                end = min(begin + blocksize, nbytes)
                plane = (end - begin) // typesize
            # Division is slow, and there is one per row.
            first = (at - begin) >> shift if shift > 0 else (at - begin) // typesize
            run = min(left, plane - first)
            if swap < 2:
                unshuffle(chunk + begin + first, plane, to, run, typesize, stream)
            else:
                unshuffle(chunk + begin + (typesize - 1) * plane + first, -plane, to, run, typesize, stream)
            to += run * typesize
            at += run * typesize
            left -= run


@part
def unshuffle_block(block: int, nbytes: int, target: int, typesize: int) -> None:
    """Unshuffle one whole block; bytes after the last whole element are copied unchanged."""
    n = nbytes // typesize
    whole = n * typesize
    if n > 0:
        unshuffle_rows(block, whole, whole, 0, 0, target, 0, 1, n, typesize, 0, 0)
    if whole < nbytes:
        copy(target + whole, block + whole, nbytes - whole)
