"""Warnings on behalf of the caller outside of gzarr."""

from __future__ import annotations

import sys
import warnings


def warn(text: str, category: type[Warning]) -> None:
    """Warn of something that the program which calls gzarr has to do with."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("gzarr."):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, category, stacklevel=depth)
