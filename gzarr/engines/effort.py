"""How hard zstd searches: as its level says, or less where that finds nearly as much.

zstd's levels are made for text. In measured numbers most bytes are noise, which no search shortens, and the thorough
strategies of levels 3 to 9 take longer than the fast ones for files of the same size. In labels, masks
and tables they find much that those miss. Which it is, only a trial tells: a large write first encodes a few pieces of
its chunks in each way, and takes the fastest search by which they become at most ``TOLERANCE`` larger. The trial
depends on the values and on the write alone, not on threads or clocks: the same call makes the same bytes.
``benchmarks/write.py`` shows what it gains, next to the sizes.

Levels below 3 search fast already; who asks for more than 9 wants small files at any price.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ..codecs.codec import ArrayRepresentation
from ..encoding import analyse_encoding
from ..plan import Plan
from ..sharding import ChunkKeys
from . import pool
from .write_job import Job, encode_in_memory

if TYPE_CHECKING:
    import numpy.typing as npt

    from ..encoding import EncodingProgram
    from .write_request import WriteRequest

    IntArray = npt.NDArray[np.int64]

#: How much larger pieces may become by a fast search.
TOLERANCE: Final = 0.02
#: Where one makes them so much larger, none will do.
_HOPELESS: Final = 0.1
#: zstd's levels that are tried.
_LEVELS: Final = range(3, 10)
#: A trial encodes this share of a write, at most …
_SHARE: Final = 1 / 128
#: … in this many pieces, of chunks far from each other …
_LEAST_PIECES: Final = 4
_MOST_PIECES: Final = 8
#: … of about so many bytes. Shorter ones do not show what a table that is full would miss.
_LEAST_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 512 << 10
_GOLDEN: Final = (5**0.5 - 1) / 2


def settle(
    request: WriteRequest, program: EncodingProgram, rows: IntArray, available: frozenset[str]
) -> EncodingProgram:
    """Return the program with zstd's search as this write should have it.

    Parameters
    ----------
    request, program, rows
        As of :func:`gzarr.engines.native_write.write`.
    available
        What native writing has here.
    """
    if not any(step.zstd_level in _LEVELS for step in program.steps):
        return program
    nbytes = request.chunk.nbytes
    # A chunk that is written in several pieces is not what a trial can be cut from.
    rows = rows[np.diff(request.plan.piece_offsets)[rows] == 1]
    budget = int(len(rows) * nbytes * _SHARE)
    most = min(nbytes, _MOST_BYTES, budget // _LEAST_PIECES)
    if most < min(nbytes, _LEAST_BYTES) or not most:
        return program
    pieces = min(_MOST_PIECES, budget // most, len(rows))
    if pieces < _LEAST_PIECES:
        return program
    # Not at the same place of each row of chunks.
    some = rows[np.unique((_GOLDEN * np.arange(1, pieces + 1) % 1 * len(rows)).astype(np.int64))]
    trial = _middles(request, program, some, most)
    shorter = analyse_encoding(trial.codecs, trial.chunk, available)
    return program if shorter is None else program.tuned(_best(trial, shorter))


def _best(trial: WriteRequest, program: EncodingProgram) -> int:
    """Return the tuning to take, 0 for what the level says."""
    from gzarr_kernels.context import ZSTD_TUNINGS

    thorough = _encoded_nbytes(trial, program)
    # The fastest comes first.
    for tuning in range(1, len(ZSTD_TUNINGS) + 1):
        found = _encoded_nbytes(trial, program.tuned(tuning))
        if found <= thorough * (1 + TOLERANCE):
            return tuning
        if found > thorough * (1 + _HOPELESS):
            break
    return 0


def _encoded_nbytes(trial: WriteRequest, program: EncodingProgram) -> float:
    """Return how many bytes become of a trial; more than any number if it fails: then the write says why."""
    rows = np.arange(len(trial.plan))
    job = Job(trial, program, rows)
    found = encode_in_memory(job, program, rows, min(pool.thread_count(), len(rows)))
    return float("inf") if found.failure is not None else float(found.nbytes.sum())


def _middles(request: WriteRequest, program: EncodingProgram, rows: IntArray, most_nbytes: int) -> WriteRequest:
    """Return a write of the middle of some chunks: whole planes, or rows, of what follows each other as it is stored.

    Parameters
    ----------
    request, program
        The write.
    rows
        Planned chunks that are covered, each by one piece.
    most_nbytes
        Bytes of each that remain, about.
    """
    plan = request.plan
    shape = list(request.chunk.shape)
    for d in program.order:
        shape[d] = min(shape[d], max(1, most_nbytes // program.strides[d]))
        if shape[d] > 1:
            break
    pieces = plan.piece_offsets[rows]
    whole = plan.count[pieces]
    count = np.minimum(whole, np.array(shape, np.int64))
    middle = Plan(
        tuple(shape),
        plan.chunks[rows],
        np.arange(len(rows) + 1),
        np.zeros_like(count),
        count,
        plan.target[pieces] + (whole - count) // 2,
        plan.output[pieces],
        plan.step,
        plan.tables,
    )
    return replace(
        request,
        levels=(),
        chunk=ArrayRepresentation(tuple(shape), request.chunk.dtype),
        plan=middle,
        keys=ChunkKeys(request.keys.encoding, request.keys.prefix, middle.chunks),
        value_of=np.arange(len(rows)),
        whole=np.ones(len(rows), np.bool_),
        write_empty=True,
    )
