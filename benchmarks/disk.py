"""Results on a disk, so that no way of writing pays for those before it.

ext4 passes over inodes that were freed within the last minutes, one by one, whenever it creates a file. So benchmarks
free what results take, but delete no file before everything is measured.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path


#: A file system that needs longer to create a file is passing over inodes that were freed, or is slow anyway.
_QUICK_S: Final = 60e-6
#: No inode is passed over for longer.
_LONGEST_S: Final = 330
_FILES: Final = 50


def settle(folder: Path) -> None:
    """Wait until the file system creates files of a folder quickly, after files were deleted before the benchmark."""
    start = time.monotonic()
    for attempt in itertools.count():
        seconds = min(_seconds_of_a_file(folder / f"settling {attempt} {i}") for i in range(3))
        if seconds < _QUICK_S or time.monotonic() - start > _LONGEST_S:
            return
        if not attempt:
            print(f"waiting: creating a file takes {1e6 * seconds:.0f} µs", file=sys.stderr, flush=True)
        time.sleep(10)


def _seconds_of_a_file(folder: Path) -> float:
    folder.mkdir()
    start = time.perf_counter()
    for i in range(_FILES):
        (folder / str(i)).touch()
    return (time.perf_counter() - start) / _FILES


def empty(folder: Path) -> None:
    """Free the space of all files in a folder, and delete none."""
    for path in folder.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)
