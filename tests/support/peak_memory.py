"""The peak of a process's memory, for tests that start one to watch it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_nbytes() -> int:
    """Return the most bytes of memory that this process has had at a time.

    On Linux, what getrusage says begins with the memory of the process that started this one, so that growth below that
    would not be seen.
    """
    if _STATUS.exists():
        return int(_STATUS.read_text().partition("VmHWM:")[2].split()[0]) << 10
    # Bytes on macOS, else kibibytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
