"""A store of another project that has to wait for each value: it keeps values in memory and counts requests."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from gzarr.errors import ValueReplacedError, ValueSizeError
from gzarr.stores.base import Answer, Request, RequestLimits
from gzarr.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Sequence


class CountingStore(MemoryStore):
    """A :class:`MemoryStore` with ``get_many``.

    Attributes
    ----------
    asked
        The requests, in the order in which they came.
    limits
        Limits of requests.
    """

    def __init__(self, values: dict[str, Any] | None = None, **limits: int) -> None:
        super().__init__({} if values is None else values)
        self.asked: list[Request] = []
        self.limits = RequestLimits(**{"calls": 4, **limits})
        self._lock = threading.Lock()

    def request_limits(self) -> RequestLimits:
        return self.limits

    def get_many(self, requests: Sequence[Request]) -> list[Answer]:
        return [self._answer(request) for request in requests]

    def _answer(self, request: Request) -> Answer:
        with self._lock:
            self.asked.append(request)
        key, wanted = request.key, request.byte_range
        value = self.get(key)
        version = None if value is None else hash(value)
        if request.version is not None and version != request.version:
            return Answer(None, error=ValueReplacedError(f"{key!r} was replaced", key=key))
        if value is None:
            return Answer(None)
        start = len(value) + wanted.offset if wanted.offset < 0 else wanted.offset
        stop = len(value) if wanted.length is None else start + wanted.length
        if not 0 <= start <= stop <= len(value) or (request.most_nbytes or stop) < stop - start:
            return Answer(None, error=ValueSizeError(f"{key!r} has {len(value)} bytes", key=key))
        return Answer(value[start:stop], version, size=len(value))


class CountedDocuments(CountingStore):
    """A store that also counts requests for documents.

    Attributes
    ----------
    documents
        The keys of each request for whole values, in the order in which they came.
    """

    def __init__(self, values: dict[str, Any] | None = None) -> None:
        super().__init__(values)
        self.documents: list[list[str]] = []

    def get_small_values(self, keys: Sequence[str], most_nbytes: int) -> list[bytes | None]:
        self.documents.append(list(keys))
        return super().get_small_values(keys, most_nbytes)
