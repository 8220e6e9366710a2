"""Errors for chunks, from the statuses of the compiled loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gzarr_kernels import status as s

from ..errors import ChunkDecodeError, ChunkError, ChunkReadError, MissingChunkError
from .access.shard import dangling, system_error, with_number
from .access.sources import WHOLE

if TYPE_CHECKING:
    from .access.access import ReadRequest

_Failure = TypeVar("_Failure", bound=ChunkError)


def chunk_failure(request: ReadRequest, row: int, code: int, detail: int) -> ChunkError:
    """Return the error for a chunk's status (``gzarr_kernels.status``) other than success."""
    kind, reason = _class_and_reason(request, row, code, detail)
    return with_number(request.failure(kind, row, reason), code, detail)


def _class_and_reason(request: ReadRequest, row: int, code: int, detail: int) -> tuple[type[ChunkError], str]:
    labels = " + ".join(codec.label for codec in request.codecs)
    chunk = request.chunk
    expected = f"expected {chunk.nbytes} bytes for a chunk of shape {chunk.shape}, {chunk.dtype}"
    if code == s.ABSENT:
        return MissingChunkError, "the store has no such chunk, and missing='error' was requested"
    if code == s.IO_ERROR:
        return ChunkReadError, f"the file cannot be read: {request.access.store!r}: {system_error(detail)}"
    if code == s.DANGLING_LINK:
        return ChunkReadError, dangling(request.access.store)
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
        s.BAD_CHECKSUM: f"a checksum does not match: the bytes are corrupt ({labels})",
        s.BAD_PADDING: f"packbits: the data states {detail // 8} bits of padding, expected {detail % 8}",
        s.BAD_BLOSC: f"not a valid Blosc container: {_blosc(detail)}; {expected}",
    }.get(code, f"failed with status {code}")


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
