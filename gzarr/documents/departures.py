"""Departures from the specification that gzarr tolerates in documents.

They are recorded only inside :func:`collect`; elsewhere, noting one costs next to nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_collected: ContextVar[list[str] | None] = ContextVar("_collected", default=None)
#: Limit on the departures kept: a document may have as many as it has members.
MAX_KEPT = 1000


def note(text: str, json_path: str) -> None:
    """Record that something at ``json_path`` was tolerated."""
    kept = _collected.get()
    if kept is not None and len(kept) < MAX_KEPT:
        kept.append(f"{json_path}: {text}")


def is_collecting() -> bool:
    """Return whether departures are recorded, by this thread and now."""
    return _collected.get() is not None


@contextmanager
def collect() -> Iterator[list[str]]:
    """Collect the departures noted by this thread inside the ``with`` block."""
    kept: list[str] = []
    token = _collected.set(kept)
    try:
        yield kept
    finally:
        _collected.reset(token)
