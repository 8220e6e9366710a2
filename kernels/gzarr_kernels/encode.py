"""From a gathered chunk to encoded bytes: a short program of operations, run for one chunk.

A program is ``WORDS`` int64 an operation: the address of its function, the most bytes that it makes (``IN_PLACE``: it
only adds a few bytes, fewer than ``SLACK_BYTES``, behind those that there are), five parameters, and how to search
(``searches.py``). The bounds come from the caller, who knows what goes in.

The function of an operation is ``encode(context, source, nbytes, target, capacity, parameters)``, which returns the
bytes that it has written to ``target``; 0 where memory is out, below 0 where it fails. ``parameters`` is their address.
"""

from __future__ import annotations

from typing import Final

from numba import types

from . import context as C
from . import status as S
from .jit import call_6, unit
from .memory import copy, i64

WORDS: Final = 8
IN_PLACE: Final = 0
#: Bytes behind every buffer, for checksums.
SLACK_BYTES: Final = 64


@unit(types.int64, 6)
def encode_chunk(context: int, program: int, operations: int, source: int, nbytes: int, owned: int) -> int:
    """Encode one chunk; the context's RESULT and RESULT_NBYTES say where it is and how large.

    Parameters
    ----------
    context
        Address of the worker's context.
    program, operations
        Address and number of the operations.
    source, nbytes
        The chunk, element after element in its stored order.
    owned
        Not 0 if ``source`` is the context's FIRST buffer with ``SLACK_BYTES`` behind it; else it is only read.

    Returns
    -------
    A status; the context's DETAIL says more.
    """
    c = i64(context)
    p = i64(program)
    c[C.DETAIL] = 0
    slot = C.FIRST
    for o in range(operations):
        word = WORDS * o
        capacity = p[word + 1]
        target = source
        if capacity != IN_PLACE or owned == 0:
            if owned != 0:
                slot = C.SECOND if slot == C.FIRST else C.FIRST
            target = C.ensure(context, slot, max(capacity, nbytes) + SLACK_BYTES)
            if target == 0:
                return S.NO_MEMORY
            if capacity == IN_PLACE:
                copy(target, source, nbytes)
                source = target
            owned = 1
        c[C.WAY] = p[word + WORDS - 1]
        size = call_6(p[word], context, source, nbytes, target, capacity, program + 8 * (word + 2))
        if size <= 0:
            # Every bound leaves room for what does not compress.
            c[C.DETAIL] = size
            return S.NO_MEMORY if size == 0 else S.CORRUPT
        source = target
        nbytes = size
    c[C.RESULT] = source
    c[C.RESULT_NBYTES] = nbytes
    return S.OK
