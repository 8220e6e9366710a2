"""Answers of servers that bring other bytes than were asked for.

They look complete, and are as long as they say. Mostly, a server or a cache does not know better, so the same comes
again: such requests are sent a few times only.
"""

from __future__ import annotations

import re
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from .object_errors import NO_RANGES, Failure, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

#: Statuses with a meaning. To others, that of their class applies (RFC 9110, section 15): with 2, they are as 200.
STATUSES: Final = frozenset(HTTPStatus)
#: Answers that bring a whole value (RFC 9110, section 15.3); the second, by way of a proxy. The content of 201 and 202
#: is about a request, and 226 brings a difference from another value (RFC 3229).
WHOLE: Final = frozenset((200, 203))
#: What a header says of a part of a value: first byte, last byte and size.
CONTENT_RANGE: Final = re.compile(rb"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)", re.IGNORECASE)
#: Answers with other bytes after which a request is not sent again.
_MOST: Final = 3
#: What obstore says of them.
_OTHER_RANGE: Final = re.compile(r"(?:Generic \w+ error: )?Requested (\d+)\.\.(\d+), got (\d+)\.\.(\d+)")
_TOO_SHORT: Final = re.compile(r"(?:Generic \w+ error: )?Wanted range starting at \d+, but object was only .*")


class OtherBytesError(Exception):
    """An answer with other bytes than were asked for."""


def other_range(sent: tuple[int, int], expected: tuple[int, int]) -> str:
    """Return what is wrong with an answer that brings another range; each is a begin and an end."""
    return f"the server sent bytes {sent[0]}-{sent[1] - 1} instead of {expected[0]}-{expected[1] - 1}"


def few_times(failure_of: Callable[[BaseException], Failure]) -> Callable[[BaseException], Failure]:
    """Return a function that tells what the failures of the attempts at one request mean.

    It does as ``failure_of``, but answers with other bytes are final after a few.
    """
    seen = 0

    def meaning(error: BaseException) -> Failure:
        nonlocal seen
        if isinstance(error, OtherBytesError):
            failure = Failure(Kind.TEMPORARY, None, str(error))
        else:
            failure = failure_of(error)
            found = _OTHER_RANGE.fullmatch(failure.reason)
            if found is not None:
                begin, end, sent_begin, sent_end = map(int, found.groups())
                failure = replace(failure, reason=other_range((sent_begin, sent_end), (begin, end)))
            elif _TOO_SHORT.fullmatch(failure.reason) is None:
                return failure
        seen += 1
        return replace(failure, kind=Kind.FINAL) if seen >= _MOST else failure

    return meaning


def why_not_whole(status: int, content_range: bytes, nbytes: int) -> str:
    """Return why the answer to a request for a whole value is none; empty if it is one.

    Parameters
    ----------
    status
        HTTP status that means success.
    content_range
        What the header says of the range; empty for nothing.
    nbytes
        Bytes of the answer.
    """
    if status in WHOLE or status not in STATUSES:
        return ""
    # A part of a value of unknown size may be all of it, or not.
    is_all = content_range.lower() == b"bytes 0-%d/%d" % (nbytes - 1, nbytes)
    if status == HTTPStatus.PARTIAL_CONTENT and is_all:
        return ""
    return _instead("all", "200 OK", status, content_range)


def why_not_part(status: int, content_range: bytes, nbytes: int, begin: int, end: int | None) -> str:
    """Return why the answer to a request for a part of a value is none; empty if it is one.

    Parameters
    ----------
    status, content_range, nbytes
        As of ``why_not_whole``.
    begin, end
        The part. A negative ``begin`` counts from the end of the value, and an ``end`` of None stands for that.
    """
    if status in WHOLE or status not in STATUSES:
        # The whole value. Whether the part is all of it, its length tells where that is known.
        return NO_RANGES if begin > 0 else ""
    if status != HTTPStatus.PARTIAL_CONTENT:
        return _instead("a part", "206 Partial Content", status, content_range)
    found = CONTENT_RANGE.fullmatch(content_range)
    if found is None:
        # One of the right length may begin elsewhere.
        return "the server sent a part of the value without a word on which one it is"
    sent = int(found[1]), int(found[2]) + 1
    size = None if found[3] == b"*" else int(found[3])
    if size is None:
        expected = (sent[0] if begin < 0 else begin), (sent[1] if end is None else end)
    elif begin < 0:
        expected = max(size + begin, 0), size
    else:
        expected = begin, size if end is None else min(end, max(size, begin + 1))
    if sent != expected:
        return other_range(sent, expected)
    wanted = sent[1] - sent[0]
    return "" if nbytes == wanted else f"the server sent {nbytes} bytes instead of {wanted}"


def _instead(what: str, expected: str, status: int, content_range: bytes) -> str:
    """Return what is wrong with an answer of another kind."""
    said = f"'{status} {HTTPStatus(status).phrase}'"
    if status == HTTPStatus.PARTIAL_CONTENT:
        is_clear = CONTENT_RANGE.fullmatch(content_range) is not None
        stated = content_range.decode("latin-1")
        said += f" and 'Content-Range: {stated}'" if is_clear else ", without a word on which part it is"
    return (
        f"{what} of it was asked for, and expected with '{expected}', but the server answered with {said}; a cache or "
        "proxy in between may mix up answers"
    )
