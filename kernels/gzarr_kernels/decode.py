"""From encoded bytes to a decoded chunk: a short program of operations, run for one chunk.

A program is ``WORDS`` int64 an operation: the address of its function, decoded size in bytes (``IN_PLACE``: nothing but
what is behind the bytes is looked at and cut off), and its parameter. Sizes come from the caller, never from the bytes.

The function of an operation is ``decode(context, source, nbytes, target, size, parameter)``, which returns a status. It
writes ``size`` bytes to ``target``, or says in the context's RESULT and RESULT_NBYTES what the outcome is instead; it
says in TYPESIZE and BLOCKSIZE how that lies if it is not plain. It leaves blocks in byte planes only if the context's
PLANES is their element size, and blocks out only as the context's LAST_PIECE allows. DETAIL says more of a failure.
"""

from __future__ import annotations

from typing import Final

from numba import types

from . import context as C
from . import status as S
from .jit import call_6, unit
from .memory import i64

WORDS: Final = 3
IN_PLACE: Final = -1


@unit(types.int64, 12)
def decode_chunk(
    context: int,
    program: int,
    operations: int,
    source: int,
    nbytes: int,
    expected: int,
    direct: int,
    planes: int,
    geometry: int,
    first_piece: int,
    last_piece: int,
    scratch: int,
) -> int:
    """Decode one chunk; the context's RESULT, TYPESIZE and BLOCKSIZE say where and how it lies.

    Parameters
    ----------
    context
        Address of the worker's context.
    program, operations
        Address and number of the operations.
    source, nbytes
        Encoded bytes.
    expected
        Decoded bytes.
    direct
        Address of ``expected`` bytes of output where the decoded chunk may be written at once, or 0.
    planes
        Item size, if the caller can take shuffled blocks; else 0.
    geometry, first_piece, last_piece
        What will be placed: a Blosc container is decoded only where that needs it. ``last_piece`` 0: everything.
    scratch
        For ``mark_piece``.

    Returns
    -------
    A status; the context's DETAIL says more.
    """
    c = i64(context)
    p = i64(program)
    c[C.TYPESIZE] = 1
    c[C.BLOCKSIZE] = expected
    c[C.DETAIL] = 0
    c[C.PLANES] = 0
    c[C.LAST_PIECE] = 0
    for o in range(operations):
        size = p[WORDS * o + 1]
        last = o == operations - 1
        if last:
            c[C.PLANES] = planes if direct == 0 else 0
            c[C.GEOMETRY] = geometry
            c[C.FIRST_PIECE] = first_piece
            c[C.LAST_PIECE] = last_piece
            c[C.SCRATCH] = scratch
        target = source
        if size != IN_PLACE:
            slot = C.SECOND if source == c[C.FIRST] else C.FIRST
            target = direct if last and direct != 0 else C.ensure(context, slot, size + 64)
            if target == 0:
                return S.NO_MEMORY
        c[C.RESULT] = target
        c[C.RESULT_NBYTES] = size
        code = call_6(p[WORDS * o], context, source, nbytes, target, size, p[WORDS * o + 2])
        if code != S.OK:
            return code
        source = c[C.RESULT]
        nbytes = c[C.RESULT_NBYTES]
    c[C.RESULT] = source
    c[C.RESULT_NBYTES] = nbytes
    if nbytes != expected:
        c[C.DETAIL] = nbytes
        return S.WRONG_SIZE
    return S.OK
