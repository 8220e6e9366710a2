"""Attempts at a request to a remote store: it is sent again while that may help and the time is not over."""

from __future__ import annotations

import logging
import random
import time
from typing import TYPE_CHECKING, Final, TypeVar

from .. import ending
from ..errors import ArgumentError, StoreError
from ..reasons import pass_on
from . import io_threads, late_changes, traffic
from .object_errors import Failure, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .connections import Connections

    T = TypeVar("T")

_log = logging.getLogger(__name__)

# Pauses before a request is sent again, in seconds: they double up to a limit, and are cut at random.
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
#: Statuses of requests that the server has not begun. Others that are temporary may come after it has done its work.
_NOT_BEGUN: Final = frozenset({409, 421, 423, 425, 429, 503})


class ShortAnswerError(Exception):
    """The body of an answer has fewer bytes than its header says."""


class FailedRequest(Exception):
    """A request that failed for good; ``may_be_done``: an earlier attempt may have done what it asks for."""

    def __init__(self, failure: Failure, attempts: int, seconds: float, *, may_be_done: bool = False) -> None:
        super().__init__(failure.reason)
        self.failure = failure
        self.attempts = attempts
        self.seconds = seconds
        self.may_be_done = may_be_done


def send(
    request: Callable[[], T],
    failure_of: Callable[[BaseException], Failure],
    timeout: float,
    first: FailedRequest | None = None,
    connections: Connections | None = None,
    changes: Sequence[str] = (),
) -> T:
    """Return ``request()``; call it again while that may help and somebody waits for it.

    Parameters
    ----------
    request
        Function that sends one request.
    failure_of
        Function that tells what its exception means.
    timeout
        Seconds after which it is not called again.
    first
        A first attempt, which has failed; None if there was none.
    connections
        Where each attempt waits for room, beside the timeout; None if their number is not limited.
    changes
        Names of what it changes, for :mod:`gzarr.stores.late_changes`.

    Raises
    ------
    FailedRequest
        If it fails for good.
    StoreError
        If the interpreter shuts down.
    """
    if ending.is_alone():
        # Without modules that are gone, obstore fails or ends the process.
        raise StoreError(ending.NO_THREADS)
    begin = time.monotonic() - (0 if first is None else first.seconds)
    attempts, pause, may_be_done = 0, _FIRST_PAUSE_S, False
    while True:
        attempts += 1
        if first is not None:
            failure, first = first.failure, None
        else:
            waited = time.monotonic()
            with late_changes.changing(changes, io_threads.wanted_by()[0]) as wanted:
                if not wanted or (
                    connections is not None and not connections.wait(io_threads.given_up, *io_threads.wanted_by())
                ):
                    failure = Failure(Kind.TEMPORARY, None, "nobody waits for the answer")
                    raise FailedRequest(failure, attempts - 1, waited - begin)
                sent = time.monotonic()
                begin += sent - waited
                answered = False
                try:
                    result = request()
                    answered = True
                    return result
                except (ShortAnswerError, EOFError) as error:
                    failure = Failure(Kind.TEMPORARY, None, str(error))
                except (ArgumentError, StoreError, MemoryError):
                    raise
                # A panic of obstore is a BaseException.
                except BaseException as error:
                    if isinstance(error, (KeyboardInterrupt, SystemExit)):
                        raise
                    pass_on(error)
                    failure = failure_of(error)
                    answered = failure.status is not None
                finally:
                    took = time.monotonic() - sent
                    traffic.count(requests=1, seconds=took)
                    if connections is not None:
                        connections.leave(took if answered else None)
        seconds = time.monotonic() - begin
        wait = pause * random.uniform(0.5, 1)
        goes_on = failure.kind is Kind.TEMPORARY and seconds + wait <= timeout
        if goes_on:
            _log.info("request failed, attempt %d, again in %.1f s: %s", attempts, wait, failure.reason)
        if goes_on and not io_threads.given_up():
            time.sleep(wait)
        if not goes_on or io_threads.given_up():
            raise FailedRequest(failure, attempts, seconds, may_be_done=may_be_done)
        may_be_done |= failure.status not in _NOT_BEGUN
        traffic.count(retries=1)
        pause = min(2 * pause, _LONGEST_PAUSE_S)
