"""Byte shuffle of whole chunks, as in numcodecs' filter: one block of any size."""

from __future__ import annotations

from . import status as S
from .deinterleave import shuffle_block
from .jit import by_address
from .memory import i64
from .shuffle import unshuffle_block
from .slots import context as C


@by_address(6)
def shuffle_decode(context: int, source: int, nbytes: int, target: int, size: int, parameter: int) -> int:
    """Unshuffle elements of ``parameter`` bytes, or leave them in byte planes if the caller takes these."""
    c = i64(context)
    if nbytes != size:
        c[C.DETAIL] = nbytes
        return S.WRONG_SIZE
    if c[C.PLANES] == parameter and size % parameter == 0:
        c[C.TYPESIZE] = parameter
        c[C.BLOCKSIZE] = size
        c[C.RESULT] = source
    else:
        unshuffle_block(source, size, target, parameter)
    return S.OK


@by_address(6)
def shuffle_encode(context: int, source: int, nbytes: int, target: int, capacity: int, parameters: int) -> int:
    """Write the byte planes of elements; the parameter is their size in bytes."""
    shuffle_block(source, nbytes, target, i64(parameters)[0])
    return nbytes
