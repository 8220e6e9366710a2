"""Content encodings of the answers of web servers, and errors for answers that do not say enough of a value."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, Protocol

from ..errors import StoreError, ValueSizeError
from . import curl_threads
from .base import ByteRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .base import Request

#: Content encodings that change the bytes, of https://www.iana.org/assignments/http-parameters. Other words are in that
#: field, too, such as "utf-8" and "aws-chunked"; they mean nothing, as in browsers.
_ENCODINGS: Final = frozenset(
    ("aes128gcm", "br", "compress", "dcb", "dcz", "deflate", "gzip", "x-compress", "x-gzip", "zstd")
)
#: Those that zlib decodes.
_OF_ZLIB: Final = frozenset(("gzip", "x-gzip", "deflate"))
#: To zlib: gzip's format or its own, whichever it is.
_ANY_FORMAT: Final = 32 + zlib.MAX_WBITS
#: Most bytes of a decoded value, where the request has no limit.
_MOST_DECODED: Final = 1 << 30
#: Bytes that are given to zlib first, of a part after the first one.
_FIRST_PIECE: Final = 1 << 10


class Served(Protocol):
    """The store of the values."""

    url: str


def decoded(body: memoryview, encodings: Sequence[str], request: Request, store: Served) -> bytes:
    """Return the bytes of a value without its content encoding; raise :class:`StoreError` if that cannot be done."""
    if len(encodings) > 1 or encodings[0] not in _OF_ZLIB:
        raise encoded(store, request, encodings)
    most = _MOST_DECODED if request.most_nbytes is None else request.most_nbytes
    parts: list[bytes] = []
    room, ended = most + 1, False
    begin, step = 0, len(body)
    try:
        # gzip's format may have several parts. zlib copies what follows one, so it is given no more than a piece, which
        # grows with the part: many small ones would take quadratic time.
        while begin < len(body) and room:
            decoder, ended = zlib.decompressobj(_ANY_FORMAT), False
            while begin < len(body) and room and not ended:
                piece = body[begin : begin + step]
                part = decoder.decompress(piece, room)
                if part:
                    parts.append(part)
                room -= len(part)
                begin += len(piece) - len(decoder.unused_data)
                ended, step = decoder.eof, 2 * step
            step = _FIRST_PIECE
    except zlib.error:
        ended = False
    if not room:
        raise ValueSizeError(
            f"{store!r}: {request.key!r} has more than {most} bytes; at most {most} are read", key=request.key
        )
    if not ended:
        raise encoded(store, request, encodings, ", but its bytes are not in that format")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def content_encodings(field: str) -> list[str]:
    """Return the encodings that a field of a header names, without words that mean nothing."""
    return [word for word in (part.strip().lower() for part in field.split(",")) if word in _ENCODINGS]


def encoded(store: Served, request: Request, encodings: Sequence[str], but: str = "") -> StoreError:
    """Return the error for a value with a content encoding.

    Parameters
    ----------
    store, request
        Store and request.
    encodings
        The encodings.
    but
        What is wrong with it, after what the server says; empty if it is only not supported.
    """
    names = ", ".join(encodings)
    if request.byte_range == ByteRange():
        way = way_out(store)
    else:
        way = "parts of such values cannot be read: have the server send the bytes as they are stored"
    return StoreError(
        f"{store!r}: cannot read {request.key!r}: the server sends it with the content encoding {names!r}{but}; {way}",
        key=request.key,
    )


def without_length(store: Served, request: Request, what: str) -> StoreError:
    """Return the error for an answer whose end, or place in the value, the server does not tell."""
    return StoreError(
        f"{store!r}: cannot read {request.key!r}: the answer of the server does not say {what}; {way_out(store)}",
        key=request.key,
    )


def unreadable(store: Served, request: Request, reason: str) -> StoreError:
    """Return the error for an answer with headers that obstore cannot read."""
    return StoreError(f"{store!r}: cannot read {request.key!r}: {reason}; {way_out(store)}", key=request.key)


def way_out(store: Served) -> str:
    """Return how to read what is read neither by obstore nor by libcurl."""
    install = "" if curl_threads.available() else ", or install libcurl for Python, by the extra gzarr[curl]"
    return f"open it by fsspec, as 'fsspec+{store.url}'{install}"
