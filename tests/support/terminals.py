"""Processes whose stderr is a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def on_terminal(command: Sequence[str]) -> tuple[bytes, bytes]:
    """Run a command, which must succeed; return what it wrote to stdout, a pipe, and to its terminal, stderr."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    seen = b""
    assert process.stdout is not None
    with process.stdout as stdout, os.fdopen(ours, "rb", buffering=0) as terminal:
        out = stdout.read()
        while True:
            try:
                part = terminal.read(4096)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
    assert process.wait() == 0
    return out, seen
