"""What a terminal can show: it is asked, and answers by what it sends as if it were typed.

Two questions are sent together: whether it takes pictures by kitty's protocol
(https://sw.kovidgoyal.net/kitty/graphics-protocol/, "Querying support"), and which device it is (DA1), whose answer
names sixels by the number 4. All terminals answer the second one, so that its answer ends the wait.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import time
from typing import Final

_QUESTIONS: Final = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[c"
_KITTY: Final = re.compile(rb"\x1b_Gi=31;OK\x1b\\")
_DEVICE: Final = re.compile(rb"\x1b\[\?([0-9;]*)c")
_SIXEL: Final = b"4"
#: Longest wait for an answer; terminals answer in milliseconds, and those behind slow lines later.
_SECONDS: Final = 0.5
_MOST_BYTES: Final = 4096


def graphics_of() -> str:
    """Return how the terminal of this process shows pictures: ``"kitty"``, ``"sixel"`` or ``"blocks"``.

    One that does not answer, or cannot be asked (another system than POSIX, no terminal, a job in the background), gets
    blocks.
    """
    answer = b""
    with contextlib.suppress(OSError, ImportError):
        answer = _asked()
    if _KITTY.search(answer):
        return "kitty"
    device = _DEVICE.search(answer)
    return "sixel" if device is not None and _SIXEL in device[1].split(b";")[1:] else "blocks"


def _asked() -> bytes:
    """Send the questions, and return what came back.

    Raises
    ------
    OSError
        If there is no terminal, or it goes away.
    """
    import termios
    import tty

    descriptor = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    try:
        # A process in the background would be stopped.
        if os.tcgetpgrp(descriptor) != os.getpgrp():
            return b""
        sys.stdout.flush()
        before = termios.tcgetattr(descriptor)
        try:
            # It passes on what it sends at once, and does not show it.
            tty.setcbreak(descriptor, termios.TCSANOW)
            os.write(descriptor, _QUESTIONS)
            return _answer(descriptor)
        finally:
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
    except termios.error as error:
        # It is no OSError of Python's.
        raise OSError(*error.args) from error
    finally:
        os.close(descriptor)


def _answer(descriptor: int) -> bytes:
    """Return what the terminal sends, until the answer to the last question, the end of the time or its own end."""
    answer, end = b"", time.monotonic() + _SECONDS
    while len(answer) < _MOST_BYTES and not _DEVICE.search(answer) and (left := end - time.monotonic()) > 0:
        ready, _, _ = select.select([descriptor], [], [], left)
        # One that is gone is always ready, and gives nothing.
        part = os.read(descriptor, _MOST_BYTES) if ready else b""
        if not part:
            break
        answer += part
    return answer
