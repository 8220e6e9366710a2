"""New directories that are made aside, and put in place when they are complete.

So what was there stays until then, also if the writer fails or is killed, and of several writers that make something
new, one succeeds. What a killed writer leaves has the name of a temporary file, which no reader sees, and which the
next writer beside it removes (:mod:`gzarr.stores.leftovers`). Another machine does that after a day without writes,
also if the writer is alive. Writing then makes the folders anew, so a mark tells whether the directory is still the
first one.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import stat
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import StoreError, with_errno
from .atomic_files import give_access
from .directories import make_directories, remove_empty, sync_directory
from .leftovers import clean_once
from .removal import remove_later, remove_tree
from .temporary_names import temporary_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Store

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
#: Times that the directory above may be erased, as an empty one, by others.
_MOST_ATTEMPTS: Final = 20
#: What a network file system may answer, too, where others have removed a directory.
_GONE: Final = frozenset({errno.ENOENT, errno.ESTALE})
_OCCUPIED: Final = frozenset({errno.ENOTEMPTY, errno.EEXIST})


class FolderStage:
    """A directory that is made aside.

    Parameters
    ----------
    target
        Absolute path of the directory that it will become, without links above it. If it is a link, that is replaced.
    below
        Path of the node in the store: keys in the stage are those that they will be in the store.
    opened
        Function from a directory to a store like the one in which it will be.
    durable
        Whether files and folders must reach the disk.

    Raises
    ------
    OSError
        If the directory cannot be made.
    """

    def __init__(self, target: str, below: str, opened: Callable[[Path], Store], *, durable: bool) -> None:
        self._target, self._above = Path(target), Path(target).parent
        self._durable = durable
        self._parents = make_directories(str(self._above), durable=durable)
        self._root = self._above / temporary_name()
        self._is_in_place = False
        # If an interrupt, here or at the caller's, keeps this object from being discarded.
        self._lost = weakref.finalize(self, remove_later, str(self._root))
        self._lost.atexit = False
        self._root.mkdir()
        clean_once(None, f"{self._above}{os.sep}", str(self._above), self._root.stat().st_mtime_ns)
        # Before anything is in it, which may get its group from it, and is not for everybody. If that fails, it fails
        # again when all is made.
        with contextlib.suppress(OSError):
            self._give_access(self._root)
        self._mark = self._root / temporary_name()
        self._mark.touch()
        self._made = self._root / below if below else self._root
        self.store: Store = opened(self._root)

    def put_in_place(self, *, replace: bool) -> bool:
        """Give the directory its name, in one step where the system allows it; return False if the name is taken.

        Parameters
        ----------
        replace
            Whether to replace, and then erase, a directory of that name.

        Raises
        ------
        StoreError
            If the system refuses, or others have removed what was written; what was there is still there. Or if that
            cannot be erased: the message says where it is now.
        """
        cannot = f"cannot put a new directory in place of {str(self._target)!r}"
        try:
            self._mark.unlink()
        except OSError as error:
            why = error.strerror
            if error.errno in _GONE:
                why = (
                    f"another program has removed what was written, in {str(self._root)!r}, as gzarr on another "
                    "machine does after a day without writes; write it again"
                )
            raise with_errno(StoreError(f"{cannot}: {why}"), error) from error
        try:
            mode = self._give_access(self._made)
            if replace and os.path.lexists(self._target):
                old = self._exchanged()
            else:
                old = None
                self._rename()
            if mode is not None and mode != mode | stat.S_IRWXU:
                with contextlib.suppress(OSError):
                    self._target.chmod(mode)
        except OSError as error:
            if error.errno in _OCCUPIED and not replace:
                return False
            raise with_errno(StoreError(f"{cannot}: {error.strerror}"), error) from error
        self._is_in_place = True
        if self._durable:
            sync_directory(None, f"{self._above}{os.sep}")
        if old is not None:
            remove_later(str(old))
            try:
                remove_tree(None, str(old), protected=True)
            except OSError as error:
                reason = (
                    f"the new directory {str(self._target)!r} is in place, but the old one cannot be erased: "
                    f"{error.strerror}; what is left of it is in {str(old)!r}"
                )
                raise with_errno(StoreError(reason), error) from error
        return True

    def _give_access(self, made: Path) -> int | None:
        """Give a new directory the group and permissions of the old one; None if there is none, or a link.

        Returns the permissions that it is to have once it is in place.
        """
        try:
            old = self._target.lstat()
        except FileNotFoundError:
            return None
        if not stat.S_ISDIR(old.st_mode):
            return None
        # Without the owner's rights, it could neither be moved nor removed.
        mode = give_access(made, old, stat.S_IMODE(old.st_mode) | stat.S_IRWXU)
        return mode & (~stat.S_IRWXU | old.st_mode)

    def _exchanged(self) -> Path | None:
        """Put the new directory in the place of the old one; return where the old one is now."""
        exchange = _exchange()
        if exchange is not None and exchange(self._made, self._target):
            return self._made
        aside = self._above / temporary_name()
        try:
            try:
                self._target.rename(aside)
            except OSError as error:
                # Layered file systems cannot rename directories of a lower layer. What fails otherwise, as for lack of
                # rights, would also keep the directory from being removed, when all below it is gone.
                if error.errno != errno.EXDEV:
                    raise
                remove_tree(None, str(self._target))
                self._rename()
                return None
            self._rename()
            remove_later(str(aside))
            return aside
        except BaseException:
            # An interrupt (Ctrl-C), too, which may come after any step.
            if os.path.lexists(aside):
                if os.path.lexists(self._target):
                    remove_later(str(aside))
                else:
                    aside.rename(self._target)
            raise

    def _rename(self) -> None:
        for attempt in range(_MOST_ATTEMPTS):
            try:
                self._made.rename(self._target)
                return
            except FileNotFoundError:
                if attempt == _MOST_ATTEMPTS - 1 or not self._made.exists():
                    raise
                make_directories(str(self._above), durable=self._durable)

    def discard(self) -> str | None:
        """Remove the directory, if it is still aside; return what keeps it from that, and where it is, or None."""
        left = None
        try:
            remove_tree(None, str(self._root), protected=True)
        except OSError as error:
            # Once it is in place, what is left here was there before it, as another error says.
            if not self._is_in_place:
                left = (
                    f"what was made of it, in {str(self._root)!r}, cannot be removed: {error.strerror or error}; the "
                    "next write tries that again"
                )
            remove_later(str(self._root))
        if not self._is_in_place:
            remove_empty(self._parents)
        self._lost.detach()
        return left


def can_be_staged(target: str) -> bool:
    """Return whether a directory can be replaced: it is no mount point, nor has the current directory in it."""
    if os.name != "posix" or os.path.dirname(target) == target or os.path.ismount(target):  # noqa: PTH120
        return False
    try:
        return not f"{os.getcwd()}{os.sep}".startswith(f"{target}{os.sep}")  # noqa: PTH109
    except OSError:
        return False


@functools.cache
def _exchange() -> Callable[[Path, Path], bool] | None:
    """Return a function that exchanges two names in one step, and returns whether it did; None without one."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function: Any = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return None
    function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    function.restype = ctypes.c_int

    def exchange(one: Path, other: Path) -> bool:
        return function(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0  # type: ignore[no-any-return]

    return exchange
