"""The requests of a piece of work, as a proxy saw them and as gzarr counts them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import gzarr
from gzarr.stores import io_threads

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.fault_proxy import FaultProxy, Seen


#: Least seconds for an answer where answers take time: on a busy machine, requests that are sent together begin apart.
LATENCY_S: Final = 0.15


def requests_of(proxy: FaultProxy, work: Callable[[], object]) -> tuple[list[Seen], dict[str, float]]:
    """Do some work; return the requests that it sent, and what gzarr added to its counters."""
    wait_until_idle()
    before, latency = gzarr.stats(), proxy.latency_s
    proxy.latency_s = max(proxy.latency_s, proxy.counted_latency_s)
    try:
        with proxy.counting() as seen:
            work()
    finally:
        proxy.latency_s = latency
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
