"""Processes whose output is a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
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


def output_on_terminal(command: Sequence[str], columns: int, **environment: str) -> tuple[int, str]:
    """Run a command whose output, and its errors, go to a terminal; return its exit code and what it wrote."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    ours_only = ("NO_COLOR", "COLUMNS", "FORCE_COLOR")
    variables = {name: value for name, value in os.environ.items() if name not in ours_only}
    variables |= {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **environment}
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    seen = b""
    with os.fdopen(ours, "rb", buffering=0) as terminal, contextlib.suppress(OSError):
        while part := terminal.read(4096):
            seen += part
    return process.wait(), seen.decode("utf-8").replace("\r\n", "\n")
