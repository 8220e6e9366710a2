"""The arrays of a batch, from the windows that were read for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .samples import Part

    B = TypeVar("B", bound=dict[str, Any])


def place(batch: B, parts: Sequence[Part], windows: Sequence[Any]) -> B:
    """Put each part's elements of its windows, ``(n, *shape)``, into a batch under the part's names; return it."""
    for part, array in zip(parts, windows, strict=True):
        inner: dict[str, Any] = batch
        for name in part.names[:-1]:
            inner = inner.setdefault(name, {})
        inner[part.names[-1] or "data"] = array[(slice(None), *part.take)] if part.take else array
    return batch
