"""Answers of servers that bring other bytes than were asked for.

They look complete, and are as long as they say. Mostly, a server or a cache does not know better, so the same comes
again: such requests are sent a few times only.
"""

from __future__ import annotations

import re
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from ..errors import StoreError
from .object_errors import Failure, Kind

if TYPE_CHECKING:
    from collections.abc import Callable

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


def not_whole(store: Any, key: str, status: int, content_range: str) -> StoreError:
    """Return the error for an answer to a request for a whole value that brings something else.

    Parameters
    ----------
    store, key
        Store and key.
    status
        HTTP status, one of the known ones.
    content_range
        What the server says of the range; empty for nothing, or nothing that can be understood.
    """
    said = f"'{status} {HTTPStatus(status).phrase}'"
    if status == HTTPStatus.PARTIAL_CONTENT:
        said += f" and 'Content-Range: {content_range}'" if content_range else ", without a word on which part it is"
    return StoreError(
        f"{store!r}: cannot read {key!r}: all of it was asked for, and expected with '200 OK', but the server answered "
        f"with {said}; a cache or proxy in between may mix up answers",
        key=key,
    )
