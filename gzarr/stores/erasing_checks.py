"""Whether the system would let this user erase a directory tree: asked before anything of it is gone."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_erasable(directory: int | None, name: str, path: str) -> None:
    """Refuse to erase a directory tree that has a directory in which this user may not erase anything.

    That it may be taken out of the directory that it is in is another question: :func:`check_removable`.

    Parameters
    ----------
    directory, name
        Directory to erase: descriptor of its parent and its name, or None and its path.
    path
        Its whole path, for the message.

    Raises
    ------
    OSError
        If there is such a directory.
    """
    if os.name != "posix":  # directories of Windows are not write-protected
        return

    def refuse(error: OSError) -> None:
        if isinstance(error, PermissionError):
            raise error

    for here, folders, files, fd in os.fwalk(name, onerror=refuse, dir_fd=directory):
        check_removable(fd, "", [*folders, *files], path + here[len(name) :])


def check_removable(directory: int | None, base: str, names: Sequence[str], path: str) -> None:
    """Refuse to remove entries of a directory that this user may not remove; without any, nothing is refused.

    Parameters
    ----------
    directory, base
        Directory: its descriptor and ``""``, or None and its path with a trailing slash.
    names
        Names of entries.
    path
        Whole path of the directory, for the message.

    Raises
    ------
    OSError
        If the directory is write-protected, in a file system that is read-only, or has the sticky bit and one of the
        entries has another owner.
    """
    if os.name != "posix" or not names:
        return
    here = base or "."
    if not os.access(here, os.W_OK | os.X_OK, dir_fd=directory):
        if os.statvfs(here if directory is None else directory).f_flag & os.ST_RDONLY:
            reason = f"{os.strerror(errno.EROFS)}; nothing was changed"
            raise OSError(errno.EROFS, f"nothing can be erased in the directory {path!r}: {reason}")
        reason = "is write-protected; nothing was changed. If that is to be erased, make it writable (chmod u+w)"
        raise PermissionError(errno.EACCES, f"nothing can be erased in the directory {path!r}, which {reason}")
    status, user = os.stat(here, dir_fd=directory), os.geteuid()
    # Where the sticky bit is set, only an owner removes.
    if not status.st_mode & stat.S_ISVTX or user in (0, status.st_uid):
        return
    for name in names:
        if os.stat(base + name, dir_fd=directory, follow_symlinks=False).st_uid != user:
            reason = "which has the sticky bit; nothing was changed. Let its owner erase it"
            raise PermissionError(errno.EPERM, f"{name!r} belongs to another user in the directory {path!r}, {reason}")


def can_be_moved(target: str, *, must: bool) -> bool:
    """Return whether a directory may be taken out of the one above it.

    Parameters
    ----------
    target
        Its path.
    must
        Whether it is an error if not. The directory of a store need not be: what is in it can be erased without it.

    Raises
    ------
    OSError
        If it may not, but must.
    """
    above, name = os.path.split(target)
    try:
        check_removable(None, f"{above}{os.sep}", [name], above)
    except OSError as error:
        if must or error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return False
    return True
