"""Files and directories of a filesystem of fsspec.

fsspec's own walk leaves out directories that cannot be listed; here each failure ends the listing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .fsspec_calls import module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .fsspec_calls import Calls

    IsAbsent = Callable[[object], bool]

#: Directories that are listed side by side, if the filesystem takes that.
_TOGETHER: Final = 64


def lists_nothing(calls: Calls) -> bool:
    """Return whether the class of a filesystem has no listing."""
    fs = calls.fs
    if calls.is_async:
        method, inherited = fs._ls, module("fsspec.asyn").AsyncFileSystem._ls
    else:
        method, inherited = fs.ls, module("fsspec").AbstractFileSystem.ls
    # Filesystems before others have the methods of those.
    return getattr(method, "__func__", None) is inherited and not _lists_below(calls)


def _lists_below(calls: Calls) -> bool:
    """Return whether a filesystem has a way of its own to list all files below a directory."""
    fs, name = calls.fs, "_find" if calls.is_async else "find"
    # That of a directory has the way of what it is in.
    while getattr(type(fs), name).__module__ == "fsspec.implementations.dirfs":
        fs = fs.fs
    inherited = module("fsspec.asyn").AsyncFileSystem if calls.is_async else module("fsspec").AbstractFileSystem
    return getattr(type(fs), name) is not getattr(inherited, name)


def directory(calls: Calls, path: str, is_absent: IsAbsent) -> list[tuple[str, bool, int | None]]:
    """Return the entries of a directory: path, whether it is a directory, and size if it is known.

    Parameters
    ----------
    calls, path
        Filesystem, and directory there; without entries if it does not exist.
    is_absent
        Function of an exception; returns whether it says that a directory is absent.
    """
    _forget(calls)
    return _entries(path, calls.all("ls", [((path,), {"detail": True})])[0], is_absent)


def files(calls: Calls, path: str, is_absent: IsAbsent) -> Iterator[tuple[str, int | None]]:
    """Yield all files below a directory, each with its size if it is known; arguments as for :func:`directory`."""
    _forget(calls)
    if _lists_below(calls):
        (found,) = calls.all("find", [((path,), {"detail": True})])
        listed = list(found.values()) if isinstance(found, dict) else found
        yield from ((name, size) for name, is_directory, size in _entries("", listed, is_absent) if not is_directory)
        return
    folders, seen = [path], {path}
    while folders:
        some, folders = folders[:_TOGETHER], folders[_TOGETHER:]
        outcomes = calls.all("ls", [((folder,), {"detail": True}) for folder in some])
        for folder, outcome in zip(some, outcomes, strict=True):
            for name, is_directory, size in _entries(folder, outcome, is_absent):
                if not is_directory:
                    yield name, size
                elif name not in seen:
                    seen.add(name)
                    folders.append(name)


def empty_folders(calls: Calls, path: str) -> list[str]:
    """Return a directory and those below it without files in or below them: each comes before the one that it is in."""
    _forget(calls)
    found = calls.one("find", path, withdirs=True, detail=True)
    folders = {path}
    kept: set[str] = set()
    for name, entry in found.items():
        if entry.get("type") == "directory":
            folders.add(name.rstrip("/"))
        else:
            kept.update(name[:at] for at, c in enumerate(name) if c == "/")
    return sorted(folders - kept, reverse=True)


def _forget(calls: Calls) -> None:
    # Others may have written since the filesystem has last looked.
    calls.fs.invalidate_cache()


def _entries(path: str, outcome: Any, is_absent: IsAbsent) -> list[tuple[str, bool, int | None]]:
    if is_absent(outcome):
        return []
    if isinstance(outcome, BaseException):
        raise outcome
    found = ((entry["name"].rstrip("/"), entry.get("type") == "directory", entry.get("size")) for entry in outcome)
    return [entry for entry in found if entry[0] != path]
