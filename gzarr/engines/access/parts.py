"""Large values of remote stores in parts, fetched side by side: one connection is rarely as fast as the network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ...guarded import Lock
from ...stores.base import Answer, ByteRange

if TYPE_CHECKING:
    from ...stores.base import Request, RequestLimits


class Parts:
    """A value, or a byte range of one, in parts.

    Parameters
    ----------
    request
        Request for all of it, with a version: parts of two generations never mix.
    offset, nbytes
        Its byte range.
    part_nbytes
        Most bytes of a part.
    """

    def __init__(self, request: Request, offset: int, nbytes: int, part_nbytes: int) -> None:
        self._request = request
        self._offset = offset
        self.nbytes = nbytes
        self._part_nbytes = part_nbytes
        self._left = len(self)
        self._joined = bytearray()
        self._lock = Lock()

    def __len__(self) -> int:
        return -(-self.nbytes // self._part_nbytes)

    def request(self, part: int) -> Request | None:
        """Return the request for a part; None if another part has failed."""
        begin, length = self._range(part)
        with self._lock:
            if not self._left:
                return None
        return replace(self._request, byte_range=ByteRange(self._offset + begin, length), most_nbytes=None)

    def put(self, part: int, answer: Answer) -> Answer | None:
        """Take the answer to a request; return the answer for the whole if it is the last one, or fails.

        Only the first failure is returned.
        """
        begin, length = self._range(part)
        with self._lock:
            if not self._left:
                return None
            try:
                if answer.error is None and answer.value is not None:
                    if not self._joined:
                        self._joined = bytearray(self.nbytes)
                    self._joined[begin : begin + length] = memoryview(answer.value)
            except MemoryError as error:
                answer = Answer(None, error=error)
            if answer.error is not None or answer.value is None:
                self._left = 0
                return answer
            self._left -= 1
            return None if self._left else replace(answer, value=self._joined)

    def _range(self, part: int) -> tuple[int, int]:
        begin = part * self._part_nbytes
        return begin, min(self._part_nbytes, self.nbytes - begin)


def part_bytes(nbytes: int, limits: RequestLimits) -> int:
    """Return the size of the parts of a value, or 0 if it should be fetched with one request."""
    return 0 if nbytes <= 2 * limits.most_bytes else max(limits.most_bytes, -(-nbytes // limits.calls))
