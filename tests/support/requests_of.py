"""The requests of a piece of work, as a proxy saw them and as gzarr counts them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import gzarr
from gzarr.stores import io_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.fault_proxy import FaultProxy, Seen


def requests_of(proxy: FaultProxy, work: Callable[[], object]) -> tuple[list[Seen], dict[str, float]]:
    """Do some work; return the requests that it sent, and what gzarr added to its counters."""
    wait_until_idle()
    before = gzarr.stats()
    with proxy.counting() as seen:
        work()
    added = {name: number - before[name] for name, number in gzarr.stats().items()}
    assert added["requests"] == len(seen)
    return seen, added


def round_trips(seen: list[Seen]) -> int:
    """Return the length of the longest sequence of requests of which each began after the one before was answered."""
    trips, end = 0, 0.0
    for one in sorted(seen, key=lambda one: one.end):
        if one.begin >= end:
            trips, end = trips + 1, one.end
    return trips


def wait_until_idle(seconds: float = 70) -> None:
    """Wait until no request is in progress: those of a read that failed in an earlier test would be counted, too."""
    end = time.monotonic() + seconds
    while len(io_threads._idle) < len(io_threads._started):
        assert time.monotonic() < end, "an I/O thread does not end its work"
        time.sleep(0.01)
