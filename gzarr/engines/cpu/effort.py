"""How hard compressors search for repetitions where the level is gzarr's own choice; a given level is left as it is.

The levels of zstd and zlib were designed for text. Most bytes of measured numbers are noise, which no search makes
smaller: a thorough search takes longer and gives files of the same size. In labels, masks and tables, a thorough search
finds much that a fast one misses. Only a trial can tell the two apart. So a large write first encodes a few pieces of
its chunks in several ways, the fast ones first, and uses the first way that makes the pieces at most ``TOLERANCE``
larger. The choice depends only on the values and on the write, not on threads or clocks: the same call writes the same
bytes. ``benchmarks/write.py`` shows times and sizes (column ``automatic``).

Ways to search have numbers (``gzarr_kernels.searches``); the ways to try are a field of each native operation's row
(``gzarr_kernels.operations``). Sizes are compared with a reference: for zlib, libdeflate at the
level that stands for zlib's; for zstd, the level without the block splitting of zstd 1.5.7 and later. LZ4 has one other
way, which also makes byte planes of numbers smaller (``gzarr_kernels.lz4_encode``). The levels themselves come from
:mod:`gzarr.codecs.choice`; Blosc converts its own levels to its compressors' levels.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from gzarr_kernels.operations import OPERATIONS

from ...codecs.codec import ArrayRepresentation
from ...distinct import distinct
from ...errors import GzarrError
from ...plan.encode_program import analyse_encoding
from ...plan.keys import ChunkKeys
from ...plan.planner import Plan
from .. import pool
from .write_job import Job, encode_in_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from ...plan.encode_program import EncodingProgram
    from ..write_request import WriteRequest

    IntArray = npt.NDArray[np.int64]

#: How much larger the pieces may become than with the reference way, as a share.
TOLERANCE: Final = 0.02
#: A way that makes the first half of the pieces this much larger is rejected without trying the other half.
_HALF_TOLERANCE: Final = 0.03
#: A way that makes the first half this much larger is rejected together with the rest of its group.
_GROUP_TOLERANCE: Final = 0.25
#: The largest share of a write that a trial encodes.
_TRIAL_SHARE: Final = 1 / 128
#: Number of pieces, from chunks far from each other.
_MIN_PIECES: Final = 4
_MAX_PIECES: Final = 8
#: Approximate bytes of a piece. Shorter pieces do not fill the compressor's table, so they do not show the matches
#: that a full table misses.
_MIN_PIECE_BYTES: Final = 64 << 10
_MAX_PIECE_BYTES: Final = 512 << 10
#: Most bytes of a piece for Blosc with blocks of c-blosc's choice: at the levels that have trials, blocks for zstd are
#: no larger, and LZ4 and zlib look back 64 KiB at most.
_BLOSC_PIECE_BYTES: Final = 256 << 10
#: Position of the block size in the parameters of a Blosc step; 0 leaves it to c-blosc.
_BLOSC_BLOCKSIZE: Final = 4
_GOLDEN_RATIO: Final = (5**0.5 - 1) / 2


def is_small(chunks: int, chunk_nbytes: int) -> bool:
    """Return whether a write of this number of chunks is too small for a trial."""
    return int(chunks * chunk_nbytes * _TRIAL_SHARE) // _MIN_PIECES < min(chunk_nbytes, _MIN_PIECE_BYTES)


def choose_search(
    request: WriteRequest, program: EncodingProgram, rows: IntArray, available: frozenset[str]
) -> EncodingProgram:
    """Return the program with the way to search chosen for this write; unchanged if the user gave a level.

    Parameters
    ----------
    request, program, rows
        As for :func:`gzarr.engines.cpu.native_write.write`.
    available
        Names from ``gzarr_kernels.libraries.encoders``.
    """
    if not request.level_is_free:
        return program
    compressing = [(step, step.search) for step in program.steps if step.search is not None]
    if len(compressing) != 1:
        return program
    step, (operation, level) = compressing[0]
    candidates = OPERATIONS[operation].candidates
    if candidates is None:
        return program
    nbytes = request.chunk.nbytes
    automatic = step.name == "blosc" and not step.parameters[_BLOSC_BLOCKSIZE]
    groups = candidates.groups(_BLOSC_PIECE_BYTES if automatic else nbytes, level)
    # A chunk that is written in several pieces has no middle to cut out.
    rows = rows[np.diff(request.plan.piece_offsets)[rows] == 1]
    budget = int(len(rows) * nbytes * _TRIAL_SHARE)
    most = min(nbytes, _BLOSC_PIECE_BYTES if automatic else _MAX_PIECE_BYTES, budget // _MIN_PIECES)
    if most < min(nbytes, _MIN_PIECE_BYTES) or not most:
        return program
    pieces = min(_MAX_PIECES, budget // most, len(rows))
    if pieces < _MIN_PIECES:
        return program
    # Multiples of the golden ratio are spread evenly, and not at the same place in each row of chunks.
    chosen = rows[distinct((_GOLDEN_RATIO * np.arange(1, pieces + 1) % 1 * len(rows)).astype(np.int64))]
    trial = _trial_request(request, program, chosen, most)
    try:
        shorter = analyse_encoding(trial.codecs, trial.chunk, available)
    except GzarrError:
        # A filter of elements wider than the array's, of which a piece has no whole number.
        return program
    return program if shorter is None else program.searching(_best_way(trial, shorter, groups, candidates.reference))


def _best_way(trial: WriteRequest, program: EncodingProgram, groups: Sequence[Sequence[int]], reference: int) -> int:
    """Return the first way that is within ``TOLERANCE`` of the reference way, or 0 for the level's own."""
    pieces = np.arange(len(trial.plan))
    first = pieces[: len(pieces) // 2]
    usual = _encoded_nbytes(trial, program.searching(reference), pieces)
    if not np.isfinite(usual).all():
        return 0
    for group in groups:
        for way in group:
            other = program.searching(way)
            ratio = (found := _encoded_nbytes(trial, other, first)).sum() / usual[first].sum()
            if ratio > 1 + _GROUP_TOLERANCE:
                break
            if ratio > 1 + _HALF_TOLERANCE:
                continue
            rest = _encoded_nbytes(trial, other, pieces[len(first) :])
            if found.sum() + rest.sum() <= usual.sum() * (1 + TOLERANCE):
                return way
    return 0


def _encoded_nbytes(trial: WriteRequest, program: EncodingProgram, rows: IntArray) -> npt.NDArray[np.float64]:
    """Return the encoded sizes of some pieces in bytes; infinity if encoding fails: the write itself reports why."""
    if not len(rows):
        return np.zeros(0)
    found = encode_in_memory(
        Job(trial, program, rows), program, np.arange(len(rows)), min(pool.thread_count(), len(rows))
    )
    return np.full(len(rows), np.inf) if found.failure is not None else found.nbytes.astype(np.float64)


def _trial_request(request: WriteRequest, program: EncodingProgram, rows: IntArray, most_nbytes: int) -> WriteRequest:
    """Return a write of the middle of some chunks: whole planes, or rows, that are neighbours in the stored order.

    Parameters
    ----------
    request, program
        The write.
    rows
        Planned chunks, each covered by one piece.
    most_nbytes
        Approximate bytes to keep of each chunk.
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
        shard=None,
        chunk=ArrayRepresentation(tuple(shape), request.chunk.dtype),
        plan=middle,
        keys=ChunkKeys(request.keys.encoding, request.keys.prefix, middle.chunks),
        value_of=np.arange(len(rows)),
        whole=np.ones(len(rows), np.bool_),
        beyond=np.zeros(len(rows), np.bool_),
        write_empty_chunks=True,
    )
