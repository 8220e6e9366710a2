"""The loop that gathers rows of several arrays from pieces of others, in one call for all of them, without the GIL.

The job has the slots of ``slots/batch.py``. Pieces are those of ``gather.py``, sorted by the row that they go to; each
is one turn.
"""

from __future__ import annotations

from .context import now, slice_end
from .gather import gather_piece
from .jit import entry
from .memory import atomic_add, atomic_load, i64
from .slots import batch as B
from .slots import read as R
from .slots.scratch import PATHS_BYTES


@entry(3)
def gather_rows(job: int, context: int, worker: int) -> None:
    """Take pieces of ``job`` until none are left, another worker has stopped, or the context's time limit has passed.

    Parameters
    ----------
    job
        Address of the job's int64 array.
    context, worker
        As for ``read.work``.
    """
    j = i64(job)
    before = i64(j[B.PIECES_BEFORE])
    end = slice_end(context)
    while atomic_load(j[R.SHARED] + 8) == 0:
        if end > 0 and now(context) > end:
            return
        turn = atomic_add(j[R.SHARED], 1)
        if turn >= j[R.SPANS]:
            return
        which = 0
        while turn >= before[which + 1]:
            which += 1
        piece = i64(j[B.FIRST_PIECES])[which] + turn - before[which]
        target = i64(j[B.TARGETS])[which]
        gather_piece(i64(j[B.GEOMETRIES])[which], piece, j[B.LOW], j[B.HIGH], target, worker + PATHS_BYTES)
