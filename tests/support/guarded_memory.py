"""Buffers for tests of compiled code: access one byte too far is a crash, not luck."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

PAGE = mmap.PAGESIZE


class Guarded:
    """``nbytes`` of memory between inaccessible pages: the byte after the last, and the whole page before.

    Forked processes share it.

    Parameters
    ----------
    content
        Content, or number of bytes.
    room
        Accessible bytes after its end.
    """

    def __init__(self, content: bytes | int, room: int = 0) -> None:
        nbytes = content if isinstance(content, int) else len(content)
        middle = max(-(-(nbytes + room) // PAGE), 1) * PAGE
        self._map = mmap.mmap(-1, middle + 2 * PAGE)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        libc = ctypes.CDLL(None, use_errno=True)
        for page in (base, base + PAGE + middle):
            assert libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), 0) == 0
        start = PAGE + middle - room - nbytes
        self.address = base + start
        self.array = np.frombuffer(self._map, np.uint8, nbytes, start)
        if not isinstance(content, int):
            self.array[:] = np.frombuffer(content, np.uint8)

    def tobytes(self) -> bytes:
        return self.array.tobytes()
