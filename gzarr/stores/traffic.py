"""Counters of the traffic with remote stores: requests, bytes, retries, seconds."""

from __future__ import annotations

import os

from ..guarded import Lock

_total: dict[str, float] = {
    "requests": 0,
    "retries": 0,
    "bytes_read": 0,
    "bytes_written": 0,
    "seconds": 0.0,
    "cache_hits": 0,
    "cache_bytes": 0,
    "cache_failures": 0,
}
# Taken by I/O threads.
_lock = Lock()


def count(**added: float) -> None:
    """Add to the counters of this process, by name."""
    with _lock:
        for name, number in added.items():
            _total[name] += number


def stats() -> dict[str, float]:
    """Return the traffic of this process with remote stores since it began.

    Returns
    -------
    ``requests`` (repeated ones included), ``retries``, ``bytes_read`` and ``bytes_written`` (of values, without
    headers), ``seconds`` (duration of all requests, added up: requests run side by side, so this may be many times the
    elapsed time); ``cache_hits`` and ``cache_bytes``: values and parts of values that a :class:`gzarr.CachedStore` had
    on disk, and their bytes; ``cache_failures``: how often its directory failed, and the store was read instead.
    """
    return dict(_total)


def _renew() -> None:
    global _lock
    _lock = Lock()
    _total.update(dict.fromkeys(_total, 0))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
