"""File descriptors that no interrupt can lose.

Python handles Ctrl-C between two of its instructions, also between a call of ``os.open`` and the assignment of what it
returned. So each descriptor is opened into a list, and closed out of it, by one call of compiled code.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def open_into(fds: list[int], path: str | Path, flags: int, mode: int = 0o666, directory: int | None = None) -> None:
    """Open a file, as ``os.open`` does, and append its descriptor to a list."""
    open_file = os.open if directory is None else functools.partial(os.open, dir_fd=directory)
    fds.extend(map(open_file, (path,), (flags,), (mode,)))


def close_all(fds: list[int]) -> None:
    """Close the descriptors of a list, which is empty then; after an interrupt, those left in it are still open."""
    while fds:
        list(map(os.close, map(fds.pop, (-1,))))
