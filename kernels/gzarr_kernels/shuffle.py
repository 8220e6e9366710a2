"""Byte unshuffle of one run of elements, straight to where it goes.

A shuffled block of ``n`` elements of ``typesize`` bytes holds ``typesize`` planes of ``n`` bytes: byte ``j`` of element ``i``
is at ``j * n + i``. Source: c-blosc, ``shuffle-generic.h`` (format); numcodecs ``Shuffle`` uses the same layout.
"""

from __future__ import annotations

from numba import types

from .jit import part, unit
from .interleave import interleave4, interleave8
from .memory import copy, u8


@unit(types.void, 5)
def unshuffle(planes: int, plane: int, target: int, n: int, typesize: int) -> None:
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
        Bytes an element.
    """
    d = u8(target)
    i = 0
    if typesize == 2:
        a = u8(planes)
        b = u8(planes + plane)
        for i in range(n):
            d[2 * i] = a[i]
            d[2 * i + 1] = b[i]
    elif typesize == 4:
        while i + 32 <= n:
            interleave4(planes + i, plane, target + 4 * i)
            i += 32
        a = u8(planes)
        b = u8(planes + plane)
        c = u8(planes + 2 * plane)
        e = u8(planes + 3 * plane)
        for j in range(i, n):
            d[4 * j] = a[j]
            d[4 * j + 1] = b[j]
            d[4 * j + 2] = c[j]
            d[4 * j + 3] = e[j]
    elif typesize == 8:
        while i + 32 <= n:
            interleave8(planes + i, plane, target + 8 * i)
            i += 32
        for k in range(8):
            a = u8(planes + k * plane)
            for j in range(i, n):
                d[8 * j + k] = a[j]
    elif typesize == 1:
        copy(target, planes, n)
    else:
        for k in range(typesize):
            a = u8(planes + k * plane)
            for j in range(n):
                d[typesize * j + k] = a[j]


@part
def unshuffle_block(block: int, nbytes: int, target: int, typesize: int) -> None:
    """Unshuffle one whole block; bytes behind the last whole element are copied as they are."""
    n = nbytes // typesize
    unshuffle(block, n, target, n, typesize)
    whole = n * typesize
    if whole < nbytes:
        copy(target + whole, block + whole, nbytes - whole)
