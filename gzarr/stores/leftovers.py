"""Leftovers: temporary files and directories of writers that were killed.

A leftover of this machine is removed once its process has ended. Processes of other machines and containers cannot be
checked; their leftovers are removed after a day without writes, by the file system's clock. A directory is as old as
the newest change in it: each new file changes the time of the folder that it is in.

A writer that is still running after such a day finds all of what it has made, or nothing, because a directory gets
another name before it is removed. A single value is then written again; a directory (:mod:`gzarr.stores.staging`) or a
zip archive cannot be put in place, which is an error: what was there before stays.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING

from .claims import hold_claim
from .removal import erase_directory, remove_left_over
from .temporary_names import TEMPORARY, is_claim, is_of_ended

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_UNTOUCHED_NS = 24 * 3600 * 10**9
# A directory is scanned once per process, and only up to this many entries.
_MOST_SCANNED = 100_000
_MOST_REMEMBERED = 100_000
_scanned: set[str] = set()
if hasattr(os, "register_at_fork"):
    # A forked child scans for itself.
    os.register_at_fork(after_in_child=lambda: _scanned.clear())


def uncleaned(paths: Iterable[str]) -> list[str]:
    """Return those directories from which this process has not removed the leftovers."""
    return [path for path in paths if path not in _scanned]


def clean_once(directory: int | None, base: str, path: str, now_ns: int) -> None:
    """Remove the leftovers of killed writers from a directory, once per process.

    Parameters
    ----------
    directory, base
        Directory: its descriptor and ``""``, or None and its path.
    path
        Path of the directory, under which it is remembered.
    now_ns
        Current time of the file system's clock in nanoseconds: the modification time of a file just made.
    """
    remove_left_over()
    if path in _scanned:
        return
    if len(_scanned) >= _MOST_REMEMBERED:
        _scanned.clear()
    _scanned.add(path)
    with contextlib.suppress(OSError), os.scandir(base if directory is None else directory) as entries:
        for entry in itertools.islice(entries, _MOST_SCANNED):
            if entry.name.startswith(TEMPORARY):
                _remove_abandoned(entry, directory, path, now_ns)


def _remove_abandoned(entry: os.DirEntry[str], directory: int | None, path: str, now_ns: int) -> None:
    with contextlib.suppress(OSError):
        if is_claim(entry.name):
            # One that nobody holds is removed when it is given up.
            with hold_claim(entry.path, directory):
                return
        if not _is_abandoned(entry, directory, now_ns):
            return
        if entry.is_dir(follow_symlinks=False):
            base = entry.path[: -len(entry.name)]
            erase_directory(directory, base, entry.name, path, protected=True)
        else:
            os.unlink(entry.path, dir_fd=directory)


def _is_abandoned(entry: os.DirEntry[str], directory: int | None, now_ns: int) -> bool:
    ended = is_of_ended(entry.name)
    if ended is not None:
        return ended
    then = now_ns - _UNTOUCHED_NS
    return all(changed < then for changed in _changes(entry, directory))


def _changes(entry: os.DirEntry[str], directory: int | None) -> Iterator[int]:
    """Yield the modification time of a file, or those of a directory and of all below it, in nanoseconds."""
    yield entry.stat(follow_symlinks=False).st_mtime_ns
    if not entry.is_dir(follow_symlinks=False):
        return
    if hasattr(os, "fwalk"):
        for *_, fd in os.fwalk(entry.path, dir_fd=directory):
            yield os.fstat(fd).st_mtime_ns
    else:
        for folder, *_ in os.walk(entry.path):
            yield os.stat(folder).st_mtime_ns  # noqa: PTH116
