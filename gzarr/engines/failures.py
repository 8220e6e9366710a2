"""Errors for chunks, from the statuses of the compiled loop and from the exceptions of stores."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
from gzarr_kernels import status as s

from ..errors import ChunkDecodeError, ChunkError, ChunkReadError, MissingChunkError, ValueSizeError
from .request import WHOLE

if TYPE_CHECKING:
    import numpy.typing as npt

    from .request import ReadRequest

_Failure = TypeVar("_Failure", bound=ChunkError)

_DANGLING: Final = (
    "the file is a symbolic link to one that does not exist; fetch its content (git annex get, datalad get), or remove "
    "the link if the chunk is to be absent"
)


def chunk_failure(request: ReadRequest, row: int, code: int, detail: int) -> tuple[type[ChunkError], str]:
    """Return class and reason of the error for a chunk's status (``gzarr_kernels.status``) other than success."""
    labels = " + ".join(codec.label for codec in request.codecs)
    chunk = request.chunk
    expected = f"expected {chunk.nbytes} bytes for a chunk of shape {chunk.shape}, {chunk.dtype}"
    if code == s.ABSENT:
        return MissingChunkError, "the store has no such chunk, and missing='error' was requested"
    if code == s.IO_ERROR:
        return ChunkReadError, f"the file cannot be read: {_system(detail)}"
    if code == s.DANGLING_LINK:
        return ChunkReadError, _DANGLING
    if code == s.NO_MEMORY:
        return ChunkReadError, f"out of memory while decoding; {expected}"
    if code == s.SHORT_READ:
        nbytes, offset = int(request.sources.nbytes[row]), int(request.sources.offset[row])
        what = "it" if nbytes == WHOLE else f"its {nbytes} bytes from byte {offset} on"
        return ChunkDecodeError, f"the file ended while reading {what}: truncated, or changed during the read"
    size = f"decodes to {detail} bytes" if detail >= 0 else "decodes to more bytes"
    return ChunkDecodeError, {
        s.TOO_LARGE: f"{detail} encoded bytes are more than {labels} makes of a chunk of this array; {expected}",
        s.WRONG_SIZE: f"{size} with {labels}; {expected}",
        s.CORRUPT: f"{labels} cannot decode it: corrupt or truncated (decoder's code {detail}); {expected}",
        s.BAD_CHECKSUM: f"the crc32c checksum does not match: the bytes are corrupt ({labels})",
        s.BAD_BLOSC: f"not a valid Blosc container: {_blosc(detail)}; {expected}",
    }.get(code, f"failed with status {code}")


def index_failure(code: int, detail: int) -> tuple[type[ChunkError], str]:
    """Return class and reason of the error for the status of a shard's index other than success."""
    if code == s.IO_ERROR:
        return ChunkReadError, f"the index of its shard cannot be read: {_system(detail)}"
    if code == s.DANGLING_LINK:
        return ChunkReadError, _DANGLING
    if code == s.SHORT_READ:
        return ChunkDecodeError, f"its shard has {detail} bytes, fewer than its index should have: truncated"
    if code == s.BAD_CHECKSUM:
        return ChunkDecodeError, "the index of its shard does not match its crc32c checksum: corrupt or truncated"
    return ChunkReadError, f"the index of its shard cannot be read (status {code})"


def refuse_large(request: ReadRequest, rows: npt.NDArray[np.int64] | None = None) -> None:
    """Refuse byte ranges from a shard's index that are larger than any encoder's output, before allocating memory.

    Parameters
    ----------
    request
        The read.
    rows
        int64, rows of its plan; None for all.

    Raises
    ------
    ChunkDecodeError
        For the first such chunk.
    """
    packing = request.sources.packing
    if packing is not None and packing.unwrap is not None:
        # These are whole values, with more bytes around them.
        return
    sizes = request.sources.nbytes if rows is None else request.sources.nbytes[rows]
    large = sizes > request.most_encoded
    if large.any():
        i = int(np.argmax(large))
        most = request.most_encoded
        reason = f"the shard's index gives it {int(sizes[i])} bytes; a chunk of this array has at most {most}"
        raise request.failure(ChunkDecodeError, i if rows is None else int(rows[i]), reason)


def store_failure(request: ReadRequest, row: int, cause: Exception) -> ChunkError:
    """Return the error for a chunk that the store failed to return."""
    if isinstance(cause, ValueSizeError):
        return request.failure(ChunkDecodeError, row, f"truncated, or too large: {cause}")
    return request.failure(ChunkReadError, row, f"the store failed: {cause}")


def _system(code: int) -> str:
    return f"{os.strerror(code)} ({errno.errorcode.get(code, code)})"


def _blosc(detail: int) -> str:
    reasons = {
        s.BLOSC_TRUNCATED: "truncated header or block table",
        s.BLOSC_VERSION: "an unknown format version",
        s.BLOSC_BLOCKSIZE: "an impossible block size",
        s.BLOSC_LENGTH: "its header gives more bytes than it has",
        s.BLOSC_BLOCK_START: "a block is outside it or overlaps another",
        s.BLOSC_STREAM_LENGTH: "a stream is outside it",
        s.BLOSC_COMPRESSOR: "an unknown compressor",
        s.BLOSC_TYPESIZE: "an element size of zero",
    }
    return reasons.get(detail, str(detail))


def with_count(error: _Failure, done: int, total: int) -> _Failure:
    """Return an error of a write, extended by how many stored values were written before it."""
    what = f"{done} of {total} stored values were written before; the others are unchanged"
    counted = type(error)(f"{error.reason}; {what}", node=error.node, chunk=error.chunk, key=error.key)
    if isinstance(counted, OSError):
        cause = error.__cause__
        counted.errno = cause.errno if isinstance(cause, OSError) else getattr(error, "errno", None)
    return counted
