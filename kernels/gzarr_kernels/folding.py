"""Places beyond the ends of an array. Compiled for the host and for devices, each by its own decorator."""

from __future__ import annotations


def folded(i: int, n: int, mode: int) -> int:
    """Return the element that stands at a place along an axis of ``n`` elements; -1 for the constant."""
    if 0 <= i < n:
        return i
    if mode == 0:
        return -1
    if mode == 1:
        return 0 if i < 0 else n - 1
    if mode == 4:
        return i % n
    if mode == 3:
        at = i % (2 * n)
        return min(at, 2 * n - 1 - at)
    period = max(2 * (n - 1), 1)
    at = i % period
    return min(at, period - at)
