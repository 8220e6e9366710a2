"""Copies that are planned, so that tests can look at what they would write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gzarr.tools.copy import prepare_copy
from gzarr.tools.copy_options import CopyOptions

if TYPE_CHECKING:
    from gzarr.tools.planned_copy import Copy


def planned_copy(source: Any, dest: Any, *, path: str = "", **options: Any) -> Copy:
    """Return the copy that ``gzarr.copy`` would make."""
    return prepare_copy(source, dest, CopyOptions(**options), path=path)
