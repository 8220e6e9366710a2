"""How hard compressors search where their level is gzarr's own choice; a level that was given is taken at its word.

The levels of zstd and zlib are made for text. In measured numbers most bytes are noise, which no search shortens, and
thorough searches take longer than fast ones for files of the same size. In labels, masks and tables they find much
that those miss. Which it is, only a trial tells: a large write first encodes a few pieces of its chunks in each way,
and takes the first, beginning with the fast ones, by which they become at most ``TOLERANCE`` larger. The trial
depends on the values and on the write alone, not on threads or clocks: the same call makes the same bytes.
``benchmarks/write.py`` shows what it gains, next to the sizes (the column ``automatic``).

LZ4 has one other way, which makes byte planes of numbers smaller, too (``gzarr_kernels.lz4_encode``).

Larger than what: for zlib's levels, than what libdeflate makes at the level that stands for them; for zstd's, than what
the level makes without the splitting of blocks that zstd has since 1.5.7. The levels themselves are those of
:mod:`gzarr.codecs.choice`, and those that Blosc turns its own into.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ...codecs.codec import ArrayRepresentation
from ...plan.encode_program import analyse_encoding
from ...plan.keys import ChunkKeys
from ...plan.planner import Plan
from .. import pool
from .write_job import Job, encode_in_memory

if TYPE_CHECKING:
    import numpy.typing as npt

    from ...codecs.codec import EncodingStep
    from ...plan.encode_program import EncodingProgram
    from ..write_request import WriteRequest

    IntArray = npt.NDArray[np.int64]

#: How much larger pieces may become.
TOLERANCE: Final = 0.02
#: Where the first half of them becomes so much larger, the rest is not tried, …
_DISMISSED: Final = 0.03
#: … and where so much, no other way of the same kind.
_HOPELESS: Final = 0.25
#: From this one on, levels of zstd search as lazy ways do, or more.
_ZSTD_LAZY_LEVEL: Final = 8
#: Of Blosc's parameters, the block size.
_BLOCKSIZE: Final = 4
#: A trial encodes this share of a write, at most …
_SHARE: Final = 1 / 128
#: … in this many pieces, of chunks far from each other …
_LEAST_PIECES: Final = 4
_MOST_PIECES: Final = 8
#: … of about so many bytes. Shorter ones do not show what a table that is full would miss.
_LEAST_BYTES: Final = 64 << 10
_MOST_BYTES: Final = 512 << 10
#: Of c-blosc's own blocks no more has to be seen at once: zstd's are not larger at the levels that have trials, and LZ4
#: and zlib look back 64 KiB at most.
_BLOCK_BYTES: Final = 256 << 10
_GOLDEN: Final = (5**0.5 - 1) / 2


def settle(
    request: WriteRequest, program: EncodingProgram, rows: IntArray, available: frozenset[str]
) -> EncodingProgram:
    """Return the program with the search that this write should have: that of its level, where that was given.

    Parameters
    ----------
    request, program, rows
        As of :func:`gzarr.engines.native_write.write`.
    available
        What native writing has here.
    """
    if not request.level_is_free:
        return program
    compressing = [step for step in program.steps if step.search is not None]
    if len(compressing) != 1 or (candidates := _candidates(compressing[0], request.chunk.nbytes)) is None:
        return program
    nbytes = request.chunk.nbytes
    # A chunk that is written in several pieces is not what a trial can be cut from.
    rows = rows[np.diff(request.plan.piece_offsets)[rows] == 1]
    budget = int(len(rows) * nbytes * _SHARE)
    most = min(nbytes, _BLOCK_BYTES if _has_blocks(compressing[0]) else _MOST_BYTES, budget // _LEAST_PIECES)
    if most < min(nbytes, _LEAST_BYTES) or not most:
        return program
    pieces = min(_MOST_PIECES, budget // most, len(rows))
    if pieces < _LEAST_PIECES:
        return program
    # Not at the same place of each row of chunks.
    some = rows[np.unique((_GOLDEN * np.arange(1, pieces + 1) % 1 * len(rows)).astype(np.int64))]
    trial = _middles(request, program, some, most)
    shorter = analyse_encoding(trial.codecs, trial.chunk, available)
    return program if shorter is None else program.searching(_best(trial, shorter, candidates))


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Ways to search, by kind, the fastest first, and the one that they are measured by."""

    kinds: tuple[tuple[int, ...], ...]
    measure: int


def _candidates(step: EncodingStep, nbytes: int) -> _Candidates | None:
    """Return the ways to try for chunks of so many bytes, or None where there are none."""
    from gzarr_kernels import searches

    library, level = step.search or ("", 0)
    if library == "lz4":
        return _Candidates(((searches.LZ4_LONG,),), 0)
    if library == "deflate":
        usual = searches.DEFLATE_LEVELS[level]
        return _Candidates((tuple(w for w, theirs in enumerate(searches.DEFLATE_WAYS, 1) if theirs < usual),), 0)
    if library == "zstd":
        large = nbytes > searches.SMALL_FRAME_BYTES and not _has_blocks(step)
        fast, lazy = searches.ZSTD_FAST[large], searches.ZSTD_LAZY[large]
        return _Candidates((fast, lazy) if level >= _ZSTD_LAZY_LEVEL else (fast,), searches.ZSTD_UNSPLIT)
    return None


def _has_blocks(step: EncodingStep) -> bool:
    return step.name == "blosc" and not step.parameters[_BLOCKSIZE]


def _best(trial: WriteRequest, program: EncodingProgram, candidates: _Candidates) -> int:
    """Return the way to take, 0 for what the level says."""
    pieces = np.arange(len(trial.plan))
    first = pieces[: len(pieces) // 2]
    usual = _encoded_nbytes(trial, program.searching(candidates.measure), pieces)
    if not np.isfinite(usual).all():
        return 0
    for kind in candidates.kinds:
        for way in kind:
            other = program.searching(way)
            ratio = (found := _encoded_nbytes(trial, other, first)).sum() / usual[first].sum()
            if ratio > 1 + _HOPELESS:
                break
            if ratio > 1 + _DISMISSED:
                continue
            rest = _encoded_nbytes(trial, other, pieces[len(first) :])
            if found.sum() + rest.sum() <= usual.sum() * (1 + TOLERANCE):
                return way
    return 0


def _encoded_nbytes(trial: WriteRequest, program: EncodingProgram, rows: IntArray) -> npt.NDArray[np.float64]:
    """Return how many bytes become of some pieces; more than any number if it fails: then the write says why."""
    if not len(rows):
        return np.zeros(0)
    found = encode_in_memory(
        Job(trial, program, rows), program, np.arange(len(rows)), min(pool.thread_count(), len(rows))
    )
    return np.full(len(rows), np.inf) if found.failure is not None else found.nbytes.astype(np.float64)


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
        beyond=np.zeros(len(rows), np.bool_),
        write_empty_chunks=True,
    )
