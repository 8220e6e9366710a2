"""Decoding of one chunk by a short program of operations.

A program has ``WORDS`` int64 per operation: the address of its function, the decoded size in bytes (``IN_PLACE`` for an
operation that only checks and removes a suffix), and a parameter. Sizes come from the caller, never from the bytes.

The function of an operation is ``decode(context, source, nbytes, target, size, parameter)``, which returns a status. It
writes ``size`` bytes to ``target``, or sets the context's RESULT and RESULT_NBYTES to another result. If the layout of
the result is not plain, it sets TYPESIZE and BLOCKSIZE. It may leave blocks in byte planes only if the context's PLANES
is their element size, and may leave out blocks only if LAST_PIECE allows it. DETAIL has details of a failure.
"""

from __future__ import annotations

from numba import types

from . import status as S
from .context import ensure
from .jit import call_6, unit
from .memory import i64
from .slots import context as C
from .slots.decode import IN_PLACE, WORDS


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
    """Decode one chunk; set the context's RESULT, TYPESIZE and BLOCKSIZE to its address and layout.

    Parameters
    ----------
    context
        Address of the worker's context.
    program, operations
        Address and number of the operations.
    source, nbytes
        Address and size of the encoded bytes.
    expected
        Decoded size in bytes.
    direct
        Address of ``expected`` bytes of output to which the decoded chunk may be written directly, or 0.
    planes
        Element size, if the caller can take shuffled blocks; else 0.
    geometry, first_piece, last_piece
        Geometry and range of the pieces to be placed; only the needed blocks of a Blosc container are decoded.
        ``last_piece`` is 0 to decode everything.
    scratch
        Address of scratch for ``mark_piece``.

    Returns
    -------
    A status. The context's DETAIL has details of a failure.
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
            target = direct if last and direct != 0 else ensure(context, slot, size + 64)
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
