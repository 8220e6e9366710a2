"""A directory whose writer is killed once, in the middle of writing the chunks of a block."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gzarr

if TYPE_CHECKING:
    from collections.abc import Sequence


class DyingStore(gzarr.LocalStore):
    """A directory that kills the process that writes a given key, the first time.

    Parameters
    ----------
    root
        The directory.
    fatal
        The key.
    marker
        File that is made before: it holds the id of the process.
    """

    def __init__(self, root: Any, fatal: str, marker: Any, *, read_only: bool = False) -> None:
        super().__init__(root, read_only=read_only)
        self.fatal = fatal
        self.marker = Path(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self.root), self.fatal, str(self.marker))

    def set(self, key: str, value: Any) -> None:
        self._die(key)
        super().set(key, value)

    def set_parts(self, key: str, parts: Sequence[Any]) -> None:
        self._die(key)
        super().set_parts(key, parts)

    def _die(self, key: str) -> None:
        if key != self.fatal:
            return
        try:
            with self.marker.open("x") as file:
                file.write(str(os.getpid()))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
