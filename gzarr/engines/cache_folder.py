"""The folder for data that can be regenerated: measured rates, machine code for devices."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def cache_folder() -> Path | None:
    """Return ``$XDG_CACHE_HOME/gzarr`` or ``~/.cache/gzarr``, which may not exist; None if there is no home folder."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    try:
        # The XDG specification says to ignore relative paths.
        root = Path(folder) if Path(folder).is_absolute() else Path.home() / ".cache"
    except RuntimeError:
        return None
    return root / "gzarr"


def write_whole(path: Path, data: bytes) -> None:
    """Write a file, and create its folder, completely or not at all; errors are ignored.

    Several processes may write the same file at once.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:20]}-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        if temporary:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
