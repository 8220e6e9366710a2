"""Checks of a :class:`ByteRange` against the size of a value, shared by all stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError, ValueSizeError

if TYPE_CHECKING:
    from .base import ByteRange


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
