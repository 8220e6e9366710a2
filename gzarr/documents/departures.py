"""What documents say that their specification does not allow, and that is read all the same.

Whoever wants to know collects; nobody else pays for it.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_collected: ContextVar[list[str] | None] = ContextVar("_collected", default=None)
#: Most that are kept: a document may have as many as it has members.
MAX_KEPT = 1000


def note(text: str, json_path: str) -> None:
    """Say that something at ``json_path`` was tolerated."""
    kept = _collected.get()
    if kept is not None and len(kept) < MAX_KEPT:
        kept.append(f"{json_path}: {text}")


@contextmanager
def collect() -> Iterator[list[str]]:
    """Collect what is tolerated meanwhile, in this thread."""
    kept: list[str] = []
    token = _collected.set(kept)
    try:
        yield kept
    finally:
        _collected.reset(token)
