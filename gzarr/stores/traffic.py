"""Counters of the traffic with remote stores: requests, bytes, retries, seconds."""

from __future__ import annotations

import os
import threading
from dataclasses import asdict, dataclass, fields, replace


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic of this process with remote stores.

    Attributes
    ----------
    requests
        Requests that were sent, repeated ones included.
    retries
        Requests that were sent again after a failure.
    bytes_read, bytes_written
        Bytes of values, without headers.
    seconds
        Duration of all requests, added up; requests run side by side, so this may be many times the elapsed time.
    cache_hits, cache_bytes
        Values, and parts of values, that a :class:`gzarr.CachedStore` had on disk, and their bytes.
    cache_failures
        Failures of the cache's directory (full, not writable, damaged files, ...); the values came from the store.
    """

    requests: int = 0
    retries: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    cache_hits: int = 0
    cache_bytes: int = 0
    cache_failures: int = 0

    def __sub__(self, other: Traffic) -> Traffic:
        """Return the traffic between two moments."""
        return Traffic(*(getattr(self, field.name) - getattr(other, field.name) for field in fields(Traffic)))


_total = Traffic()
# Taken by I/O threads, and for reading.
_lock = threading.Lock()


def count(**added: float) -> None:
    """Add to the counters of this process, by name."""
    global _total
    with _lock:
        _total = replace(_total, **{name: getattr(_total, name) + number for name, number in added.items()})


def stats() -> dict[str, float]:
    """Return the traffic of this process with remote stores since it began.

    Returns
    -------
    ``requests`` (repeated ones included), ``retries``, ``bytes_read`` and ``bytes_written`` (of values, without
    headers), ``seconds`` (duration of all requests, added up: requests run side by side, so this may be many times the
    elapsed time); ``cache_hits`` and ``cache_bytes``: values and parts of values that a :class:`gzarr.CachedStore` had
    on disk, and their bytes; ``cache_failures``: how often its directory failed, and the store was read instead.
    """
    return asdict(_total)


def _renew() -> None:
    global _lock, _total
    _lock = threading.Lock()
    _total = Traffic()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
