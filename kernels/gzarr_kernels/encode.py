"""Encoding of one gathered chunk by a short program of operations.

A program has ``WORDS`` int64 per operation: the address of its function, an upper limit of its result in bytes
(``IN_PLACE`` for an operation that only appends fewer than ``SLACK_BYTES`` bytes), five parameters, and the search
method (``searches.py``). The caller, who knows the input sizes, computes the limits.

The function of an operation is ``encode(context, source, nbytes, target, capacity, parameters)``. It returns the number
of bytes written to ``target``, 0 if out of memory, below 0 on failure. ``parameters`` is the address of the parameters.
"""

from __future__ import annotations

from numba import types

from . import status as S
from .context import ensure
from .jit import call_6, unit
from .memory import copy, i64
from .slots import context as C
from .slots.encode import IN_PLACE, SLACK_BYTES, WORDS


@unit(types.int64, 6)
def encode_chunk(context: int, program: int, operations: int, source: int, nbytes: int, owned: int) -> int:
    """Encode one chunk; set the context's RESULT and RESULT_NBYTES to its address and size.

    Parameters
    ----------
    context
        Address of the worker's context.
    program, operations
        Address and number of the operations.
    source, nbytes
        Address and size of the chunk, with its elements in stored order.
    owned
        Not 0 if ``source`` is the context's FIRST buffer with ``SLACK_BYTES`` after it; otherwise it is only read.

    Returns
    -------
    A status. The context's DETAIL has details of a failure.
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
            target = ensure(context, slot, max(capacity, nbytes) + SLACK_BYTES)
            if target == 0:
                return S.NO_MEMORY
            if capacity == IN_PLACE:
                copy(target, source, nbytes)
                source = target
            owned = 1
        c[C.WAY] = p[word + WORDS - 1]
        size = call_6(p[word], context, source, nbytes, target, capacity, program + 8 * (word + 2))
        if size <= 0:
            # Every limit leaves room for incompressible data.
            c[C.DETAIL] = size
            return S.NO_MEMORY if size == 0 else S.CORRUPT
        source = target
        nbytes = size
    c[C.RESULT] = source
    c[C.RESULT_NBYTES] = nbytes
    return S.OK
