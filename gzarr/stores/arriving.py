"""Answers of obstore as they arrive: one that stalls ends, and one that goes on may take its time.

obstore bounds the time without a byte and that of a whole answer. The first lets a server send a byte now and then, the
second ends what a slow line brings to many requests at once. So the rate is looked at here.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from .attempts import ShortAnswerError
from .curl_transfers import LEAST_RATE

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Bytes per second of an answer above which the next ones are taken as a whole, which is less work.
_QUICK_RATE: Final = 1 << 20
#: Bytes of an answer that has no rate of its own.
_SMALL_NBYTES: Final = 64 << 10


class Pace:
    """How fast the answers of a server arrive.

    Parameters
    ----------
    stall_s
        Seconds after which an answer that has brought fewer than :data:`LEAST_RATE` bytes in each counts as stalled.
    """

    def __init__(self, stall_s: float) -> None:
        self.stall_s = stall_s
        self.is_quick = False


class Arriving:
    """The bytes of an answer.

    Parameters
    ----------
    result
        The answer of obstore.
    pace
        How fast the last ones arrived.
    """

    def __init__(self, result: Any, pace: Pace) -> None:
        self._result, self._pace = result, pace
        self.range: tuple[int, int] = tuple(result.range)

    @property
    def attributes(self) -> Mapping[str, str]:
        """What the server says beside the bytes."""
        found: Mapping[str, str] = self._result.attributes
        return found

    def bytes(self) -> Any:
        """Return the bytes, once; any exception of obstore may be raised.

        Raises
        ------
        ShortAnswerError
            If they stall.
        """
        nbytes, pace, begin = self.range[1] - self.range[0], self._pace, time.monotonic()
        if nbytes <= _SMALL_NBYTES:
            return self._pieces(nbytes)
        value = self._result.bytes() if pace.is_quick else self._pieces(nbytes)
        pace.is_quick = nbytes >= _QUICK_RATE * (time.monotonic() - begin)
        return value

    def _pieces(self, nbytes: int) -> Any:
        pieces: list[Any] = []
        left, since, recent = nbytes, time.monotonic(), 0
        for piece in self._result.stream(min_chunk_size=1):
            pieces.append(piece)
            left -= len(piece)
            recent += len(piece)
            seconds = time.monotonic() - since
            if left > 0 and seconds >= self._pace.stall_s:
                if recent < LEAST_RATE * seconds:
                    raise ShortAnswerError(f"the answer stalled: {recent} bytes in {seconds:.1f} s")
                since, recent = since + seconds, 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
