"""Checks of a :class:`ByteRange` against the size of a value, shared by all stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError, ValueSizeError
from .base import ByteRange

if TYPE_CHECKING:
    from .base import Request


def check_range(byte_range: ByteRange) -> None:
    """Raise :class:`ArgumentError` if ``byte_range`` is malformed, whatever the value."""
    offset, length = byte_range.offset, byte_range.length
    if offset < 0 and length is not None:
        raise ArgumentError(f"{byte_range}: a negative offset means all of the last bytes; length must be None")
    if length is not None and length < 0:
        raise ArgumentError(f"{byte_range}: length must not be negative")


def resolve_range(byte_range: ByteRange, size: int, store: object, key: str) -> tuple[int, int]:
    """Return the first byte and the number of bytes of ``byte_range`` in a value of ``size`` bytes.

    Raises
    ------
    ValueSizeError
        If the range does not lie within the value.
    """
    offset, length = byte_range.offset, byte_range.length
    start = size + offset if offset < 0 else offset
    stop = size if length is None else start + length
    if not 0 <= start <= stop <= size:
        raise ValueSizeError(
            f"{store!r}: {key!r} has {size} bytes, too few for the range {describe_range(byte_range)}", key=key
        )
    return start, stop - start


def range_to_ask(byte_range: ByteRange) -> ByteRange:
    """Return the range to ask of a store that does not tell the sizes of its values, and cuts ranges at their end.

    The answer goes to :func:`checked_answer`. Where its length alone would not show whether the range lies within the
    value, the range begins one byte earlier.
    """
    offset, length = byte_range.offset, byte_range.length
    if length == 0:
        return ByteRange(max(offset - 1, 0), 1)
    if length is None and offset > 0:
        return ByteRange(offset - 1)
    return byte_range


def checked_answer(request: Request, answer: memoryview, store: object) -> memoryview:
    """Return the bytes that were asked for, from the answer to a request for :func:`range_to_ask`.

    Raises
    ------
    ValueSizeError
        If the range does not lie within the value, the answer is too long, or the value is too large.
    """
    key, wanted = request.key, request.byte_range
    asked = range_to_ask(wanted)
    expected = -asked.offset if asked.offset < 0 else asked.length
    nbytes = len(answer)
    if wanted == ByteRange(0, 0):
        # The value may be empty.
        return answer[:0]
    if (expected is not None and nbytes != expected) or (nbytes == 0 and wanted.offset > 0):
        raise ValueSizeError(
            f"{store!r}: {key!r}: {nbytes} bytes were returned for the range {describe_range(asked)}; the value is too "
            "short for it, or cannot be read in parts",
            key=key,
        )
    answer = answer[wanted.offset - asked.offset :]
    if wanted.length == 0:
        return answer[:0]
    check_limit(request, len(answer), store)
    return answer


def check_limit(request: Request, nbytes: int, store: object) -> None:
    """Raise :class:`ValueSizeError` if a value, or what was read of it, has more bytes than the request allows."""
    if request.most_nbytes is not None and nbytes > request.most_nbytes:
        raise ValueSizeError(
            f"{store!r}: {request.key!r} has {nbytes} bytes or more; at most {request.most_nbytes} are read",
            key=request.key,
        )


def describe_range(byte_range: ByteRange) -> str:
    """Describe a range, for messages."""
    if byte_range.offset < 0:
        return f"last {-byte_range.offset} bytes"
    if byte_range.length is None:
        return f"from byte {byte_range.offset} to the end"
    return f"{byte_range.length} bytes from byte {byte_range.offset}"


def splice(old: bytes | None, start: int, part: bytes) -> bytes:
    """Return ``old`` with ``part`` written at byte ``start``; a gap after the old end is filled with zero bytes.

    Raises
    ------
    ArgumentError
        If ``start`` is negative.
    """
    if start < 0:
        raise ArgumentError(f"the offset of a partial write must not be negative, got {start}")
    value = bytearray(old or b"")
    if len(value) < start:
        value.extend(bytes(start - len(value)))
    value[start : start + len(part)] = part
    return bytes(value)
