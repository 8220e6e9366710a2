"""Answers to some requests to a remote store, sent side by side, and what all answers of a store must be."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ...errors import ArgumentError, StoreError, ValueSizeError
from ...stores import io_threads
from ...stores.base import Answer, ByteRange, Request
from ...stores.buffers import as_view
from ...waiting import taken_from
from .sources import IN_SHARD, WHOLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Buffer

    from ...stores.base import RemoteValues
    from .sources import Sources


def answers(store: RemoteValues, requests: Sequence[Request]) -> list[Answer]:
    """Return the answers to some requests, sent side by side."""
    limits = store.request_limits()
    if limits.streams is not None and len(requests) > 1:
        listed = _Listed(store, requests)
        try:
            if limits.streams.answer_each(listed):
                return listed.wait()
        except BaseException:
            listed.give_up()
            limits.streams.give_up()
            raise
    step = max(1, min(limits.each, -(-len(requests) // limits.calls)))
    groups = [requests[i : i + step] for i in range(0, len(requests), step)]
    found = io_threads.call_all([partial(answered, store, group) for group in groups])
    return [answer for group in found for answer in group]


def answered(store: RemoteValues, requests: Sequence[Request]) -> list[Answer]:
    """Return the checked answers to some requests, sent by the present thread; if the call fails, all have failed."""
    try:
        found = list(store.get_many(requests))
    # Third-party stores may raise anything.
    except Exception as error:
        return [Answer(None, error=error)] * len(requests)
    if len(found) != len(requests):
        wrong = f"{store!r}: get_many returned {len(found)} answers to {len(requests)} requests"
        return [Answer(None, error=StoreError(wrong, key=request.key)) for request in requests]
    return [checked(store, request, answer) for request, answer in zip(requests, found, strict=True)]


class _Listed:
    """Some requests, as a stream.

    Parameters
    ----------
    store, requests
        The store, and the requests.
    """

    def __init__(self, store: RemoteValues, requests: Sequence[Request]) -> None:
        self._store, self._requests = store, requests
        self._turn = iter(enumerate(requests))
        self._answers: list[Answer] = [Answer(None)] * len(requests)
        # An entry for each answer; the last one ends the wait.
        self._left = [None] * len(requests)
        self._done: SimpleQueue[None] = SimpleQueue()
        self._ended = self._given_up = False

    def next_request(self) -> tuple[int, Request] | None:
        """Return the next request with its position."""
        found = next(self._turn, None)
        self._ended = found is None
        return found

    def answered(self, token: int, answer: Answer) -> None:
        """Take the answer to a request."""
        self._answers[token] = checked(self._store, self._requests[token], answer)
        self._left.pop()
        if not self._left:
            self._done.put(None)

    def has_ended(self) -> bool:
        """Return whether there will be no more requests."""
        return self._ended or self._given_up

    def is_given_up(self) -> bool:
        """Return whether the caller was interrupted."""
        return self._given_up

    def give_up(self) -> None:
        """Let nobody wait for answers any more."""
        self._given_up = True

    def wait(self) -> list[Answer]:
        """Wait for the answers; return them in order."""
        taken_from(self._done)
        return self._answers


def request_for(sources: Sources, i: int, offset: int, nbytes: int, most_encoded: int) -> Request:
    """Return the request for a byte range of value ``i``, or for all of it."""
    version = None if sources.versions is None else sources.versions[i]
    if nbytes == WHOLE:
        return Request(sources.keys[i], version=version, most_nbytes=most_encoded)
    if nbytes == IN_SHARD:
        return Request(sources.keys[i], most_nbytes=sources.most_shard_nbytes)
    return Request(sources.keys[i], ByteRange(offset, nbytes), version)


def checked(store: object, request: Request, answer: Answer) -> Answer:
    """Return an answer whose value is flat bytes, with an error if it is not what was asked for."""
    if not isinstance(answer, Answer):
        wrong = f"{store!r} returned a {type(answer).__name__} for {request.key!r}, expected an Answer"
        return Answer(None, error=StoreError(wrong, key=request.key))
    if answer.error is not None or answer.value is None:
        return answer
    try:
        value = flat_bytes(store, request.key, answer.value)
    except StoreError as error:
        return Answer(None, error=error)
    if value is not answer.value:
        answer = replace(answer, value=value)
    nbytes, length = len(value), request.byte_range.length
    if length is not None and nbytes != length:
        wrong = f"the store returned {nbytes} bytes of {request.key!r}, expected {length}"
    elif request.most_nbytes is not None and nbytes > request.most_nbytes:
        wrong = f"{request.key!r} has {nbytes} bytes; a chunk of this array has at most {request.most_nbytes}"
    else:
        return answer
    return Answer(None, error=ValueSizeError(wrong, key=request.key))


def flat_bytes(store: object, key: str, value: Buffer) -> bytes | bytearray | memoryview:
    """Return a value that a store returned as an object of bytes, of which the length is their number.

    Raises
    ------
    StoreError
        If it is no contiguous buffer.
    """
    if isinstance(value, (bytes, bytearray)):
        return value
    try:
        return as_view(value, key)
    except ArgumentError as error:
        wrong = f"{store!r} returned a {type(value).__name__} for {key!r}, expected bytes or a contiguous buffer"
        raise StoreError(wrong, key=key) from error
