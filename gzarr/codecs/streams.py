"""Streams that the standard library decompresses piecewise, so that the output never exceeds its bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from ..reasons import reason_of
from .buffers import Bytes, ceiling, checked

if TYPE_CHECKING:
    from collections.abc import Callable

    from .codec import BytesRepresentation

# Each member's unused input is copied to start the next one; small pieces keep the cost of many members linear.
_NEXT_MEMBER_BYTES = 4096
# Starting a member takes tens of microseconds: a megabyte of empty ones would take seconds.
_MEMBERS = 1000
_MEMBER_BYTES = 512


class StreamDecompressor(Protocol):
    """Interface of the ``bz2`` and ``lzma`` decompressors and of :class:`gzarr.codecs.deflate.Inflater`."""

    @property
    def eof(self) -> bool:
        """Whether the member has ended."""

    @property
    def unused_data(self) -> bytes:
        """Input after the member's end."""

    def decompress(self, data: memoryview, max_length: int) -> bytes:
        """Feed ``data`` and return at most ``max_length`` bytes; the rest is kept for later calls."""


def decompress(
    data: Bytes,
    decoded: BytesRepresentation,
    start: Callable[[], StreamDecompressor],
    label: str,
    *,
    padding: bool = False,
    trailing: bool = False,
    single: bool = False,
) -> Bytes:
    """Decompress consecutive members.

    Parameters
    ----------
    data
        Members, with nothing between them.
    decoded
        Expected output.
    start
        Function that makes a decompressor for one member.
    label
        Label of the codec, for messages.
    padding
        Whether to ignore zeros after the last member.
    trailing
        Whether to ignore anything after the last member that begins none, as the standard library does.
    single
        Whether there is one member only, and anything after it is ignored.

    Raises
    ------
    ValueError
        If the input is corrupt or truncated, or decodes to more than ``decoded`` allows.
    """
    limit = ceiling(decoded)
    view = data.data
    parts: list[bytes] = []
    total = position = 0
    step = len(view)
    for number in range(_MEMBERS + limit // _MEMBER_BYTES):
        member, before = start(), total
        while not member.eof:
            piece = view[position : position + step]
            position += len(piece)
            try:
                part = member.decompress(piece, limit - total + 1)
            except Exception as error:
                # An error is the end if everything is there; a member that has begun is not lost without a word.
                if trailing and number and total == before and decoded.nbytes in (None, total):
                    return _joined(parts, decoded, label)
                raise ValueError(f"{label}: {reason_of(error)}") from None
            total += len(part)
            if total > limit:
                raise ValueError(f"{label}: decodes to more than the limit of {limit} bytes")
            if part:
                parts.append(part)
            elif not len(piece) and not member.eof:
                raise ValueError(f"{label}: the data ends before the stream does")
        position -= len(member.unused_data)
        if single or position == len(view) or (padding and not data[position:].any()):
            break
        step = _NEXT_MEMBER_BYTES
    else:
        raise ValueError(f"{label}: the data is split into far more members than {limit} bytes need")
    return _joined(parts, decoded, label)


def _joined(parts: list[bytes], decoded: BytesRepresentation, label: str) -> Bytes:
    output = np.frombuffer(b"".join(parts), np.uint8) if parts else np.empty(0, np.uint8)
    return checked(output, decoded, label)
